/* Errors in a script, collected like those of a compiler, so that all are reported at once. */
#ifndef FP8LAB_RUNNER_BASE_DIAGNOSTICS_H
#define FP8LAB_RUNNER_BASE_DIAGNOSTICS_H

#include "runner/base/value.h"

struct diagnostic {
    struct place place;
    const char *path; /* "train.optimizer.lr"; "" if the error belongs to no key */
    const char *text;
};

struct diagnostics {
    struct pool *pool; /* borrowed; holds the list and its texts */
    struct diagnostic *list;
    int64_t count, capacity;
    int64_t reported; /* calls of diagnostics_add, repeats included */
};

/* Adds an error, unless the list has the same one: each cell of a matrix would repeat it. */
void diagnostics_add(struct diagnostics *d, struct place place, const char *path,
                     const char *format, ...) PRINTF_LIKE(4, 5);

#endif
