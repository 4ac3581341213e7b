/* A file of tables that runs of this user keep for later runs, in a cache folder: {schema, sha256
 * of the tables, tables}. It is replaced as a whole under a lock. A damaged one is named and
 * ignored. So is one of a newer program, whose schema has a higher number, and it is never
 * replaced. */
#ifndef FP8LAB_RUNNER_RECORD_KEPT_FILE_H
#define FP8LAB_RUNNER_RECORD_KEPT_FILE_H

#include "runner/base/run_files.h"

struct json_t;

enum { KEPT_PROBLEM_CAP = 2 * PATH_CAP };

struct kept_kind {
    const char *schema, *file, *lock; /* "fp8lab.choices/1", "choices.json", "choices.lock" */
    const char *about;                /* "keeps the algorithms that earlier runs timed" */
    /* What the hash cannot tell: that this program understands the tables, an array. */
    enum status (*check)(const struct json_t *tables, struct err *e);
    /* Adds to `tables` what `more` has and they lack; *grew becomes true if there is something. */
    enum status (*merge)(struct json_t *tables, const struct json_t *more, bool *grew,
                         struct err *e);
};

/* folder NULL: $XDG_CACHE_HOME/fp8lab, or ~/.cache/fp8lab. spare: the folder of runs, or NULL. Its
 * folder `cache` serves without these variables, or if the first folder cannot be written. */
NODISCARD enum status kept_folders(const char *folder, const char *spare, char out[PATH_CAP],
                                   char out_spare[PATH_CAP], struct err *e);
/* The tables of the file; an empty list, with a sentence in `problem`, if it is damaged, unreadable
 * or of a newer program. *tables is the caller's. */
NODISCARD enum status kept_read(const struct kept_kind *k, const char *folder,
                                struct json_t **tables, char problem[KEPT_PROBLEM_CAP],
                                struct err *e);
/* Reads, merges and writes under the lock, so that two runs keep what both have. A damaged file is
 * replaced. ERR_IO: it cannot be written, or not be read, as one of another user: it stays.
 * ERR_UNSUPPORTED: it is of a newer program, as kept_read() says, and stays. */
NODISCARD enum status kept_store(const struct kept_kind *k, const char *folder,
                                 const struct json_t *more, struct err *e);

#endif
