/* A run directory: its unique name, its lock, and data/run.json. Files: runner/bundle/README.md.
 * Exactly one process writes a run directory: the one that holds the lock. */
#ifndef FP8LAB_RUNNER_RECORD_RUN_DIR_H
#define FP8LAB_RUNNER_RECORD_RUN_DIR_H

#include <jansson.h>

#include "kernels/base.h"
#include "runner/base/run_files.h"

struct run_dir {
    char path[PATH_CAP]; /* runs/<run-id>; until run.json is saved first, runs/.<run-id>.new */
    char id[160];
    int root; /* its descriptor: what the runner opens in it is opened beneath, by no link */
    int lock_fd;
    bool unnamed; /* run.json was not saved yet */
    json_t *run; /* data/run.json; owned. Change it, then run_dir_save(). */
};

/* Makes runs/<UTC time>-<name>-<8 hex of inputs_sha256>/ with its folders, locked by this process;
 * `runs` is made too. The name is unique: a second run of one second gets "-2" after the time. The
 * directory gets it with the first run_dir_save(): nobody meets a run without a run.json. */
NODISCARD enum status run_dir_create(const char *runs, const char *name, const char *inputs_sha256,
                                     struct run_dir *out, struct err *e);

/* Takes over an existing directory. ERR_FORMAT where it holds a link, a FIFO or a device: then
 * nothing was changed. ERR_STATE as run_lock_take() says, which `presumed_dead` is handed to. */
NODISCARD enum status run_dir_open(const char *path, bool presumed_dead, struct run_dir *out,
                                   struct err *e);

/* Writes data/run.json, whole or not at all. On a full disk it gives up the space that the lock
 * file keeps in reserve for this, and tries again. */
NODISCARD enum status run_dir_save(struct run_dir *dir, struct err *e);

/* Removes from `runs` what this user's processes left of a run_dir_create() that was cut short: of
 * this host, or of none that was heard of lately. */
void run_dir_clean(const char *runs);

/* Replaces a file of the run (path relative to it) by canonical JSON. */
NODISCARD enum status run_dir_put(const struct run_dir *dir, const char *file, const json_t *value,
                                  struct err *e);

/* Removes what a worker that was killed left half made: a checkpoint that has no name yet. */
NODISCARD enum status run_dir_tidy(const struct run_dir *dir, struct err *e);

/* Lets go: without a lock file where the run's bundle stands; otherwise the file stays, and `list`
 * closes the run. Safe to call twice, and on
 * RUN_DIR_NONE. */
#define RUN_DIR_NONE { .root = -1, .lock_fd = -1 }
void run_dir_close(struct run_dir *dir);

/* UTC, ISO 8601, to the second: "2026-11-21T02:48:23Z". */
void run_time_now(char out[32]);
/* Such a time in seconds since 1970; 0 where `text` is none. */
int64_t run_time_parse(const char *text);

#endif
