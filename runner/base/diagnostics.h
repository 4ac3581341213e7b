/* Errors in a script, like a compiler's: collected, not thrown, so that all come at once. */
#ifndef FP8LAB_RUNNER_BASE_DIAGNOSTICS_H
#define FP8LAB_RUNNER_BASE_DIAGNOSTICS_H

#include "runner/base/value.h"

struct diagnostic {
    struct place place;
    const char *path; /* "train.optimizer.lr"; "" where no key is to blame */
    const char *text;
};

struct diagnostics {
    struct pool *pool; /* borrowed; holds the list and its texts */
    struct diagnostic *list;
    int64_t count, capacity;
    int64_t said; /* times that diagnostics_add was called, repeats included */
};

/* Adds one, unless the same was said before (each cell of a matrix would repeat it). */
void diagnostics_add(struct diagnostics *d, struct place place, const char *path,
                     const char *format, ...) PRINTF_LIKE(4, 5);

#endif
