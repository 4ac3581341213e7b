/* The resolved configuration (runner/script/KEYS.md) as the option structs that
 * model/ takes. The script room has checked it against the schema and filled every default. A
 * missing key means that the file was written by hand or by another version. */
#ifndef FP8LAB_RUNNER_PLAN_OPTIONS_H
#define FP8LAB_RUNNER_PLAN_OPTIONS_H

#include "model/train.h"

struct json_t;

enum archive_policy { ARCHIVE_NONE, ARCHIVE_WEIGHTS, ARCHIVE_FULL };

struct eval_options { int64_t every, batches; };      /* every 0: no evaluation */
struct checkpoint_options {
    int64_t every, keep; /* every 0: only on a stop request; keep: that many of the newest,
                          * with 0 none after the run */
    bool best;           /* keep the one with the lowest eval loss as well */
    bool init;           /* save and keep one of step 0, before any update */
};

struct run_options {
    struct model_config model;
    struct recipe recipe; /* site owned */
    struct train_options train;
    struct data_options data; /* strings borrowed from the JSON; the lists owned */
    struct eval_options eval;
    struct checkpoint_options checkpoint;
    enum archive_policy archive;
    int64_t time_limit_s; /* 0: none */
    int64_t gpus;         /* ranks of the experiment, at least 1 */
};

/* `resolved` is borrowed and must outlive *out. ERR_FORMAT names the key. */
NODISCARD enum status options_read(const struct json_t *resolved, struct run_options *out,
                                   struct err *e);
/* Only the data section, for callers that hash or export data. */
NODISCARD enum status options_read_data(const struct json_t *resolved, struct data_options *out,
                                        struct err *e);
void options_free(struct run_options *o);

/* Text with a tokenizer is trained on as the token shards of it at `prefix`: *out, owned by the
 * caller, is the configuration with such data. It shares every other section with `config`. */
NODISCARD enum status options_with_shards(const struct json_t *config, const char *prefix,
                                          struct json_t **out, struct err *e);
void options_free_data(struct data_options *o);

#endif
