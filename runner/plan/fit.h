/* The memory that a run would allocate, and whether the machine (this one, or that of a fact file)
 * has it. */
#ifndef FP8LAB_RUNNER_PLAN_FIT_H
#define FP8LAB_RUNNER_PLAN_FIT_H

#include "model/train.h"

struct json_t;

struct fit {
    struct plan plan;    /* free with fit_free() */
    int64_t parameters;  /* of the model, tied ones once */
    const char *where;   /* "gpu.memory" or "memory.total"; for a memory shared by CPU and GPU, in
                            words: the available part of it, less a reserve */
    int64_t memory;      /* its bytes; 0: unknown, and then the plan counts as fitting */
    int ranks;           /* of the run; the plan is for one of them */
    int64_t bytes;       /* of a rank at its peak: arenas, and on a GPU context and libraries */
    int64_t wanted;      /* of `memory`: by one rank, or by all if they share it */
    bool one_memory;     /* CPU and GPU share `memory`: what is offloaded to the host counts too */
    int64_t copy;        /* of `bytes`: of a checkpoint while it is written; 0: not counted */
    const char *note;    /* a setting that does nothing on this machine: static; "" */
    bool shared;         /* several ranks share `memory` */
    int64_t sharded[4];  /* `bytes` for each value of train.shard; 0 with one rank */
    bool fits;
    char fits_with[320];   /* of fit_find */
    char less_memory[320]; /* settings that need less, as --set flags; "" if it fits or none does */
};

/* config: resolved. backend: "cuda" means the GPU's memory; "cpu" the system's, which all ranks
 * share; "auto" the GPU's if `facts` has a GPU. ranks 0: hardware.gpus. */
NODISCARD enum status fit_plan(const struct json_t *config, const struct json_t *facts,
                               const char *backend, int ranks, struct fit *out, struct err *e);
void fit_free(struct fit *fit);

/* After fit_plan with the same arguments: plans again with the settings of less_memory, and puts
 * the first combination that fits into fit->fits_with, as --set flags; "" if none does, or if it
 * fits as it is. Settings that change no computed number come first, then fewer settings. */
NODISCARD enum status fit_find(const struct json_t *config, const struct json_t *facts,
                               const char *backend, struct fit *fit, struct err *e);

/* A sentence for a run that does not fit: its name, its need, the memory, settings that need
 * less. */
enum { FIT_TEXT_CAP = 640 };
void fit_refusal(const char *row, const struct fit *fit, char text[FIT_TEXT_CAP]);

#endif
