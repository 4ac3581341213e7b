/* The texts that a run generates while it trains: `sample` of an experiment. They change no bit of
 * the run, and take no memory but host buffers that are made before its first step. */
#ifndef FP8LAB_RUNNER_WORKER_SAMPLES_H
#define FP8LAB_RUNNER_WORKER_SAMPLES_H

#include "runner/generate/generator.h"
#include "runner/generate/text_model.h"
#include "runner/job/events.h"
#include "runner/plan/options.h"

struct samples {
    const struct sample_options *options; /* borrowed */
    struct trainer *trainer;              /* borrowed */
    bool leader;                          /* rank 0: it alone has the tokenizer */
    struct text_model text;               /* owned; rank 0's, if it speaks */
    bool speaks;                          /* the data have a tokenizer */
    struct generator *generator;          /* owned; NULL: the run has no samples */
    struct generation_rules rules;
    struct generation *x; /* [prompt_count]; owned, their ids too */
    int32_t stop;         /* the token that ends a text */
    int64_t batch;        /* prompts at a time */
};

/* Reads the prompts and makes the buffers. Every rank calls it. `data` is the section of the
 * configuration; the run at `run_path` has its tokenizer, if it has one. ERR_CONFIG: a prompt is
 * too long, or has an unknown id. *out must not move, and is valid for samples_close() in any case.
 * Without `sample` it does nothing. */
NODISCARD enum status samples_open(struct samples *out, const char *run_path, const json_t *data,
                                   const struct run_options *run, struct trainer *t, bool leader,
                                   struct err *e);
void samples_close(struct samples *s);

/* How many of the step's texts the records of the run have: with fewer than all, a stop request or
 * a kill came between. The same on every rank, which all call it. */
NODISCARD enum status samples_recorded(struct samples *s, const char *run_path, int64_t step,
                                       int64_t *count, struct err *e);

/* What rank 0 asks before each token: true ends the work. */
struct samples_stop { bool (*asked)(void *user); void *user; };

/* Generates the texts; rank 0 emits a record for each from number `first` on. No step may be
 * pending. Every rank calls it. *done: false after a stop, when texts are missing. */
NODISCARD enum status samples_take(struct samples *s, struct event_writer *events, int64_t step,
                                   int64_t first, const struct samples_stop *stop, bool *done,
                                   struct err *e);

#endif
