/* The rule by which a recipe holds the loss of BF16. README.md has its clauses. */
#ifndef FP8LAB_RUNNER_COMPARE_COMPARE_LOSS_H
#define FP8LAB_RUNNER_COMPARE_COMPARE_LOSS_H

#include "runner/compare/compare.h"

enum {
    LOSS_SEEDS_MIN = 3 /* a side; with fewer the interval is too wide, or narrow by chance */
};

enum loss_verdict { LOSS_NONE, LOSS_HOLDS, LOSS_DOES_NOT_HOLD, LOSS_UNDECIDED };

/* "holds", "does not hold", "undecided"; NULL for LOSS_NONE. */
const char *loss_verdict_name(enum loss_verdict verdict);

/* Evaluation losses at one step, one for each seed. */
struct loss_sample {
    json_int_t *seed; /* owned */
    double *value;    /* owned */
    int64_t count;
};

struct loss_judgement {
    int64_t pairs; /* number of seeds compared in pairs; 0: two independent samples */
    double baseline_mean, mean; /* of the compared values; NaN for an empty side */
    double relative;            /* mean / baseline_mean - 1 */
    double low, high;           /* its 95 % interval; NaN if a side has fewer than 2 values */
    enum loss_verdict verdict;  /* LOSS_NONE: fewer than LOSS_SEEDS_MIN seeds on a side */
};

/* How far above BF16's mean a recipe's mean may be, relative. */
double loss_tolerance(const char *kind);

/* The verdict on finite values. With at least LOSS_SEEDS_MIN common seeds, only those are compared,
 * in pairs (paired t); otherwise all values are compared (Welch's t). "holds": the interval ends at
 * or below the tolerance. "does not hold": it begins above the tolerance. */
NODISCARD enum status loss_judge(const struct loss_sample *baseline,
                                 const struct loss_sample *sample, double tolerance,
                                 struct loss_judgement *out, struct err *e);

/* Whether the run diverged; `why` says how. A run diverged if it ended at a value that is not
 * finite, or if one of its losses is not finite. It also diverged if its last evaluation is more
 * than 10 % above its first one, or above ln(vocab), the loss of a guess. */
bool loss_diverged(const struct run_view *v, char why[256]);

/* "statistics.losses" and "statistics.losses_missing" of the report. New references. */
NODISCARD enum status compare_losses(const struct comparison *c, const struct compare_groups *g,
                                     json_t **losses, json_t **missing, struct err *e);

#endif
