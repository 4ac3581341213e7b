/* A list of files and directories to remove, and of what stays; and their removal. */
#ifndef FP8LAB_RUNNER_RUN_REMOVAL_LIST_H
#define FP8LAB_RUNNER_RUN_REMOVAL_LIST_H

#include <jansson.h>

#include "runner/base/run_files.h"

struct removal_item {
    char path[PATH_CAP];
    int64_t bytes;
    char why[80]; /* "the run's bundle" */
};
struct removal {
    struct removal_item *item; /* owned; in the order of removal */
    int64_t count, bytes;
    json_t *spared;            /* [{path, why}]: what stays though it was asked for; owned */
};
void removal_free(struct removal *r);

/* A directory that is being removed: .<name>.removed */
#define REMOVAL_SUFFIX ".removed"

/* Adds a file or a directory; nothing if it does not exist or is in the list. */
NODISCARD enum status removal_add(struct removal *r, const char *path, const char *why,
                                  struct err *e);
/* Adds what stays, and why. */
NODISCARD enum status removal_spare(struct removal *r, const char *path, const char *why,
                                    struct err *e);
/* out = stem and suffix. ERR_ARG: too long. */
NODISCARD enum status removal_part(char out[PATH_CAP], const char *stem, const char *suffix,
                                   struct err *e);

/* Removes the items. A run's directory is locked first, and leaves its name in one step, so an
 * interrupted removal leaves no half run. ERR_STATE: a run began to live; it stays. ERR_IO. */
NODISCARD enum status removal_do(const struct removal *r, struct err *e);

#endif
