#include "runner/plan/options.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/cache/cache_key.h"
#include "runner/cache/eval_sets.h"

/* Steps between two measurements of casts: 0.24 % of the mean step on an H200 (model/LOG.md). */
enum { FP8_ERROR_EVERY = 100 };

/* ---- typed access ------------------------------------------------------------------------------
 * One section and its first failure. Getters after a failure do nothing, so a section's code is a
 * list of its keys, with one check at the end. */
struct section {
    const json_t *object;
    const char *path; /* "model"; for messages */
    enum status st;
    struct err *e;
};

static void section_fail(struct section *s, const char *key, const char *expected) {
    if (s->st == OK)
        s->st = FAIL(s->e, ERR_FORMAT, "resolved configuration: %s%s%s must be %s", s->path,
                     *s->path ? "." : "", key, expected);
}

static struct section section_of(const struct section *parent, const char *key, const char *path) {
    struct section s = { json_object_get(parent->object, key), path, parent->st, parent->e };
    if (s.st == OK && !json_is_object(s.object)) {
        s.object = NULL;
        section_fail(&s, "", "an object");
    }
    return s;
}

static int64_t get_int(struct section *s, const char *key) {
    const json_t *value = json_object_get(s->object, key);
    if (!json_is_integer(value)) section_fail(s, key, "a whole number");
    return json_integer_value(value);
}

static int64_t get_int_or(struct section *s, const char *key, int64_t otherwise) {
    const json_t *value = json_object_get(s->object, key);
    return !value || json_is_null(value) ? otherwise : get_int(s, key);
}

/* 0 if the key is absent: the schema has not checked a configuration from another source. */
static int64_t get_upto(struct section *s, const char *key, int64_t most) {
    char expected[64];
    int64_t i = get_int_or(s, key, 0);
    snprintf(expected, sizeof expected, "from 0 to %" PRId64, most);
    if (i >= 0 && i <= most) return i;
    section_fail(s, key, expected);
    return 0;
}

static double get_number(struct section *s, const char *key) {
    const json_t *value = json_object_get(s->object, key);
    if (!json_is_number(value)) section_fail(s, key, "a number");
    return json_number_value(value);
}

static bool get_bool(struct section *s, const char *key) {
    const json_t *value = json_object_get(s->object, key);
    if (!json_is_boolean(value)) section_fail(s, key, "true or false");
    return json_is_true(value);
}

static bool get_bool_or(struct section *s, const char *key, bool otherwise) {
    return json_object_get(s->object, key) ? get_bool(s, key) : otherwise;
}

static const char *get_text(struct section *s, const char *key) {
    const char *text = json_string_value(json_object_get(s->object, key));
    if (!text) section_fail(s, key, "text");
    return text ? text : "";
}

/* The index of a word among `words` (NULL-terminated). */
static int get_word(struct section *s, const char *key, const char *const *words) {
    const char *text = get_text(s, key);
    char expected[256] = "one of";
    for (int i = 0; words[i]; i++) {
        if (!strcmp(text, words[i])) return i;
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, " \"%s\"", words[i]);
    }
    section_fail(s, key, expected);
    return 0;
}
#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static int get_word_or(struct section *s, const char *key, const char *const *words,
                       int otherwise) {
    return json_object_get(s->object, key) ? get_word(s, key, words) : otherwise;
}

static bool is_null(const struct section *s, const char *key) {
    const json_t *value = json_object_get(s->object, key);
    return !value || json_is_null(value);
}

/* ---- model ------------------------------------------------------------------------------------*/

static enum status read_rope(const struct section *model, struct rope_config *out) {
    struct section s = section_of(model, "rope", "model.rope");
    out->theta = get_number(&s, "theta");
    if (s.st != OK || is_null(&s, "scaling")) return s.st;
    struct section scaling = section_of(&s, "scaling", "model.rope.scaling");
    out->factor = get_number(&scaling, "factor");
    out->low_freq_factor = get_number(&scaling, "low_freq_factor");
    out->high_freq_factor = get_number(&scaling, "high_freq_factor");
    out->original_seq_len = get_int(&scaling, "original_seq_len");
    return scaling.st;
}

