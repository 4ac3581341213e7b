/* The worker's events as JSON (README.md, "Events"): one function for each event. */
#ifndef FP8LAB_RUNNER_WORKER_WORKER_EVENTS_H
#define FP8LAB_RUNNER_WORKER_WORKER_EVENTS_H

#include "model/checkpoint.h"
#include "model/train.h"
#include "runner/job/events.h"
#include "runner/plan/options.h"
#include "runner/record/init_record.h"
#include "runner/record/streams.h"

/* All return ERR_PEER if the runner is gone. */
NODISCARD enum status say_plan(struct event_writer *w, const struct plan *plan, struct err *e);
NODISCARD enum status say_names(struct event_writer *w, const char *event, const char *const *names,
                                int64_t count, struct err *e);
/* Where the time before the first step went: connecting ranks and opening the device; opening and
 * checking the text; the trainer; reading weights. */
struct start_times {
    int64_t device_us, text_us, reading_us;
    struct trainer_times trainer;
};
/* Each rank emits it. */
NODISCARD enum status say_ready(struct event_writer *w, const struct start_times *spent,
                                struct err *e);
/* sequences: of an epoch; 0: the data have no end. */
NODISCARD enum status say_start(struct event_writer *w, int64_t step, int64_t steps,
                                int64_t sequences, const char *checkpoint_sha256, struct err *e);
/* A record of a stream (record/streams.h). While the pipe is full, telemetry is dropped and
 * counted; other records are queued. */
NODISCARD enum status say_record(struct event_writer *w, enum stream_id stream,
                                 const struct stream_source *source, struct err *e);
/* The histograms of n tensors, counts[n][HISTOGRAM_COUNTS]; those without a count are left out. */
NODISCARD enum status say_histograms(struct event_writer *w, int64_t step, const char *const *names,
                                     const int64_t *counts, int64_t n, struct err *e);
/* A generated text: the record of its stream with the texts and the new tokens. Bytes that are no
 * UTF-8 become U+FFFD in `text`. All borrowed. */
struct sample_text_said {
    const struct sample_prompt *prompt;
    const char *text, *end;          /* text NULL: there is no tokenizer; end: how it ended */
    size_t n;                        /* bytes of `text` */
    const int32_t *ids;              /* [source->sample->tokens] */
};
NODISCARD enum status say_sample(struct event_writer *w, const struct stream_source *source,
                                 const struct sample_text_said *said, struct err *e);
/* stall_us: how long the steps waited for it. write_us: hashing and writing on rank 0. */
NODISCARD enum status say_checkpoint(struct event_writer *w, const struct checkpoint_info *info,
                                     int64_t stall_us, int64_t write_us, struct err *e);
/* A checkpoint could not be written; the run goes on. Any rank. */
NODISCARD enum status say_unsaved(struct event_writer *w, int64_t step, const struct err *why,
                                  struct err *e);
/* sha256: of this rank's choices; each rank emits it after its first step. */
NODISCARD enum status say_table(struct event_writer *w, const char *sha256, struct err *e);
/* The choice table as text, and the part of it that was timed here. */
NODISCARD enum status say_choices(struct event_writer *w, const char *text, const char *timed,
                                  struct err *e);
/* The backend and, after the first step, its implementation of each GEMM and of attention. With a
 * trainer (NULL before it exists) also the layers that fell back to BF16. caps: the architecture
 * that is emulated, or NULL. forbidden: ways that failed here and are not used, or NULL.
 * arithmetic: of the cpu backend, NULL: the reference's.
 * choices_sha256: of the choice table, or "". */
NODISCARD enum status say_decisions(struct event_writer *w, struct backend *b,
                                    const struct trainer *t, int64_t world, int64_t vocab_padded,
                                    const char *caps, const char *forbidden,
                                    const char *arithmetic,
                                    const char *choices_sha256, struct err *e);
/* A log line with the layers that fell back to BF16; nothing if there are none. */
NODISCARD enum status say_fallback(struct event_writer *w, const struct trainer *t,
                                   struct err *e);
/* A log line with the number of emulated GEMMs; nothing if it is 0. */
NODISCARD enum status say_emulated(struct event_writer *w, struct backend *b, struct err *e);
/* A log line for a step none of whose tokens has loss. */
NODISCARD enum status say_no_loss(struct event_writer *w, const struct step_result *result,
                                  struct err *e);
/* A log line for weights that were read before the first step; nothing if there were none. */
NODISCARD enum status say_imported(struct event_writer *w, const struct init_imported *imported,
                                   struct err *e);
/* With several ranks: how long the step took on this rank, and how much of it was collectives. */
NODISCARD enum status say_pace(struct event_writer *w, const struct step_result *result,
                               struct err *e);
NODISCARD enum status say_done(struct event_writer *w, int64_t step, const char *weights_sha256,
                               bool stopped, int stop_signal, struct err *e);
NODISCARD enum status say_log(struct event_writer *w, const char *text, struct err *e);
/* The error event for `why`. step is -1 and tensor "" if the error belongs to none. */
NODISCARD enum status say_error(struct event_writer *w, const struct err *why, int64_t step,
                                const char *tensor, struct err *e);

#endif
