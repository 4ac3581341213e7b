#include "runner/infer/open_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"
#include "model/ground/json_safe.h"
#include "runner/cache/cache.h"
#include "runner/certify/forbidden.h"
#include "runner/weights/hf_config.h"
#include "runner/weights/weights.h"

enum status model_request_read(const struct cli *cli, const char *what,
                               struct model_request *out, struct err *e) {
    const char *backend = cli_value(cli, "backend");
    *out = (struct model_request){ .what = what, .which = cli_value(cli, "checkpoint"),
                                   .recipe = cli_value(cli, "recipe"),
                                   .backend = backend ? backend : "auto", .runs = cli_runs(cli) };
    TRY(backend_check_name(out->backend, e));
    TRY(cli_int(cli, "threads", 0, 1024, &out->threads, e));
    TRY(cli_int(cli, "device", 0, 1024, &out->device, e));
    return cache_folder(out->cache, cli_value(cli, "cache"), out->runs, e);
}

/* ---- what the weights are ---------------------------------------------------------------------*/

/* Adds the keys that a config.json or a checkpoint does not write, with the script's defaults. */
static enum status read_model(json_t *model, const char *path, struct model_config *out,
                              struct err *e) {
    int64_t heads = json_int(model, "heads"), width = json_int(model, "width");
    json_t *defaults = json_pack("{sI sI sb sb sb sf sn}", "kv_heads", (json_int_t)heads,
                                 "head_dim", (json_int_t)(heads > 0 ? width / heads : 0),
                                 "qk_norm", 0, "bias", 0, "tied", 0, "init_std", 0.02, "rope");
    bool failed = !defaults;
    const char *key;
    json_t *value;
    json_object_foreach(defaults, key, value)
        if (!json_object_get(model, key)) json_put(model, key, json_incref(value), &failed);
    json_decref(defaults);
    if (failed) return FAIL(e, ERR_MEMORY, "the model of %s", path);
    enum status st = options_read_model(model, out, e);
    if (st != OK) err_prefix(e, "%s", path);
    return st;
}

static enum status read_folder(const char *folder, struct model_config *out, struct err *e) {
    char path[PATH_CAP], *text = NULL;
    json_t *model = NULL;
    size_t n = 0;
    TRY(path_join(path, folder, "config.json", e));
    if (!path_exists(path))
        return FAIL(e, ERR_CONFIG, "%s has no config.json: name a run, a Hugging Face folder (in "
                    "its cache the one below snapshots/) or a checkpoint", folder);
    TRY(file_read(path, HF_CONFIG_MAX, &text, &n, e));
    enum status st = hf_config_read(text, n, path, &model, e);
    if (st == OK) st = read_model(model, path, out, e);
    json_decref(model);
    free(text);
    return st;
}

/* What a checkpoint says of its model, as the keys of `model`. */
static json_t *model_of_meaning(const json_t *meaning) {
    const json_t *rope = json_object_get(meaning, "rope");
    json_t *model = json_deep_copy(meaning), *scaling = json_null();
    bool failed = false, rotates = json_is_object(rope);
    json_put(model, "positions", json_string(rotates ? "rope" : "learned"), &failed);
    if (json_object_get(rope, "factor")) scaling = json_deep_copy(rope);
    json_t *table = rotates ? json_pack("{sO? so}", "theta", json_object_get(rope, "theta"),
                                        "scaling", scaling) : json_null();
    json_put(model, "rope", table, &failed);
    return json_whole(model, failed);
}

static enum status read_checkpoint(const char *folder, struct model_config *out, struct err *e) {
    struct checkpoint_info info;
    json_t *root = NULL, *model = NULL;
    enum status st = checkpoint_read(folder, &root, &info, e);
    if (st == OK) {
        model = model_of_meaning(json_object_get(root, "meaning"));
        st = model ? read_model(model, folder, out, e)
                   : FAIL(e, ERR_MEMORY, "the model of %s", folder);
    }
    json_decref(model);
    json_decref(root);
    return st;
}

static bool is_checkpoint(const char *folder) {
    char path[PATH_CAP];
    return path_join(path, folder, CHECKPOINT_JSON, NULL) == OK && path_exists(path);
}

static enum status read_options(struct open_model *m, struct err *e) {
    const char *path = m->found.path;
    if (*m->found.of) {
        TRY(run_view_load(m->found.of, RUN_VIEW_FULL, &m->view, e));
        return options_read(m->view.resolved, &m->options, e);
    }
    TRY(is_checkpoint(path) ? read_checkpoint(path, &m->options.model, e)
                            : read_folder(path, &m->options.model, e));
    m->options.train.grad_dtype = DTYPE_F32;
    return options_set_recipe(&m->options, "bf16", e);
}

/* ---- the recipe -------------------------------------------------------------------------------*/

bool model_is_delayed(const struct open_model *m) {
    const struct recipe *r = &m->options.recipe;
    bool delayed = recipe_info(r->head.kind)->delayed;
    for (int64_t i = 0; i < r->layers * GEMM_SITE_COUNT; i++)
        delayed = delayed || recipe_info(r->site[i].kind)->delayed;
    return delayed;
}