static enum status read_model(const struct section *root, struct model_config *out) {
    struct section s = section_of(root, "model", "model");
    *out = (struct model_config){
        .vocab = get_int(&s, "vocab"), .seq_len = get_int(&s, "seq_len"),
        .layers = get_int(&s, "layers"), .width = get_int(&s, "width"),
        .heads = get_int(&s, "heads"), .kv_heads = get_int(&s, "kv_heads"),
        .head_dim = get_int(&s, "head_dim"), .ffn = get_int(&s, "ffn"),
        .norm_eps = get_number(&s, "norm_eps"), .init_std = get_number(&s, "init_std"),
        .qk_norm = get_bool(&s, "qk_norm"), .bias = get_bool(&s, "bias"),
        .qkv_bias = get_bool_or(&s, "qkv_bias", false), .tied = get_bool(&s, "tied"),
        .window = get_int_or(&s, "window", 0),
    };
    out->norm = (enum norm_kind)get_word(&s, "norm", WORDS("rmsnorm", "layernorm"));
    out->activation = (enum activation_kind)get_word(&s, "activation", WORDS("swiglu", "gelu"));
    out->positions = (enum position_kind)get_word(&s, "positions", WORDS("rope", "learned"));
    if (s.st == OK && out->positions == POSITION_ROPE) TRY(read_rope(&s, &out->rope));
    return s.st;
}

/* ---- recipe -----------------------------------------------------------------------------------*/

static bool is_bf16(struct section *s, const char *key) {
    return !is_null(s, key) && get_word(s, key, WORDS("fp8", "bf16")) == 1;
}

/* A key that the kind does not have is absent, and its option stays zero. */
static struct recipe_options read_recipe_options(struct section *s) {
    struct recipe_options o = { .kind = (enum recipe_kind)get_word(s, "kind", RECIPE_KIND_NAMES) };
    if (!recipe_is_fp8(o.kind)) return o;
    o.format = (enum recipe_format)get_word_or(s, "format", RECIPE_FORMAT_NAMES, FORMAT_HYBRID);
    o.constants = (enum quant_constants)get_word_or(s, "constants", RECIPE_CONSTANTS_NAMES,
                                                    QUANT_TE);
    o.pow2 = get_bool_or(s, "pow2", false);
    o.margin = (int)get_upto(s, "margin", 64);
    o.history = (int)get_upto(s, "history", 65536);
    o.algo = (enum amax_algo)get_word_or(s, "algo", RECIPE_ALGO_NAMES, AMAX_MAX);
    o.roll = (enum roll_kind)get_word_or(s, "roll", RECIPE_ROLL_NAMES, ROLL_MICROBATCH);
    o.fprop_bf16 = is_bf16(s, "fprop");
    o.dgrad_bf16 = is_bf16(s, "dgrad");
    o.wgrad_bf16 = is_bf16(s, "wgrad");
    o.weight_2d = get_bool_or(s, "weight_2d", false);
    o.hadamard = get_bool_or(s, "hadamard", false);
    o.stochastic = get_bool_or(s, "stochastic", false);
    o.forward_bf16_after = get_upto(s, "forward_bf16_after", 1000000000);
    o.param_gather = get_bool_or(s, "param_gather", false);
    o.fall_back = !is_null(s, "fallback");
    if (s->st == OK && !is_null(s, "accumulate")) {
        struct section a = section_of(s, "accumulate", "recipe.accumulate");
        o.fprop_fast = get_word(&a, "fprop", WORDS("split", "fast")) == 1;
        o.dgrad_fast = get_word(&a, "dgrad", WORDS("split", "fast")) == 1;
        o.wgrad_fast = get_word(&a, "wgrad", WORDS("split", "fast")) == 1;
        s->st = a.st;
    }
    return o;
}

