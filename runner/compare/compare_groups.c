/* Groups of repeats: runs that differ only in their seed. */
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
