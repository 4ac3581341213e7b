/* The name a user probably meant: what every "did you mean" in the runner asks. */
#ifndef FP8LAB_RUNNER_BASE_NEAREST_H
#define FP8LAB_RUNNER_BASE_NEAREST_H

#include <stdint.h>

/* Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`, times two. Letter
 * case does not count, but names that differ in nothing else are half an edit apart, so never
 * equal. Only the first 63 bytes of each name count. */
int64_t name_distance_x2(const char *a, const char *b);

/* The nearest of `count` names (the first of equals), or NULL where none is near enough to be worth
 * suggesting: more than a third of the longer name would have to change. The result is borrowed
 * from `names`. */
const char *nearest_name(const char *given, const char *const *names, int64_t count);

/* What other programs call a thing, and what it is here: a list ended by a row without `given`. */
struct other_name { const char *given, *ours; };
/* `ours` of the row of that name, or NULL. */
const char *other_name_find(const struct other_name *list, const char *given);

#endif
