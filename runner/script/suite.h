/* Expands a script's result to a list of runs: suites, their matrices, and overrides. */
#ifndef FP8LAB_RUNNER_SCRIPT_SUITE_H
#define FP8LAB_RUNNER_SCRIPT_SUITE_H

#include "runner/base/diagnostics.h"

enum { RUNS_MAX = 1000 };

/* One run before the schema is applied. */
struct suite_run {
    struct value *tree; /* an experiment's keys */
    struct value *cell; /* axis path -> label or scalar; empty outside a matrix */
};

struct suite {
    bool is_suite; /* false: one experiment */
    const char *name, *about;
    const char *replaced; /* the axes that an override removed, separated by commas; "" */
    const char *factor;   /* "KEY=VALUE" of the comparison at its end; "" */
    struct place factor_place;
    bool factor_set;      /* --set replaced what the rows have of its key */
    struct suite_run *runs;
    int64_t count, capacity;
};

/* Expands `returned`, made by experiment {} or suite {}. Axes vary in the order of their names, the
 * last one fastest; values in the order written, then labelled ones by label. `overrides` are
 * "a.b=value"; one that sets a whole axis removes the axis; "matrix.a=1,2" sets its values. */
void suite_expand(struct diagnostics *d, struct value *returned, const char *const *overrides,
                  int64_t override_count, struct suite *out);

#endif
