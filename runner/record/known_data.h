/* The digests of data files that this process has read. The rows of a suite read the same files,
 * and a file that did not change since is not read again. */
#ifndef FP8LAB_RUNNER_RECORD_KNOWN_DATA_H
#define FP8LAB_RUNNER_RECORD_KNOWN_DATA_H

#include "model/data.h"

/* Zero-initialise. */
struct known_data {
    struct data_file *file; /* owned; their paths are NULL */
    int64_t count;
    int64_t began_ns; /* when the files were last looked for, before they are hashed */
};

/* files [data_file_count()]: fills the entries of unchanged files whose digests are known. */
void known_data_find(struct known_data *k, const struct data *data, struct data_file *files);

/* Adds hashed files, except a file that changed since its digest was begun, or so shortly before
 * that a further change may have left its times as they are. ERR_MEMORY. */
NODISCARD enum status known_data_add(struct known_data *k, const struct data *data,
                                     const struct data_file *files, struct err *e);
void known_data_free(struct known_data *k);

#endif
