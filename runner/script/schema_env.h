/* The environment variables that a run may set, as an allow-list: an experiment or an untrusted
 * bundle must never set a variable that loads code or names a file. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCHEMA_ENV_H
#define FP8LAB_RUNNER_SCRIPT_SCHEMA_ENV_H

#include "runner/base/diagnostics.h"

/* Whether the variable is one of ENV_ALLOWED. */
bool env_is_allowed(const char *name);
/* NULL if the variable may be set, otherwise the reason (static storage). */
const char *env_refusal(const char *name);

/* The allowed names, NULL-terminated, sorted. */
extern const char *const ENV_ALLOWED[];

/* A table of variables as strings. Rejected variables are reported in `d`. */
struct value *schema_env(struct diagnostics *d, const struct value *v, const char *path);

#endif
