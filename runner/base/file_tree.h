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

/* Every regular file below root, in order. ERR_FORMAT, with its name, for anything that is neither
 * a regular file nor a directory; also for more than `limit` files or more than 64 levels. */
NODISCARD enum status tree_list(const char *root, int64_t limit, struct tree *out, struct err *e);
void tree_free(struct tree *t);

/* The bytes of every regular file below root; 0 if they cannot be listed. */
int64_t tree_bytes(const char *root);

/* The same check without a list and without a limit on files. Only directories are opened. */
NODISCARD enum status tree_check(int root, const char *root_name, struct err *e);

/* Removes path and everything below it. Links are removed, never followed. OK if path is absent. */
NODISCARD enum status tree_remove(const char *path, struct err *e);

#endif