/* The table of exceptions: [{"layer":0,"gemm":"qkv","recipe":{...}}, ...]. */
static void read_exceptions(struct section *s, struct recipe *out) {
    const json_t *list = json_object_get(s->object, "layers");
    size_t i;
    json_t *row;
    json_array_foreach(list, i, row) {
        struct section r = { row, "recipe.layers[]", s->st, s->e };
        int64_t layer = get_int(&r, "layer");
        int site = get_word(&r, "gemm", GEMM_SITE_NAMES);
        struct section inner = section_of(&r, "recipe", "recipe.layers[].recipe");
        struct recipe_options o = read_recipe_options(&inner);
        s->st = inner.st;
        if (s->st == OK && (layer < 0 || layer >= out->layers))
            section_fail(s, "layers[].layer", "a layer of the model, counted from 0");
        if (s->st != OK) return;
        out->site[layer * GEMM_SITE_COUNT + site] = o;
    }
}

static bool is_fp8_kind(const char *kind) {
    for (int k = 0; k < RECIPE_KIND_COUNT; k++)
        if (!strcmp(kind, RECIPE_KIND_NAMES[k])) return recipe_is_fp8((enum recipe_kind)k);
    return !strncmp(kind, "fp8.", 4) || !strncmp(kind, "fp4.", 4); /* of another version */
}

static bool is_delayed_kind(const char *kind) {
    return !strcmp(kind, RECIPE_KIND_NAMES[RECIPE_DELAYED]);
}

/* Whether the kind of the recipe, or of one of its exceptions, is such a kind. */
static bool any_kind(const json_t *recipe, bool (*is)(const char *kind)) {
    const json_t *row;
    size_t i;
    bool found = is(json_text(recipe, "kind", ""));
    json_array_foreach(json_object_get(recipe, "layers"), i, row)
        found = found || is(json_text(json_object_get(row, "recipe"), "kind", ""));
    return found;
}

bool options_recipe_is_fp8(const json_t *recipe) { return any_kind(recipe, is_fp8_kind); }

bool options_recipe_can_saturate(const json_t *recipe) {
    return any_kind(recipe, is_delayed_kind);
}

static enum status read_recipe(const struct section *root, int64_t layers, struct recipe *out) {
    struct section s = section_of(root, "recipe", "recipe");
    struct recipe_options base = read_recipe_options(&s);
    int64_t first = get_upto(&s, "first_bf16", layers), last = get_upto(&s, "last_bf16", layers);
    bool head_fp8 = get_word_or(&s, "lm_head", WORDS("bf16", "fp8"), 0) == 1;
    TRY(s.st);
    *out = (struct recipe){ .layers = layers, .f32 = base.kind == RECIPE_F32 };
    out->site = calloc((size_t)(layers * GEMM_SITE_COUNT), sizeof *out->site);
    if (!out->site) return FAIL(s.e, ERR_MEMORY, "recipe table of %" PRId64 " layers", layers);
    const struct recipe_options bf16 = { .kind = out->f32 ? RECIPE_F32 : RECIPE_BF16 };
    out->head = head_fp8 ? base : bf16;
    for (int64_t l = 0; l < layers; l++)
        for (int64_t site = 0; site < GEMM_SITE_COUNT; site++)
            out->site[l * GEMM_SITE_COUNT + site] = l < first || l >= layers - last ? bf16 : base;
    read_exceptions(&s, out);
    return s.st;
}

static enum status read_attention(const struct section *root, struct run_options *out) {
    if (is_null(root, "attention")) return OK;
    struct section s = section_of(root, "attention", "attention");
    out->recipe.attention_fp8 = get_word_or(&s, "precision", WORDS("bf16", "fp8"), 0) == 1;
    out->attention = (enum attention_backend)get_word_or(&s, "backend",
                                                         WORDS("auto", "own", "cudnn"), 0);
    return s.st;
}

/* ---- data -------------------------------------------------------------------------------------*/

