/* Finds what differs between runs, apart from their results, and which differences may change
 * results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/json_flat.h"
#include "runner/base/run_files.h"
#include "runner/compare/compare.h"
#include "runner/compare/recipe_name.h"
#include "runner/plan/factor.h"
#include "runner/plan/run_length.h"
#include "runner/script/token_paths.h"

static bool starts(const char *text, const char *head) {
    return strncmp(text, head, strlen(head)) == 0;
}

/* ---- factors ------------------------------------------------------------------------------- */

/* Keys of other sections than the configuration (plan/factor.h) that are factors, by their
 * beginning. The first match counts. */
struct rule {
    const char *section, *head, *factor;
};
static const struct rule RULES[] = {
    { "inputs", "code", "code" },
    { "inputs", "data", "data" },
    { "inputs", "choices", "choices" },
    { "inputs", "arithmetic", "arithmetic" },
    { "inputs", "parent", "extension" }, /* the checkpoint of the run that it extends */
    { "inputs", "weights", "weights" },
    { "inputs", "optimizer.", "weights" }, /* the moments that begin with them */
    { "machine", "gpu.product_name", "gpu" },
    { "machine", "gpu.count", "gpu" },
    { "machine", "gpu.cc", "gpu" },
    { "machine", "gpu.memory", "gpu" },
    { "machine", "cpu.arch", "cpu" },
    { "machine", "cpu.model", "cpu" },
    { "machine", "cpu.cores", "cpu" },
    { "machine", "cuda.driver", "driver" },
    { "machine", "gpu.driver", "driver" },
    { "machine", "cuda.runtime", "libraries" },
    { "machine", "cublaslt.", "libraries" },
    { "machine", "cudnn.", "libraries" },
    { "machine", "nccl.", "libraries" },
    { "decisions", "backend", "backend" },
    { "decisions", "world", "ranks" }, /* each rank sums its share of a batch first */
};

static void add_factor(json_t *factors, const char *name, bool *failed) {
    size_t i;
    const json_t *item;
    json_array_foreach(factors, i, item) if (strcmp(json_string_value(item), name) == 0) return;
    json_append(factors, json_string(name), failed);
}

/* Whether all runs have the schedule.decay that follows from their steps and warm-up: then one of
 * those differs, too, and decay is no factor of its own. */
static bool decay_follows(json_t *const *flat, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        int64_t follows = default_decay(json_text(flat[i], "train.schedule.kind", ""),
                                        json_int(flat[i], "train.steps"),
                                        json_int(flat[i], "train.schedule.warmup"));
        if (!json_object_get(flat[i], "train.schedule.decay") ||
            json_int(flat[i], "train.schedule.decay") != follows)
            return false;
    }
    return true;
}

/* Two kinds of recipe differ in most keys and are one factor; recipes of one kind are compared key
 * by key. NULL: the key is no factor. */
static const char *factor_of(const char *section, const char *key, bool kinds) {
    if (!strcmp(section, "config")) return factor_of_key(key, kinds);
    for (size_t i = 0; i < sizeof RULES / sizeof *RULES; i++)
        if (!strcmp(section, RULES[i].section) && starts(key, RULES[i].head))
            return RULES[i].factor;
    return NULL;
}

/* ---- differences --------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* An absent key and a null are the same value. */
static bool same_value(const json_t *x, const json_t *y, const char *key) {
    const json_t *a = json_object_get(x, key), *b = json_object_get(y, key);
    if (json_is_null(a)) a = NULL;
    if (json_is_null(b)) b = NULL;
    return !a == !b && (!a || json_equal(a, b));
}

static bool all_equal(json_t *const *flat, int64_t count, const char *key) {
    for (int64_t i = 1; i < count; i++)
        if (!same_value(flat[0], flat[i], key)) return false;
    return true;
}

struct section {
    const char *name;
    json_t **flat; /* one object a run, borrowed */
    int64_t count;
    struct compared runs;
    json_t *differences, *factors; /* borrowed */
};

/* Whether the text leaves the key out. There are hundreds of decisions on single GEMMs, and
 * `gemm_ways` counts them; `choices` is a path. The counts of certificates depend on the recipe,
 * older bundles lack them, and `forbidden` names what failed. An image's base stands for its
 * packages. Names are in the list of runs. Paths of programs and homes change no result. Recipes of
 * different kinds differ in most keys, which the kinds imply; a key in which runs of one kind
 * differ is shown. */
static bool is_detail(const struct section *s, const char *key) {
    if (strcmp(s->name, "decisions") == 0)
        return starts(key, "gemm.") || starts(key, "attention.") ||
               starts(key, "certificates.") || strcmp(key, "choices") == 0;
    if (strcmp(s->name, "machine") == 0) /* the run's own figures are better than these of one
                                            moment */
        return strcmp(key, "memory.available") == 0 || strcmp(key, "gpu.temperature_c") == 0 ||
               strcmp(key, "gpu.clock_sm_mhz") == 0 || starts(key, "gpu.gemm_");
    if (strcmp(s->name, "image") == 0)
        return strcmp(key, "packages") == 0 || strcmp(key, "libraries") == 0;
    if (strcmp(s->name, "environment") == 0)
        return strcmp(key, "HOME") == 0 || strcmp(key, "PATH") == 0;
    if (strcmp(s->name, "config") != 0) return false;
    if (strcmp(key, "name") == 0 || strcmp(key, "about") == 0) return true;
    if (!starts(key, "recipe.") || strcmp(key, "recipe.kind") == 0) return false;
    for (int64_t i = 0; i < s->count; i++)
        for (int64_t j = 0; j < i; j++)
            if (same_value(s->flat[i], s->flat[j], "recipe.kind") &&
                !same_value(s->flat[i], s->flat[j], key))
                return false;
    return true;
}

