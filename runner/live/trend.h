/* A number over the steps of a run, in constant memory, and its small plot in characters. */
#ifndef FP8LAB_RUNNER_LIVE_TREND_H
#define FP8LAB_RUNNER_LIVE_TREND_H

#include <stdbool.h>
#include <stdint.h>

/* Equal numbers of values share a bin. If all bins are full, neighbours are merged. */
enum { TREND_BINS = 256, TREND_COLUMNS_MAX = 100, TREND_ROWS_MAX = 4,
       TREND_TEXT_CAP = 3 * TREND_COLUMNS_MAX + 1 };

struct trend {
    int64_t each;  /* values of a full bin; 0: no value yet */
    int64_t bins;  /* in use; the last one may be part full */
    struct { double sum; int64_t count; } bin[TREND_BINS];
};

/* Ignores a value that is not finite. Zero-initialise the trend. */
void trend_add(struct trend *t, double value);

/* Draws means of the values, oldest left, into rows[0..row_count), the top row first: at most
 * `columns` wide, and one column a bin while the trend is young. Blocks of Unicode, or with
 * `ascii` the characters ".:|#". *low and *high: the means at the bottom and at the top. Returns
 * the columns used; 0: there is nothing to draw. */
int64_t trend_draw(const struct trend *t, int64_t columns, int64_t row_count, bool ascii,
                   char rows[TREND_ROWS_MAX][TREND_TEXT_CAP], double *low, double *high);

#endif
