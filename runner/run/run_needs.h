/* Which runs of a folder began with a checkpoint of another one. */
#ifndef FP8LAB_RUNNER_RUN_RUN_NEEDS_H
#define FP8LAB_RUNNER_RUN_RUN_NEEDS_H

#include "runner/base/run_files.h"

/* A run that began with a checkpoint of another one: it extends that run, or has its weights. It
 * needs the checkpoint to be repeated. */
struct run_need {
    char child[PATH_CAP];  /* path of the run that needs it */
    char parent[160];      /* id of the other run; "": not known */
    char path[PATH_CAP];   /* what its worker read; "": not known */
    int64_t step;          /* of the checkpoint */
};
struct run_needs {
    struct run_need *need; /* owned */
    int64_t count;
    char unread[PATH_CAP]; /* a run that cannot be read, so its needs are not known; "": none */
};

/* The needs of all runs in the folder but those that `but` names, by their paths in it. */
NODISCARD enum status run_needs_find(const char *runs, const char *const *but, int64_t but_count,
                                     struct run_needs *out, struct err *e);
void run_needs_free(struct run_needs *n);

/* The first need of the run with that id and step (-1: of any step), or of a path that is one of
 * `paths` or below it; NULL: none. */
const struct run_need *run_needs_of(const struct run_needs *needs, const char *id, int64_t step,
                                    const char *const *paths, int64_t count);

#endif
