/* The environment of a worker: an allow-list, the experiment's own variables, and nothing else.
 * What is withheld is listed by name, never by value. */
#ifndef FP8LAB_RUNNER_RECORD_ENVIRONMENT_H
#define FP8LAB_RUNNER_RECORD_ENVIRONMENT_H

#include "kernels/base.h"

struct json_t;

enum { ENVIRONMENT_SENT_MAX = 32 << 10 }; /* bytes; a line of a handshake has twice as many */

struct environment {
    char **vars;           /* "NAME=value", NULL-terminated, sorted; owned */
    struct json_t *record; /* environment.json; owned: {"kept":{what the worker gets},
                            * "defaults":[names in kept that nobody set],"withheld":[names]} */
};

/* From this process's environment and `env` of the resolved configuration (an object of texts and
 * numbers), which wins. ERR_CONFIG for a variable that an experiment may not set. */
NODISCARD enum status environment_make(const struct json_t *env, struct environment *out,
                                       struct err *e);
void environment_free(struct environment *environment);

/* The record of this process's own variables alone, for the task that leads its job; owned by the
 * caller, NULL without memory. What makes it longer than ENVIRONMENT_SENT_MAX is replaced by a word
 * that says so: the names withheld first. */
struct json_t *environment_of_task(void);

#endif
