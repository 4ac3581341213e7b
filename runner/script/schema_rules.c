#include "runner/script/schema_rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/recipe.h"
#include "runner/hardware/query.h"
#include "runner/plan/options.h"
#include "runner/plan/run_length.h"
#include "runner/script/rule_places.h"
#include "runner/script/schema_apply.h"
#include "runner/script/schema_sets.h"
#include "runner/script/schema_tables.h"

static void set_int(struct diagnostics *d, struct value *table, const char *key, int64_t i) {
    value_set(d->pool, table, key, value_int(d->pool, i, table->place), table->place);
}

/* ---- model ----------------------------------------------------------------------------------- */
static void derive_heads(struct diagnostics *d, struct value *model) {
    int64_t width, heads, kv_heads, head_dim;
    struct place place = place_of(model, "head_dim");
    if (!get_int(model, "heads", &heads)) return;
    if (!get_int(model, "kv_heads", &kv_heads)) {
        kv_heads = heads;
        set_int(d, model, "kv_heads", heads);
    }
    if (heads % kv_heads != 0)
        diagnostics_add(d, changed_key(model, "kv_heads", "heads"), "model.kv_heads",
                        "%" PRId64 " query heads cannot share %" PRId64 " key/value heads evenly; "
                        "choose a divisor of %" PRId64, heads, kv_heads, heads);
    if (!get_int(model, "head_dim", &head_dim)) {
        if (!get_int(model, "width", &width)) return;
        head_dim = width / heads;
        place = changed_key(model, "heads", "width");
        if (width % heads != 0) {
            diagnostics_add(d, place, "model.head_dim",
                            "width %" PRId64 " is not a multiple of %" PRId64 " heads, so head_dim "
                            "has no default; give head_dim", width, heads);
            return;
        }
        set_int(d, model, "head_dim", head_dim);
    }
    if (head_dim % 2 != 0)
        diagnostics_add(d, place, "model.head_dim",
                        "head_dim %" PRId64 " is odd; RoPE rotates pairs, and attention kernels "
                        "need a multiple of 8", head_dim);
}

static void derive_positions(struct diagnostics *d, struct value *model) {
    bool learned = value_is(value_get(model, "positions"), "learned");
    const struct value *rope = value_get(model, "rope");
    if (learned && rope && rope->type == VALUE_TABLE) {
        diagnostics_add(d, changed_key(model, "rope", "positions"), "model.rope",
                        "learned positions take no rope table; leave it out, or set positions = "
                        "\"rope\"");
    } else if (!learned && rope && rope->type == VALUE_NULL) {
        const struct field *field =
            schema_field(schema_field(&SCHEMA_EXPERIMENT, "model")->schema, "rope");
        struct value *empty = value_new(d->pool, VALUE_TABLE, model->place);
        value_set(d->pool, model, "rope", schema_apply(d, field->schema, empty, "model.rope"),
                  model->place);
    }
    const struct value *scaling = value_get(value_get(model, "rope"), "scaling");
    const struct value *low = value_get(scaling, "low_freq_factor");
    const struct value *high = value_get(scaling, "high_freq_factor");
    if (low && high && low->f >= high->f)
        diagnostics_add(d, changed_key(scaling, "high_freq_factor", "low_freq_factor"),
                        "model.rope.scaling",
                        "high_freq_factor %g must be above low_freq_factor %g", high->f, low->f);
}

/* ---- training -------------------------------------------------------------------------------- */
/* Exactly one of steps and epochs; --set of one replaces the other of the script. */
static void choose_length(struct diagnostics *d, struct value *train) {
    const struct value *steps = value_get(train, "steps"), *epochs = value_get(train, "epochs");
    if (!steps || !epochs) return; /* it has an error */
    bool counted = steps->type == VALUE_NULL, without = epochs->type == VALUE_NULL;
    struct value *nothing = value_new(d->pool, VALUE_NULL, train->place);
    if (counted && without)
        diagnostics_add(d, train->place, "train.steps", "'steps' is missing; give steps = N, or "
                        "epochs = N");
    else if (!counted && !without && steps->place.origin)
        value_set(d->pool, train, "epochs", nothing, train->place);
    else if (!counted && !without && epochs->place.origin)
        value_set(d->pool, train, "steps", nothing, train->place);
    else if (!counted && !without)
        diagnostics_add(d, epochs->place, "train.epochs",
                        "steps already says how long the run is; leave one of the two out");
}

