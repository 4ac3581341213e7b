/* Who is compared with whom: the baseline of each group, found by its recipe or by a key, or chosen
 * by name. */
#include "runner/compare/compare_family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/compare/recipe_name.h"
#include "runner/plan/factor.h"
#include "runner/plan/options.h"

static const struct run_view *first_of(const struct comparison *c, const struct compare_groups *g,
                                       int64_t group) {
    return &c->run[g->first[group]];
}

static const json_t *recipe_of(const struct comparison *c, const struct compare_groups *g,
                               int64_t group) {
    return json_object_get(first_of(c, g, group)->resolved, "recipe");
}

/* Adds the names of factors to a reason of which `at` bytes are used. */
static void put_names(char why[FAMILY_WHY_CAP], int at, const json_t *names) {
    size_t i;
    const json_t *name;
    json_array_foreach(names, i, name) {
        if (at >= FAMILY_WHY_CAP - 64) return;
        at += snprintf(why + at, FAMILY_WHY_CAP - (size_t)at, "%s %.60s", i ? "," : "",
                       json_string_value(name));
    }
}

static bool is_bf16(const json_t *recipe) {
    return !strcmp(json_text(recipe, "kind", ""), "bf16") && !options_recipe_is_fp8(recipe);
}

/* ---- by a factor --------------------------------------------------------------------------- */

static json_t *config_of(const struct comparison *c, const struct compare_groups *g,
                         int64_t group) {
    return first_of(c, g, group)->resolved;
}

/* A mistyped factor would give the answer to another question: the one without a factor. */
static enum status read_factor(const struct comparison *c, const struct compare_groups *g,
                               struct factor *out, struct err *e) {
    const char *text = c->options.factor;
    char why[FACTOR_WHY_CAP] = "";
    if (!factor_read(text, out))
        return FAIL(e, ERR_ARG, "--factor %.100s: write KEY=VALUE, a key of the runs and its value "
                    "in the baseline's rows, such as train.grad_dtype=f32", text);
    json_t **configs = calloc((size_t)g->count + 1, sizeof *configs);
    if (!configs) return FAIL(e, ERR_MEMORY, "configurations");
    for (int64_t k = 0; k < g->count; k++) configs[k] = config_of(c, g, k);
    enum status st = factor_check(out, configs, g->count, why, e);
    free(configs);
    return st == OK && *why ? FAIL(e, ERR_ARG, "--factor %.100s: %s", text, why) : st;
}

/* Removes the factor's name from a list of names; says whether it was there. */
static bool take_name(json_t *names, const char *name) {
    for (size_t i = 0; i < json_array_size(names); i++)
        if (!strcmp(json_string_value(json_array_get(names, i)), name))
            return json_array_remove(names, i) == 0;
    return false;
}

/* The group that has the value and differs in nothing else; -1: none, and `why` says in what the
 * nearest one differs. */
static enum status find_by_factor(const struct comparison *c, const struct compare_groups *g,
                                  int64_t group, const struct factor *factor, int64_t *baseline,
                                  char why[FAMILY_WHY_CAP], struct err *e) {
    size_t least = SIZE_MAX;
    *baseline = -1;
    snprintf(why, FAMILY_WHY_CAP, "no row has %s = %.100s", factor->key, factor->value);
    for (int64_t b = 0; b < g->count && *baseline < 0; b++) {
        json_t *others = NULL;
        if (factor_find(factor, config_of(c, g, b)) != FACTOR_SAME) continue;
        TRY(compare_group_factors(c, g, b, group, false, &others, e));
        bool differs = take_name(others, factor->key);
        size_t n = json_array_size(others);
        if (differs && n == 0) *baseline = b;
        if (n > 0 && n < least) {
            char name[8];
            int at = snprintf(why, FAMILY_WHY_CAP, "it differs from %s, which has %s = %.100s, in "
                              "more:", compare_letter(g->first[b], name), factor->key,
                              factor->value);
            put_names(why, at, others);
            least = n;
        }
        json_decref(others);
    }
    return OK;
}

/* ---- by its recipe ------------------------------------------------------------------------- */

/* The BF16 group that differs from the group only in its recipe; -1: none, and `why` says in what
 * the nearest one differs. At most one exists: two such groups would be one group. */
static enum status find_baseline(const struct comparison *c, const struct compare_groups *g,
                                 int64_t group, int64_t *baseline, char why[FAMILY_WHY_CAP],
                                 struct err *e) {
    size_t least = SIZE_MAX;
    *baseline = -1;
    snprintf(why, FAMILY_WHY_CAP, "no run is BF16; add recipe = bf16 with the same "
             "seeds, or judge by another key: --factor KEY=VALUE");
    for (int64_t b = 0; b < g->count && *baseline < 0; b++) {
        json_t *others = NULL;
        char name[8];
        if (!is_bf16(recipe_of(c, g, b))) continue;
        TRY(compare_group_factors(c, g, b, group, true, &others, e));
        size_t n = json_array_size(others);
        if (n == 0) *baseline = b;
        if (n > 0 && n < least) {
            int at = snprintf(why, FAMILY_WHY_CAP, "it differs from %s, which is BF16, in more "
                              "than its recipe:", compare_letter(g->first[b], name));
            put_names(why, at, others);
            least = n;
        }
        json_decref(others);
    }
    return OK;
}

