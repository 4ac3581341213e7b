/* A temporary folder that is removed also if a signal ends the program: for verbs that compute for
 * minutes without a moment at which they could read stop requests (signals.h). */
#ifndef FP8LAB_RUNNER_BASE_FOLDER_GUARD_H
#define FP8LAB_RUNNER_BASE_FOLDER_GUARD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "runner/base/paths.h"

struct folder_guard {
    bool open, held;      /* held: a signal waits */
    pthread_t thread;     /* waits for a signal */
    pthread_mutex_t lock; /* of path */
    int signals, wake;    /* what the thread polls */
    sigset_t old;         /* the mask before */
    char path[PATH_CAP];  /* "": none yet */
};

/* Begins held: SIGINT, SIGTERM and SIGHUP wait until folder_guard_watch() names the folder. *out
 * must not move. Call it before other threads are created: they inherit the mask. */
NODISCARD enum status folder_guard_open(struct folder_guard *out, struct err *e);
/* While it is held, a signal waits: for the moments in which the folder is made, or renamed. */
void folder_guard_hold(struct folder_guard *g);
/* No longer held. A signal removes the folder, then has its default effect. "": there is none. */
void folder_guard_watch(struct folder_guard *g, const char *path);
/* Restores the mask. Call it after the folder was removed. Allowed for a zeroed struct. */
void folder_guard_close(struct folder_guard *g);

#endif
