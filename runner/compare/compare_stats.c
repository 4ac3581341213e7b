/* Repeats: runs that differ in nothing but their seed form a group, and groups of at least four
 * seeds can be told apart by a test; fewer cannot, and get no verdict. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/json_safe.h"
#include "runner/compare/compare.h"
#include "runner/compare/stats.h"

/* The Mann-Whitney test cannot reach 0.05 with three a side (its least p is 0.10); with four it
 * can (0.029). */
enum { SEEDS_MIN = 4 };

struct groups {
    int64_t *of;   /* group of each run; owned */
    int64_t count;
};

/* Whether two runs differ at most in seed, choice table and, if it may, recipe. */
static enum status same_but_seed(const struct run_view *a, const struct run_view *b,
                                 bool recipe_too, bool *same, struct err *e) {
    const struct run_view *both[2] = { a, b };
    json_t *differences = NULL, *factors = NULL;
    TRY(compare_differences(both, 2, &differences, &factors, e));
    *same = true;
    size_t i;
    const json_t *item;
    json_array_foreach(factors, i, item) {
        const char *name = json_string_value(item);
        bool recipe = recipe_too && strncmp(name, "recipe", 6) == 0;
        bool tuned = strcmp(name, "choices") == 0; /* each run's own, unless it was given one */
        if (strcmp(name, "seed") != 0 && !tuned && !recipe) *same = false;
    }
    json_decref(differences);
    json_decref(factors);
    return OK;
}

static enum status find_groups(const struct comparison *c, struct groups *g, struct err *e) {
    g->of = calloc((size_t)c->count, sizeof *g->of);
    int64_t *first = calloc((size_t)c->count, sizeof *first);
    enum status st = g->of && first ? OK : FAIL(e, ERR_MEMORY, "%lld runs", (long long)c->count);
    for (int64_t i = 0; st == OK && i < c->count; i++) {
        bool same = false;
        int64_t at = 0;
        for (; st == OK && at < g->count; at++) {
            st = same_but_seed(&c->run[first[at]], &c->run[i], false, &same, e);
            if (same) break;
        }
        if (st == OK && at == g->count) first[g->count++] = i;
        g->of[i] = at;
    }
    free(first);
    return st;
}

/* ---- samples ------------------------------------------------------------------------------- */

struct sample {
    double *value; /* owned; one for each seed */
    int64_t count;
};

/* One value a distinct seed: a seed that ran twice gave the same loss twice, which is no repeat. */
static enum status take_sample(const struct comparison *c, const struct groups *g, int64_t group,
                               const char *key, struct sample *out, struct err *e) {
    json_int_t *seeds = calloc((size_t)c->count, sizeof *seeds);
    out->value = calloc((size_t)c->count, sizeof *out->value);
    out->count = 0;
    if (!seeds || !out->value) {
        free(seeds);
        return FAIL(e, ERR_MEMORY, "%lld values", (long long)c->count);
    }
    for (int64_t i = 0; i < c->count; i++) {
        const json_t *value = json_object_get(c->run[i].summary, key);
        json_int_t seed = json_integer_value(json_object_get(c->run[i].run, "seed"));
        bool known = g->of[i] != group || !json_is_number(value);
        for (int64_t k = 0; k < out->count; k++) known = known || seeds[k] == seed;
        if (known) continue;
        seeds[out->count] = seed;
        out->value[out->count++] = json_number_value(value);
    }
    free(seeds);
    return OK;
}

static json_t *group_row(const struct comparison *c, const struct groups *g, int64_t group,
                         int64_t seeds) {
    json_t *runs = json_array();
    bool failed = false;
    for (int64_t i = 0; i < c->count; i++)
        if (g->of[i] == group) json_append(runs, json_integer(i), &failed);
    return json_pack("{s:o, s:I}", "runs", json_whole(runs, failed), "seeds", (json_int_t)seeds);
}

/* ---- tests --------------------------------------------------------------------------------- */

static enum status test_pair(struct sample *x, struct sample *y, const char *metric, int64_t group,
                             json_t *tests, struct err *e) {
    double u = 0, p = 1, low = 0, high = 0;
    TRY(stats_mann_whitney(x->value, x->count, y->value, y->count, &u, &p, e));
    TRY(stats_bootstrap_ratio(x->value, x->count, y->value, y->count, &low, &high, e));
    double a = stats_median(x->value, x->count), b = stats_median(y->value, y->count);
    bool failed = false;
    if (!isfinite(b / a) || !isfinite(low) || !isfinite(high)) return OK; /* no ratio to 0 */
    json_append(
        tests, json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "metric",
                         metric, "group", (json_int_t)group, "n", (json_int_t)x->count, "m",
                         (json_int_t)y->count, "median_a", a, "median_b", b, "effect", b / a - 1,
                         "effect_low", low, "effect_high", high, "u", u, "p", p, "verdict",
                         p < 0.05 ? "differs" : "no difference shown"), &failed);
    return failed ? FAIL(e, ERR_MEMORY, "a row of statistics") : OK;
}

