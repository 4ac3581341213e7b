/* The parts of compare_faster.c: which runs a speed is of, and what must change so that there are
 * some. */
#ifndef FP8LAB_RUNNER_COMPARE_FASTER_SIDES_H
#define FP8LAB_RUNNER_COMPARE_FASTER_SIDES_H

#include "runner/compare/compare_family.h"
#include "runner/compare/run_speed.h"

/* A baseline and the sides that are compared with it: groups, or the builds of one group. */
struct speeds {
    const struct comparison *c;
    const int64_t *of;     /* the side of each run; -1: it is of none; borrowed */
    int64_t sides;         /* their number, with the unused ones */
    int64_t baseline;      /* a side */
    const bool *any_build; /* for each side: its build may differ from the baseline's; borrowed */
    bool *counts;          /* for each run; owned */
    json_t *left_out;      /* [{run, why}]; owned */
};

NODISCARD enum status speeds_open(struct speeds *s, struct err *e);
void speeds_close(struct speeds *s);

/* Fills `counts` and `left_out`. A run counts by itself (run_speed.h), is no copy of another one,
 * and has the settings and the build of the others: those with which most runs count on both
 * sides. */
NODISCARD enum status speeds_choose(struct speeds *s, struct err *e);

/* Whether two runs of the comparison are of one build. */
bool speeds_same_build(const struct comparison *c, int64_t a, int64_t b);

/* The first run of the side; -1: it has none. */
int64_t speeds_first(const struct speeds *s, int64_t side);

/* The runs of a side that count. */
struct side {
    double *log;   /* of their tokens/s; owned */
    int64_t count;
    double spread, grain; /* the largest of the runs' (run_speed.h) */
    double clock;         /* the mean of those that are known; NaN: none is */
    bool capped;
    const char *from, *to; /* when the first and the last of them started; "" */
    json_t *gpus;          /* of each run that was one of several rows at once, as run_speed_gpus()
                            * names them; owned */
};
NODISCARD enum status speeds_take(const struct speeds *s, int64_t side, struct side *out,
                                  struct err *e);
void speeds_side_free(struct side *side); /* fine for a zeroed one */

/* Adds a note if the runs of the sides are not spread over the same GPUs alike (faster_chips.c). */
void speeds_note_gpus(const struct side *x, const struct side *y, char why[FAMILY_WHY_CAP]);

/* Whether the sides share no GPU, and one of them was on one alone: it has no scatter of chips, so
 * the bounds do not know of them. */
bool speeds_other_gpus(const struct side *x, const struct side *y);

/* The logarithm of the ratio on the GPUs that both sides had, so that it is none of chips. NaN: the
 * sides are spread over the same GPUs alike, share none, or the GPUs are not known. */
double speeds_shared_gap(const struct side *x, const struct side *y);

/* Adds to a reason for no verdict the command that makes the runs that x, of the baseline, and y
 * lack; if they have enough, it makes new ones on each GPU. */
void speeds_advise(const struct speeds *s, int64_t side, const struct side *x,
                   const struct side *y, char why[FAMILY_WHY_CAP]);

#endif
