/* Groups of repeats: runs that differ only in their seed, or in builds with the same results. */
#include <stdlib.h>
#include <string.h>

#include "runner/base/run_files.h"
#include "runner/compare/compare.h"

enum status compare_other_factors(const struct run_view *a, const struct run_view *b,
                                  bool recipe_too, json_t **out, struct err *e) {
    const struct run_view *both[2] = { a, b };
    json_t *differences = NULL, *factors = NULL;
    TRY(compare_differences(both, 2, &differences, &factors, e));
    json_decref(differences);
    for (size_t i = json_array_size(factors); i-- > 0;) {
        const char *name = json_string_value(json_array_get(factors, i));
        bool recipe = recipe_too && strncmp(name, "recipe", 6) == 0;
        bool tuned = strcmp(name, "choices") == 0; /* each run measures its own, unless it was given
                                                      one */
        if (strcmp(name, "seed") == 0 || tuned || recipe) json_array_remove(factors, i);
    }
    *out = factors;
    return OK;
}

static enum status same_group(const struct run_view *a, const struct run_view *b, bool *same,
                              struct err *e) {
    json_t *others = NULL;
    TRY(compare_other_factors(a, b, false, &others, e));
    *same = json_array_size(others) == 0;
    json_decref(others);
    return OK;
}

/* ---- builds -------------------------------------------------------------------------------- */

static const json_t *code_of(const struct run_view *v) {
    return json_object_get(json_object_get(v->run, "inputs"), "code");
}

static bool same_code(const struct run_view *a, const struct run_view *b) {
    const json_t *x = code_of(a), *y = code_of(b);
    return x == y || (x && y && json_equal(x, y));
}

/* Whether two finished runs of one seed have the same bits. */
static bool same_results(const struct run_view *a, const struct run_view *b) {
    const char *x = json_text(a->run, "results_sha256", ""), *done = "done";
    return *x && !strcmp(x, json_text(b->run, "results_sha256", "")) &&
           !strcmp(json_text(a->run, "status", ""), done) &&
           !strcmp(json_text(b->run, "status", ""), done) &&
           json_equal(json_object_get(a->run, "seed"), json_object_get(b->run, "seed"));
}

/* Whether the groups differ in their builds alone, and a run of both shows that these compute the
 * same. */
static enum status same_but_build(const struct comparison *c, const struct compare_groups *g,
                                  int64_t a, int64_t b, bool *same, struct err *e) {
    json_t *others = NULL;
    bool shown = false;
    *same = false;
    for (int64_t i = 0; i < c->count; i++)
        for (int64_t k = 0; k < c->count && !shown && g->of[i] == a; k++)
            shown = g->of[k] == b && same_results(&c->run[i], &c->run[k]);
    if (!shown) return OK; /* most pairs; what follows is slow */
    TRY(compare_other_factors(&c->run[g->first[a]], &c->run[g->first[b]], false, &others, e));
    *same = json_array_size(others) == 1 &&
            !strcmp(json_string_value(json_array_get(others, 0)), "code");
    json_decref(others);
    return OK;
}

/* Moves the runs of group b into group a < b. */
static void join_groups(const struct comparison *c, struct compare_groups *g, int64_t a,
                        int64_t b) {
    for (int64_t i = 0; i < c->count; i++) {
        if (g->of[i] == b) g->of[i] = a;
        else if (g->of[i] > b) g->of[i]--;
    }
    g->count--;
    memmove(&g->first[b], &g->first[b + 1], (size_t)(g->count - b) * sizeof *g->first);
}

static enum status join_builds(const struct comparison *c, struct compare_groups *g,
                               struct err *e) {
    for (int64_t a = 0; a < g->count; a++)
        for (int64_t b = a + 1; b < g->count; b++) {
            bool same;
            TRY(same_but_build(c, g, a, b, &same, e));
            if (!same) continue;
            join_groups(c, g, a, b);
            b = a; /* what group a gained may show the same of another build */
        }
    return OK;
}

int64_t compare_builds(const struct comparison *c, const struct compare_groups *g, int64_t group) {
    int64_t builds = 0;
    for (int64_t i = 0; i < c->count; i++) {
        bool earlier = false;
        if (group >= 0 && g->of[i] != group) continue;
        for (int64_t k = 0; k < i && !earlier; k++)
            earlier = (group < 0 || g->of[k] == group) && same_code(&c->run[k], &c->run[i]);
        builds += !earlier;
    }
    return builds;
}

enum status compare_group_factors(const struct comparison *c, const struct compare_groups *g,
                                  int64_t a, int64_t b, bool recipe_too, json_t **out,
                                  struct err *e) {
    int64_t x = g->first[a], y = g->first[b];
    bool found = same_code(&c->run[x], &c->run[y]);
    for (int64_t i = 0; i < c->count && !found; i++)
        for (int64_t k = 0; k < c->count && !found; k++) {
            found = g->of[i] == a && g->of[k] == b && same_code(&c->run[i], &c->run[k]);
            if (found) x = i, y = k;
        }
    return compare_other_factors(&c->run[x], &c->run[y], recipe_too, out, e);
}

/* ---- groups -------------------------------------------------------------------------------- */

enum status compare_find_groups(const struct comparison *c, struct compare_groups *g,
                                struct err *e) {
    *g = (struct compare_groups){ .of = calloc((size_t)c->count, sizeof *g->of),
                                  .first = calloc((size_t)c->count, sizeof *g->first) };
    enum status st = g->of && g->first
                         ? OK : FAIL(e, ERR_MEMORY, "groups of %lld runs", (long long)c->count);
    for (int64_t i = 0; st == OK && i < c->count; i++) {
        bool same = false;
        int64_t at = 0;
        for (; st == OK && at < g->count; at++) {
            st = same_group(&c->run[g->first[at]], &c->run[i], &same, e);
            if (same) break;
        }
        if (st == OK && at == g->count) g->first[g->count++] = i;
        g->of[i] = at;
    }
    if (st == OK) st = join_builds(c, g, e);
    if (st != OK) compare_groups_free(g);
    return st;
}

void compare_groups_free(struct compare_groups *g) {
    free(g->of);
    free(g->first);
    *g = (struct compare_groups){ 0 };
}

/* Whether run a got further than run b, by evaluations, then by steps. */
static bool further(const struct run_view *a, const struct run_view *b) {
    int64_t x = compare_last_step(a->columns.of[STREAM_EVAL]);
    int64_t y = compare_last_step(b->columns.of[STREAM_EVAL]);
    if (x != y) return x > y;
    return compare_last_step(a->columns.of[STREAM_TRAIN]) >
           compare_last_step(b->columns.of[STREAM_TRAIN]);
}

enum status compare_repeats(const struct comparison *c, const struct compare_groups *g,
                            int64_t group, int64_t **run, int64_t *count, struct err *e) {
    int64_t *out = calloc((size_t)c->count, sizeof *out), n = 0;
    if (!out) return FAIL(e, ERR_MEMORY, "repeats of %lld runs", (long long)c->count);
    for (int64_t i = 0; i < c->count; i++) {
        int64_t k = 0;
        if (g->of[i] != group) continue;
        while (k < n && !json_equal(json_object_get(c->run[out[k]].run, "seed"),
                                    json_object_get(c->run[i].run, "seed")))
            k++;
        if (k == n) out[n++] = i;
        else if (further(&c->run[i], &c->run[out[k]])) out[k] = i;
    }
    *run = out;
    *count = n;
    return OK;
}