static void derive_schedule(struct diagnostics *d, struct value *train) {
    struct value *schedule = value_get(train, "schedule");
    const struct value *kind = value_get(schedule, "kind");
    const struct value *ratio = value_get(schedule, "warmup_ratio");
    int64_t steps, warmup, decay;
    if (!kind || !get_int(schedule, "warmup", &warmup)) return;
    struct place warm = changed(place_of(schedule, "warmup"), place_of(train, "steps"));
    if (value_is(kind, "constant"))
        value_set(d->pool, schedule, "final", value_float(d->pool, 1.0, schedule->place),
                  schedule->place);
    if (ratio && ratio->type != VALUE_FLOAT) ratio = NULL; /* reported already */
    if (ratio && warmup > 0)
        diagnostics_add(d, changed_key(schedule, "warmup_ratio", "warmup"),
                        "train.schedule.warmup_ratio",
                        "warmup already says how long the warm-up is; leave one of the two out");
    if (!get_int(train, "steps", &steps)) return; /* epochs: see plan/run_length.h */
    if (ratio) {
        warmup = warmup_of_ratio(ratio->f, steps);
        set_int(d, schedule, "warmup", warmup);
    }
    if (value_is(kind, "constant") || !get_int(schedule, "decay", &decay)) {
        set_int(d, schedule, "decay", default_decay(kind->string, steps, warmup));
    } else if (warmup + decay > steps) {
        diagnostics_add(d, changed(place_of(schedule, "decay"), warm), "train.schedule.decay",
                        "warmup %" PRId64 " and decay %" PRId64 " do not fit into %" PRId64
                        " steps", warmup, decay, steps);
    }
    if (warmup > steps)
        diagnostics_add(d, warm, "train.schedule.warmup",
                        "warmup %" PRId64 " is longer than the run, %" PRId64 " steps", warmup,
                        steps);
}

static void derive_head_chunk(struct diagnostics *d, struct value *train,
                              const struct value *model) {
    int64_t chunk, micro, vocab, length;
    if (get_int(train, "head_chunk", &chunk) || !get_int(train, "micro_batch", &micro) ||
        !get_int(model, "vocab", &vocab) || !get_int(model, "seq_len", &length))
        return;
    set_int(d, train, "head_chunk", model_head_chunk(vocab, micro * length)); /* at most 2^44 */
}

static void check_batches(struct diagnostics *d, const struct value *experiment) {
    const struct value *train = value_get(experiment, "train");
    int64_t global, micro, gpus, chunk;
    if (get_int(train, "head_chunk", &chunk) && chunk % HEAD_CHUNK_ALIGN != 0)
        diagnostics_add(d, place_of(train, "head_chunk"), "train.head_chunk",
                        "must be a multiple of %d rows, found %" PRId64, HEAD_CHUNK_ALIGN,
                        chunk);
    if (!get_int(train, "global_batch", &global) || !get_int(train, "micro_batch", &micro) ||
        !get_int(value_get(experiment, "hardware"), "gpus", &gpus))
        return;
    if (global % micro != 0)
        diagnostics_add(d, changed_key(train, "micro_batch", "global_batch"), "train.micro_batch",
                        "global_batch %" PRId64 " is not a multiple of micro_batch %" PRId64,
                        global, micro);
    else if (global % (micro * gpus) != 0)
        diagnostics_add(d, changed(changed_key(train, "global_batch", "micro_batch"),
                                   place_of(value_get(experiment, "hardware"), "gpus")),
                        "train.global_batch",
                        "global_batch %" PRId64 " is not a multiple of micro_batch %" PRId64
                        " x %" PRId64 " GPUs", global, micro, gpus);
}