static void put_difference(const struct section *s, const char *key, bool kinds, bool *failed) {
    json_t *values = json_array();
    for (int64_t i = 0; i < s->count; i++) {
        json_t *value = json_object_get(s->flat[i], key);
        json_append(values, value ? json_incref(value) : json_null(), failed);
    }
    bool follows = !strcmp(s->name, "config") && !strcmp(key, "train.schedule.decay") &&
                   decay_follows(s->flat, s->count);
    const char *factor = follows ? NULL : factor_of(s->name, key, kinds);
    factor = compare_content_factor(&s->runs, s->name, key, factor);
    json_append(s->differences,
                json_pack("{s:s, s:s, s:s?, s:b, s:o}", "section", s->name, "key", key, "factor",
                          factor, "detail", follows || is_detail(s, key), "values", values),
                failed);
    if (factor) add_factor(s->factors, factor, failed);
}

/* What it means that a run lacks a key. New reference; NULL: just that. */
static json_t *default_of(const json_t *flat, const char *key) {
    return strcmp(key, "train.weight_codes") ? recipe_default(flat, key) : json_string("kept");
}

/* A recipe that lacks a key that another run has, and one with the default of that key, are one
 * recipe: bundles of older versions lack keys, and "fp8" of a GEMM is left out. */
static void put_defaults(json_t *const *flat, int64_t count, const json_t *keys, bool *failed) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)keys, key, value)
        for (int64_t i = 0; i < count; i++) {
            json_t *same = json_object_get(flat[i], key) ? NULL : default_of(flat[i], key);
            if (same) json_put(flat[i], key, same, failed);
        }
}

static enum status diff_section(const struct section *s, struct err *e) {
    json_t *keys = json_object(); /* the union */
    bool failed = !keys;
    for (int64_t i = 0; i < s->count; i++)
        failed |= json_object_update_missing(keys, s->flat[i]) != 0;
    if (!strcmp(s->name, "config")) put_defaults(s->flat, s->count, keys, &failed);
    size_t n = json_object_size(keys), at = 0;
    const char **names = malloc((n + 1) * sizeof *names), *key;
    json_t *value;
    if (!names) {
        json_decref(keys);
        return FAIL(e, ERR_MEMORY, "%zu keys to compare", n);
    }
    json_object_foreach(keys, key, value) names[at++] = key;
    qsort(names, n, sizeof *names, by_text);
    bool kinds = !all_equal(s->flat, s->count, "recipe.kind");
    for (size_t i = 0; i < n; i++)
        if (!all_equal(s->flat, s->count, names[i])) put_difference(s, names[i], kinds, &failed);
    free(names);
    json_decref(keys);
    return failed ? FAIL(e, ERR_MEMORY, "comparing %s", s->name) : OK;
}

static void put_config(const json_t *config, json_t *flat, bool *failed) {
    struct err ignored; /* there is no memory */
    json_t *cut = NULL;
    if (!config) return;
    *failed = token_paths_cut(config, &cut, &ignored) != OK || *failed;
    if (cut) json_flatten(cut, flat, failed);
    json_decref(cut);
}

/* A run's values in a section: new reference to a flat object, NULL without memory. */
static json_t *section_of(const char *name, const struct run_view *v) {
    json_t *flat = json_object();
    bool failed = false;
    if (strcmp(name, "config") == 0) put_config(v->resolved, flat, &failed);
    if (strcmp(name, "inputs") == 0) {
        json_flatten(json_object_get(v->run, "inputs"), flat, &failed);
        json_object_del(flat, "config"); /* the section "config" has it key by key */
        compare_put_start(v, flat, &failed);
    }
    if (strcmp(name, "code") == 0) json_flatten(v->commit, flat, &failed);
    if (strcmp(name, "machine") == 0) {
        json_flatten(v->facts, flat, &failed);
        json_flatten(v->libraries, flat, &failed);
    }
    if (strcmp(name, "environment") == 0)
        json_flatten(json_object_get(v->environment, "kept"), flat, &failed);
    if (strcmp(name, "image") == 0) json_flatten(v->image, flat, &failed);
    if (strcmp(name, "decisions") == 0) json_flatten(v->decisions, flat, &failed);
    if (strcmp(name, "run") == 0) {
        static const char *const KEYS[] = { "status", "version", "smoke", "mismatch", "parent" };
        for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
            json_t *value = json_object_get(v->run, KEYS[i]);
            if (value) json_put(flat, KEYS[i], json_incref(value), &failed);
        }
    }
    return json_whole(flat, failed);
}

enum status compare_differences(const struct run_view *const *runs, int64_t count,
                                json_t **differences, json_t **factors, struct err *e) {
    static const char *const SECTIONS[] = { "config", "inputs", "code", "machine", "environment",
                                            "image", "decisions", "run" };
    json_t **flat = calloc((size_t)count, sizeof *flat);
    if (!flat) return FAIL(e, ERR_MEMORY, "%lld runs to compare", (long long)count);
    *differences = json_array();
    *factors = json_array();
    enum status st = *differences && *factors ? OK : FAIL(e, ERR_MEMORY, "comparing runs");
    for (size_t s = 0; st == OK && s < sizeof SECTIONS / sizeof *SECTIONS; s++) {
        for (int64_t i = 0; i < count; i++) flat[i] = section_of(SECTIONS[s], runs[i]);
        struct section section = { SECTIONS[s], flat, count, { runs, count }, *differences,
                                   *factors };
        st = diff_section(&section, e);
        for (int64_t i = 0; i < count; i++) json_decref(flat[i]);
    }
    free(flat);
    if (st != OK) {
        json_decref(*differences);
        json_decref(*factors);
        *differences = *factors = NULL;
    }
    return st;
}
