/* A model to evaluate or to generate with: a run, a Hugging Face folder or a checkpoint, opened in
 * this process as a trainer that only goes forward. */
#ifndef FP8LAB_RUNNER_INFER_OPEN_MODEL_H
#define FP8LAB_RUNNER_INFER_OPEN_MODEL_H

#include "runner/base/cli.h"
#include "runner/bundle/run_view.h"
#include "runner/plan/backends.h"
#include "runner/plan/options.h"
#include "runner/run/init_from.h"

/* Strings are borrowed. */
struct model_request {
    const char *what;    /* a run (its id, "last", directory, bundle) or a folder with weights */
    const char *which;   /* of a run's checkpoints: see init_from.h */
    const char *recipe;  /* a kind, with its defaults; NULL: the run's own, bf16 for a folder */
    const char *backend; /* as backend_open() */
    int64_t threads, device;
    const char *choices; /* a choice table (kernels/choices.h) for the bits of the run that has it;
                          * ignored if it is another device's. NULL: none */
    const char *forbidden; /* ways not to use, as forbidden_text() has them; NULL: none */
    const char *runs;     /* where runs are looked up */
    char cache[PATH_CAP]; /* for weights that only a bundle has */
};

/* The flags of a verb that opens a model, and the request that they make. ERR_ARG. */
#define MODEL_FLAGS                                                                              \
    { "checkpoint", "WHICH", "of a run: last, best, init, a step (default: newest)", false },   \
    { "recipe", "NAME", "bf16, f32, fp8.blockwise, ... (default: the run's own)", false },       \
    { "backend", "NAME", "cpu, cuda or auto (the default)", false },                             \
    { "threads", "N", "of the cpu backend; 0, the default: all", false },                        \
    { "device", "INDEX", "of the cuda backend (0)", false },                                     \
    { "runs", "DIR", "where runs are looked up by id (default: runs)", false },                  \
    { "cache", "DIR", "for weights that only a bundle has (default: RUNS/cache)", false }
NODISCARD enum status model_request_read(const struct cli *cli, const char *what,
                                         struct model_request *out, struct err *e);

struct open_model {
    /* model_find() fills these; the caller may change them before model_start(). One rank, a batch
     * of one sequence, no document masks; `data` is the run's own, and empty for a folder. */
    struct run_options options;
    struct found_weights found; /* found.of: the run's bundle or directory, "" for a folder */
    struct run_view view;       /* of the run; zero for a folder */
    bool own_recipe;            /* the recipe is the run's, not one that was asked for */
    /* model_start() fills these. */
    struct backend_handle device;
    struct trainer *trainer;
};

/* Finds and verifies the weights, and reads what they are; starts nothing. Prints nothing.
 * ERR_CONFIG: there are no such weights, or a recipe with delayed scales is asked of weights that
 * have none. *out is valid for model_close() in any case. */
NODISCARD enum status model_find(const struct model_request *q, struct open_model *out,
                                 struct err *e);
/* Opens the backend, makes the trainer and reads the weights. `data`, borrowed until model_close(),
 * is for trainer_eval; NULL: only trainer_logits is called. */
NODISCARD enum status model_start(const struct model_request *q, struct open_model *m,
                                  const struct data *data, struct err *e);
/* Adds to an ERR_NUMERIC which file and tensor of the weights is not finite, and what to do; any
 * other status stays as it is. Reads all weights. model_start() does this itself. */
NODISCARD enum status model_explain(const struct open_model *m, enum status st, struct err *e);
/* Whether some layer's scales are delayed: they come with a checkpoint, not with weights. */
bool model_is_delayed(const struct open_model *m);
void model_close(struct open_model *m); /* allowed for a zeroed struct */

#endif
