/* Numbers in JSON, which has no NaN and no infinity: null stands for both. */
#ifndef FP8LAB_RUNNER_BASE_JSON_NUMBER_H
#define FP8LAB_RUNNER_BASE_JSON_NUMBER_H

#include <jansson.h>
#include <math.h>

/* The number, or null if it is not finite. New reference; NULL: no memory. */
static inline json_t *json_finite(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* The number of a value; NaN for any other value and for NULL. */
static inline double json_double(const json_t *value) {
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

#endif
