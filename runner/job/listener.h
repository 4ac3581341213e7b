/* A listening socket, and the connections to it that have not proved yet that they know the job's
 * secret. All of them are served side by side, each for LISTENER_AUTH_MS at most, so a silent one
 * does not block the others. At LISTENER_CALLERS_MAX connections new ones wait, and each connection
 * has half of LISTENER_AUTH_MS. */
#ifndef FP8LAB_RUNNER_JOB_LISTENER_H
#define FP8LAB_RUNNER_JOB_LISTENER_H

#include <stddef.h>

#include "model/ground/sha256.h"

struct json_t;

enum { LISTENER_CALLERS_MAX = 128, LISTENER_AUTH_MS = 3000 };

struct caller {
    int fd;           /* owned */
    int64_t since_ms; /* of clock.h */
    char challenge[SHA256_HEX];
    char *line;       /* what it has sent; owned */
    size_t n;
};

struct listener {
    int listening;      /* borrowed until listener_close */
    const char *secret; /* likewise */
    int callers;
    struct caller caller[LISTENER_CALLERS_MAX];
    int64_t rejected; /* connections that did not prove the secret */
    char last[64];    /* the address of the last of them */
};

/* `listening`: from wire_listen. */
void listener_open(int listening, const char *secret, struct listener *out);
/* Closes the connections that have not proved themselves. */
void listener_close(struct listener *l);

/* Waits for the next connection that proves that it knows the secret. One that fails to is closed,
 * which is no error. *fd and *hello, its first message, are then the caller's. They are -1 and NULL
 * if none came before the deadline, or if `alarm` (a descriptor, or -1) became readable. */
NODISCARD enum status listener_next(struct listener *l, int64_t deadline_ms, int alarm, int *fd,
                                    struct json_t **hello, struct err *e);

#endif
