#include "runner/script/hf_model.h"

#include <string.h>

#include "runner/base/run_files.h"

/* Adds to `out` the members of `base` that it lacks. */
static void complete(struct pool *p, struct value *out, const struct value *base) {
    for (int64_t i = 0; i < base->member_count; i++) {
        const struct value_member *m = &base->members[i];
        struct value *own = value_get(out, m->key);
        if (!own) value_set(p, out, m->key, m->value, m->place);
        else if (own->type == VALUE_TABLE && m->value->type == VALUE_TABLE)
            complete(p, own, m->value);
    }
}

/* The path of a reference; NULL after a diagnostic. */
static const char *path_of(struct diagnostics *d, const struct value *model) {
    const struct value *path = model->item_count == 1 ? model->items[0] : NULL;
    bool text = path && path->type == VALUE_STRING && path->string_bytes > 0 &&
                path->string_bytes < PATH_CAP &&
                utf8_valid_prefix(path->string, path->string_bytes) == path->string_bytes;
    if (text) return path->string;
    diagnostics_add(d, model->place, "model", "hf takes one folder with a config.json: hf "
                    "\"PATH\", or hf { \"PATH\", seq_len = 2048 }; found %s",
                    path ? value_describe(d->pool, path) : "none");
    return NULL;
}

static void want(struct diagnostics *d, struct value *wanted, const char *path,
                 struct place place) {
    struct pool *p = d->pool;
    for (int64_t i = 0; i < wanted->item_count; i++)
        if (!strcmp(value_string_at(wanted->items[i], "path"), path)) return;
    struct value *row = value_new(p, VALUE_TABLE, place);
    value_set(p, row, "path", value_string(p, path, place), place);
    value_set(p, row, "file", value_string(p, place.file ? place.file : "", place), place);
    value_set(p, row, "line", value_int(p, place.line, place), place);
    value_append(p, wanted, row);
}

bool hf_models_apply(struct diagnostics *d, struct suite *suite, const json_t *models,
                     struct value **wanted) {
    struct pool *p = d->pool;
    *wanted = value_new(p, VALUE_TABLE, (struct place){ 0 });
    (*wanted)->list = true;
    bool named = true;
    for (int64_t i = 0; i < suite->count; i++) {
        struct value *model = value_get(suite->runs[i].tree, "model");
        if (!model || model->type != VALUE_TABLE || !model->kind || strcmp(model->kind, "hf") != 0)
            continue;
        const char *path = path_of(d, model);
        const json_t *read = path ? json_object_get(models, path) : NULL;
        named = named && path;
        if (path && !read) want(d, *wanted, path, model->place);
        if (!read) continue;
        struct value *own = value_copy(p, model);
        own->kind = NULL;
        own->item_count = 0;
        complete(p, own, value_from_json(p, read, model->place));
        value_set(p, suite->runs[i].tree, "model", own, model->place);
    }
    return named;
}
