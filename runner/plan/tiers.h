/* The tiers of checkpoints: why one is saved, and why it stays. One table: the worker's clean-up,
 * the list of what a done run keeps, and `fp8lab help checkpoints` read it. */
#ifndef FP8LAB_RUNNER_PLAN_TIERS_H
#define FP8LAB_RUNNER_PLAN_TIERS_H

#include "runner/plan/options.h"

/* What decides about the checkpoint of a step, beside the step. */
struct tier_scene {
    struct checkpoint_options options;
    int64_t begin;             /* the step before the first: of init.optimizer, else 0 */
    int64_t best_step;         /* of the best evaluation that has one; 0: none yet */
    int64_t batch, sequences;  /* of a step; of an epoch, 0: the data have no end */
};

struct tier {
    const char *name;   /* in run.json: "last", "best" */
    const char *key;    /* that sets it: "checkpoint.best" */
    const char *saved;  /* when a checkpoint is saved for it, as a user reads it */
    const char *during, *after; /* what stays while the run trains, and once it is done */
    /* Whether the step is saved for this tier. NULL: the tier saves nothing of its own, or the
     * worker knows when (a time, an evaluation). */
    bool (*due)(const struct tier_scene *s, int64_t step);
    /* Whether the checkpoint of the step stays; `newer` checkpoints are newer than it. */
    bool (*holds)(const struct tier_scene *s, int64_t step, int64_t newer);
    /* Whether a done run keeps it; NULL: it keeps none for this tier. */
    bool (*kept)(const struct tier_scene *s, int64_t step, int64_t newer);
};

enum { TIER_COUNT = 6 };
extern const struct tier TIERS[TIER_COUNT];

/* Whether a tier saves the step. */
bool tiers_due(const struct tier_scene *s, int64_t step);
/* Whether any tier needs the checkpoint while the run trains. */
bool tiers_hold(const struct tier_scene *s, int64_t step, int64_t newer);
/* The names of the tiers for which a done run keeps it; returns their number. */
int tiers_kept(const struct tier_scene *s, int64_t step, int64_t newer,
               const char *names[TIER_COUNT]);

#endif
