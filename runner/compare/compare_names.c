/* The name of a row: its recipe, the options that are not the default, and the keys in which rows
 * differ. If the configuration does not separate rows, other factors do: machine, code, number of
 * ranks. */
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/compare/compare.h"
#include "runner/compare/recipe_name.h"
#include "runner/plan/options.h"

/* A name has at most PARTS_MAX keys of the configuration, unless it takes more to separate rows. */
enum { PARTS_MAX = 4, PART_WIDTH = 32, OPTION_WIDTH = 64 };

struct naming {
    const struct comparison *c;
    const struct compare_groups *g;
    const json_t *differences;
    struct text *name; /* one for each group; owned */
    int64_t *class;    /* of each group; groups with equal names share a class; owned */
    int64_t classes;
    bool *used;        /* one for each difference: its key is part of the names; owned */
    bool failed;
};

static const json_t *recipe_of(const struct naming *n, int64_t group) {
    return json_object_get(n->c->run[n->g->first[group]].resolved, "recipe");
}

static const json_t *value_of(const struct naming *n, const json_t *row, int64_t group) {
    return json_array_get(json_object_get(row, "values"), (size_t)n->g->first[group]);
}

/* ---- the recipe ---------------------------------------------------------------------------- */

static bool has_option(const json_t *options, const json_t *option) {
    size_t i;
    const json_t *item;
    json_array_foreach(options, i, item) if (json_equal(item, option)) return true;
    return false;
}

/* Whether all FP8 rows, two or more, have the option; then no name needs it. */
static bool all_have(json_t *const *options, int64_t count, const json_t *fp8,
                     const json_t *option) {
    int64_t rows = 0;
    for (int64_t k = 0; k < count; k++) {
        if (!json_is_true(json_array_get(fp8, (size_t)k))) continue;
        rows++;
        if (!has_option(options[k], option)) return false;
    }
    return rows > 1;
}

static void add_part(struct text *t, const char *key, const char *value) {
    text_puts(t, " ");
    text_puts(t, key);
    text_puts(t, "=");
    text_puts(t, value);
}

/* Cuts a long value, such as a list of layers; put_run_names() tells apart what it makes equal. */
static void add_option(struct naming *n, int64_t group, const json_t *option) {
    char *value = value_words(json_object_get(option, "value"), OPTION_WIDTH);
    n->failed = n->failed || !value;
    if (value) add_part(&n->name[group], json_text(option, "key", "?"), value);
    free(value);
}

static void name_recipes(struct naming *n) {
    json_t **options = calloc((size_t)n->g->count + 1, sizeof *options);
    json_t *fp8 = json_array();
    n->failed = n->failed || !options || !fp8;
    for (int64_t k = 0; !n->failed && k < n->g->count; k++) {
        options[k] = recipe_options(recipe_of(n, k));
        n->failed = n->failed || !options[k];
        json_append(fp8, json_boolean(options_recipe_is_fp8(recipe_of(n, k))), &n->failed);
    }
    for (int64_t k = 0; !n->failed && k < n->g->count; k++) {
        size_t i;
        const json_t *option;
        text_puts(&n->name[k], json_text(recipe_of(n, k), "kind", "?"));
        json_array_foreach(options[k], i, option)
            if (!all_have(options, n->g->count, fp8, option)) add_option(n, k, option);
    }
    for (int64_t k = 0; options && k < n->g->count; k++) json_decref(options[k]);
    free(options);
    json_decref(fp8);
}

/* ---- keys ---------------------------------------------------------------------------------- */

/* Puts groups with equal names into one class. */
static void classify(struct naming *n) {
    n->classes = 0;
    for (int64_t k = 0; k < n->g->count; k++) {
        int64_t j = 0;
        while (j < k && strcmp(n->name[j].bytes, n->name[k].bytes) != 0) j++;
        n->class[k] = j < k ? n->class[j] : n->classes++;
    }
}

/* Whether the key separates two groups whose names are equal so far. */
static bool separates(const struct naming *n, const json_t *row) {
    for (int64_t k = 0; k < n->g->count; k++)
        for (int64_t j = 0; j < k; j++)
            if (n->class[j] == n->class[k] &&
                !json_equal(value_of(n, row, j), value_of(n, row, k)))
                return true;
    return false;
}

/* Splits the classes by the key's values. */
static void split(struct naming *n, const json_t *row) {
    int64_t *old = malloc((size_t)n->g->count * sizeof *old);
    n->failed = n->failed || !old;
    if (!old) return;
    memcpy(old, n->class, (size_t)n->g->count * sizeof *old);
    n->classes = 0;
    for (int64_t k = 0; k < n->g->count; k++) {
        int64_t j = 0;
        while (j < k && (old[j] != old[k] ||
                         !json_equal(value_of(n, row, j), value_of(n, row, k))))
            j++;
        n->class[k] = j < k ? n->class[j] : n->classes++;
    }
    free(old);
}

