/* What determines a run's results, as hashes: equal inputs must give equal results, and a suite
 * does not run a row again whose inputs are already in a bundle. */
#ifndef FP8LAB_RUNNER_RECORD_INPUTS_H
#define FP8LAB_RUNNER_RECORD_INPUTS_H

#include "kernels/base.h"
#include "model/sha256.h"

struct json_t;

struct inputs {
    char config[SHA256_HEX];  /* the resolved configuration, canonical; the seed is in it */
    char code[SHA256_HEX];    /* the sources compiled in */
    char data[SHA256_HEX];    /* the data's bytes and format, not their names */
    char choices[SHA256_HEX]; /* the choice table; "" where the backend has none (cpu) */
    char parent[SHA256_HEX];  /* the checkpoint of another run that it begins with; "": step 0 */
    char all[SHA256_HEX];     /* inputs_sha256: of the canonical JSON of these */
};

/* Opens and reads all data, so a file that is missing or malformed is found here: its error is
 * data.h's. ERR_CONFIG where evaluation is asked for and nothing is held out. Paths of data count
 * from `data_root` (NULL: as they stand). *files, owned by the caller, takes the files of the data:
 * [{path, bytes, sha256}]; it may be NULL. */
NODISCARD enum status inputs_hash(const struct json_t *resolved, const char *data_root,
                                  struct inputs *out, struct json_t **files, struct err *e);

/* Puts the hash of a choice table ("": none) among the inputs, and makes `all` anew. */
NODISCARD enum status inputs_choose(struct inputs *in, const char *sha256, struct err *e);
/* The same for the record of a run, run.json. */
NODISCARD enum status inputs_record_choices(struct json_t *run, const char *sha256, struct err *e);

/* Puts the checkpoint that the run begins with among the inputs, and makes `all` anew. */
NODISCARD enum status inputs_extend(struct inputs *in, const char *sha256, struct err *e);

/* Whether a run, by its run.json, was asked for with these inputs: the choice table counts only
 * where the inputs name one, since a run that was given none makes its own. */
bool inputs_asked(const struct json_t *run, const struct inputs *in);

/* {"config","code","data","choices":null or text, and "parent" where there is one}: run.json's
 * "inputs". NULL: out of memory. */
struct json_t *inputs_json(const struct inputs *in);

#endif