/* Appends the files of `path` or `paths` of a table: of the data, or of a part. */
static enum status read_paths(struct section *s, const json_t *table, struct data_options *out) {
    const json_t *list = json_object_get(table, "paths"), *one = json_object_get(table, "path");
    bool single = !json_is_array(list);
    size_t n = single ? 1 : json_array_size(list), had = (size_t)out->path_count;
    const char **paths = realloc((void *)out->paths, (had + n + 1) * sizeof *paths);
    if (!paths) return FAIL(s->e, ERR_MEMORY, "%zu data paths", n);
    out->paths = paths;
    for (size_t i = 0; i < n; i++) {
        paths[had + i] = json_string_value(single ? one : json_array_get(list, i));
        if (!paths[had + i]) section_fail(s, single ? "path" : "paths", "text");
    }
    out->path_count = (int64_t)(had + n);
    return s->st;
}

/* The paths of all parts in a row, and how many each part has. */
static enum status read_parts(struct section *s, const json_t *list, struct data_options *out) {
    size_t n = json_array_size(list);
    struct data_part *parts = calloc(n + 1, sizeof *parts);
    if (!parts) return FAIL(s->e, ERR_MEMORY, "%zu parts of the data", n);
    out->parts = parts;
    out->part_count = (int64_t)n;
    if (n == 0) section_fail(s, "parts", "a list");
    for (size_t i = 0; i < n; i++) {
        const json_t *part = json_array_get(list, i);
        int64_t before = out->path_count;
        TRY(read_paths(s, part, out));
        parts[i] = (struct data_part){ .path_count = out->path_count - before,
                                       .weight = json_number_value(json_object_get(part,
                                                                                   "weight")) };
    }
    return s->st;
}

static void read_documents(struct section *s, struct data_options *out) {
    static const char *const LAYOUTS[] = { "windows", "packed", "padded", NULL };
    out->layout = (enum data_layout)get_word_or(s, "layout", LAYOUTS, LAYOUT_WINDOWS);
    out->documents.mask = get_word_or(s, "mask", WORDS("none", "document"), 0) == 1;
    out->documents.restart = get_word_or(s, "positions", WORDS("sequence", "document"), 0) == 1;
    out->loss = get_bool_or(s, "loss", false);
}

static enum status read_data(const struct section *root, struct data_options *out) {
    struct section s = section_of(root, "data", "data");
    *out = (struct data_options){ 0 };
    int kind = get_word(&s, "kind", WORDS("text", "tokens", "synthetic", "chats"));
    TRY(s.st);
    if (kind == 2) {
        out->kind = DATA_SYNTHETIC;
        out->seed = (uint64_t)get_int(&s, "seed");
        return s.st;
    }
    bool tokenised = cache_is_needed(root->object);
    out->holdout = is_null(&s, "holdout") ? 0 : get_number(&s, "holdout");
    out->kind = tokenised ? DATA_MEGATRON : DATA_TEXT; /* its shards: options_with_shards() */
    if (kind == 1) {
        int format = get_word(&s, "format", WORDS("megatron", "llmc"));
        out->kind = format == 0 ? DATA_MEGATRON : DATA_LLMC;
        if (!is_null(&s, "eval_path")) out->eval_path = get_text(&s, "eval_path");
        out->order = (enum data_order)get_word_or(&s, "order", WORDS("windows", "documents"),
                                                  ORDER_WINDOWS);
        read_documents(&s, out);
    }
    /* The memory depends on these; the rest is read of options_with_shards(). */
    if (kind == 0 && tokenised) read_documents(&s, out);
    if (kind == 3) out->documents.mask = out->documents.restart = get_bool(&s, "pack");
    TRY(s.st);
    TRY(eval_sets_read(root->object, out, root->e));
    const json_t *parts = json_object_get(s.object, "parts");
    if (json_is_array(parts)) return read_parts(&s, parts, out);
    return read_paths(&s, s.object, out);
}

/* ---- training ---------------------------------------------------------------------------------*/

