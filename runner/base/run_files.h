/* Whole small files and JSON files, for every reader and writer of a run directory. Includes
 * paths.h, open_beneath.h and file_tree.h, which these users need as well. Nothing here changes the
 * working directory, the umask or any other state of the process. */
#ifndef FP8LAB_RUNNER_BASE_RUN_FILES_H
#define FP8LAB_RUNNER_BASE_RUN_FILES_H

#include <jansson.h>
#include <stdio.h>

#include "kernels/base.h"
#include "runner/base/file_tree.h"
#include "runner/base/open_beneath.h"
#include "runner/base/paths.h"

/* Writes all n bytes; retries short writes and EINTR. `name` is used in messages only. */
NODISCARD enum status write_all(int fd, const void *bytes, size_t n, const char *name,
                                struct err *e);

/* Replaces the file at path by the bytes: temporary file, fsync, rename. After an error the old
 * file is unchanged. */
NODISCARD enum status file_replace(const char *path, const void *bytes, size_t n, struct err *e);

/* The same for root/path, without following a link. */
NODISCARD enum status replace_beneath(int root, const char *path, const char *root_name,
                                      const void *bytes, size_t n, struct err *e);

/* Reads the whole file: *n bytes and a NUL after them, owned by the caller. ERR_FORMAT for more
 * than `limit` bytes. */
NODISCARD enum status file_read(const char *path, int64_t limit, char **out, size_t *n,
                                struct err *e);
/* The same for a regular file that is already open, at its start. `path` is for messages. */
NODISCARD enum status file_read_open(int fd, const char *path, int64_t limit, char **out, size_t *n,
                                     struct err *e);

/* Makes the directory and its missing parents. */
NODISCARD enum status directory_make(const char *path, struct err *e);

/* fsync of the directory itself: a rename in it then survives a power failure. */
NODISCARD enum status directory_sync(const char *path, struct err *e);

/* ---- JSON ---------------------------------------------------------------------------------- */
enum { JSON_FILE_LIMIT = 64 << 20 };

/* Strict JSON: duplicate keys are rejected. *out is owned by the caller: json_decref. */
NODISCARD enum status json_file_read(const char *path, json_t **out, struct err *e);

/* Sorted keys, two-space indent, one newline at the end: equal values give equal bytes. */
NODISCARD enum status json_file_write(const char *path, const json_t *value, struct err *e);

/* The same two for root/path, without following a link. */
NODISCARD enum status json_read_beneath(int root, const char *path, const char *root_name,
                                        json_t **out, struct err *e);
NODISCARD enum status json_write_beneath(int root, const char *path, const char *root_name,
                                         const json_t *value, struct err *e);

/* The string member `key`, or `otherwise` if it is absent or not a string. Borrowed from object. */
const char *json_text(const json_t *object, const char *key, const char *otherwise);
/* The integer member `key`; 0 if it is absent or no integer. */
int64_t json_int(const json_t *object, const char *key);

#endif
