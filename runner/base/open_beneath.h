/* Opens a path below a directory without following any link. Use it for every path that comes from
 * a bundle, a directory listing or a run's directory. */
#ifndef FP8LAB_RUNNER_BASE_OPEN_BENEATH_H
#define FP8LAB_RUNNER_BASE_OPEN_BENEATH_H

#include <stdio.h>

#include "kernels/base.h"

/* Opens root/path. The result is never outside root, because no component may be a link or "..".
 * The kernel checks this (openat2(2) with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS); where the kernel
 * has no openat2(2), the path is opened component by component, with the same results.
 * `flags` are those of open(2); O_CLOEXEC is added. `parents`: the mode (less the umask) of missing
 * directories on the way; 0: none are made. Returns the descriptor, or -1 with errno set. ELOOP: a
 * link is in the way. ENOTDIR: another file is. EINVAL: a component is empty or "..". */
int open_beneath(int root, const char *path, int flags, unsigned mode, unsigned parents);

/* The error for the errno that open_beneath() left. ERR_FORMAT where a link, a FIFO or a file that
 * is no directory is in the way; ERR_IO otherwise. `root_name` is the root's name in messages. */
NODISCARD enum status open_beneath_failed(const char *root_name, const char *path, struct err *e);

/* Opens a regular file with open_beneath(), without waiting for a FIFO. *fd is -1 if the file does
 * not exist and `flags` have no O_CREAT. ERR_FORMAT: a link is in the way, or the file is not a
 * regular one. */
NODISCARD enum status open_file_beneath(int root, const char *path, int flags,
                                        const char *root_name, int *fd, struct err *e);
/* The same, for reading with stdio. *out is NULL if the file does not exist. */
NODISCARD enum status open_stream_beneath(int root, const char *path, const char *root_name,
                                          FILE **out, struct err *e);

#endif
