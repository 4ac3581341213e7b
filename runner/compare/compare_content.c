/* What runs read is compared by content, not by name: initial weights and data by the hashes that
 * the runs recorded. */
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/json_flat.h"
#include "runner/compare/compare.h"

/* ---- initial weights ------------------------------------------------------------------------- */

static const json_t *init_of(const struct run_view *v, const char *key) {
    return json_object_get(json_object_get(v->resolved, "init"), key);
}

/* Moments, their step and their recipe; NULL: the run began without, or older ones than records. */
static json_t *moments_of(const struct run_view *v) {
    return json_object_get(v->init, "optimizer");
}

/* The hash of the initial weights alone; the hash in run.json covers the moments too, if there are
 * some. NULL: random ones, or not recorded. */
static const char *weights_of(const struct run_view *v) {
    const char *all = json_text(json_object_get(v->run, "inputs"), "weights", NULL);
    return all ? json_text(moments_of(v), "weights_sha256", all) : NULL;
}

static bool same_text(const char *a, const char *b) { return !a == !b && (!a || !strcmp(a, b)); }

/* Equal, or both absent. */
static bool same_json(const json_t *a, const json_t *b) {
    return a == b || (a && b && json_equal(a, b));
}

static bool same_path(const struct run_view *a, const struct run_view *b) {
    return same_json(init_of(a, "from"), init_of(b, "from"));
}

/* Whether the two begin with the same weights, and the same moments at the same step. */
static bool same_start(const struct run_view *a, const struct run_view *b) {
    return same_text(weights_of(a), weights_of(b)) && same_json(moments_of(a), moments_of(b));
}

/* Whether the configuration tells the runs with other weights (`moments`: with others of those)
 * apart. Otherwise a path had two contents. */
static bool path_tells(const struct compared *c, bool moments) {
    for (int64_t i = 0; i < c->count; i++)
        for (int64_t k = 0; k < i; k++) {
            const struct run_view *a = c->runs[i], *b = c->runs[k];
            bool wanted = same_json(init_of(a, "optimizer"), init_of(b, "optimizer"));
            if (!same_path(a, b) || (moments && !wanted)) continue;
            if (moments ? !same_json(moments_of(a), moments_of(b))
                        : !same_text(weights_of(a), weights_of(b)))
                return false;
        }
    return true;
}

/* Whether each run that reads weights, and moments, has recorded what they were. */
static bool start_is_known(const struct compared *c) {
    for (int64_t i = 0; i < c->count; i++) {
        bool moments = json_is_true(init_of(c->runs[i], "optimizer"));
        if (init_of(c->runs[i], "from") && !weights_of(c->runs[i])) return false;
        if (moments && !moments_of(c->runs[i])) return false;
    }
    return true;
}

/* One difference is one factor: the path where it tells the weights apart, else the weights. */
static const char *factor_of_path(const struct compared *c) {
    bool same = true;
    if (!start_is_known(c)) return "init.from";
    for (int64_t i = 1; i < c->count; i++) same = same && same_start(c->runs[0], c->runs[i]);
    return !same && path_tells(c, false) && path_tells(c, true) ? "init.from" : NULL;
}

void compare_put_start(const struct run_view *v, json_t *flat, bool *failed) {
    const char *weights = weights_of(v);
    if (weights) json_put(flat, "weights", json_string(weights), failed);
    if (!moments_of(v)) return;
    json_t *section = json_object(), *moments = json_copied(moments_of(v), failed);
    (void)json_object_del(moments, "weights_sha256");
    json_put(section, "optimizer", moments, failed);
    json_flatten(section, flat, failed);
    json_decref(section);
}

/* ---- data ---------------------------------------------------------------------------------- */

static bool is_one_of(const char *const *names, const char *name) {
    while (*names && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

/* Whether the values of a key with paths are equal but for these: as many, in the same places. */
static bool same_but_paths(const json_t *a, const json_t *b) {
    static const char *const OF_A_PART[] = { "path", "paths", NULL };
    const char *key;
    const json_t *item;
    size_t i;
    if (json_is_string(a) && json_is_string(b)) return true;
    if (!a || !b || json_typeof(a) != json_typeof(b)) return same_json(a, b);
    if (json_array_size(a) != json_array_size(b) || json_object_size(a) != json_object_size(b))
        return false;
    json_array_foreach(a, i, item)
        if (!same_but_paths(item, json_array_get(b, i))) return false;
    json_object_foreach((json_t *)a, key, item) {
        const json_t *other = json_object_get(b, key);
        if (is_one_of(OF_A_PART, key) ? !same_but_paths(item, other) : !same_json(item, other))
            return false;
    }
    return json_is_array(a) || json_is_object(a) || same_json(a, b);
}

/* Whether the runs read the same bytes. The hash is of all files in order, or of the tokens that
 * were made of the text. It does not say how they are used, so a key that does stays a factor. */
static bool same_bytes(const struct compared *c) {
    for (int64_t i = 0; i < c->count; i++) {
        const char *a = json_text(json_object_get(c->runs[0]->run, "inputs"), "data", NULL),
                   *b = json_text(json_object_get(c->runs[i]->run, "inputs"), "data", NULL);
        if (!a || !b || strcmp(a, b) != 0) return false;
    }
    return true;
}

static const json_t *of_data(const struct run_view *v, const char *key) {
    const json_t *value = json_object_get(json_object_get(v->resolved, "data"), key);
    return json_is_null(value) ? NULL : value;
}

/* `key`: without "data.". */
static const char *factor_of_data(const struct compared *c, const char *key, const char *factor) {
    static const char *const PATHS[] = { "path",      "paths",    "parts", "eval_path",
                                         "tokenizer", "template", NULL };
    if (!is_one_of(PATHS, key) || !same_bytes(c)) return factor;
    for (int64_t i = 1; i < c->count; i++)
        if (!same_but_paths(of_data(c->runs[0], key), of_data(c->runs[i], key))) return factor;
    return NULL;
}

const char *compare_content_factor(const struct compared *c, const char *section, const char *key,
                                   const char *factor) {
    bool config = !strcmp(section, "config"), inputs = !strcmp(section, "inputs");
    if (config && !strcmp(key, "init.from")) return factor_of_path(c);
    if (config && !strncmp(key, "data.", 5)) return factor_of_data(c, key + 5, factor);
    if (inputs && !strcmp(key, "weights")) return path_tells(c, false) ? NULL : factor;
    if (inputs && !strncmp(key, "optimizer.", 10)) return path_tells(c, true) ? NULL : factor;
    return factor;
}