static void check_best(struct diagnostics *d, const struct value *experiment) {
    const struct value *checkpoint = value_get(experiment, "checkpoint");
    const struct value *eval = value_get(experiment, "eval"), *best = value_get(checkpoint, "best");
    if (!best || best->type == VALUE_NULL) return;
    const struct value *metric = best->type == VALUE_TABLE ? value_get(best, "metric") : best;
    const struct value *accuracy = value_get(eval, "accuracy");
    struct place place = changed(place_of(checkpoint, "best"), place_of(experiment, "eval"));
    bool counts = value_is(metric, "eval.accuracy");
    if (best->type == VALUE_TABLE && value_get(checkpoint, "best_is"))
        diagnostics_add(d, place_of(checkpoint, "best_is"), "checkpoint.best_is",
                        "the table of checkpoint.best has mode instead; leave out best_is");
    if (metric && eval && eval->type == VALUE_NULL)
        diagnostics_add(d, place, "checkpoint.best", "the best checkpoint by %s needs evaluations; "
                        "add eval = { every = ...%s }", metric->string,
                        counts ? ", accuracy = true" : "");
    else if (counts && eval && !(accuracy && accuracy->b))
        diagnostics_add(d, changed(place, place_of(eval, "accuracy")), "checkpoint.best",
                        "the evaluations have no accuracy; add accuracy = true to eval");
}

/* Prompts that are texts: the data must have a tokenizer, or be bytes. */
static void check_sample(struct diagnostics *d, const struct value *experiment) {
    const struct value *sample = value_get(experiment, "sample");
    const struct value *kind = value_get(value_get(experiment, "data"), "kind");
    if (!sample || sample->type != VALUE_TABLE || !kind) return;
    const struct value *prompts = value_get(sample, "prompts");
    const struct value *tokenizer = value_get(sample, "tokenizer");
    bool text = value_is(kind, "text") || value_is(kind, "chats");
    if (text && tokenizer)
        diagnostics_add(d, changed(place_of(sample, "tokenizer"), place_of(experiment, "data")),
                        "sample.tokenizer", "data = %s has a tokenizer of its "
                        "own; leave it out", kind->string);
    /* Shards may say which tokenizer made them: run/sample_tokenizer.h. */
    if (text || tokenizer || value_is(kind, "tokens") || !prompts) return;
    for (int64_t i = 0; i < prompts->item_count; i++) {
        if (prompts->items[i]->type != VALUE_STRING) continue;
        diagnostics_add(d, changed(sample->place, place_of(experiment, "data")), "sample",
                        "data = %s has no tokenizer that could read a "
                        "prompt; write prompts of token ids, { { 1, 2, 3 } }, sample.tokenizer, "
                        "sample = false, or data = text or chats", kind->string);
        return;
    }
}

static void check_milestones(struct diagnostics *d, const struct value *checkpoint) {
    const struct value *list = value_get(checkpoint, "milestones");
    struct place place = place_of(checkpoint, "milestones");
    if (!list) return;
    if (list->item_count > MILESTONES_MAX)
        diagnostics_add(d, place, "checkpoint.milestones", "%" PRId64 " steps; at most %d are "
                        "possible", list->item_count, MILESTONES_MAX);
    for (int64_t i = 1; i < list->item_count; i++) {
        int64_t before = list->items[i - 1]->i, step = list->items[i]->i;
        if (step > before) continue;
        diagnostics_add(d, place, "checkpoint.milestones", "steps must ascend, found %" PRId64
                        " before %" PRId64, before, step);
        return;
    }
}

