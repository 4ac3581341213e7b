/* The environment of a worker: the variables on an allow-list and those of the experiment. All
 * other variables are withheld, and recorded by name only. */
#ifndef FP8LAB_RUNNER_RECORD_ENVIRONMENT_H
#define FP8LAB_RUNNER_RECORD_ENVIRONMENT_H

#include "kernels/base.h"

struct json_t;

enum { ENVIRONMENT_SENT_MAX = 32 << 10 }; /* bytes; half of the longest line of a handshake */

struct environment {
    char **vars;           /* "NAME=value", NULL-terminated, sorted; owned */
    struct json_t *record; /* environment.json; owned: {"kept":{what the worker gets, but no UUID of
                            * a GPU},"defaults":[names in kept set by default],
                            * "withheld":[names]} */
};

/* Makes it from this process's environment and `env` of the resolved configuration (an object of
 * texts and numbers); `env` takes precedence. profile: also what a profiler needs to follow a
 * worker. ERR_CONFIG: an experiment may not set a variable. */
NODISCARD enum status environment_make(const struct json_t *env, bool profile,
                                       struct environment *out, struct err *e);
void environment_free(struct environment *environment);

/* How waiting threads of OpenMP look for work, if nobody has set OMP_WAIT_POLICY: a short while;
 * then they sleep. Names and values in pairs, NULL-terminated. libgomp reads the variables when it
 * is loaded, so they must be set before a process starts. */
const char *const *environment_waiting(void);

/* The record of this process's own variables, to be sent to the task that leads the job. The caller
 * owns it; NULL: out of memory. If it is longer than ENVIRONMENT_SENT_MAX, a note replaces the
 * withheld names, then also the kept variables. */
struct json_t *environment_of_task(void);

#endif
