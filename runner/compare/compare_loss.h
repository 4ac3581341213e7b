/* The rule by which a recipe holds the loss of BF16. README.md has its clauses. */
#ifndef FP8LAB_RUNNER_COMPARE_COMPARE_LOSS_H
#define FP8LAB_RUNNER_COMPARE_COMPARE_LOSS_H

#include "runner/compare/compare.h"
#include "runner/compare/stats.h"

enum {
    LOSS_SEEDS_MIN = 3, /* a side; with fewer the interval is too wide, or narrow by chance */
    LOSS_TOKENS_FEW = 65536, /* of held-out data: with fewer, which text was held out moves the gap
                              * of two recipes by half a tolerance or more (LOG.md) */
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

/* A sample beside the baseline's. With at least LOSS_SEEDS_MIN common seeds only those are
 * compared, in pairs (Student's t); otherwise all values are, as independent ones (Welch's t). */
struct loss_gap {
    int64_t pairs; /* number of seeds compared in pairs; 0: two independent samples */
    double baseline_mean, mean; /* of the compared values; NaN for an empty side */
    double half;                /* from mean - baseline_mean to each one-sided 95 % bound */
    struct stats_scatter scatter;
};
NODISCARD enum status loss_compare(const struct loss_sample *baseline,
                                   const struct loss_sample *sample, struct loss_gap *out,
                                   struct err *e);

struct loss_judgement {
    struct loss_gap gap;
    double relative;  /* mean / baseline_mean - 1 */
    double low, high; /* its one-sided 95 % bounds; NaN if a side has fewer than 2 values */
    enum loss_verdict verdict; /* LOSS_NONE: fewer than LOSS_SEEDS_MIN seeds on a side */
    int64_t needed;   /* undecided: the seeds per side that would decide, if mean and scatter stay;
                       * -1: more than STATS_SEEDS_MAX; 0: not undecided */
};

/* How far above the baseline's mean a recipe's mean may be, relative. */
double loss_tolerance(const char *kind);

/* The verdict on finite values. "holds": the upper bound is at or below the tolerance. "does not
 * hold": the lower bound is above it. */
NODISCARD enum status loss_judge(const struct loss_sample *baseline,
                                 const struct loss_sample *sample, double tolerance,
                                 struct loss_judgement *out, struct err *e);

/* The same as one of `tests`: its bounds share their 5 %. */
NODISCARD enum status loss_judge_of(const struct loss_sample *baseline,
                                    const struct loss_sample *sample, double tolerance,
                                    int64_t tests, struct loss_judgement *out, struct err *e);

/* ln(vocab) of the run's model, the loss of a uniform guess; infinite if it names none. */
double loss_of_guess(const struct run_view *v);
/* The loss of a guess by how often each token occurs (record/guess_loss.h), as the run's record has
 * it; infinite if it has none. */
double loss_of_frequencies(const struct run_view *v);
/* The mean of the run's last ten losses of training up to a step that are finite; infinite without
 * one. */
double loss_of_training(const struct run_view *v, double step);
/* A baseline above this share of either has learned nothing that FP8 could spoil. */
#define LOSS_GUESS_SHARE 0.99

/* Whether the run diverged; `why` says how. A run diverged if it ended at a value that is not
 * finite, or if one of its losses is not finite. It also diverged if its last evaluation is more
 * than 10 % above its first one, or above ln(vocab), the loss of a guess. */
bool loss_diverged(const struct run_view *v, char why[256]);

/* "statistics.losses" and "statistics.losses_missing" of the report. names: of the groups.
 * ERR_ARG: no group has the name of c->options.baseline. New references. */
NODISCARD enum status compare_losses(const struct comparison *c, const struct compare_groups *g,
                                     const json_t *names, json_t **losses, json_t **missing,
                                     struct err *e);

#endif