static void check_checkpoint(struct diagnostics *d, const struct value *experiment) {
    const struct value *c = value_get(experiment, "checkpoint"), *every = value_get(c, "every");
    const struct value *train = value_get(experiment, "train");
    const struct value *epochs = value_get(train, "epochs");
    if (!c || c->type != VALUE_TABLE) return;
    check_milestones(d, c);
    if (every && every->type == VALUE_NULL && !value_get(c, "minutes"))
        diagnostics_add(d, c->place, "checkpoint", "give every = N steps, or minutes = M");
    if (value_get(c, "best_is") && value_get(c, "best") && value_get(c, "best")->type == VALUE_NULL)
        diagnostics_add(d, place_of(c, "best_is"), "checkpoint.best_is", "says which value is the "
                        "best; add best = \"eval.loss\"");
    const struct value *epoch = value_get(c, "epoch");
    if (epoch && epoch->b && epochs && epochs->type == VALUE_NULL)
        diagnostics_add(d, changed(place_of(c, "epoch"), place_of(train, "steps")),
                        "checkpoint.epoch", "the length of the run is in "
                        "steps; give train.epochs in place of train.steps, or the steps as "
                        "milestones = { ... }");
}

/* Tokens name their files in exactly one way, and so does each part. */
static void check_files(struct diagnostics *d, const struct value *table, const char *path,
                        bool parts) {
    const char *const KEYS[] = { "path", "paths", "parts" };
    int given = 0;
    for (int i = 0; i < 2 + parts; i++) {
        const struct value *v = value_get(table, KEYS[i]);
        if (!v) return; /* it has an error */
        given += v->type != VALUE_NULL;
    }
    if (given != 1)
        diagnostics_add(d, table->place, path, "%s: give %s", given ? "files are named in more "
                        "than one way" : "no file is named", parts ?
                        "path = \"FILE\", paths = { ... } for shards, or parts { path = ..., "
                        "weight = ... }" : "path = \"FILE\", or paths = { ... } for shards");
}

static void check_tokens(struct diagnostics *d, const struct value *data) {
    static const char *const KEYS[] = { "layout", "mask", "positions", "loss" };
    const struct value *parts = value_get(data, "parts"), *order = value_get(data, "order");
    if (!value_is(value_get(data, "kind"), "tokens")) return;
    check_files(d, data, "data", true);
    for (int64_t i = 0; parts && i < parts->item_count; i++)
        check_files(d, parts->items[i], pool_format(d->pool, "data.parts[%" PRId64 "]", i + 1),
                    false);
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        if (value_get(data, KEYS[i]) && !value_is(value_get(data, "format"), "megatron"))
            diagnostics_add(d, changed_key(data, KEYS[i], "format"),
                            schema_path(d->pool, "data", KEYS[i]),
                            "llm.c's files do not say where documents end; %s needs Megatron's "
                            "format", KEYS[i]);
    if (value_is(order, "documents") && !value_is(value_get(data, "format"), "megatron"))
        diagnostics_add(d, changed_key(data, "order", "format"), "data.order",
                        "llm.c's files do not say where documents end; use order = \"windows\", or "
                        "Megatron's format");
}

/* Found here, before text is tokenised for hours. The reason is in KEYS.md. */
static void check_order(struct diagnostics *d, const struct value *data) {
    const struct value *layout = value_get(data, "layout");
    if (!layout || value_is(layout, "windows") || !value_is(value_get(data, "order"), "documents"))
        return;
    diagnostics_add(d, changed_key(data, "order", "layout"), "data.order",
                    "\"documents\" is for layout = \"windows\"; a layout with whole "
                    "documents shuffles its sequences: leave out order");
}

/* Tokens are evaluated on a separate file, or on the tail of the training file: by default 1 %, as
 * in Megatron's usual split 99,1,0. */
static void derive_holdout(struct diagnostics *d, struct value *data) {
    const struct value *eval_path = value_get(data, "eval_path");
    const struct value *holdout = value_get(data, "holdout");
    if (!value_is(value_get(data, "kind"), "tokens") || !eval_path) return;
    bool own_file = eval_path->type == VALUE_STRING;
    if (!holdout)
        value_set(d->pool, data, "holdout", value_float(d->pool, own_file ? 0 : 0.01, data->place),
                  data->place);
    else if (own_file && holdout->f > 0)
        diagnostics_add(d, changed_key(data, "holdout", "eval_path"), "data.holdout",
                        "eval_path already names what to evaluate on; leave one of the two out");
}

