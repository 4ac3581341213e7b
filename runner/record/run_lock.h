/* The lock of a run directory: who writes it, and on which host. */
#ifndef FP8LAB_RUNNER_RECORD_RUN_LOCK_H
#define FP8LAB_RUNNER_RECORD_RUN_LOCK_H

#include <stdint.h>

#include "kernels/base.h"
#include "runner/base/host_name.h"

/* flock does not reach other hosts on every file system (Lustre without -o flock, NFS with
 * local_lock): an unlocked file whose writer was on another host proves nothing. */
enum run_life {
    RUN_LIFE_NONE,     /* no lock file, or one whose writer is gone: it was on this host, or has
                        * given no sign of life for RUN_LOCK_SILENT_S */
    RUN_LIFE_LOCKED,   /* its writer lives: the lock is held */
    RUN_LIFE_ELSEWHERE /* not locked as far as this host sees; its writer was on another, did not
                        * let go, and was heard of lately: it lives there, or died there */
};

/* A writer touches the file while its run goes on; a bundle being written is a sign of
 * life too. Far more than two hosts' clocks lie apart, and than it takes to make the
 * columns of a long run. */
enum { RUN_LOCK_BEAT_S = 30, RUN_LOCK_SILENT_S = 900 };

/* Who took the lock last, as its file says; zeroes for what it does not say. */
struct run_writer {
    int64_t pid;    /* 0: it let go, and left the run to be closed */
    char host[HOST_NAME_CAP];
    char boot[40];  /* of the kernel: the same in every container of one machine */
    bool elsewhere; /* that is another host than this */
    bool here;      /* that is this host; neither, where the file does not say a host */
    bool heard_of;  /* within RUN_LOCK_SILENT_S, and it did not let go */
};

enum run_life run_lock_look(const char *run, struct run_writer *out);

/* Takes the lock of directory `run`, or fails. ERR_STATE if another process holds it (it is named),
 * or where its writer was on another host and was heard of lately, unless `presumed_dead`. */
NODISCARD enum status run_lock_take(const char *run, bool presumed_dead, int *fd, struct err *e);

/* A sign of life; to be given every RUN_LOCK_BEAT_S. */
void run_lock_beat(int fd);

/* Gives up what the file keeps in reserve for a full disk; false where that cannot be done. */
bool run_lock_give_reserve(int fd);

/* Removes the file and lets go. */
void run_lock_drop(const char *run, int fd);
/* Lets go of a run that is not closed yet. The file stays, and says which host left it. */
void run_lock_leave(const char *run, int fd);

#endif