/* Whether any two groups have different recipes. */
static bool recipes_differ(const struct comparison *c, const struct compare_groups *g) {
    for (int64_t k = 1; k < g->count; k++)
        if (!json_equal(recipe_of(c, g, 0), recipe_of(c, g, k))) return true;
    return false;
}

static bool any_bf16(const struct comparison *c, const struct compare_groups *g) {
    for (int64_t k = 0; k < g->count; k++)
        if (is_bf16(recipe_of(c, g, k))) return true;
    return false;
}

/* A group without the key, such as BF16 with a key of FP8 recipes, is judged by its recipe. */
static enum status find_all(const struct comparison *c, const struct compare_groups *g,
                            struct kinship *out, json_t *missing, struct err *e) {
    bool asked = recipes_differ(c, g), failed = false;
    struct factor factor = { .value = NULL };
    if (c->options.factor) TRY(read_factor(c, g, &factor, e));
    if (factor.value) asked = asked && any_bf16(c, g); /* another question was asked */
    for (int64_t k = 0; k < g->count; k++) {
        char why[FAMILY_WHY_CAP];
        bool by_factor = factor.value && factor_find(&factor, config_of(c, g, k)) == FACTOR_OTHER;
        json_append(out->others, json_array(), &failed);
        json_append(out->only, by_factor ? json_string(factor.key) : json_null(), &failed);
        if (by_factor) TRY(find_by_factor(c, g, k, &factor, &out->of[k], why, e));
        else if (!asked || !options_recipe_is_fp8(recipe_of(c, g, k))) continue;
        else TRY(find_baseline(c, g, k, &out->of[k], why, e));
        if (out->of[k] < 0)
            json_append(missing, json_pack("{s:I, s:o}", "group", (json_int_t)k, "why",
                                           json_from_text(why)), &failed);
    }
    return failed ? FAIL(e, ERR_MEMORY, "groups without a verdict") : OK;
}

/* ---- by its name --------------------------------------------------------------------------- */

static bool starts(const char *text, const char *head) {
    return strncmp(text, head, strlen(head)) == 0;
}

/* Whether the group is called so: by its row's name, else (`wide`) by its kind of recipe, its
 * recipe with options, a run's name, or the beginning of a run's id. */
static bool is_called(const struct comparison *c, const struct compare_groups *g,
                      const json_t *names, int64_t group, bool wide) {
    const char *want = c->options.baseline;
    const json_t *recipe = recipe_of(c, g, group);
    if (!wide) return !strcmp(json_string_value(json_array_get(names, (size_t)group)), want);
    char *text = recipe_text(recipe);
    bool found = !strcmp(json_text(recipe, "kind", ""), want) || (text && !strcmp(text, want));
    free(text);
    for (int64_t i = 0; i < c->count && !found; i++)
        found = g->of[i] == group && (!strcmp(json_text(c->run[i].run, "name", ""), want) ||
                                      starts(json_text(c->run[i].run, "id", ""), want));
    return found;
}

static enum status refuse_name(const struct comparison *c, const json_t *names, int64_t matches,
                               struct err *e) {
    char list[600] = "";
    size_t i, at = 0;
    const json_t *name;
    json_array_foreach(names, i, name) {
        int n = snprintf(list + at, sizeof list - at, "%s\"%.120s\"", i ? ", " : "",
                         json_string_value(name));
        if (n < 0 || at + (size_t)n >= sizeof list) break;
        at += (size_t)n;
    }
    return FAIL(e, ERR_ARG, "--baseline %.100s: %s; the rows are %s", c->options.baseline,
                matches ? "several rows have this name" : "no row has this name", list);
}

static enum status find_chosen(const struct comparison *c, const struct compare_groups *g,
                               const json_t *names, struct kinship *out, struct err *e) {
    int64_t chosen = -1, matches = 0;
    bool failed = false;
    for (int wide = 0; wide < 2 && matches == 0; wide++)
        for (int64_t k = 0; k < g->count; k++) {
            if (!is_called(c, g, names, k, wide == 1)) continue;
            chosen = k;
            matches++;
        }
    if (matches != 1 || !*c->options.baseline) return refuse_name(c, names, matches, e);
    for (int64_t k = 0; k < g->count; k++) {
        json_t *others = json_array();
        if (k != chosen) {
            json_decref(others);
            TRY(compare_group_factors(c, g, chosen, k, true, &others, e));
            out->of[k] = chosen;
        }
        json_append(out->others, others, &failed);
        json_append(out->only, json_null(), &failed);
    }
    return failed ? FAIL(e, ERR_MEMORY, "what rows differ in") : OK;
}

enum status kinship_find(const struct comparison *c, const struct compare_groups *g,
                         const json_t *names, struct kinship *out, json_t *missing,
                         struct err *e) {
    *out = (struct kinship){ .of = calloc((size_t)g->count + 1, sizeof *out->of),
                             .others = json_array(), .only = json_array() };
    enum status st = out->of && out->others && out->only
                         ? OK : FAIL(e, ERR_MEMORY, "the baselines of groups");
    for (int64_t k = 0; st == OK && k < g->count; k++) out->of[k] = -1;
    if (st == OK)
        st = c->options.baseline ? find_chosen(c, g, names, out, e)
                                 : find_all(c, g, out, missing, e);
    if (st != OK) kinship_free(out);
    return st;
}

void kinship_free(struct kinship *k) {
    free(k->of);
    json_decref(k->others);
    json_decref(k->only);
    *k = (struct kinship){ 0 };
}
