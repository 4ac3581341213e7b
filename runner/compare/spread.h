/* How the values of a run's tensors spread over powers of two, layer by layer: the histograms of
 * the last counted step. */
#ifndef FP8LAB_RUNNER_COMPARE_SPREAD_H
#define FP8LAB_RUNNER_COMPARE_SPREAD_H

#include "kernels/histogram.h"
#include "runner/bundle/run_view.h"

enum spread_kind { SPREAD_WEIGHTS, SPREAD_GRADIENTS, SPREAD_ACTIVATIONS, SPREAD_KINDS };

/* The names of layers of a foreign run may be many: ROWS_MAX of them are drawn. */
enum { SPREAD_NAME_CAP = 24, SPREAD_ROWS_MAX = 256 };

/* One layer, or one tensor that is in none. Elements, with both signs together. */
struct spread_row {
    char name[SPREAD_NAME_CAP]; /* "12", or "head" */
    int64_t layer;              /* -1: in no layer */
    double count[HISTOGRAM_POWERS]; /* 2^(k + HISTOGRAM_LOWEST) <= |x| < twice that */
    double zeros, nans, all;
};

struct spread {
    bool counted; /* false: the run has no histograms */
    int64_t step;
    struct { int64_t count; struct spread_row *row; } of[SPREAD_KINDS]; /* rows owned */
};

/* From a run that was loaded whole. Rows: what comes before the layers ("embed"), the layers in
 * order, and the others. ERR_MEMORY. *out is valid for spread_free after an error too. */
NODISCARD enum status spread_make(const struct run_view *v, struct spread *out, struct err *e);
void spread_free(struct spread *s);

#endif
