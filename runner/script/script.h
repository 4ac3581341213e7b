/* Evaluating an experiment script, which is not trusted: in a forked child, under limits of
 * processor time, memory and instructions, with nothing to reach but Lua source beside it. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCRIPT_H
#define FP8LAB_RUNNER_SCRIPT_SCRIPT_H

#include <jansson.h>

#include "runner/base/canonical.h"

struct script;
struct script_limits;

struct script_task {
    const char *path;    /* the script, as the user named it; messages repeat it */
    const char *lib;     /* a further folder for require, or NULL */
    const struct script_limits *limits; /* NULL: SCRIPT_LIMITS */
    /* Called in the child, under its protected call, with what the script returned at index 1 of
     * the Lua stack. Writes one JSON value to `out`, or nothing when it only has diagnostics. */
    void (*body)(struct script *s, void *argument, struct text *out);
    void *argument;      /* copied into the child by the fork */
};

/* Evaluates the script. *report is the caller's (json_decref), also when the script is at fault:
 *   { "error": text or null,          a Lua error, a limit, a file that cannot be read
 *     "diagnostics": [{ "file", "line", "column", "origin", "path", "text" }],  sorted by place
 *     "files": [{ "name", "path", "sha256", "text" }],   every source loaded, verbatim; main first
 *     "log": text,                     what it printed, and the traceback of an error
 *     "result": what body wrote, or null }
 * ERR_CONFIG when error or diagnostics are there (e says the first), ERR_MEMORY, ERR_IO for fork
 * and pipe; *report is NULL for the latter two. */
NODISCARD enum status script_evaluate(const struct script_task *task, json_t **report,
                                      struct err *e);

#endif
