/* The lock of a run directory: which process writes it, and on which host. */
#ifndef FP8LAB_RUNNER_RECORD_RUN_LOCK_H
#define FP8LAB_RUNNER_RECORD_RUN_LOCK_H

#include <stdint.h>

#include "kernels/base.h"
#include "runner/base/host_name.h"

/* flock does not work across hosts on every file system (Lustre without -o flock, NFS with
 * local_lock). So an unlocked file of a writer on another host proves nothing. */
enum run_life {
    RUN_LIFE_NONE,     /* no lock file, or its writer is gone: the writer was on this host, or gave
                        * no sign of life for RUN_LOCK_SILENT_S */
    RUN_LIFE_LOCKED,   /* the lock is held: the writer lives */
    RUN_LIFE_ELSEWHERE /* not locked as far as this host sees, but the writer may live. It is on
                        * another host, has not released the lock, and gave a sign of life lately */
};

/* In seconds. A writer touches the lock file every RUN_LOCK_BEAT_S; a growing bundle is a sign of
 * life too. RUN_LOCK_SILENT_S is far longer than the difference of two hosts' clocks, and far
 * longer than making the summary of a long run. */
enum { RUN_LOCK_BEAT_S = 30, RUN_LOCK_SILENT_S = 900 };

/* The last holder of the lock, as the lock file says; a missing member is zero. */
struct run_writer {
    int64_t pid;    /* 0: the writer released the lock, and the run is to be closed */
    char host[HOST_NAME_CAP];
    char boot[40];  /* of the kernel: the same in every container of one machine */
    bool elsewhere; /* `host` is another host */
    bool here;      /* `host` is this host; both are false if the file names no host */
    bool heard_of;  /* sign of life within RUN_LOCK_SILENT_S, and the lock was not released */
};

enum run_life run_lock_look(const char *run, struct run_writer *out);

/* Takes the lock of directory `run`. ERR_STATE if another process holds it; the error names that
 * process. Also ERR_STATE if the writer was on another host and gave a sign of life lately, unless
 * `presumed_dead`. */
NODISCARD enum status run_lock_take(const char *run, bool presumed_dead, int *fd, struct err *e);

/* Gives a sign of life; call it every RUN_LOCK_BEAT_S. */
void run_lock_beat(int fd);

/* Frees the space that the file reserves for a full disk; false if that fails. */
bool run_lock_give_reserve(int fd);

/* Deletes the file and releases the lock. */
void run_lock_drop(const char *run, int fd);
/* Releases the lock of a run that is not closed yet. The file stays and names this host. */
void run_lock_leave(const char *run, int fd);

#endif
