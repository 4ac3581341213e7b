/* The resolved configuration (runner/script/KEYS.md) as the option structs that
 * model/ takes. The script room has checked it against the schema and filled every default. A
 * missing key means that the file was written by hand or by another version. */
#ifndef FP8LAB_RUNNER_PLAN_OPTIONS_H
#define FP8LAB_RUNNER_PLAN_OPTIONS_H

#include "model/train.h"

struct json_t;

enum archive_policy { ARCHIVE_NONE, ARCHIVE_WEIGHTS, ARCHIVE_FULL };

struct eval_options { int64_t every, batches; };      /* every 0: no evaluation */
/* A text, or a list of token ids; the other is NULL. Borrowed from the JSON. */
struct sample_prompt { const char *text; const struct json_t *ids; };
/* sample: texts that a run generates while it trains. */
struct sample_options {
    int64_t every, tokens, top_k; /* every 0: none; new tokens per prompt; top_k 0: all */
    double temperature, top_p;
    uint64_t seed;
    struct sample_prompt *prompts; /* [prompt_count], owned */
    int64_t prompt_count;
    const char *tokenizer; /* as the script names it; NULL: not named. Borrowed from the JSON */
};
/* tensorboard: event files beside the records. */
struct tensorboard_options {
    bool on;
    int64_t histograms; /* steps from one to the next, at least 1 / HISTOGRAMS_MAX of the run; 0:
                           none */
};
enum { HISTOGRAMS_MAX = 100 }; /* a run's; TensorBoard shows no more by default */
enum { MILESTONES_MAX = 64 };

/* What they mean for each checkpoint: plan/tiers.h. */
struct checkpoint_options {
    bool given;          /* false: only on a stop request */
    int64_t every, keep; /* every 0: not by steps; keep: that many of the newest, with 0 none after
                          * the run */
    double minutes;      /* 0: not by time */
    bool best;           /* keep that of the best evaluation as well */
    bool best_is_max;    /* the largest value is the best; false: the smallest */
    const char *best_metric; /* a column of the evaluations: "loss", "accuracy". Static */
    bool init;           /* save and keep one before the first update */
    bool background;     /* copy it to host memory, and write it beside the next steps */
    bool epoch;          /* save and keep one at the end of each epoch */
    int64_t milestones[MILESTONES_MAX], milestone_count; /* save and keep these steps; ascending */
};

struct run_options {
    struct model_config model;
    struct recipe recipe; /* site owned */
    enum attention_backend attention; /* attention.backend */
    struct train_options train; /* selection.rule owned; its strings as those of data */
    struct data_options data; /* with the sets of eval.also; strings borrowed from the JSON; the
                                 lists owned */
    struct eval_options eval;
    struct sample_options sample;
    struct checkpoint_options checkpoint;
    struct tensorboard_options tensorboard;
    enum archive_policy archive;
    bool exact;           /* train.exact: operators take forms whose bits the CPU has */
    int64_t time_limit_s; /* 0: none */
    double epochs;        /* train.epochs; 0: the script gives steps */
    bool init_optimizer, init_restart; /* init.optimizer, init.restart */
    int64_t gpus;         /* ranks of the experiment, at least 1 */
};

/* `resolved` is borrowed and must outlive *out. ERR_FORMAT names the key. */
NODISCARD enum status options_read(const struct json_t *resolved, struct run_options *out,
                                   struct err *e);
/* Only the model, of its keys alone. */
NODISCARD enum status options_read_model(const struct json_t *model, struct model_config *out,
                                         struct err *e);
/* Replaces the recipe by that of the name, with the kind's defaults in every layer. ERR_ARG lists
 * the names. */
NODISCARD enum status options_set_recipe(struct run_options *o, const char *name, struct err *e);
/* Only the data, with the sets of eval.also, for callers that hash or export data. */
NODISCARD enum status options_read_data(const struct json_t *resolved, struct data_options *out,
                                        struct err *e);
void options_free(struct run_options *o);

/* Of the resolved "recipe". Whether any GEMM is FP8. */
bool options_recipe_is_fp8(const struct json_t *recipe);
/* Whether a value can exceed its format: only where scales are older than the values. With a scale
 * from its own amax a product is at most a rounding above the format's maximum, which the count of
 * "saturated" has. */
bool options_recipe_can_saturate(const struct json_t *recipe);

/* Text with a tokenizer is trained on as its token shards: *out, owned by the caller, is the
 * configuration with such data. It shares every section without data with `config`. `tokens`: the
 * record of the shards (cache/cache.h). ERR_CONFIG: it lacks those of a set. */
NODISCARD enum status options_with_shards(const struct json_t *config, const struct json_t *tokens,
                                          struct json_t **out, struct err *e);
void options_free_data(struct data_options *o);

#endif
