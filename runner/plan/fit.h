/* What a run would allocate, and whether this machine (or that of a fact file) has the memory. */
#ifndef FP8LAB_RUNNER_PLAN_FIT_H
#define FP8LAB_RUNNER_PLAN_FIT_H

#include "model/train.h"

struct json_t;

struct fit {
    struct plan plan;    /* free with fit_free() */
    int64_t parameters;  /* of the model, tied ones once */
    const char *where;   /* "gpu.memory" or "memory.total"; where CPU and GPU share one memory,
                            what is available of it less a reserve, in words */
    int64_t memory;      /* its bytes; 0: not known, and then it counts as fitting */
    int ranks;           /* that the plan is for: it is of one of them */
    int64_t bytes;       /* of a rank at its peak: arenas, and beside them on a GPU */
    int64_t wanted;      /* of `memory`, by all ranks where they share it */
    bool shared;         /* they do, and there are several */
    int64_t sharded[4];  /* the same with each train.shard; 0 with one rank */
    bool fits;
    char way_out[320]; /* what would need less, as --set flags; "" where it fits or nothing would */
};

/* config: resolved. backend: "cuda" means the GPU's memory, "cpu" the system's, which all ranks
 * share, "auto" the GPU's where `facts` has a GPU. ranks 0: hardware.gpus of them. */
NODISCARD enum status fit_plan(const struct json_t *config, const struct json_t *facts,
                               const char *backend, int ranks, struct fit *out, struct err *e);
void fit_free(struct fit *fit);

/* What does not fit, as a sentence: the row, what it needs, what there is, what would need less. */
enum { FIT_TEXT_CAP = 640 };
void fit_refusal(const char *row, const struct fit *fit, char text[FIT_TEXT_CAP]);

/* What would need less memory than `t` on that many ranks, as --set flags, each with a space before
 * it; "" where nothing would. */
void fit_way_out(const struct train_options *t, int ranks, char *text, size_t size);

#endif
