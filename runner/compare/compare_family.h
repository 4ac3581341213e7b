/* A family: the group that is the baseline of a verdict, and the groups that are compared with
 * it. */
#ifndef FP8LAB_RUNNER_COMPARE_COMPARE_FAMILY_H
#define FP8LAB_RUNNER_COMPARE_COMPARE_FAMILY_H

#include "runner/compare/compare_loss.h"
#include "runner/compare/curve.h"

enum { FAMILY_WHY_CAP = 512 };

/* Who is compared with whom; all owned. */
struct kinship {
    int64_t *of;    /* the baseline of each group; -1: none */
    json_t *others; /* for each group an array: in what it differs from its baseline, apart from
                     * recipe and seed; empty unless --baseline chose the baseline */
    json_t *only;   /* for each group: the key by which --factor finds its baseline; or null */
};

/* Finds the baselines: of an FP8 group the BF16 group that differs from it only in the recipe, or
 * for all groups the one that c->options names. With c->options.factor a group with another value
 * of KEY has the group with VALUE that differs from it only there. `missing`: [{group, why}] is
 * added to. ERR_ARG: no group or several have the chosen name, or the factor is no KEY=VALUE. */
NODISCARD enum status kinship_find(const struct comparison *c, const struct compare_groups *g,
                                   const json_t *names, struct kinship *out, json_t *missing,
                                   struct err *e);
void kinship_free(struct kinship *k);

struct family {
    const struct comparison *c;
    const struct compare_groups *g;
    const struct kinship *kin;  /* borrowed */
    const struct curve *curve;  /* one a run, borrowed */
    int64_t baseline;           /* group */
    int64_t *run, runs;         /* one run for each seed and group, without those that diverged or
                                 * are left out; owned */
    bool *out;                  /* for each run: it is left out of the comparison; owned */
    json_t *left_out;           /* [{run, step, why}], as in the report (compare.h); owned */
    double tokens;              /* at which evaluations are compared; NaN: there is none */
    double seconds;             /* training time that all runs reached; NaN: there is none */
    bool apart;                 /* evaluated on other numbers of tokens: losses say nothing */
    bool diverged;              /* a run of the baseline: nothing is faster or slower than it */
    int64_t farthest;           /* the step that rows of other parts went to; 0: none went on */
    bool parted;                /* other rows of this baseline ended early, and follow */
    int64_t tests;              /* of which each verdict is one (stats.h); 0: 1 */
    char why[FAMILY_WHY_CAP];   /* why no group of the family gets a verdict; "" */
};

/* Fills `run`, `out`, `left_out` and `tokens`: leaves out the runs that diverged, and those that
 * have no say in the place and no evaluation there. After an error family_free() frees what there
 * is. */
NODISCARD enum status family_place(struct family *f, struct err *e);
void family_free(struct family *f);
/* The step of the place; -1: there is none. */
int64_t family_step(const struct family *f);

/* The rows of one baseline by how far they were evaluated, so that a row that ended early moves no
 * other: each part is a family. */
struct family_parts {
    int64_t *of;       /* count x groups: kinship.of, with the rows of one part only; owned */
    int64_t count;
    int64_t farthest;  /* the step to which the first part was evaluated; 0: there is none */
};
NODISCARD enum status family_split(const struct comparison *c, const struct compare_groups *g,
                                   const struct kinship *kin, int64_t baseline,
                                   struct family_parts *out, struct err *e);
void family_parts_free(struct family_parts *p);

/* What the evaluations after the place say of a group. They are of fewer runs, so they give no
 * verdict, but they can contradict one. */
struct family_later {
    double relative; /* to the baseline, over `seeds` pairs of seeds at `step`; NaN: none */
    int64_t seeds, step;
    double rise;     /* of its own loss from the place to its last evaluations; NaN: none */
    int64_t last_step;
};
struct family_later family_later(const struct family *f, int64_t group);

/* The worst of the group's runs that are left out. */
struct family_stopped {
    int64_t run, step; /* of its last evaluation */
    double relative; /* to the baseline's run of its seed, at the last evaluation that both have;
                      * or, if that is not its last one and less, to its own lowest loss;
                      * -infinite: none is known */
    bool paired;     /* to the baseline's run */
    bool ended;      /* it came to its end: it cannot go on */
};
struct family_stopped family_stopped(const struct family *f, int64_t group);

/* Whether a run of the group diverged; `why` says "B diverged: ...". */
bool family_diverged(const struct family *f, int64_t group, char why[FAMILY_WHY_CAP]);

/* One value for each seed of the group, from `value` of its curve. If a seed has no finite value,
 * the sample is empty: a mean of the other seeds is not the group's. *seeds: their number. The
 * caller frees the sample. */
struct family_value {
    double (*of)(const struct curve *c, const struct family_value *v);
    double at;  /* tokens, seconds or a loss */
    bool time;  /* to a loss: seconds, not tokens */
};
NODISCARD enum status family_sample(const struct family *f, int64_t group,
                                    const struct family_value *value, struct loss_sample *out,
                                    int64_t *seeds, struct err *e);
void loss_sample_free(struct loss_sample *s);

/* The losses of the group at the place of the comparison, as family_sample() has them. */
NODISCARD enum status family_losses(const struct family *f, int64_t group,
                                    struct loss_sample *out, int64_t *seeds, struct err *e);
/* If runs were evaluated on different numbers of tokens there, says so in f->why, unless it has
 * another reason already. */
void family_check_evaluations(struct family *f);
/* The tokens with loss of an evaluation there; NaN: not known. */
double family_counted(const struct family *f);
/* The row of a group in the report, without what family_speed() adds. New reference. */
NODISCARD enum status family_row(const struct family *f, int64_t group, json_t **row,
                                 struct err *e);

/* "sets" of a family in the report: the same verdicts on each set of eval.also
 * (compare_sets.c). The place of `f` is known. New reference. */
NODISCARD enum status family_sets(const struct family *f, json_t **out, struct err *e);

/* Adds "at_time" and "same_loss" to the row of a group (compare.h). */
NODISCARD enum status family_speed(const struct family *f, int64_t group, json_t *row,
                                   struct err *e);

#endif
