/* Evaluates an experiment script, which is untrusted, in a forked child: with limits on processor
 * time, memory and instructions, and without access to anything but Lua source beside it. */
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
    /* Called in the child, under its protected call. Index 1 of the Lua stack is the script's
     * result. Writes one JSON value to `out`, or nothing if there are only diagnostics. */
    void (*body)(struct script *s, void *argument, struct text *out);
    void *argument;      /* copied into the child by the fork */
};

/* Evaluates the script. *report is owned by the caller (json_decref), also for a faulty script:
 *   { "error": text or null,          a Lua error, a limit, a file that cannot be read
 *     "diagnostics": [{ "file", "line", "column", "origin", "path", "text" }],  sorted by place
 *     "files": [{ "name", "path", "sha256", "text" }],   every source loaded, verbatim; main first
 *     "log": text,                     its output, and the traceback of an error
 *     "result": the value from body, or null }
 * ERR_CONFIG for an error or diagnostics (e has the first); ERR_MEMORY; ERR_IO for fork and pipe.
 * *report is NULL after the latter two. */
NODISCARD enum status script_evaluate(const struct script_task *task, json_t **report,
                                      struct err *e);

#endif
