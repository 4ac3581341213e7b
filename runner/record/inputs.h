/* The hashes of what determines a run's results. Equal inputs must give equal results, so a suite
 * does not repeat a row if a bundle with its inputs exists. */
#ifndef FP8LAB_RUNNER_RECORD_INPUTS_H
#define FP8LAB_RUNNER_RECORD_INPUTS_H

#include "kernels/base.h"
#include "model/ground/sha256.h"
#include "runner/cache/eval_sets.h"
#include "runner/record/known_data.h"

struct json_t;
struct run_options;
struct data;

/* A set of eval.also: the hash of its files, as that of the data. */
struct input_set { char name[EVAL_SET_NAME_CAP], sha256[SHA256_HEX]; };

struct inputs {
    char config[SHA256_HEX];  /* the resolved configuration, canonical; the seed is in it. Without
                                 `tensorboard`, which says what is drawn of the records */
    char code[SHA256_HEX];    /* the sources compiled in */
    char data[SHA256_HEX];    /* the data's bytes and format, not their names */
    struct input_set also[EVAL_SETS_MAX]; /* the sets of eval.also, by name */
    int64_t also_count;
    char choices[SHA256_HEX]; /* the choice table; "": none, as on the cpu backend */
    char parent[SHA256_HEX];  /* the checkpoint from which an extended run starts; "": none */
    char weights[SHA256_HEX]; /* the initial weights (weights/weights.h); "": random ones */
    char arithmetic[32];      /* of the cpu backend (kernels/arithmetic.h); "": the reference's */
    char all[SHA256_HEX];     /* inputs_sha256: of the canonical JSON of these */
    struct known_data *known; /* set before inputs_hash; digests of files read before, or NULL */
    char repeats[400]; /* a line about data that the run reads more than once, or ""; not hashed */
    bool wants_guess;  /* set before inputs_hash: of a run that begins, guess_loss is computed */
    double guess_loss; /* nats (record/guess_loss.h); 0: not known; not hashed */
};

/* Opens and reads all data, so a missing or malformed file is found here, with the errors of
 * model/data.h. ERR_CONFIG: the experiment evaluates but holds no data out, or none of the tokens
 * that it trains or evaluates on has loss. Data paths are relative to `data_root` (NULL: to the
 * working directory). *files (the caller owns it) is the list of data files: [{path, bytes, sha256,
 * sample_sha256}], with `set` for a file of eval.also, which must be no copy of others. `tokens`:
 * the record of the tokens of text with a tokenizer (cache/cache.h); NULL for other data. */
NODISCARD enum status inputs_hash(const struct json_t *resolved, const char *data_root,
                                  const struct json_t *tokens, struct inputs *out,
                                  struct json_t **files, struct err *e);

/* Whether `then`, the inputs of a run.json, has the same sets of eval.also, by name and hash. */
bool inputs_same_sets(const struct inputs *in, const struct json_t *then);

/* ERR_CONFIG: the experiment evaluates, and `data` hold out less than one sequence or no token with
 * loss, or a set of eval.also has none. Without this check the first evaluation would fail, perhaps
 * hours later. */
NODISCARD enum status inputs_check_held_out(const struct run_options *run, const struct data *data,
                                            struct err *e);

/* Sets the hash of the choice table ("": none) and recomputes `all`. */
NODISCARD enum status inputs_choose(struct inputs *in, const char *sha256, struct err *e);
/* The same for the record of a run, run.json. */
NODISCARD enum status inputs_record_choices(struct json_t *run, const char *sha256, struct err *e);

/* Sets the hash of the checkpoint from which the run starts, and recomputes `all`. */
NODISCARD enum status inputs_extend(struct inputs *in, const char *sha256, struct err *e);

/* Sets the hash of the initial weights, and recomputes `all`. */
NODISCARD enum status inputs_begin_with(struct inputs *in, const char *sha256, struct err *e);

/* Sets the arithmetic, and recomputes `all`. */
NODISCARD enum status inputs_calculate(struct inputs *in, const char *arithmetic, struct err *e);

/* Whether the run of this run.json was started with these inputs. The choice table is compared only
 * if the inputs name one, since a run without --choices makes its own. */
bool inputs_asked(const struct json_t *run, const struct inputs *in);

/* Checks run.json: inputs_sha256 is the hash of `inputs`, inputs.config that of `resolved` (NULL:
 * the run has no resolved.json), and `seed` is train.seed of `resolved`. Without inputs_sha256,
 * only hashes that are there are checked. ERR_VERIFY names the key that is wrong. */
NODISCARD enum status inputs_check(const struct json_t *run, const struct json_t *resolved,
                                   struct err *e);

/* run.json's "inputs": {"config","code","data","choices": text or null}, and "parent", "weights",
 * "arithmetic" and "also", {name: hash}, if there are any. NULL: out of memory. */
struct json_t *inputs_json(const struct inputs *in);

#endif
