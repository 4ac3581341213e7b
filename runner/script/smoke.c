#include "runner/script/smoke.h"

#include <string.h>
#include <unistd.h>

#include "kernels/base.h"
#include "runner/script/data_patterns.h"

enum {
    SMOKE_HEADS = 4,
    SMOKE_HEAD_DIM = 64,
    SMOKE_WIDTH = SMOKE_HEADS * SMOKE_HEAD_DIM, /* two 128-blocks: block scaling has blocks */
    SMOKE_SEQ_LEN = 64,
    SMOKE_VOCAB = 512,
    SMOKE_STEPS = 6,
    SMOKE_MICRO = 2,
    SMOKE_SYNTHETIC_SEED = 1234
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static void set_int(struct pool *p, struct value *table, const char *key, int64_t i) {
    value_set(p, table, key, value_int(p, i, table->place), table->place);
}

static void shrink_to(struct pool *p, struct value *table, const char *key, int64_t most) {
    set_int(p, table, key, smaller(value_int_at(table, key), most));
}

/* ---- data ------------------------------------------------------------------------------------ */
static bool readable(struct pool *p, const char *path, const char *suffix) {
    return access(pool_format(p, "%s%s", path, suffix), R_OK) == 0;
}

/* A file of tokens, or a pattern. A Megatron path may be named with or without its ".bin". */
static bool file_is_there(struct pool *p, const struct value *path, bool megatron) {
    if (!path || path->type != VALUE_STRING || data_pattern_is_here(path->string)) return true;
    return megatron && readable(p, path->string, ".bin") && readable(p, path->string, ".idx");
}

/* The files of text, of tokens, or of a part of tokens. */
static bool files_are_there(struct pool *p, const struct value *table, bool megatron) {
    const struct value *paths = value_get(table, "paths");
    for (int64_t i = 0; paths && i < paths->item_count; i++)
        if (!file_is_there(p, paths->items[i], megatron)) return false;
    return file_is_there(p, value_get(table, "path"), megatron);
}

static bool data_is_there(struct pool *p, const struct value *data) {
    const struct value *parts = value_get(data, "parts");
    bool megatron = value_is(value_get(data, "format"), "megatron");
    const struct value *tokenizer = value_get(data, "tokenizer");
    if (!value_is(tokenizer, "bytes") && !file_is_there(p, tokenizer, false)) return false;
    for (int64_t i = 0; parts && i < parts->item_count; i++)
        if (!files_are_there(p, parts->items[i], megatron)) return false;
    return files_are_there(p, data, megatron) &&
           file_is_there(p, value_get(data, "eval_path"), megatron);
}

static bool sets_are_there(struct pool *p, const struct value *data, const struct value *also) {
    bool megatron = value_is(value_get(data, "format"), "megatron");
    for (int64_t i = 0; also && i < also->member_count; i++) {
        const struct value *files = also->members[i].value;
        for (int64_t k = 0; k < files->item_count; k++)
            if (!file_is_there(p, files->items[k], megatron)) return false;
    }
    return true;
}

static struct value *synthetic(struct pool *p, struct place place) {
    struct value *data = value_new(p, VALUE_TABLE, place);
    value_set(p, data, "kind", value_string(p, "synthetic", place), place);
    set_int(p, data, "seed", SMOKE_SYNTHETIC_SEED);
    return data;
}

/* ---- sizes ----------------------------------------------------------------------------------- */
int64_t smoke_ends(const struct value *experiment) {
    const struct value *recipe = value_get(experiment, "recipe");
    if (!value_get(recipe, "first_bf16")) return 0;
    return value_int_at(recipe, "first_bf16") + value_int_at(recipe, "last_bf16");
}

static void shrink_model(struct pool *p, struct value *model, int64_t ends, bool real_tokens) {
    int64_t heads = value_int_at(model, "heads"), sharing = heads / value_int_at(model, "kv_heads");
    double ffn_ratio = (double)value_int_at(model, "ffn") / (double)value_int_at(model, "width");
    if (ffn_ratio > 4) ffn_ratio = 4;
    shrink_to(p, model, "layers", 2 + ends); /* two layers stay in the recipe */
    if (value_int_at(model, "layers") < 2) set_int(p, model, "layers", 2);
    set_int(p, model, "heads", SMOKE_HEADS);
    set_int(p, model, "kv_heads", SMOKE_HEADS % sharing == 0 ? SMOKE_HEADS / sharing : 2);
    set_int(p, model, "head_dim", SMOKE_HEAD_DIM);
    set_int(p, model, "width", SMOKE_WIDTH);
    set_int(p, model, "ffn", round_up((int64_t)(ffn_ratio * SMOKE_WIDTH), 32));
    shrink_to(p, model, "seq_len", SMOKE_SEQ_LEN);
    if (!real_tokens) shrink_to(p, model, "vocab", SMOKE_VOCAB); /* real ids need all of it */
}

static void shrink_train(struct pool *p, struct value *train) {
    struct value *schedule = value_get(train, "schedule");
    shrink_to(p, train, "micro_batch", SMOKE_MICRO);
    set_int(p, train, "global_batch", 2 * value_int_at(train, "micro_batch"));
    set_int(p, train, "steps", SMOKE_STEPS);
    shrink_to(p, schedule, "warmup", 2);
    int64_t decay = value_is(value_get(schedule, "kind"), "wsd")
                        ? 2
                        : SMOKE_STEPS - value_int_at(schedule, "warmup");
    if (value_get(schedule, "decay")) shrink_to(p, schedule, "decay", decay);
    else set_int(p, schedule, "decay", decay); /* with epochs the script may leave it open */
}

void smoke_shrink_recipe(struct pool *p, struct value *recipe) {
    if (value_get(recipe, "forward_bf16_after"))
        shrink_to(p, recipe, "forward_bf16_after", SMOKE_STEPS / 2);
}

static struct value *section(struct pool *p, struct value *experiment, const char *key) {
    struct value *v = value_get(experiment, key);
    if (v->type == VALUE_TABLE) return v;
    v = value_new(p, VALUE_TABLE, experiment->place);
    value_set(p, experiment, key, v, experiment->place);
    return v;
}

/* The weights of a real model do not fit the shrunk one, nor do numbers of its layers. */
static void leave_out(struct value *table, const char *key) {
    struct value_member *m = value_member(table, key);
    if (!m) return;
    memmove(m, m + 1, (size_t)(table->members + table->member_count - (m + 1)) * sizeof *m);
    table->member_count--;
}

void smoke_shrink(struct pool *p, struct value *experiment, int64_t ends) {
    leave_out(experiment, "init");
    leave_out(experiment, "sample"); /* its prompts may be too long for the shrunk model */
    struct value *data = value_get(experiment, "data"), *eval, *checkpoint;
    bool there = data_is_there(p, data);
    if (value_get(data, "max_tokens")) shrink_to(p, data, "max_tokens", SMOKE_SEQ_LEN);
    if (!there) value_set(p, experiment, "data", synthetic(p, data->place), data->place);
    bool real_tokens = there && (value_is(value_get(data, "kind"), "tokens") ||
                                 value_get(data, "tokenizer"));
    set_int(p, value_get(experiment, "hardware"), "gpus", 1);
    shrink_model(p, value_get(experiment, "model"), ends, real_tokens);
    shrink_train(p, value_get(experiment, "train"));
    smoke_shrink_recipe(p, value_get(experiment, "recipe"));
    leave_out(value_get(experiment, "train"), "freeze");
    leave_out(value_get(experiment, "train"), "lr_scale");
    leave_out(value_get(experiment, "train"), "recompute_layers");
    eval = section(p, experiment, "eval");
    if (!there || !sets_are_there(p, data, value_get(eval, "also"))) leave_out(eval, "also");
    set_int(p, eval, "every", SMOKE_STEPS);
    set_int(p, eval, "batches", 2);
    checkpoint = section(p, experiment, "checkpoint");
    set_int(p, checkpoint, "every", SMOKE_STEPS / 2);
    set_int(p, checkpoint, "keep", 2);
    if (!value_get(checkpoint, "best"))
        value_set(p, checkpoint, "best", value_new(p, VALUE_NULL, checkpoint->place),
                  checkpoint->place);
}
