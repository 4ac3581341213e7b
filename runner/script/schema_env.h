/* Which environment variables a run may set. By allow-list: a name that loads code or names a file
 * must never come from an experiment or from a stranger's bundle. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCHEMA_ENV_H
#define FP8LAB_RUNNER_SCRIPT_SCHEMA_ENV_H

#include "runner/base/diagnostics.h"

/* Whether the variable is one of ENV_ALLOWED. */
bool env_is_allowed(const char *name);
/* NULL when the variable may be set, otherwise why not (static storage). */
const char *env_refusal(const char *name);

/* The allowed names, NULL-terminated, sorted. */
extern const char *const ENV_ALLOWED[];

/* A table of variables as strings; what is refused is in `d`. */
struct value *schema_env(struct diagnostics *d, const struct value *v, const char *path);

#endif