static enum status choose_recipe(const struct model_request *q, struct open_model *m,
                                 struct err *e) {
    m->own_recipe = !q->recipe && *m->found.of;
    if (q->recipe) TRY(options_set_recipe(&m->options, q->recipe, e));
    if (!m->own_recipe && model_is_delayed(m))
        return FAIL(e, ERR_CONFIG, "%s scales by the values of earlier training steps, which %s "
                    "does not have for it; --recipe fp8.tensorwise scales by the values themselves",
                    q->recipe, q->what);
    if (m->options.recipe.f32 && !strcmp(q->backend, "cuda"))
        return FAIL(e, ERR_CONFIG, "the recipe f32 runs on the CPU: --backend cpu");
    return OK;
}

/* Compares the tensors with the model before anybody makes tokens of a large text. */
static enum status check_weights(const struct open_model *m, struct err *e) {
    struct weights w;
    if (model_is_delayed(m)) return OK; /* a checkpoint, which was verified */
    enum status st = weights_open(m->found.path, &m->options.model, &w, e);
    weights_close(&w);
    return st;
}

/* ---- all --------------------------------------------------------------------------------------*/

enum status model_find(const struct model_request *q, struct open_model *out, struct err *e) {
    const struct init_request where = { .runs = q->runs, .which = q->which, .cache = q->cache };
    *out = (struct open_model){ 0 };
    TRY(weights_find(&where, q->what, &out->found, e));
    TRY(read_options(out, e));
    TRY(choose_recipe(q, out, e));
    TRY(check_weights(out, e));
    struct train_options *t = &out->options.train;
    t->forward_only = true;
    t->forward_step = out->found.step;
    t->steps = t->global_batch = t->micro_batch = 1;
    if (out->options.recipe.f32) t->grad_dtype = DTYPE_F32; /* the recipe allows no other */
    t->shard = SHARD_NONE;
    t->optimizer.offload = false;
    t->documents = (struct document_options){ 0 };
    return OK;
}

/* Delayed scales are in a checkpoint alone; other weights are converted to the recipe's type. */
static enum status read_weights(struct open_model *m, struct err *e) {
    const char *path = m->found.path;
    struct checkpoint_info info;
    struct weights w;
    if (model_is_delayed(m)) return checkpoint_load(m->trainer, path, &info, e);
    enum status st = weights_open(path, &m->options.model, &w, e);
    if (st == OK) {
        struct weight_source source = weights_source(&w);
        st = trainer_import(m->trainer, &source, e);
    }
    weights_close(&w);
    return st;
}

enum status model_explain(const struct open_model *m, enum status st, struct err *e) {
    struct weights w;
    struct bad_element bad = { 0 };
    struct err why; /* the first error is the one to report */
    if (st != ERR_NUMERIC || !e) return st;
    bool read = weights_open(m->found.path, &m->options.model, &w, &why) == OK &&
                tensor_files_find_bad(&w.files, &bad, &why) == OK;
    char first[sizeof e->text];
    snprintf(first, sizeof first, "%s", e->text);
    if (bad.tensor)
        (void)!FAIL(e, st, "%s: element %lld of %.200s is %s, so the model computes no number "
                    "(%s). The weights are damaged, or their training diverged: take another copy "
                    "of them%s", w.files.file[bad.tensor->file].path, (long long)bad.index,
                    bad.tensor->name, isnan(bad.value) ? "NaN" : "infinite", first,
                    *m->found.of ? ", or an earlier checkpoint with --checkpoint" : "");
    else if (read)
        (void)!FAIL(e, st, "%s: %s; each weight there is finite, so a value is too large for "
                    "the recipe: try --recipe f32", m->found.path, first);
    else
        err_prefix(e, "%s", m->found.path);
    weights_close(&w);
    return st;
}

/* The algorithms of the run: without them a GPU may take others, with other bits. */
static enum status load_choices(struct backend *b, const char *text, struct err *e) {
    struct err other; /* of another device, or damaged */
    enum status st = text ? b->ops->choices_load(b, text, &other) : OK;
    if (st == ERR_CONFIG) return b->ops->choices_load(b, "", e);
    return st == OK ? OK : FAIL(e, st, "%s", other.text);
}

enum status model_start(const struct model_request *q, struct open_model *m,
                        const struct data *data, struct err *e) {
    struct run_options *o = &m->options;
    const char *name = o->recipe.f32 ? "cpu" : q->backend;
    TRY(backend_open(name, q->threads, q->device, &m->device, e));
    struct backend *b = m->device.backend;
    TRY(b->ops->comm.init(b, NULL, e));
    TRY(forbidden_apply(b, q->forbidden, e));
    TRY(load_choices(b, q->choices, e));
    TRY(trainer_create(&m->trainer, b, &o->model, &o->recipe, &o->train, data, e));
    return model_explain(m, read_weights(m, e), e);
}

void model_close(struct open_model *m) {
    trainer_destroy(m->trainer);
    backend_close(&m->device);
    options_free(&m->options);
    run_view_free(&m->view);
    m->trainer = NULL;
}
