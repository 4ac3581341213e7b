/* The part of resolve that runs in the script's child. */
#ifndef FP8LAB_RUNNER_SCRIPT_RESOLVE_SCRIPT_H
#define FP8LAB_RUNNER_SCRIPT_RESOLVE_SCRIPT_H

#include "runner/script/script_state.h"

/* What the command line changes in the script's experiments. */
struct script_changes {
    const char *const *overrides; /* "a.b=value" of each --set, in order; may be NULL */
    int64_t override_count;
    bool smoke;
    json_t *models; /* the keys of model = hf "PATH" by PATH, as the runner read them */
};

/* A script_task's body; `changes` is a struct script_changes. Writes
 * { "suite": bool, "name", "about", "runs": [{ "name", "cell", "config" }] }, or
 * { "models": [{ "path", "file", "line" }] } if changes->models lacks some. [raises] */
void resolve_script(struct script *s, void *changes, struct text *out);

#endif
