/* The name that a user probably meant, for every "did you mean" of the runner. */
#ifndef FP8LAB_RUNNER_BASE_NEAREST_H
#define FP8LAB_RUNNER_BASE_NEAREST_H

#include <stdint.h>

/* Twice the number of edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
 * Letter case is ignored, but names that differ only in case are half an edit apart. Only the first
 * 63 bytes of each name count. */
int64_t name_distance_x2(const char *a, const char *b);

/* The nearest of `count` names (the first of equals), borrowed from `names`. NULL if in each more
 * than a third of the longer name would have to change. */
const char *nearest_name(const char *given, const char *const *names, int64_t count);

/* A name in other programs, and its name here. A list ends with a row without `given`. */
struct other_name { const char *given, *ours; };
/* `ours` of the row with that name, or NULL. */
const char *other_name_find(const struct other_name *list, const char *given);

#endif