static enum status read_optimizer(const struct section *train, struct optimizer_options *out) {
    struct section s = section_of(train, "optimizer", "train.optimizer");
    (void)get_word(&s, "kind", WORDS("adamw"));
    const json_t *betas = json_object_get(s.object, "betas");
    if (json_array_size(betas) != 2) section_fail(&s, "betas", "two numbers");
    *out = (struct optimizer_options){
        .lr = get_number(&s, "lr"),
        .beta1 = json_number_value(json_array_get(betas, 0)),
        .beta2 = json_number_value(json_array_get(betas, 1)),
        .eps = get_number(&s, "eps"),
        .weight_decay = get_number(&s, "weight_decay"),
        .clip = is_null(&s, "clip") ? 0 : get_number(&s, "clip"),
        .state = (enum state_kind)get_word(&s, "state", WORDS("f32", "bf16", "8bit")),
        .master = get_word(&s, "master", WORDS("none", "f32")) == 1,
        .offload = get_bool_or(&s, "offload", false),
    };
    return s.st;
}

/* In the order of enum schedule_kind. */
static const char *const SCHEDULES[] = { "cosine", "linear", "wsd", "constant", NULL };

static enum status read_schedule(const struct section *train, struct schedule_options *out) {
    struct section s = section_of(train, "schedule", "train.schedule");
    *out = (struct schedule_options){
        .kind = (enum schedule_kind)get_word(&s, "kind", SCHEDULES),
        .warmup = get_int_or(&s, "warmup", 0),
        .decay = get_int_or(&s, "decay", 0),
        .final = is_null(&s, "final") ? 0 : get_number(&s, "final"),
    };
    return s.st;
}

/* train.freeze, then train.lr_scale. */
static enum status read_selection(struct section *s, struct selection *out) {
    json_t *freeze = json_object_get(s->object, "freeze"), *item;
    json_t *scales = json_object_get(s->object, "lr_scale");
    size_t n = json_array_size(freeze) + json_object_size(scales), i;
    const char *name;
    if (freeze && !json_is_array(freeze)) section_fail(s, "freeze", "a list of names");
    if (scales && !json_is_object(scales)) section_fail(s, "lr_scale", "factors by name");
    if (s->st != OK || n == 0) return s->st;
    struct selection_rule *rule = calloc(n, sizeof *rule);
    if (!rule) return FAIL(s->e, ERR_MEMORY, "%zu names of parameters", n);
    out->rule = rule;
    json_array_foreach(freeze, i, item) {
        if (!json_is_string(item)) section_fail(s, "freeze", "a list of names");
        rule[out->count++] = (struct selection_rule){ json_string_value(item), true, 0 };
    }
    json_object_foreach(scales, name, item) {
        if (!json_is_number(item)) section_fail(s, "lr_scale", "factors by name");
        rule[out->count++] = (struct selection_rule){ name, false, json_number_value(item) };
    }
    return s->st;
}

/* Absent: as the backend has it by default. null: never. */
static enum status read_audit(const struct section *train, struct audit_options *out) {
    const json_t *value = json_object_get(train->object, "audit");
    *out = (struct audit_options){ .every = AUDIT_BY_BACKEND, .outputs = AUDIT_OUTPUTS };
    if (json_is_null(value)) out->every = 0;
    if (!json_is_object(value)) return train->st;
    struct section s = section_of(train, "audit", "train.audit");
    out->every = get_int(&s, "every");
    out->outputs = get_int(&s, "outputs");
    return s.st;
}

