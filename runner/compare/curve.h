/* The evaluations of one run, by the tokens and the time of training that preceded each. */
#ifndef FP8LAB_RUNNER_COMPARE_CURVE_H
#define FP8LAB_RUNNER_COMPARE_CURVE_H

#include "runner/bundle/run_view.h"

/* Arrays of one value an evaluation, in ascending order of steps; owned. */
struct curve {
    int64_t points;
    double *step;
    double *tokens;    /* trained; the step itself if the run does not say how many a step has */
    double *seconds;   /* of training steps, without evaluations and checkpoints. Steps before the
                        * steady window count as its median: they allocate and tune. */
    double *loss;      /* nats per token */
    double *evaluated; /* tokens of the evaluation; NaN: not known */
    double *counted;   /* of them, those with loss; NaN: not known */
    double *memory;    /* that holds all of them */
};

/* The time of each training step of a run, as `seconds` above counts it. */
struct step_clock {
    const struct column *step, *time; /* borrowed from the run; NULL: no times are known */
    double from, median;              /* steps before `from` count as the median, in us */
};
struct step_clock step_clock_of(const struct run_view *v);
/* Microseconds of the step of a row of the training records. */
double step_clock_us(const struct step_clock *clock, int64_t row);
/* Tokens a training step of the run; 1 if it does not say. */
double step_tokens(const struct run_view *v);

/* The time of training up to some rows of the training records: at most STEP_TIMES_MAX + 1 rows,
 * the last one included. */
enum { STEP_TIMES_MAX = 1000 };
struct step_times {
    int64_t points;
    double tokens;          /* a step */
    double *step, *seconds; /* owned, in one piece; seconds: up to the end of that step */
};
NODISCARD enum status step_times_make(const struct run_view *v, struct step_times *out,
                                      struct err *e);
void step_times_free(struct step_times *p);

/* A curve with room for n evaluations, and no points yet. */
NODISCARD enum status curve_room(struct curve *out, int64_t n, struct err *e);
NODISCARD enum status curve_make(const struct run_view *v, struct curve *out, struct err *e);
void curve_free(struct curve *c);

/* The evaluation after so many tokens; -1: there is none. */
int64_t curve_find(const struct curve *c, double tokens);
/* The largest number of tokens at which all curves have an evaluation; NaN: none. */
double curve_common(const struct curve *const *c, int64_t count);

/* The loss after so many seconds: on the line between the evaluations before and after; NaN outside
 * of them. */
double curve_at_time(const struct curve *c, double seconds);

/* The lowest loss; infinite without an evaluation. */
double curve_lowest(const struct curve *c);
/* Tokens and seconds after which the loss was `loss` for the first time, on the line between two
 * evaluations. False if the first evaluation was lower, or none was as low. */
bool curve_reach(const struct curve *c, double loss, double *tokens, double *seconds);

#endif