/* Text of bytes takes none of the keys that say how text becomes tokens. */
static void check_bytes(struct diagnostics *d, const struct value *data) {
    static const char *const KEYS[] = { "pattern", "field", "eod", "ordinary", "skip_bad",
                                        "unique", "order", "layout", "mask", "positions" };
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        if (value_get(data, KEYS[i]))
            diagnostics_add(d, place_of(data, KEYS[i]), schema_path(d->pool, "data", KEYS[i]),
                            "text without a tokenizer is read as bytes and takes no %s; add "
                            "tokenizer = \"FILE\"", KEYS[i]);
}

/* A sequence has whole conversations, so none may be longer. */
static void derive_chats(struct diagnostics *d, struct value *data, const struct value *model) {
    int64_t length, most;
    if (!value_is(value_get(data, "kind"), "chats") || !get_int(model, "seq_len", &length)) return;
    if (!get_int(data, "max_tokens", &most))
        set_int(d, data, "max_tokens", length);
    else if (most > length)
        diagnostics_add(d, changed(place_of(data, "max_tokens"), place_of(model, "seq_len")),
                        "data.max_tokens",
                        "a conversation of %" PRId64 " tokens does not fit into a sequence, "
                        "model.seq_len = %" PRId64 "; write max_tokens = %" PRId64 " or less",
                        most, length, length);
}

/* A function that renders decides all that a template and its options would. */
static void check_render(struct diagnostics *d, const struct value *data) {
    static const char *const KEYS[] = { "template", "date", "variables" };
    if (!value_get(data, "render")) return;
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        const struct value *v = value_get(data, KEYS[i]);
        if (v && v->type != VALUE_NULL)
            diagnostics_add(d, place_of(data, KEYS[i]), schema_path(d->pool, "data", KEYS[i]),
                            "render already says how a conversation becomes text; leave one of "
                            "the two out");
    }
    if (value_is(value_get(data, "loss"), "last"))
        diagnostics_add(d, place_of(data, "loss"), "data.loss", "the function render says which "
                        "fragments carry loss: set loss = false in those that carry none");
}

static void check_data(struct diagnostics *d, const struct value *experiment) {
    struct value *data = value_get(experiment, "data");
    int64_t vocab;
    check_tokens(d, data);
    check_order(d, data);
    derive_holdout(d, data);
    derive_chats(d, data, value_get(experiment, "model"));
    check_render(d, data);
    if (!value_is(value_get(data, "kind"), "text") || value_get(data, "tokenizer")) return;
    check_bytes(d, data);
    if (!get_int(value_get(experiment, "model"), "vocab", &vocab))
        return;
    if (vocab < 256)
        diagnostics_add(d, changed(place_of(value_get(experiment, "model"), "vocab"),
                                   place_of(experiment, "data")), "model.vocab",
                        "text is read as bytes, which need a vocabulary of at least 256, found "
                        "%" PRId64, vocab);
}

/* Without this check a wrong query would be found only on the target machine. */
static void check_query(struct diagnostics *d, const struct value *experiment) {
    const struct value *hardware = value_get(experiment, "hardware");
    const struct value *query = value_get(hardware, "query");
    struct query *parsed = NULL;
    struct err e = { 0 };
    if (!query || query->type != VALUE_STRING) return;
    if (query_parse(query->string, &parsed, &e) != OK)
        diagnostics_add(d, place_of(hardware, "query"), "hardware.query", "%s", e.text);
    query_free(parsed);
}

