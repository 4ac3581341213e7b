/* Nested JSON objects as one object whose keys are dotted paths. */
#ifndef FP8LAB_RUNNER_BASE_JSON_FLAT_H
#define FP8LAB_RUNNER_BASE_JSON_FLAT_H

#include <jansson.h>
#include <stdbool.h>

/* Adds the values of `object` to `out`, each as "a.b"; an array and an empty object stay values.
 * `out` takes references. *failed becomes true without memory (json_safe.h). */
void json_flatten(json_t *object, json_t *out, bool *failed);

#endif
