/* Patterns among data.paths ("books/[a-z]?.txt"), replaced by the files they match, so that a
 * configuration names every file. Done by the runner: a script touches no file. */
#ifndef FP8LAB_RUNNER_SCRIPT_DATA_PATTERNS_H
#define FP8LAB_RUNNER_SCRIPT_DATA_PATTERNS_H

#include <jansson.h>

#include "kernels/base.h"

/* Where the files are. Zero-initialise: the working directory. */
struct pattern_source {
    const char *root;    /* paths, absolute ones too, count from here; NULL: as they stand */
    const json_t *known; /* [{"path"}]: a bundle's files, in the place of a file system; or NULL */
    bool must_match;     /* otherwise a pattern that matches nothing stays as it is */
};

/* Replaces the patterns in config.data.paths of text data, in place. The characters * ? [ make a
 * path a pattern, unless a file has that very name. They match no '/' and no '.' at the beginning
 * of a name, and may stand in two components of a path, so that no script makes us search a whole
 * disk. A pattern gives regular files in bytewise order, without those that stand in
 * the list already. ERR_CONFIG names a pattern that matches nothing, where it must; ERR_IO,
 * ERR_MEMORY. */
NODISCARD enum status data_patterns_expand(json_t *config, const struct pattern_source *source,
                                           struct err *e);

/* Whether some file here matches; of a path that is no pattern: whether it can be read. */
bool data_pattern_is_here(const char *path);

#endif
