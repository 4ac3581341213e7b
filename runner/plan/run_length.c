#include "runner/plan/run_length.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "model/data.h"
#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/cache/cache_key.h"
#include "runner/plan/options.h"

enum { STEPS_MAX = 1000000000 }; /* the schema's limit */

int64_t default_decay(const char *schedule, int64_t steps, int64_t warmup) {
    int64_t after = steps > warmup ? steps - warmup : 0;
    if (strcmp(schedule, "constant") == 0) return 0;
    return strcmp(schedule, "wsd") == 0 ? (after + 4) / 5 : after;
}

int64_t warmup_of_ratio(double ratio, int64_t steps) {
    return (int64_t)ceil(ratio * (double)steps);
}

static int64_t int_at(const json_t *table, const char *key) {
    return json_integer_value(json_object_get(table, key));
}

/* The sequences of an epoch: of all parts of a blend. */
static enum status count_sequences(const json_t *config, const char *root, int64_t *out,
                                   struct err *e) {
    const json_t *model = json_object_get(config, "model");
    struct data_options options;
    struct data *data = NULL;
    TRY(options_read_data(config, &options, e));
    options.root = root;
    struct data_options own = options;
    own.set_count = 0; /* no epoch reads them */
    enum status st = OK;
    if (options.kind == DATA_SYNTHETIC)
        st = FAIL(e, ERR_CONFIG, "train.epochs: generated data have no end; give train.steps");
    if (st == OK) {
        st = data_open(&data, &own, int_at(model, "vocab"), int_at(model, "seq_len"), 0, e);
        if (st != OK)
            err_prefix(e, "train.epochs needs the data, to count their sequences (train.steps does "
                       "not)");
    }
    if (st == OK) *out = data_sequences(data, SPLIT_TRAIN);
    data_close(data);
    options_free_data(&options);
    return st;
}

static enum status count_steps(const json_t *config, const char *root, int64_t *steps,
                               struct err *e) {
    const json_t *train = json_object_get(config, "train");
    double epochs = json_number_value(json_object_get(train, "epochs"));
    int64_t sequences = 0;
    TRY(count_sequences(config, root, &sequences, e));
    int64_t batch = int_at(train, "global_batch");
    double count = ceil(epochs * (double)sequences / (double)batch);
    if (epochs * (double)sequences < (double)batch)
        return FAIL(e, ERR_CONFIG, "train.epochs: %g epoch%s of %" PRId64 " sequence%s %s less "
                    "than one step of %" PRId64 "; give a smaller train.global_batch, more epochs, "
                    "or train.steps", epochs, epochs == 1 ? "" : "s", sequences,
                    sequences == 1 ? "" : "s", epochs == 1 ? "is" : "are", batch);
    if (count > STEPS_MAX)
        return FAIL(e, ERR_CONFIG, "train.epochs: %g epochs of %" PRId64 " sequences are %.0f "
                    "steps, at most %d are possible", epochs, sequences, count, (int)STEPS_MAX);
    *steps = (int64_t)count;
    return OK;
}

static enum status check_recipe(const json_t *recipe, int64_t steps, struct err *e) {
    int64_t after = int_at(recipe, "forward_bf16_after");
    if (after == 0 || after < steps) return OK;
    return FAIL(e, ERR_CONFIG, "forward_bf16_after: no step would multiply forward in BF16, since "
                "train.epochs is %" PRId64 " steps here; write less than that, or leave it out; "
                "found %" PRId64, steps, after);
}

/* What the run's recipe and those of its layers do after some step. */
static enum status check_recipes(const json_t *config, int64_t steps, struct err *e) {
    const json_t *recipe = json_object_get(config, "recipe"), *one;
    size_t i;
    TRY(check_recipe(recipe, steps, e));
    json_array_foreach(json_object_get(recipe, "layers"), i, one)
        TRY(check_recipe(json_object_get(one, "recipe"), steps, e));
    return OK;
}

enum status epochs_resolve(json_t *config, const char *data_root, int64_t known_steps,
                           struct err *e) {
    json_t *train = json_object_get(config, "train");
    json_t *schedule = json_object_get(train, "schedule");
    int64_t steps = known_steps, warmup = int_at(schedule, "warmup");
    bool failed = false;
    if (!json_is_null(json_object_get(train, "steps"))) return OK;
    if (steps == 0 && cache_is_needed(config)) return OK;
    if (steps == 0) TRY(count_steps(config, data_root, &steps, e));
    const json_t *ratio = json_object_get(schedule, "warmup_ratio");
    if (ratio) {
        warmup = warmup_of_ratio(json_number_value(ratio), steps);
        json_put(schedule, "warmup", json_integer(warmup), &failed);
    }
    if (warmup > steps)
        return FAIL(e, ERR_CONFIG, "train.schedule.warmup: %" PRId64 " is longer than the run; "
                    "train.epochs is %" PRId64 " steps here", warmup, steps);
    TRY(check_recipes(config, steps, e));
    json_put(train, "steps", json_integer(steps), &failed);
    const json_t *decay = json_object_get(schedule, "decay");
    if (!json_is_integer(decay)) {
        int64_t after = default_decay(json_text(schedule, "kind", ""), steps, warmup);
        json_put(schedule, "decay", json_integer(after), &failed);
    } else if (warmup + json_integer_value(decay) > steps) {
        return FAIL(e, ERR_CONFIG, "train.schedule.decay: warmup %" PRId64 " and decay %" PRId64
                    " do not fit into the %" PRId64 " steps that train.epochs is here", warmup,
                    (int64_t)json_integer_value(decay), steps);
    }
    return failed ? FAIL(e, ERR_MEMORY, "the configuration") : OK;
}
