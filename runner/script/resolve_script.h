/* The part of resolve that runs in the script's child. */
#ifndef FP8LAB_RUNNER_SCRIPT_RESOLVE_SCRIPT_H
#define FP8LAB_RUNNER_SCRIPT_RESOLVE_SCRIPT_H

#include "runner/script/resolve.h"
#include "runner/script/script_state.h"

/* A script_task's body; `options` is a struct resolve_options. Writes
 * { "suite": bool, "name", "about", "runs": [{ "name", "cell", "config" }] }. [raises] */
void resolve_script(struct script *s, void *options, struct text *out);

#endif
