/* A forked child in which Lua runs: its limits, its report through a pipe, and the reason if it
 * ends without one. */
#ifndef FP8LAB_RUNNER_SCRIPT_CHILD_H
#define FP8LAB_RUNNER_SCRIPT_CHILD_H

#include "runner/base/canonical.h"
#include "runner/script/script_state.h"

enum { CHILD_REPORT_MAX = 64 << 20 /* bytes */, CHILD_NO_MEMORY = 12 /* an exit status */ };

struct script_child {
    const char *path; /* of the script, for messages */
    const char *what; /* what the child does, for messages: "the evaluation" */
    const struct script_limits *limits;
    struct script_trail *trail; /* child_trail_create() */
    /* In the child. It writes the report, or sets its `failed`: no memory. */
    void (*body)(void *context, struct text *report);
    void *context;
};

/* Forks, applies the limits, calls `body`, and waits for its report, which the caller frees after
 * an error too. ERR_CONFIG: the child was ended by a limit on time, by a signal, or for the size of
 * its report; the text says where the script was. ERR_MEMORY; ERR_IO for fork and pipe. */
NODISCARD enum status child_run(const struct script_child *c, struct text *report, struct err *e);

/* Memory that a child shares with its parent; NULL: none is left. */
struct script_trail *child_trail_create(void);
void child_trail_destroy(struct script_trail *trail);

/* Default signals, the C locale and the limits, in a child. The limit on processor time is final if
 * `ends`; otherwise child_unconfine_time() lifts it again. */
void child_confine(const struct script_limits *limits, bool ends);
void child_unconfine_time(void);

#endif
