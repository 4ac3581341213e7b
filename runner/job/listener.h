/* Where the processes of a run are called: a listening socket, and those at it who have not proved
 * yet that they know the secret. All are heard side by side, each for LISTENER_AUTH_MS at the most,
 * so that one that says nothing keeps nobody else waiting. Where there are too many, new ones wait,
 * and those that are there have half of that. */
#ifndef FP8LAB_RUNNER_JOB_DOOR_H
#define FP8LAB_RUNNER_JOB_DOOR_H

#include <stddef.h>

#include "model/sha256.h"

struct json_t;

enum { LISTENER_CALLERS_MAX = 128, LISTENER_AUTH_MS = 3000 };

struct caller {
    int fd;           /* owned */
    int64_t since_ms; /* of clock.h */
    char challenge[SHA256_HEX];
    char *line;       /* what it has said; owned */
    size_t n;
};

struct listener {
    int listening;      /* borrowed until listener_close */
    const char *secret; /* likewise */
    int callers;
    struct caller caller[LISTENER_CALLERS_MAX];
    int64_t rejected; /* calls that did not prove the secret */
    char last[64];       /* the address of the last of them */
};

/* `listening`: of wire_listen. */
void listener_open(int listening, const char *secret, struct listener *out);
/* Lets all go that have not proved themselves. */
void listener_close(struct listener *listener);

/* Waits for the next caller that proves that it knows the secret; who does not is let go of, and is
 * no error. *fd and *hello, what it says of itself, are the caller's then; -1 and NULL where none
 * came before the deadline, or `alarm` (a descriptor, or -1) has something to read. */
NODISCARD enum status listener_next(struct listener *listener, int64_t deadline_ms, int alarm, int *fd,
                                struct json_t **hello, struct err *e);

#endif
