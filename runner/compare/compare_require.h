/* What `compare --require` asks of a comparison, and whether it is met: a gate for CI. */
#ifndef FP8LAB_RUNNER_COMPARE_COMPARE_REQUIRE_H
#define FP8LAB_RUNNER_COMPARE_COMPARE_REQUIRE_H

#include "runner/compare/compare.h"

#define COMPARE_NO_ROW "no row has a baseline to be compared with"

enum require_kind { REQUIRE_HOLDS, REQUIRE_SPEED, REQUIRE_LOSS };

struct requirement {
    const char *text; /* as it was written; borrowed */
    enum require_kind kind;
    double bound; /* a ratio to the baseline */
};

/* Reads "holds", "speed>=1.15x" or "eval_loss<=1.01x". ERR_ARG for any other text. */
NODISCARD enum status requirement_read(const char *text, struct requirement *out, struct err *e);

/* Adds "requirements" to the report (compare.h). Every row with a baseline, and every group that
 * lacks one, must meet each of them. If no row has a speed to compare, "speed" asks the builds of
 * "speed_builds", each against its first one. A row without a verdict misses it, and so does a row
 * whose bounds include what is asked. *met: all are met. */
NODISCARD enum status compare_require(struct comparison *c, const struct requirement *list,
                                      int64_t count, bool *met, struct err *e);

/* The requirements as a JUnit report: a test case for each requirement and row. Replaces the file
 * atomically. */
#define JUNIT_BEGINS "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define JUNIT_MARK "<testsuite name=\"fp8lab compare\""
NODISCARD enum status compare_junit(const struct comparison *c, const char *path, struct err *e);

#endif