static enum status read_train(const struct section *root, struct run_options *out) {
    struct section s = section_of(root, "train", "train");
    struct train_options *t = &out->train;
    int grad = get_word(&s, "grad_dtype", WORDS("f32", "bf16", "fp8"));
    /* Epochs of text that is not yet tokens: the memory is that of any number of steps. */
    bool open = cache_is_needed(root->object) && is_null(&s, "steps");
    *t = (struct train_options){
        .steps = open ? 1 : get_int(&s, "steps"),
        .global_batch = get_int(&s, "global_batch"),
        .micro_batch = get_int(&s, "micro_batch"),
        .seed = (uint64_t)get_int(&s, "seed"),
        /* "fp8" is what ranks send one another; sums over micro-batches stay f32. */
        .grad_dtype = grad == 1 ? DTYPE_BF16 : DTYPE_F32,
        .grad_codes = grad == 2,
        .recompute = (enum recompute_kind)get_word(&s, "recompute", WORDS("none", "ffn", "block")),
        .recompute_layers = get_int_or(&s, "recompute_layers", 0),
        .makes_codes = get_word_or(&s, "weight_codes", WORDS("kept", "made"), 0) == 1,
        .head_chunk = get_int(&s, "head_chunk"),
        .shard = (enum shard_kind)get_word_or(
            &s, "shard", WORDS("none", "optimizer", "gradients", "parameters"), SHARD_OPTIMIZER),
    };
    out->exact = get_bool_or(&s, "exact", false);
    out->time_limit_s = get_int_or(&s, "time_limit_s", 0);
    out->epochs = is_null(&s, "epochs") ? 0 : get_number(&s, "epochs");
    TRY(s.st);
    TRY(read_selection(&s, &t->selection));
    TRY(read_audit(&s, &t->audit));
    TRY(read_optimizer(&s, &t->optimizer));
    return read_schedule(&s, &t->schedule);
}

static void read_milestones(struct section *s, struct checkpoint_options *out) {
    const json_t *list = json_object_get(s->object, "milestones"), *item;
    size_t i;
    if (json_array_size(list) > MILESTONES_MAX || (list && !json_is_array(list)))
        section_fail(s, "milestones", "a list of steps");
    json_array_foreach(list, i, item) {
        if (s->st == OK) out->milestones[out->milestone_count++] = json_integer_value(item);
    }
}

/* best = "eval.loss", or { metric = "eval.accuracy", mode = "max" }. */
static void read_best(struct section *s, struct checkpoint_options *out) {
    static const char *const COLUMNS[] = { "loss", "accuracy" };
    bool table = json_is_object(json_object_get(s->object, "best"));
    if (is_null(s, "best")) return;
    struct section best = table ? section_of(s, "best", "checkpoint.best") : *s;
    int metric = get_word(&best, table ? "metric" : "best", WORDS("eval.loss", "eval.accuracy"));
    out->best = true;
    out->best_metric = COLUMNS[metric];
    out->best_is_max = get_word_or(&best, table ? "mode" : "best_is", WORDS("min", "max"), metric);
    s->st = best.st;
}

static enum status read_checkpoint(const struct section *root, struct checkpoint_options *out) {
    *out = (struct checkpoint_options){ .keep = 1, .best_metric = "loss" };
    if (is_null(root, "checkpoint")) return root->st;
    struct section s = section_of(root, "checkpoint", "checkpoint");
    out->given = true;
    out->every = get_int_or(&s, "every", 0);
    out->keep = get_int(&s, "keep");
    out->minutes = is_null(&s, "minutes") ? 0 : get_number(&s, "minutes");
    read_best(&s, out);
    out->init = get_bool_or(&s, "init", false);
    out->background = get_bool_or(&s, "background", true);
    out->epoch = get_bool_or(&s, "epoch", false);
    read_milestones(&s, out);
    return s.st;
}

