/* How many of its cases a test runs. `make test` has a selection with each kind of case, and fewer
 * under a sanitizer, which is some six times slower. `make test-long` sets TEST_CASES=all. */
#ifndef FP8LAB_TESTS_CASES_H
#define FP8LAB_TESTS_CASES_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool cases_all(void) {
    const char *cases = getenv("TEST_CASES");
    return cases && strcmp(cases, "all") == 0;
}

/* The distance between the cases to run: 1 if all run. */
static inline int cases_step(int usual, int sanitized) {
    if (cases_all()) return 1;
#ifdef __SANITIZE_ADDRESS__
    return sanitized;
#else
    return usual;
#endif
}

#endif
