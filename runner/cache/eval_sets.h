/* eval.also of a configuration: further sets of held-out data. */
#ifndef FP8LAB_RUNNER_CACHE_EVAL_SETS_H
#define FP8LAB_RUNNER_CACHE_EVAL_SETS_H

#include "model/data_options.h"

struct json_t;

enum { EVAL_SETS_MAX = 16, EVAL_SET_NAME_CAP = 33 /* with the NUL */,
       EVAL_SET_FILES_MAX = 1024 /* of all sets */ };

/* Letters, digits and '_', a letter first: a name is part of tags and of columns. */
bool eval_set_is_name(const char *text);

/* The table of a configuration, files by name; NULL: it has no further sets. Borrowed. */
struct json_t *eval_sets_of(const struct json_t *config);

/* Fills `sets` of the options, in bytewise order of the names; strings are borrowed from the JSON.
 * ERR_FORMAT names the key. Freed by eval_sets_free(), also after an error. */
NODISCARD enum status eval_sets_read(const struct json_t *config, struct data_options *out,
                                     struct err *e);
void eval_sets_free(struct data_options *o);

/* The section eval of a configuration with sets, with the token shards of each in the place of its
 * files. `tokens`: the record of the run's tokens (cache/cache.h). ERR_CONFIG: it lacks those of a
 * set. *out is owned by the caller. */
NODISCARD enum status eval_sets_with_shards(const struct json_t *config,
                                            const struct json_t *tokens, struct json_t **out,
                                            struct err *e);

/* ERR_CONFIG names a file of a set that is also one of the run's own data or of another set, and a
 * number of files above EVAL_SET_FILES_MAX. `here`: links to one file are the same; else, and for a
 * file that is not there, only equal names are. `root`: prefix of all paths, or NULL. */
NODISCARD enum status eval_sets_check(const struct json_t *config, const char *root, bool here,
                                      struct err *e);

/* The first of some files of data, {path, bytes, sha256, set: the name if it is of a set}, that is
 * a copy of an earlier one, or the same; NULL: none is, or there is no memory to look. *first: the
 * earlier one. `across`: only copies of a file that is in another set or in none. */
const struct json_t *eval_sets_find_copy(const struct json_t *files, bool across,
                                         const struct json_t **first);
/* ERR_CONFIG names a file of a set that is a copy of one of the run's own data or of another set;
 * the own ones come first in `files`. It finds what eval_sets_check() cannot, but takes digests. */
NODISCARD enum status eval_sets_check_copies(const struct json_t *files, struct err *e);

#endif
