/* Names the file of a run's data that has other content now than the run read. Lists are those of
 * data/experiment/data.json: [{"path", "bytes", "sha256"}]. */
#ifndef FP8LAB_RUNNER_RECORD_DATA_OTHER_H
#define FP8LAB_RUNNER_RECORD_DATA_OTHER_H

#include <jansson.h>

#include "runner/base/paths.h"

enum { DATA_OTHER_CAP = 640 };

/* "PATH is here, but with other content: 18897 bytes, sha256 0087340d095d". `sha256` "": the file
 * was not read. `path` is printed as it is. */
void data_other_words(char out[DATA_OTHER_CAP], const char *path, int64_t bytes,
                      const char *sha256);

/* Before data are read: ERR_CONFIG names the first file of `then` that has another size now, ERR_IO
 * one that is absent; with what to do. `root`: prefix of all paths, or NULL. */
NODISCARD enum status data_sizes_check(const json_t *then, const char *root, struct err *e);

/* ERR_CONFIG names the first file with other content in `now`, a list of the same paths, with what
 * to do. OK if there is none, or the lists have other paths. */
NODISCARD enum status data_lists_check(const json_t *then, const json_t *now, struct err *e);

#endif
