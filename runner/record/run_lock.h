/* The lock of a run directory: who writes it, and on which host. */
#ifndef FP8LAB_RUNNER_RECORD_RUN_LOCK_H
#define FP8LAB_RUNNER_RECORD_RUN_LOCK_H

#include <stdint.h>

#include "kernels/base.h"
#include "runner/net/rendezvous.h"

/* flock does not reach other hosts on every file system (Lustre without -o flock, NFS with
 * local_lock): an unlocked file whose writer was on another host proves nothing. */
enum run_life {
    RUN_LIFE_NONE,     /* no lock file, or one whose writer was on this host and is gone */
    RUN_LIFE_LOCKED,   /* its writer lives: the lock is held */
    RUN_LIFE_ELSEWHERE /* not locked as far as this host sees; its writer was on another and did
                        * not let go: it lives there, or died there */
};

/* Who took the lock last, as its file says; zeroes for what it does not say. */
struct run_writer {
    int64_t pid;
    char host[RENDEZVOUS_HOST_CAP];
    char boot[40];  /* of the kernel: the same in every container of one machine */
    bool elsewhere; /* that is another host than this */
};

enum run_life run_lock_look(const char *run, struct run_writer *out);

/* Takes the lock of directory `run`, or fails. ERR_STATE if another process holds it (it is named),
 * or where its writer was on another host and did not let go, unless `presumed_dead`. */
NODISCARD enum status run_lock_take(const char *run, bool presumed_dead, int *fd, struct err *e);

/* Gives up what the file keeps in reserve for a full disk; false where that cannot be done. */
bool run_lock_give_reserve(int fd);

/* Removes the file and lets go. */
void run_lock_drop(const char *run, int fd);

#endif
