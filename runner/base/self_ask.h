/* A child of this program that answers in JSON: what needs an open device, which the runner itself
 * never touches. A child that crashes or hangs costs its answer only. It ends with this process,
 * and with the thread that asks. */
#ifndef FP8LAB_RUNNER_BASE_SELF_ASK_H
#define FP8LAB_RUNNER_BASE_SELF_ASK_H

#include "kernels/base.h"

struct json_t;

struct self_ask {
    const char *const *args; /* after the program's name, NULL-terminated: "probe", "--json" */
    const char *schema;      /* of a good answer; another answer is an error with its text */
    int64_t seconds;         /* at most; the child is then killed */
    /* Called twice a second while the child runs: false kills the child. May be NULL. */
    bool (*tick)(void *context);
    void *context;
    bool tells_hardware; /* ERR_HARDWARE of the child stays what it is */
};

/* stderr of the child is dropped: its errors are part of the answer. ERR_DEVICE with the child's
 * text if it failed; *crashed: it was killed, or did not end in time. ERR_INTERRUPTED: the tick
 * ended it. A killed child may wait in a driver and not end: it is left behind after 5 s. *out is
 * the caller's. */
NODISCARD enum status self_ask(const struct self_ask *a, struct json_t **out, bool *crashed,
                               struct err *e);

#endif
