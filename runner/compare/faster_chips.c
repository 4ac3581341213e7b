/* Two GPUs of one product differ by some percent. Of rows that ran side by side, a bundle names the
 * GPUs, so that the speed of a chip is not taken for that of a recipe. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runner/compare/faster_sides.h"

enum { GPUS_CAP = 64 };

/* How many of the runs were on these GPUs. */
static int64_t runs_on(const struct side *side, const char *gpus) {
    int64_t n = 0;
    size_t i;
    const json_t *one;
    json_array_foreach(side->gpus, i, one) n += !strcmp(json_string_value(one), gpus);
    return n;
}

/* Whether all runs of the side were on the same GPUs. */
static bool on_one_gpu(const struct side *side) {
    const char *first = json_string_value(json_array_get(side->gpus, 0));
    return first && runs_on(side, first) == (int64_t)json_array_size(side->gpus);
}

/* "0, 1, 1", or "0" if all are the same. */
static void gpus_text(const struct side *side, char out[GPUS_CAP]) {
    size_t i, used = 0, n = on_one_gpu(side) ? 1 : json_array_size(side->gpus);
    *out = '\0';
    for (i = 0; i < n && used < GPUS_CAP - 14; i++)
        used += (size_t)snprintf(out + used, GPUS_CAP - used, "%s%.8s", i ? ", " : "",
                                 json_string_value(json_array_get(side->gpus, i)));
    if (i < n) snprintf(out + used, GPUS_CAP - used, ", ...");
}

/* How far the sides share their GPUs. */
enum sharing { SHARING_EQUAL, SHARING_PART, SHARING_NONE };

static enum sharing share_of(const struct side *x, const struct side *y) {
    size_t i, n = json_array_size(x->gpus), m = json_array_size(y->gpus);
    const json_t *one;
    bool equal = true, common = false;
    bool known = n && m && (int64_t)n == x->count && (int64_t)m == y->count;
    if (!known) return SHARING_EQUAL;
    json_array_foreach(x->gpus, i, one) {
        int64_t there = runs_on(y, json_string_value(one));
        equal = equal && runs_on(x, json_string_value(one)) * (int64_t)m == there * (int64_t)n;
        common = common || there;
    }
    return equal ? SHARING_EQUAL : common ? SHARING_PART : SHARING_NONE;
}

void speeds_note_gpus(const struct side *x, const struct side *y, char why[FAMILY_WHY_CAP]) {
    char of_x[GPUS_CAP], of_y[GPUS_CAP];
    size_t at = strlen(why);
    if (share_of(x, y) == SHARING_EQUAL) return;
    gpus_text(x, of_x);
    gpus_text(y, of_y);
    snprintf(why + at, FAMILY_WHY_CAP - at, "%sits runs were on GPU %s, the baseline's on GPU %s: "
             "two chips of one product may differ by some percent", at ? "; " : "", of_y, of_x);
}

bool speeds_other_gpus(const struct side *x, const struct side *y) {
    return share_of(x, y) == SHARING_NONE && (on_one_gpu(x) || on_one_gpu(y));
}

/* Of the side's runs on these GPUs; there are some. */
static double mean_on(const struct side *side, const char *gpus) {
    double sum = 0;
    size_t i;
    const json_t *one;
    json_array_foreach(side->gpus, i, one)
        if (!strcmp(json_string_value(one), gpus)) sum += side->log[i];
    return sum / (double)runs_on(side, gpus);
}

static bool is_before(const struct side *side, size_t end, const char *gpus) {
    for (size_t i = 0; i < end; i++)
        if (!strcmp(json_string_value(json_array_get(side->gpus, i)), gpus)) return true;
    return false;
}

/* The least squares of side and chip: each shared GPU counts as its numbers of runs allow. */
double speeds_shared_gap(const struct side *x, const struct side *y) {
    double sum = 0, weights = 0;
    size_t i;
    const json_t *one;
    if (share_of(x, y) != SHARING_PART) return (double)NAN;
    json_array_foreach(x->gpus, i, one) {
        const char *gpus = json_string_value(one);
        double n = (double)runs_on(x, gpus), m = (double)runs_on(y, gpus);
        if (!(m > 0) || is_before(x, i, gpus)) continue;
        sum += n * m / (n + m) * (mean_on(y, gpus) - mean_on(x, gpus));
        weights += n * m / (n + m);
    }
    return sum / weights;
}
