/* A run directory: its unique name, its lock, and data/run.json. runner/bundle/README.md lists the
 * files. Only the process that holds the lock writes the directory. */
#ifndef FP8LAB_RUNNER_RECORD_RUN_DIR_H
#define FP8LAB_RUNNER_RECORD_RUN_DIR_H

#include <jansson.h>

#include "kernels/base.h"
#include "runner/base/run_files.h"

struct run_dir {
    char path[PATH_CAP]; /* runs/<run-id>; runs/.<run-id>.new until run.json is first saved */
    char id[160];
    int root; /* descriptor of `path`; the runner opens files beneath it and follows no link */
    int lock_fd;
    bool unnamed; /* run.json has not been saved yet */
    json_t *run; /* data/run.json; owned. Change it, then run_dir_save(). */
};

/* Makes runs/<UTC time>-<name>-<8 hex of inputs_sha256>/ with its folders, locked by this process;
 * makes `runs` too. The name is unique: a second run in one second gets "-2" after the time. The
 * directory gets this name with the first run_dir_save(), so no reader sees a run without run.json.
 * An error leaves no directory behind. */
NODISCARD enum status run_dir_create(const char *runs, const char *name, const char *inputs_sha256,
                                     struct run_dir *out, struct err *e);

/* Opens and locks an existing run directory. ERR_FORMAT: it holds a link, a FIFO or a device;
 * nothing was changed. presumed_dead and ERR_STATE: as in run_lock_take(). */
NODISCARD enum status run_dir_open(const char *path, bool presumed_dead, struct run_dir *out,
                                   struct err *e);

/* Writes data/run.json, whole or not at all. On a full disk it frees the space that the lock file
 * reserves for this, and retries. */
NODISCARD enum status run_dir_save(struct run_dir *dir, struct err *e);

/* Deletes from `runs` the directories that an interrupted run_dir_create() of this user left. It
 * ran on this host, or on a host that has been silent for RUN_LOCK_SILENT_S. */
void run_dir_clean(const char *runs);

/* Whether the name is <UTC time>…-<8 hex digits>, as this and older programs name a run. */
bool run_dir_is_id(const char *name);

/* ERR_ARG, with what the user should do, if `path` is a leftover. A leftover is a directory with a
 * run's name and no file but its lock, which no process holds. Older programs left one if they were
 * killed before run.json was written. OK for anything else. */
NODISCARD enum status run_dir_check_leftover(const char *path, struct err *e);

/* Replaces a file of the run (path relative to it) by canonical JSON. */
NODISCARD enum status run_dir_put(const struct run_dir *dir, const char *file, const json_t *value,
                                  struct err *e);

/* Deletes what only a living run has, and the unfinished checkpoint that a killed worker left. */
NODISCARD enum status run_dir_tidy(const struct run_dir *dir, struct err *e);

/* Releases the directory. Deletes the lock file if the run has its bundle; otherwise the file
 * stays, and `list` closes the run. Safe to call twice, and on RUN_DIR_NONE. */
#define RUN_DIR_NONE { .root = -1, .lock_fd = -1 }
void run_dir_close(struct run_dir *dir);

/* UTC, ISO 8601, to the second: "2026-11-21T02:48:23Z". */
void run_time_now(char out[32]);
/* The same to the millisecond: "2026-11-21T02:48:23.125Z". */
void run_time_now_ms(char out[32]);
/* Such a time in seconds since 1970; 0 if `text` is not such a time. */
int64_t run_time_parse(const char *text);

#endif
