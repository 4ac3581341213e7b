/* Access to a run's records by step: the last step, a common step, a value at a step. */
#include <math.h>

#include "runner/compare/compare.h"

int64_t compare_last_step(const struct columns *t) {
    const struct column *step = columns_scalar(t, "step");
    return step && t->rows > 0 ? (int64_t)column_value(step, t->rows - 1, 0) : -1;
}

/* The row of the step; -1: none. Steps ascend. */
static int64_t row_of(const struct columns *t, int64_t wanted) {
    const struct column *step = columns_scalar(t, "step");
    int64_t low = 0, high = step ? t->rows : 0;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (column_value(step, middle, 0) < (double)wanted) low = middle + 1;
        else high = middle;
    }
    return step && low < t->rows && column_value(step, low, 0) == (double)wanted ? low : -1;
}

double compare_value_at(const struct columns *t, const char *name, int64_t step) {
    const struct column *value = columns_scalar(t, name);
    int64_t row = row_of(t, step);
    return row >= 0 && value ? column_value(value, row, 0) : (double)NAN;
}

int64_t compare_common_step(const struct columns *const *t, int64_t count) {
    const struct column *step = count > 0 ? columns_scalar(t[0], "step") : NULL;
    for (int64_t row = step ? t[0]->rows - 1 : -1; row >= 0; row--) {
        int64_t wanted = (int64_t)column_value(step, row, 0), i = 1;
        while (i < count && row_of(t[i], wanted) >= 0) i++;
        if (i == count) return wanted;
    }
    return -1;
}
