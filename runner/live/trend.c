#include "runner/live/trend.h"

#include <math.h>
#include <string.h>

/* Eighths of a character cell that a glyph fills. */
enum { EIGHTHS = 8 };

static void halve(struct trend *t) {
    for (int64_t i = 0; i < TREND_BINS / 2; i++) {
        t->bin[i].sum = t->bin[2 * i].sum + t->bin[2 * i + 1].sum;
        t->bin[i].count = t->bin[2 * i].count + t->bin[2 * i + 1].count;
    }
    t->bins = TREND_BINS / 2;
    t->each *= 2;
}

void trend_add(struct trend *t, double value) {
    if (!isfinite(value)) return;
    if (!t->each) t->each = 1;
    bool full = t->bins == 0 || t->bin[t->bins - 1].count >= t->each;
    if (full && t->bins == TREND_BINS) halve(t);
    if (full) {
        t->bin[t->bins].sum = 0;
        t->bin[t->bins++].count = 0;
    }
    t->bin[t->bins - 1].sum += value;
    t->bin[t->bins - 1].count++;
}

/* The mean of the bins that share column `i` of `columns`. */
static double column_mean(const struct trend *t, int64_t i, int64_t columns) {
    int64_t from = i * t->bins / columns, to = (i + 1) * t->bins / columns, count = 0;
    double sum = 0;
    for (int64_t b = from; b < to; b++) {
        sum += t->bin[b].sum;
        count += t->bin[b].count;
    }
    return sum / (double)count;
}

static const char *glyph(int64_t filled, bool ascii) {
    static const char *const BLOCKS[EIGHTHS + 1] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    static const char *const PLAIN[EIGHTHS + 1] = { " ", ".", ".", ":", ":", "|", "|", "#", "#" };
    return ascii ? PLAIN[filled] : BLOCKS[filled];
}

int64_t trend_draw(const struct trend *t, int64_t columns, int64_t row_count, bool ascii,
                   char rows[TREND_ROWS_MAX][TREND_TEXT_CAP], double *low, double *high) {
    double mean[TREND_COLUMNS_MAX];
    if (columns > TREND_COLUMNS_MAX) columns = TREND_COLUMNS_MAX;
    if (row_count > TREND_ROWS_MAX) row_count = TREND_ROWS_MAX;
    if (columns > t->bins) columns = t->bins;
    if (columns < 1 || row_count < 1) return 0;
    *low = (double)INFINITY;
    *high = -(double)INFINITY;
    for (int64_t i = 0; i < columns; i++) {
        mean[i] = column_mean(t, i, columns);
        *low = fmin(*low, mean[i]);
        *high = fmax(*high, mean[i]);
    }
    for (int64_t r = 0; r < row_count; r++) rows[r][0] = '\0';
    double span = *high > *low ? *high - *low : 1;
    for (int64_t i = 0; i < columns; i++) {
        int64_t steps = EIGHTHS * row_count - 1; /* the lowest value still shows one eighth */
        int64_t level = 1 + (int64_t)lround((mean[i] - *low) / span * (double)steps);
        for (int64_t r = 0; r < row_count; r++) {
            int64_t filled = level - EIGHTHS * (row_count - 1 - r);
            filled = filled < 0 ? 0 : filled > EIGHTHS ? EIGHTHS : filled;
            strcat(rows[r], glyph(filled, ascii));
        }
    }
    return columns;
}
