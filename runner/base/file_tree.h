/* A directory and everything below it: listed, checked, removed. Links are never followed. */
#ifndef FP8LAB_RUNNER_BASE_FILE_TREE_H
#define FP8LAB_RUNNER_BASE_FILE_TREE_H

#include "kernels/base.h"

struct tree_file {
    char *path;   /* owned; relative to the root, '/' between components */
    int64_t size; /* bytes */
};
struct tree {
    struct tree_file *file; /* owned; bytewise order of paths */
    int64_t count;
};

/* Every regular file below root, in order. Refuses links, devices and whatever else is neither a
 * file nor a directory (ERR_FORMAT, naming it), more than `limit` files, and 64 levels. */
NODISCARD enum status tree_list(const char *root, int64_t limit, struct tree *out, struct err *e);
void tree_free(struct tree *t);

/* Whether everything below root is a regular file or a directory, 64 levels deep at most; else
 * ERR_FORMAT, naming what is not. Nothing is opened but directories. */
NODISCARD enum status tree_check(int root, const char *root_name, struct err *e);

/* Removes path and all below it; links are removed, never followed. Absent is fine. */
NODISCARD enum status tree_remove(const char *path, struct err *e);

#endif