/* ---- layers, attention, initial weights ----------------------------------------------------- */
static void check_excluded_layers(struct diagnostics *d, const struct value *experiment) {
    const struct value *recipe = value_get(experiment, "recipe");
    int64_t layers, first, last;
    if (!get_int(value_get(experiment, "model"), "layers", &layers) ||
        !get_int(recipe, "first_bf16", &first) || !get_int(recipe, "last_bf16", &last))
        return;
    if (first + last >= layers)
        diagnostics_add(d, changed(changed_key(recipe, first ? "first_bf16" : "last_bf16",
                                               first ? "last_bf16" : "first_bf16"),
                                   place_of(value_get(experiment, "model"), "layers")),
                        first ? "recipe.first_bf16" : "recipe.last_bf16",
                        "first_bf16 %" PRId64 " and last_bf16 %" PRId64 " leave none of %" PRId64
                        " layers in FP8; use bf16 {} for that", first, last, layers);
}

static void check_recompute(struct diagnostics *d, const struct value *experiment) {
    const struct value *train = value_get(experiment, "train");
    const struct value *model = value_get(experiment, "model");
    int64_t asked, layers;
    if (!get_int(train, "recompute_layers", &asked)) return;
    if (value_is(value_get(train, "recompute"), "none"))
        diagnostics_add(d, changed_key(train, "recompute_layers", "recompute"),
                        "train.recompute_layers", "train.recompute is \"none\", so it has no "
                        "effect: set that to \"ffn\" or \"block\", or leave this out");
    if (get_int(model, "layers", &layers) && asked > layers)
        diagnostics_add(d, changed(place_of(train, "recompute_layers"), place_of(model, "layers")),
                        "train.recompute_layers", "%" PRId64 " is more than the model's %" PRId64
                        " layers", asked, layers);
}

static void check_weight_codes(struct diagnostics *d, const struct value *experiment) {
    const struct value *train = value_get(experiment, "train");
    const struct value *recipe = value_get(experiment, "recipe");
    const struct value *gathers = value_get(recipe, "param_gather");
    if (!value_is(value_get(train, "weight_codes"), "made") || !gathers || !gathers->b) return;
    diagnostics_add(d, changed(place_of(train, "weight_codes"), place_of(recipe, "param_gather")),
                    "train.weight_codes", "\"made\" keeps no codes, and recipe.param_gather keeps "
                    "those that ranks gather: leave one of them out");
}

/* The exact set has BF16 attention by our own kernels alone, and no products of f32 or NVFP4. */
static void check_exact(struct diagnostics *d, const struct value *experiment) {
    const struct value *attention = value_get(experiment, "attention");
    const struct value *train = value_get(experiment, "train"), *exact = value_get(train, "exact");
    const struct value *recipe = value_get(experiment, "recipe");
    struct place asked = place_of(train, "exact");
    if (!exact || !exact->b) return;
    if (value_is(value_get(recipe, "kind"), "f32") ||
        value_is(value_get(recipe, "kind"), "fp4.nvfp4"))
        diagnostics_add(d, changed(place_of(recipe, "kind"), asked), "recipe",
                        "train.exact has no form of this recipe's products with the CPU's bits; "
                        "use bf16 or a recipe of fp8, or leave train.exact out");
    if (value_is(value_get(attention, "backend"), "cudnn"))
        diagnostics_add(d, changed(place_of(attention, "backend"), asked), "attention.backend",
                        "train.exact has attention by our own kernels alone, found \"cudnn\"; "
                        "leave the key out, or use \"own\"");
    if (value_is(value_get(attention, "precision"), "fp8"))
        diagnostics_add(d, changed(place_of(attention, "precision"), asked), "attention.precision",
                        "FP8 attention has no form with the CPU's bits, which train.exact asks "
                        "for; leave one of the two keys out");
}

