/* Paths, whole small files and JSON files, for every reader and writer of a run directory. Includes
 * open_beneath.h and file_tree.h, which these users need as well. Nothing here changes the working
 * directory, the umask or any other state of the process. */
#ifndef FP8LAB_RUNNER_BASE_RUN_FILES_H
#define FP8LAB_RUNNER_BASE_RUN_FILES_H

#include <jansson.h>
#include <stdio.h>

#include "kernels/base.h"
#include "runner/base/file_tree.h"
#include "runner/base/open_beneath.h"

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

/* Writes all n bytes; retries short writes and EINTR. `name` is used in messages only. */
NODISCARD enum status write_all(int fd, const void *bytes, size_t n, const char *name,
                                struct err *e);

/* Replaces path by the bytes, or leaves it as it was: temporary name, fsync, rename. */
NODISCARD enum status file_replace(const char *path, const void *bytes, size_t n, struct err *e);

/* The same of root/path, following no link. */
NODISCARD enum status replace_beneath(int root, const char *path, const char *root_name,
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

/* The same two for root/path, without following a link. */
NODISCARD enum status json_read_beneath(int root, const char *path, const char *root_name,
                                        json_t **out, struct err *e);
NODISCARD enum status json_write_beneath(int root, const char *path, const char *root_name,
                                         const json_t *value, struct err *e);

/* A string member, or `otherwise` when it is absent or not a string. Borrowed from object. */
const char *json_text(const json_t *object, const char *key, const char *otherwise);

#endif
