/* What one run says about its speed, and why its speed may not count. */
#ifndef FP8LAB_RUNNER_COMPARE_RUN_SPEED_H
#define FP8LAB_RUNNER_COMPARE_RUN_SPEED_H

#include "runner/bundle/run_view.h"

enum {
    SPEED_STEPS_MIN = 10, /* of the steady window: with fewer the median is a few steps' */
    SPEED_RUNS_MIN = 2,   /* a side: one run has no scatter */
    SPEED_WHY_CAP = 256,
    SPEED_GPUS_CAP = 32,
};

struct run_speed {
    double tokens_per_s; /* the median of the steady window, as in summary.json; NaN: unknown */
    double spread;       /* of its step times: the distance of their quartiles, relative to their
                          * median; NaN: unknown */
    double grain;        /* a microsecond, the unit of step times, relative to their median */
    double clock_mhz;    /* the median SM clock; NaN: the driver did not say */
    bool capped;         /* the driver reported its power cap in the steady window */
    bool set_clocks;     /* a user had set the clocks then */
    bool few_steps;      /* it does not count since its steady window is short */
    char why[SPEED_WHY_CAP]; /* why the run does not count; "" */
};

/* Reads it from a whole run, before any of its records are dropped. These do not count:
 * - A run that did not end as planned. A smoke run. A run that was resumed or tried again.
 * - Fewer than SPEED_STEPS_MIN steps in the steady window, or a speed that is not positive.
 * - A GPU that heat or its supply slowed down there, or that another process used.
 * - More than a quarter of the steady steps beside an evaluation, a sample or a checkpoint.
 * ERR_MEMORY only. */
NODISCARD enum status run_speed_make(const struct run_view *v, struct run_speed *out,
                                     struct err *e);

/* Whether time_limit ended the run, not train.steps. */
bool run_speed_timed_out(const struct run_view *v);

/* How many rows ran at once, this one among them; 1: it was alone. */
int64_t run_speed_at_once(const struct run_view *v);

/* The GPUs on which the run was one of several rows at once (`run --side-by-side`), by the driver's
 * numbers: "3", "0+1". "": it was alone, or they are not known. */
void run_speed_gpus(const struct run_view *v, char out[SPEED_GPUS_CAP]);

/* Whether the second run was timed under another setting that changes its speed and no result: a
 * limit of the GPU, what it records, or how many rows ran at once. `why` says which, beside the run
 * called `first`. */
bool run_speed_other(const struct run_view *first, const struct run_view *second,
                     const struct run_speed *a, const struct run_speed *b, const char *name,
                     char why[SPEED_WHY_CAP]);

/* Whether both views are of one run: a bundle and its copy, or its directory. */
bool run_speed_same_run(const struct run_view *a, const struct run_view *b);

#endif