/* What the GPU's backend says of every GPU (kernels/cuda/attention_choice.cu). */
static void check_cudnn(struct diagnostics *d, const struct value *experiment) {
    const struct value *attention = value_get(experiment, "attention");
    const struct value *model = value_get(experiment, "model");
    bool fp8 = value_is(value_get(attention, "precision"), "fp8");
    bool masks = value_is(value_get(value_get(experiment, "data"), "mask"), "document");
    int64_t length, dim, window;
    const char *found = NULL;
    if (!value_is(value_get(attention, "backend"), "cudnn") || !get_int(model, "seq_len", &length))
        return;
    struct place place = place_of(model, "seq_len");
    if (get_int(model, "window", &window) && window < length) {
        found = pool_format(d->pool, "model.window %" PRId64, window);
        place = changed_key(model, "window", "seq_len");
    } else if (masks) {
        found = "data.mask = \"document\"";
        place = place_of(value_get(experiment, "data"), "mask");
    } else if (get_int(model, "head_dim", &dim) && dim < 64) {
        found = pool_format(d->pool, "model.head_dim %" PRId64, dim);
        place = changed(place_of(model, "head_dim"), changed_key(model, "heads", "width"));
    } else if (length < 256 || (fp8 && length % 128 != 0)) {
        found = pool_format(d->pool, "model.seq_len %" PRId64, length);
    }
    if (found)
        diagnostics_add(d, changed(place_of(attention, "backend"), place), "attention.backend",
                        "cuDNN's attention needs heads of at least 64 elements, sequences of at "
                        "least 256 tokens%s, and neither a window nor masks of documents; found "
                        "%s; leave the key out, or use \"own\"",
                        fp8 ? " and a multiple of 128" : "", found);
}

/* A recipe for each layer, which `layers` gives, is known to the trainer alone. */
static void check_attention(struct diagnostics *d, const struct value *experiment) {
    const struct value *attention = value_get(experiment, "attention");
    const struct value *recipe = value_get(experiment, "recipe");
    const struct value *kind = value_get(recipe, "kind"), *layers = value_get(recipe, "layers");
    const struct recipe_info *info = kind ? recipe_info_named(kind->string) : NULL;
    bool by_layer = layers && layers->type != VALUE_NULL;
    if (!info || by_layer || !value_is(value_get(attention, "precision"), "fp8")) return;
    if (info->scale_x != SCALE_TENSOR)
        diagnostics_add(d, changed(place_of(attention, "precision"), place_of(recipe, "kind")),
                        "attention.precision",
                        "FP8 attention is defined by fp8.delayed and fp8.tensorwise, which scale "
                        "whole tensors; found the recipe %s", kind->string);
}

/* `restart` says how the optimizer's state is used. */
static void check_init(struct diagnostics *d, const struct value *experiment) {
    const struct value *init = value_get(experiment, "init");
    const struct value *restart = value_get(init, "restart");
    const struct value *optimizer = value_get(init, "optimizer");
    if (restart && restart->b && !(optimizer && optimizer->b))
        diagnostics_add(d, changed_key(init, "restart", "optimizer"), "init.restart",
                        "without optimizer = true a run begins at step 0 anyway; add it, or leave "
                        "restart out");
}

/* ---- all of them ----------------------------------------------------------------------------- */
void schema_rules(struct diagnostics *d, struct value *experiment) {
    struct value *model = value_get(experiment, "model"), *train = value_get(experiment, "train");
    struct value *recipe = value_get(experiment, "recipe");
    if (model) {
        derive_heads(d, model);
        derive_positions(d, model);
    }
    if (train) choose_length(d, train);
    if (train) derive_schedule(d, train);
    if (train) derive_head_chunk(d, train, model);
    if (recipe) schema_recipe_rules(d, recipe, "recipe");
    schema_recipe_steps(d, recipe, "recipe", train);
    check_init(d, experiment);
    check_attention(d, experiment);
    check_exact(d, experiment);
    check_cudnn(d, experiment);
    check_batches(d, experiment);
    check_best(d, experiment);
    check_sample(d, experiment);
    check_checkpoint(d, experiment);
    check_data(d, experiment);
    schema_sets_rules(d, experiment);
    check_query(d, experiment);
    check_excluded_layers(d, experiment);
    check_recompute(d, experiment);
    check_weight_codes(d, experiment);
}