static bool of_config(const json_t *row) {
    return !strcmp(json_text(row, "section", ""), "config");
}

/* Whether a key may be part of a name: it can change results, and is not shown elsewhere. The name
 * begins with the recipe, the seed has its own column, and each run on a GPU has its own table of
 * algorithms. */
static bool names_rows(const json_t *row, bool config) {
    const char *factor = json_text(row, "factor", NULL);
    if (!factor || of_config(row) != config) return false;
    return strcmp(factor, "seed") && strcmp(factor, "choices") &&
           strncmp(json_text(row, "key", ""), "recipe", 6) != 0;
}

/* Chooses keys of the configuration, then other keys as far as needed to separate rows. */
static void choose_keys(struct naming *n) {
    size_t i;
    const json_t *row;
    int64_t parts = 0;
    json_array_foreach(n->differences, i, row) {
        if (!names_rows(row, true) || !separates(n, row)) continue;
        n->used[i] = true;
        parts++;
        split(n, row);
    }
    json_array_foreach(n->differences, i, row) {
        if (parts == PARTS_MAX) break;
        if (!names_rows(row, true) || n->used[i]) continue;
        n->used[i] = true;
        parts++;
    }
    json_array_foreach(n->differences, i, row) {
        if (!names_rows(row, false) || !separates(n, row)) continue;
        n->used[i] = true;
        split(n, row);
    }
}

static const char *last_words(const char *key, int words) {
    const char *at = key + strlen(key);
    while (at > key && (at[-1] != '.' || --words > 0)) at--;
    return at;
}

/* The last word of a key; the last two words if another key in the names ends in the same one. */
static const char *short_key(const struct naming *n, size_t at) {
    const char *key = json_text(json_array_get(n->differences, at), "key", "?");
    for (size_t i = 0; i < json_array_size(n->differences); i++) {
        const char *other = json_text(json_array_get(n->differences, i), "key", "?");
        if (i != at && n->used[i] && !strcmp(last_words(key, 1), last_words(other, 1)))
            return last_words(key, 2);
    }
    return last_words(key, 1);
}

/* Whether more than half of the groups have this group's value; then names leave it out. */
static bool is_usual(const struct naming *n, const json_t *row, int64_t group) {
    int64_t alike = 0;
    for (int64_t k = 0; k < n->g->count; k++)
        alike += json_equal(value_of(n, row, k), value_of(n, row, group));
    return 2 * alike > n->g->count;
}

static void put_keys(struct naming *n) {
    size_t i;
    const json_t *row;
    json_array_foreach(n->differences, i, row)
        for (int64_t k = 0; n->used[i] && k < n->g->count; k++) {
            if (is_usual(n, row, k)) continue;
            char *value = value_words(value_of(n, row, k), PART_WIDTH);
            n->failed = n->failed || !value;
            if (value) add_part(&n->name[k], short_key(n, i), value);
            free(value);
        }
}

/* Adds the run's name to names that are still equal, for example by cut values. */
static void put_run_names(struct naming *n) {
    classify(n);
    for (int64_t k = 0; k < n->g->count; k++) {
        int64_t alike = 0;
        for (int64_t j = 0; j < n->g->count; j++) alike += n->class[j] == n->class[k];
        if (alike == 1) continue;
        text_puts(&n->name[k], " ");
        text_puts(&n->name[k], json_text(n->c->run[n->g->first[k]].run, "name", "?"));
    }
}

/* Whether an allocation failed, in a name too. */
static bool any_failed(struct naming *n) {
    for (int64_t k = 0; !n->failed && k < n->g->count; k++) n->failed = n->name[k].failed;
    return n->failed;
}

enum status compare_names(const struct comparison *c, const struct compare_groups *g,
                          const json_t *differences, json_t **out, struct err *e) {
    size_t rows = json_array_size(differences);
    struct naming n = { .c = c, .g = g, .differences = differences,
                        .name = calloc((size_t)g->count, sizeof *n.name),
                        .class = calloc((size_t)g->count, sizeof *n.class),
                        .used = calloc(rows + 1, sizeof *n.used) };
    json_t *names = json_array();
    n.failed = !n.name || !n.class || !n.used || !names;
    if (!n.failed) name_recipes(&n);
    if (!any_failed(&n)) {
        classify(&n);
        choose_keys(&n);
        put_keys(&n);
    }
    if (!any_failed(&n)) put_run_names(&n);
    for (int64_t k = 0; n.name && k < g->count; k++) {
        if (!any_failed(&n)) json_append(names, json_string(n.name[k].bytes), &n.failed);
        text_free(&n.name[k]);
    }
    free(n.name);
    free(n.class);
    free(n.used);
    *out = json_whole(names, n.failed);
    return *out ? OK : FAIL(e, ERR_MEMORY, "names of %lld rows", (long long)g->count);
}
