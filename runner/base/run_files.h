/* What every reader and writer of a run directory shares: paths, whole small files, JSON files,
 * listing and removing a tree. Nothing here changes the working directory, the umask or any other
 * state of the process. */
#ifndef FP8LAB_RUNNER_BASE_RUN_FILES_H
#define FP8LAB_RUNNER_BASE_RUN_FILES_H

#include <jansson.h>
#include <stdio.h>

#include "kernels/base.h"

enum { PATH_CAP = 4096 };

/* out = dir/name. ERR_ARG if it does not fit PATH_CAP. */
NODISCARD enum status path_join(char out[PATH_CAP], const char *dir, const char *name,
                                struct err *e);

/* Whether something (a link counts by what it names) is at path. */
bool path_exists(const char *path);
bool path_is_directory(const char *path);

/* The last component of path, trailing slashes dropped, in out. */
void path_base(char out[PATH_CAP], const char *path);
/* Everything before the last component; "." when there is none. */
void path_parent(char out[PATH_CAP], const char *path);

/* Opens root/path one component at a time, following no link anywhere, so that nothing outside
 * root is ever reached. `flags` are open(2)'s for the last component (O_NOFOLLOW and O_CLOEXEC are
 * added); with `make_parents`, missing directories on the way are made, mode 0700. Returns the
 * descriptor, or -1 with errno set (ELOOP or ENOTDIR where a link stands in the way). */
int open_beneath(int root, const char *path, int flags, unsigned mode, bool make_parents);

/* Opens a regular file of a run as open_beneath() does, without waiting for a FIFO. `shown` is the
 * root's name in messages. *fd is -1 where there is no such file and O_CREAT is not asked for.
 * ERR_FORMAT: a link stands in the way, or what is there is no regular file. */
NODISCARD enum status open_file_beneath(int root, const char *path, int flags, const char *shown,
                                   int *fd, struct err *e);
/* The same to read from; *out is NULL where there is no such file. */
NODISCARD enum status open_stream_beneath(int root, const char *path, const char *shown, FILE **out,
                                     struct err *e);

/* Writes all n bytes; retries short writes and EINTR. `name` is used in messages only. */
NODISCARD enum status write_all(int fd, const void *bytes, size_t n, const char *name,
                                struct err *e);

/* Replaces path by the bytes, or leaves it as it was: temporary name, fsync, rename. */
NODISCARD enum status file_replace(const char *path, const void *bytes, size_t n, struct err *e);

/* The same of root/path, following no link. */
NODISCARD enum status replace_beneath(int root, const char *path, const char *shown,
                                      const void *bytes, size_t n, struct err *e);

/* The whole file, NUL-terminated beyond *n, owned by the caller. ERR_FORMAT above `limit` bytes. */
NODISCARD enum status file_read(const char *path, int64_t limit, char **out, size_t *n,
                                struct err *e);
/* The same of a regular file that is open, at its beginning; `path` is its name in messages. */
NODISCARD enum status file_read_open(int fd, const char *path, int64_t limit, char **out, size_t *n,
                                     struct err *e);

/* Makes the directory and those it lies in, as far as they are not there. */
NODISCARD enum status directory_make(const char *path, struct err *e);

/* fsync of the directory itself, so that a rename in it survives a power cut. */
NODISCARD enum status directory_sync(const char *path, struct err *e);

/* ---- JSON ---------------------------------------------------------------------------------- */
enum { JSON_FILE_LIMIT = 64 << 20 };

/* Strict JSON (duplicate keys refused). *out is owned by the caller: json_decref. */
NODISCARD enum status json_file_read(const char *path, json_t **out, struct err *e);

/* Sorted keys, two-space indent, one newline at the end: equal values give equal bytes. */
NODISCARD enum status json_file_write(const char *path, const json_t *value, struct err *e);

/* Both of root/path, following no link. */
NODISCARD enum status json_read_beneath(int root, const char *path, const char *shown, json_t **out,
                                        struct err *e);
NODISCARD enum status json_write_beneath(int root, const char *path, const char *shown,
                                         const json_t *value, struct err *e);

/* A string member, or `otherwise` when it is absent or not a string. Borrowed from object. */
const char *json_text(const json_t *object, const char *key, const char *otherwise);

/* ---- a tree of files ----------------------------------------------------------------------- */
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
NODISCARD enum status tree_check(int root, const char *shown, struct err *e);

/* Removes path and all below it; links are removed, never followed. Absent is fine. */
NODISCARD enum status tree_remove(const char *path, struct err *e);

#endif
