/* A key that is given and does nothing: the result would look like an answer. */
#ifndef FP8LAB_RUNNER_PLAN_IDLE_KEY_H
#define FP8LAB_RUNNER_PLAN_IDLE_KEY_H

#include <stdbool.h>

struct json_t;

/* Which key of a resolved configuration does nothing, and why: static; NULL if none is known.
 * smoke: it is a smoke run's, which has fewer GPUs and steps than the script asks for. */
const char *idle_key_text(const struct json_t *config, bool smoke);

#endif
