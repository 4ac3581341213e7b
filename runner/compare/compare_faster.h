/* How much faster is a recipe? The rule on tokens/s; README.md has its clauses. */
#ifndef FP8LAB_RUNNER_COMPARE_COMPARE_FASTER_H
#define FP8LAB_RUNNER_COMPARE_COMPARE_FASTER_H

#include "runner/compare/compare.h"
#include "runner/compare/run_speed.h"

/* "statistics.speed" of the report: one entry a baseline. names: of the groups. New reference. */
NODISCARD enum status compare_faster(const struct comparison *c, const struct compare_groups *g,
                                     const json_t *names, json_t **out, struct err *e);

/* "statistics.speed_builds": one entry a group whose runs are of several builds with the same bits,
 * on a GPU. The build of its first run is the baseline. New reference. */
NODISCARD enum status compare_faster_builds(const struct comparison *c,
                                            const struct compare_groups *g, json_t **out,
                                            struct err *e);

/* The row of the group in "statistics.speed", and its family; NULL: it is in none. */
const json_t *compare_speed_row(const json_t *statistics, int64_t group, const json_t **family);

/* The block of the text, and that of the page; nothing without a family. */
void compare_faster_text(FILE *out, const json_t *statistics);
void compare_faster_page(FILE *out, const json_t *report, bool *failed);
/* A sentence for the top of the page; nothing without a verdict. */
void compare_faster_words(FILE *out, const json_t *report, int64_t group);

#endif