static enum status test_group(const struct comparison *c, const struct groups *g, int64_t group,
                              json_t *tests, struct err *e) {
    static const char *const METRICS[] = { "eval_loss_final", "loss_final",
                                           "tokens_per_s_median" };
    enum status st = OK;
    for (size_t k = 0; st == OK && k < sizeof METRICS / sizeof *METRICS; k++) {
        struct sample x = { 0 }, y = { 0 };
        st = take_sample(c, g, 0, METRICS[k], &x, e);
        if (st == OK) st = take_sample(c, g, group, METRICS[k], &y, e);
        if (st == OK && x.count >= SEEDS_MIN && y.count >= SEEDS_MIN)
            st = test_pair(&x, &y, METRICS[k], group, tests, e);
        free(x.value);
        free(y.value);
    }
    return st;
}

static const char *recipe_kind(const struct run_view *v) {
    return json_text(json_object_get(v->resolved, "recipe"), "kind", "");
}

/* Where the reference is not FP8 and only the recipe differs: does this group hold its loss? */
static enum status judge_loss(const struct comparison *c, const struct groups *g, int64_t group,
                              json_t *losses, struct err *e) {
    const char *reference = recipe_kind(&c->run[0]);
    if (strcmp(reference, "bf16") != 0 && strcmp(reference, "f32") != 0) return OK;
    const struct run_view *first = NULL;
    for (int64_t i = c->count - 1; i >= 0; i--)
        if (g->of[i] == group) first = &c->run[i];
    const char *kind = recipe_kind(first);
    bool comparable = false;
    TRY(same_but_seed(&c->run[0], first, true, &comparable, e));
    if (!comparable || strncmp(kind, "fp8.", 4) != 0) return OK;
    struct sample x = { 0 }, y = { 0 };
    bool failed = false;
    enum status st = take_sample(c, g, 0, "eval_loss_final", &x, e);
    if (st == OK) st = take_sample(c, g, group, "eval_loss_final", &y, e);
    if (st == OK && x.count >= LOSS_SEEDS_MIN && y.count > 0 &&
        isfinite(stats_mean(y.value, y.count) / stats_mean(x.value, x.count)))
        json_append(losses, compare_loss_row(group, kind, x.value, x.count, y.value, y.count),
                    &failed);
    free(x.value);
    free(y.value);
    return failed ? FAIL(e, ERR_MEMORY, "a row of losses") : st;
}

enum status compare_statistics(const struct comparison *c, json_t **out, struct err *e) {
    struct groups g = { 0 };
    json_t *rows = json_array(), *tests = json_array(), *losses = json_array();
    const char *note = "";
    int64_t least = INT64_MAX;
    bool failed = false;
    enum status st = find_groups(c, &g, e);
    for (int64_t k = 0; st == OK && k < g.count; k++) {
        struct sample s = { 0 };
        st = take_sample(c, &g, k, "loss_final", &s, e);
        if (s.count < least) least = s.count;
        if (st == OK) json_append(rows, group_row(c, &g, k, s.count), &failed);
        free(s.value);
        if (st == OK && k > 0) st = test_group(c, &g, k, tests, e);
        if (st == OK && k > 0) st = judge_loss(c, &g, k, losses, e);
    }
    if (g.count > 1 && least <= 1)
        note = "one seed a side: numbers, and no statistical verdict (three of BF16 give one: "
               "seed = { 1, 2, 3 } in a suite's matrix)";
    else if (g.count > 1 && least < SEEDS_MIN)
        note = "fewer than 4 seeds a side: too few for a test of ranks";
    if (st == OK)
        *out = json_pack("{s:O, s:O, s:O, s:s}", "groups", rows, "tests", tests, "losses", losses,
                         "note", note);
    if (st == OK && (!*out || failed)) {
        json_decref(*out);
        *out = NULL;
        st = FAIL(e, ERR_MEMORY, "statistics of the comparison");
    }
    json_decref(rows);
    json_decref(tests);
    json_decref(losses);
    free(g.of);
    return st;
}