static enum status read_sample(const struct section *root, struct sample_options *out) {
    if (is_null(root, "sample")) return root->st;
    struct section s = section_of(root, "sample", "sample");
    const json_t *list = json_object_get(s.object, "prompts"), *item;
    size_t i;
    *out = (struct sample_options){
        .every = get_int(&s, "every"), .tokens = get_int(&s, "tokens"),
        .top_k = get_int(&s, "top_k"), .temperature = get_number(&s, "temperature"),
        .top_p = get_number(&s, "top_p"), .seed = (uint64_t)get_int(&s, "seed"),
        .tokenizer = json_string_value(json_object_get(s.object, "tokenizer")),
    };
    out->prompts = calloc(json_array_size(list) + 1, sizeof *out->prompts);
    if (!out->prompts) return FAIL(s.e, ERR_MEMORY, "%zu prompts", json_array_size(list));
    json_array_foreach(list, i, item) {
        struct sample_prompt *x = &out->prompts[out->prompt_count++];
        *x = (struct sample_prompt){ json_string_value(item), json_is_array(item) ? item : NULL };
        if (!x->text && !x->ids) section_fail(&s, "prompts", "texts, or lists of token ids");
    }
    if (out->prompt_count == 0) section_fail(&s, "prompts", "a list of texts");
    return s.st;
}

/* Absent: on. null: off. */
static enum status read_tensorboard(const struct section *root, struct run_options *out) {
    const json_t *value = json_object_get(root->object, "tensorboard");
    struct tensorboard_options *o = &out->tensorboard;
    o->on = !json_is_null(value);
    if (!o->on || !value) return root->st;
    struct section s = section_of(root, "tensorboard", "tensorboard");
    int64_t every = get_int_or(&s, "histograms", 0);
    int64_t least = ceil_div(out->train.steps, HISTOGRAMS_MAX);
    if (every > 0) o->histograms = every > least ? every : least;
    out->train.histograms = every > 0;
    return s.st;
}

/* eval, sample, checkpoint, tensorboard, trace, archive, hardware: the runner's work around the
 * steps. */
static enum status read_runner_options(const struct section *root, struct run_options *out) {
    if (!is_null(root, "eval")) {
        struct section s = section_of(root, "eval", "eval");
        out->eval = (struct eval_options){ get_int(&s, "every"), get_int(&s, "batches") };
        out->train.accuracy = get_bool_or(&s, "accuracy", false);
        TRY(s.st);
    }
    TRY(read_sample(root, &out->sample));
    TRY(read_checkpoint(root, &out->checkpoint));
    TRY(read_tensorboard(root, out));
    struct section trace = section_of(root, "trace", "trace");
    out->train.trace = (struct trace_options){ get_int(&trace, "first"), get_int(&trace, "every") };
    TRY(trace.st);
    struct section whole = *root;
    out->train.fp8_error = get_int_or(&whole, "fp8_error", FP8_ERROR_EVERY);
    TRY(whole.st);
    struct section hardware = section_of(root, "hardware", "hardware");
    out->gpus = get_int_or(&hardware, "gpus", 1);
    TRY(hardware.st);
    if (!is_null(root, "init")) {
        struct section init = section_of(root, "init", "init");
        out->init_optimizer = get_bool_or(&init, "optimizer", false);
        out->init_restart = get_bool_or(&init, "restart", false);
        TRY(init.st);
    }
    struct section s = *root;
    out->archive = (enum archive_policy)get_word(&s, "archive", WORDS("none", "weights", "full"));
    return s.st;
}

/* ---- the whole --------------------------------------------------------------------------------*/

static struct section root_of(const json_t *resolved, struct err *e) {
    struct section root = { resolved, "", OK, e };
    (void)get_word(&root, "schema", WORDS("fp8lab.experiment/1"));
    return root;
}

enum status options_read(const json_t *resolved, struct run_options *out, struct err *e) {
    *out = (struct run_options){ 0 };
    struct section root = root_of(resolved, e);
    enum status st = root.st;
    if (st == OK) st = read_model(&root, &out->model);
    if (st == OK) st = model_config_check(&out->model, e);
    if (st == OK) st = read_recipe(&root, out->model.layers, &out->recipe);
    if (st == OK) st = read_attention(&root, out);
    if (st == OK) st = read_data(&root, &out->data);
    if (st == OK) st = read_train(&root, out);
    out->train.documents = out->data.documents;
    if (st == OK) st = read_runner_options(&root, out);
    if (st != OK) options_free(out);
    return st;
}

