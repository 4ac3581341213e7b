/* The keys of a configuration that are factors of a result, and the one that a comparison is asked
 * about: "train.grad_dtype=f32" (compare --factor, or `factor` of a suite). */
#ifndef FP8LAB_RUNNER_PLAN_FACTOR_H
#define FP8LAB_RUNNER_PLAN_FACTOR_H

#include <jansson.h>

#include "kernels/base.h"

/* The factor that a key of the configuration belongs to: most keys are one of their own, and all of
 * "data" are one. `kinds`: recipes of several kinds, whose keys are one factor too. NULL: the key
 * is none. Static, or `key`. */
const char *factor_of_key(const char *key, bool kinds);

struct factor {
    char key[128];
    const char *value; /* borrowed; of the rows that others are compared with */
};

/* False if the text is no KEY=VALUE. `text` is borrowed. */
bool factor_read(const char *text, struct factor *out);

/* What a configuration has of the key. A null and a table are no value. */
enum factor_value {
    FACTOR_ABSENT, /* no value */
    FACTOR_OTHER,  /* another value */
    FACTOR_SAME    /* the value; a number by value, "3e-4" is 0.0003 */
};
enum factor_value factor_find(const struct factor *f, const json_t *config);

/* Whether rows with these configurations can be compared by the factor. `why` says what is wrong:
 * no row has the key, or the key is none by which --factor can ask. */
enum { FACTOR_WHY_CAP = 400 };
NODISCARD enum status factor_check(const struct factor *f, json_t *const *configs, int64_t count,
                                   char why[FACTOR_WHY_CAP], struct err *e);

#endif
