/* Replaces the patterns in the paths of data ("books/[a-z]?.txt") by the matching files, so that a
 * configuration names every file. The runner does this, because a script cannot read files. */
#ifndef FP8LAB_RUNNER_SCRIPT_DATA_PATTERNS_H
#define FP8LAB_RUNNER_SCRIPT_DATA_PATTERNS_H

#include <jansson.h>

#include "kernels/base.h"

/* Where the files are. Zero-initialise: the working directory. */
struct pattern_source {
    const char *root;    /* prefix of all paths, absolute ones too; NULL: none */
    const json_t *known; /* [{"path"}]: a bundle's files, used instead of a file system; or NULL */
    int64_t epoch_steps; /* what train.epochs means in a bundle; 0: count in the data */
    bool must_match;     /* otherwise a pattern without a match is unchanged */
};

/* Replaces the patterns in `paths` and `path` of config.data and of its parts, and in the sets of
 * eval.also, in place: a `path` that is a pattern becomes `paths`. A path with * ? or [ is a
 * pattern, unless a file has exactly that name. These characters match no '/', and no '.' at the
 * start of a name. At most two components may have them, so that a script cannot make us search a
 * whole disk. A pattern gives regular files in bytewise order, without those already in the list.
 * ERR_CONFIG, with the pattern, if it has no match and must_match is set; ERR_IO, ERR_MEMORY. */
NODISCARD enum status data_patterns_expand(json_t *config, const struct pattern_source *source,
                                           struct err *e);

/* A comma in a name makes two names of it in --set. `set` is what --set gave data.paths, or NULL.
 * If files of that list are not here, but one with their names joined by commas is, appends to the
 * error the --set that names it and the others. `root` as above. */
void data_comma_hint(const char *set, const char *root, struct err *e);

/* Whether a file here matches the pattern. For any other path: whether it can be read. */
bool data_pattern_is_here(const char *path);

#endif
