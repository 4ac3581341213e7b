/* Does a recipe hold the loss? Its mean against the reference's mean and the spread of the
 * three seeds: what two seeds of BF16 differ by is no fault of FP8. Of more seeds the mean alone
 * counts, since a range only grows with them. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runner/compare/compare.h"
#include "runner/compare/stats.h"

/* How far from the reference's mean a recipe's loss may be, relative. Block scales follow each 128
 * values and have to be nearer than scales of whole tensors. */
static double loss_tolerance(const char *kind) {
    return strcmp(kind, "fp8.blockwise") == 0 ? 0.0025 : 0.005;
}

json_t *compare_loss_row(int64_t group, const char *kind, const double *reference, int64_t n,
                         const double *value, int64_t m) {
    double middle = stats_mean(reference, n), found = stats_mean(value, m);
    double tolerance = loss_tolerance(kind);
    double chance = stats_welch_half(reference, n, value, m) / middle;
    double low = reference[0], high = reference[0], relative = found / middle - 1;
    for (int64_t i = 1; i < n; i++) {
        low = fmin(low, reference[i]);
        high = fmax(high, reference[i]);
    }
    bool near = fabs(relative) <= tolerance;
    bool inside = n == LOSS_SEEDS_MIN && found >= low && found <= high;
    char by[120];
    if (near)
        snprintf(by, sizeof by, "%.2f %% of the mean of %lld seeds", 100 * tolerance, (long long)n);
    else if (n == LOSS_SEEDS_MIN)
        snprintf(by, sizeof by, "%sthe range of %lld seeds, %.5f to %.5f",
                 inside ? "" : "the tolerance and ", (long long)n, low, high);
    else
        snprintf(by, sizeof by, "the tolerance about the mean of %lld seeds", (long long)n);
    return json_pack("{s:I, s:s, s:I, s:f, s:f, s:f, s:o, s:f, s:b, s:s}", "group",
                     (json_int_t)group, "recipe", kind, "seeds", (json_int_t)m, "reference_mean",
                     middle, "mean", found, "relative", relative, "chance",
                     isnan(chance) ? json_null() : json_real(chance), "tolerance", tolerance,
                     "holds", near || inside, "by", by);
}

bool compare_loss_open(const json_t *row) {
    const json_t *chance = json_object_get(row, "chance");
    double reach = json_number_value(chance);
    double allowed = json_number_value(json_object_get(row, "tolerance"));
    double away = fabs(json_number_value(json_object_get(row, "relative")));
    return json_is_number(chance) && away - reach <= allowed && away + reach > allowed;
}