enum status options_read_model(const json_t *model, struct model_config *out, struct err *e) {
    json_t *root = json_pack("{s:O}", "model", model);
    struct section s = { root, "", OK, e };
    enum status st = root ? read_model(&s, out) : FAIL(e, ERR_MEMORY, "the model's keys");
    if (st == OK) st = model_config_check(out, e);
    json_decref(root);
    return st;
}

enum status options_set_recipe(struct run_options *o, const char *name, struct err *e) {
    const struct recipe_info *info = recipe_info_named(name);
    char names[160] = "";
    for (int i = 0; !info && RECIPE_KIND_NAMES[i]; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", RECIPE_KIND_NAMES[i]);
    }
    if (!info) return FAIL(e, ERR_ARG, "there is no recipe %.40s: expected %s", name, names);
    int64_t sites = o->model.layers * GEMM_SITE_COUNT;
    struct recipe_options *site = malloc((size_t)sites * sizeof *site);
    if (!site) return FAIL(e, ERR_MEMORY, "recipe table of %" PRId64 " layers", o->model.layers);
    for (int64_t i = 0; i < sites; i++) site[i] = info->defaults;
    bool f32 = info->defaults.kind == RECIPE_F32;
    free(o->recipe.site);
    o->recipe = (struct recipe){ .site = site, .layers = o->model.layers, .f32 = f32,
                                 .head = { .kind = f32 ? RECIPE_F32 : RECIPE_BF16 },
                                 .attention_fp8 = o->recipe.attention_fp8 &&
                                                  info->scale_x == SCALE_TENSOR };
    return OK;
}

enum status options_read_data(const json_t *resolved, struct data_options *out, struct err *e) {
    struct section root = root_of(resolved, e);
    enum status st = root.st;
    *out = (struct data_options){ 0 };
    if (st == OK) st = read_data(&root, out);
    if (st != OK) options_free_data(out);
    return st;
}

void options_free_data(struct data_options *o) {
    eval_sets_free(o);
    free((void *)o->paths);
    free((void *)o->parts);
    o->paths = NULL;
    o->parts = NULL;
}

enum status options_with_shards(const json_t *config, const json_t *tokens, json_t **out,
                                struct err *e) {
    static const char *const KEPT[] = { "holdout", "order", "layout", "mask", "positions" };
    const json_t *text = json_object_get(config, "data");
    const char *prefix = json_text(tokens, "prefix", "");
    json_t *eval = NULL;
    if (eval_sets_of(config)) TRY(eval_sets_with_shards(config, tokens, &eval, e));
    json_t *data = json_pack("{s:s,s:s,s:o}", "kind", "tokens", "format", "megatron", "path",
                             json_string_nocheck(prefix)); /* a path may be any bytes */
    bool failed = false;
    for (size_t i = 0; i < sizeof KEPT / sizeof *KEPT; i++) {
        json_t *value = json_object_get(text, KEPT[i]);
        if (value) json_put(data, KEPT[i], json_incref(value), &failed);
    }
    if (!strcmp(json_string_value(json_object_get(text, "kind")), "chats")) {
        bool pack = json_is_true(json_object_get(text, "pack"));
        json_put(data, "loss", json_true(), &failed);
        json_put(data, "layout", json_string(pack ? "packed" : "padded"), &failed);
        if (pack) json_put(data, "mask", json_string("document"), &failed);
        if (pack) json_put(data, "positions", json_string("document"), &failed);
    }
    *out = json_copied(config, &failed);
    json_put(*out, "data", data, &failed);
    if (eval) json_put(*out, "eval", eval, &failed);
    *out = json_whole(*out, failed);
    return *out ? OK : FAIL(e, ERR_MEMORY, "the configuration of the tokens");
}

void options_free(struct run_options *o) {
    free(o->recipe.site);
    free(o->sample.prompts);
    o->recipe.site = NULL;
    o->sample.prompts = NULL;
    free((void *)o->train.selection.rule);
    o->train.selection = (struct selection){ 0 };
    options_free_data(&o->data);
}
