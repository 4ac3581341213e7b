/* Does a recipe hold the loss? Its mean against the reference's mean and the spread of the
 * reference's seeds: what two seeds of BF16 differ by is no fault of FP8. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/json_safe.h"
#include "runner/compare.h"

/* How far from the reference's mean a recipe's loss may be, relative. Block scales follow each 128
 * values and have to be nearer than scales of whole tensors. */
static double loss_tolerance(const char *kind) {
    return strcmp(kind, "fp8.blockwise") == 0 ? 0.0025 : 0.005;
}

static double mean(const double *value, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += value[i];
    return sum / (double)n;
}

json_t *compare_loss_row(int64_t group, const char *kind, const double *reference, int64_t n,
                         const double *value, int64_t m) {
    double middle = mean(reference, n), found = mean(value, m), tolerance = loss_tolerance(kind);
    double low = reference[0], high = reference[0], relative = found / middle - 1;
    for (int64_t i = 1; i < n; i++) {
        low = fmin(low, reference[i]);
        high = fmax(high, reference[i]);
    }
    bool near = fabs(relative) <= tolerance;
    bool inside = found >= low && found <= high;
    char by[120];
    if (near)
        snprintf(by, sizeof by, "%.2f %% of the mean of %lld seeds", 100 * tolerance, (long long)n);
    else
        snprintf(by, sizeof by, "%sthe range of %lld seeds, %.5f to %.5f",
                 inside ? "" : "the tolerance and ", (long long)n, low, high);
    return json_pack("{s:I, s:s, s:I, s:f, s:f, s:f, s:f, s:b, s:s}", "group", (json_int_t)group,
                     "recipe", kind, "seeds", (json_int_t)m, "reference_mean", middle, "mean",
                     found, "relative", relative, "tolerance", tolerance, "holds", near || inside,
                     "by", by);
}
