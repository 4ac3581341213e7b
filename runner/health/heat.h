/* A run's FP8 figures layer by step, thinned by the worst value: the data of a heat map. */
#ifndef FP8LAB_RUNNER_HEALTH_HEAT_H
#define FP8LAB_RUNNER_HEALTH_HEAT_H

#include "runner/bundle/run_view.h"

enum heat_metric { HEAT_SATURATED, HEAT_UNDERFLOW, HEAT_SNR, HEAT_METRICS };

/* Levels of a cell: 0 is fine, or not recorded; 3 is the worst. */
enum { HEAT_LEVELS = 4, HEAT_BINS = 100 };

/* What a metric is called, and the lower bounds of levels 1 to 3: of shares in percent; of the SNR
 * in decibels that are missing to the format's own. */
struct heat_scale {
    const char *title, *unit;
    double from[HEAT_LEVELS - 1];
};
extern const struct heat_scale HEAT_SCALES[HEAT_METRICS];

/* The worst value of a layer in the whole run, as HEAT_SCALES counts it; step -1: none. */
struct heat_worst {
    double value;
    int64_t step, tensor; /* index of the label */
};

struct heat {
    int64_t layers;  /* rows; the last one is of the head if has_head */
    bool has_head;
    int64_t step_first, step_last;
    int64_t bins[HEAT_METRICS]; /* columns: equal ranges of steps; 0: not recorded */
    uint8_t *level[HEAT_METRICS];            /* [layers * HEAT_BINS], owned */
    struct heat_worst *worst[HEAT_METRICS];  /* [layers], owned */
    json_t *labels;                          /* names of tensors; reference, owned */
};

/* From the records of a run that was loaded whole. Without an FP8 tensor, layers is 0. ERR_MEMORY.
 * *out is valid for heat_free after an error too. */
NODISCARD enum status heat_make(const struct run_view *v, struct heat *out, struct err *e);
void heat_free(struct heat *h);

#endif
