/* Rank tests of losses between groups. A test needs at least four seeds per side. Speed has a rule
 * of its own (compare_faster.c), since runs that were disturbed must not count. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/compare/compare_faster.h"
#include "runner/compare/compare_loss.h"
#include "runner/compare/stats.h"

/* With three a side the least p of the Mann-Whitney test is 0.10, with four 0.029. */
enum { SEEDS_MIN = 4 };

/* ---- samples ------------------------------------------------------------------------------- */

/* The tested metrics: losses at the last step that both sides have, from the records. */
struct tested {
    const char *key;
    enum stream_id stream;
};

struct side {
    int64_t *run, count; /* one run for each seed; owned */
    double *value;       /* owned */
};

static void side_free(struct side *s) {
    free(s->run);
    free(s->value);
}

static const struct columns *records_of(const struct comparison *c, int64_t run,
                                        const struct tested *m) {
    return c->run[run].columns.of[m->stream];
}

/* The last step that all runs of both sides have; -1: none. */
static enum status common_step(const struct comparison *c, const struct side *x,
                               const struct side *y, const struct tested *m, int64_t *step,
                               struct err *e) {
    int64_t n = x->count + y->count;
    const struct columns **t = calloc((size_t)n + 1, sizeof *t);
    if (!t) return FAIL(e, ERR_MEMORY, "records of %lld runs", (long long)n);
    for (int64_t i = 0; i < n; i++)
        t[i] = records_of(c, i < x->count ? x->run[i] : y->run[i - x->count], m);
    *step = compare_common_step(t, n);
    free(t);
    return OK;
}

/* One value for each seed; *whole becomes false if a run has none. */
static enum status take_values(const struct comparison *c, struct side *s, const struct tested *m,
                               int64_t step, bool *whole, struct err *e) {
    s->value = calloc((size_t)s->count + 1, sizeof *s->value);
    if (!s->value) return FAIL(e, ERR_MEMORY, "%lld values", (long long)s->count);
    for (int64_t i = 0; i < s->count; i++) {
        s->value[i] = compare_value_at(records_of(c, s->run[i], m), "loss", step);
        *whole = *whole && isfinite(s->value[i]);
    }
    return OK;
}

/* ---- tests --------------------------------------------------------------------------------- */

static enum status test_pair(struct side *x, struct side *y, const char *metric, int64_t step,
                             int64_t group, json_t *tests, struct err *e) {
    double u = 0, p = 1, low = 0, high = 0;
    TRY(stats_mann_whitney(x->value, x->count, y->value, y->count, &u, &p, e));
    TRY(stats_bootstrap_ratio(x->value, x->count, y->value, y->count, &low, &high, e));
    double a = stats_median(x->value, x->count), b = stats_median(y->value, y->count);
    bool failed = false;
    if (!isfinite(b / a) || !isfinite(low) || !isfinite(high)) return OK; /* there is no finite
                                                                             ratio */
    json_append(
        tests,
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "metric",
                  metric, "step", (json_int_t)step, "group",
                  (json_int_t)group, "n", (json_int_t)x->count, "m", (json_int_t)y->count,
                  "median_a", a, "median_b", b, "effect", b / a - 1, "effect_low", low,
                  "effect_high", high, "u", u, "p", p, "verdict",
                  p < 0.05 ? "differs" : "no difference shown"), &failed);
    return failed ? FAIL(e, ERR_MEMORY, "a row of statistics") : OK;
}

static enum status test_metric(const struct comparison *c, const struct compare_groups *g,
                               const struct tested *m, int64_t base, int64_t group,
                               json_t *tests, struct err *e) {
    struct side x = { 0 }, y = { 0 };
    int64_t step = -1;
    bool whole = true;
    enum status st = compare_repeats(c, g, base, &x.run, &x.count, e);
    if (st == OK) st = compare_repeats(c, g, group, &y.run, &y.count, e);
    if (st == OK && x.count >= SEEDS_MIN && y.count >= SEEDS_MIN) {
        st = common_step(c, &x, &y, m, &step, e);
        if (st == OK) st = take_values(c, &x, m, step, &whole, e);
        if (st == OK) st = take_values(c, &y, m, step, &whole, e);
        if (st == OK && whole) st = test_pair(&x, &y, m->key, step, group, tests, e);
    }
    side_free(&x);
    side_free(&y);
    return st;
}

static enum status test_group(const struct comparison *c, const struct compare_groups *g,
                              int64_t base, int64_t group, json_t *tests, struct err *e) {
    static const struct tested METRICS[] = { { "eval_loss_final", STREAM_EVAL },
                                             { "loss_final", STREAM_TRAIN } };
    for (size_t k = 0; k < sizeof METRICS / sizeof *METRICS; k++)
        TRY(test_metric(c, g, &METRICS[k], base, group, tests, e));
    return OK;
}

/* ---- all ----------------------------------------------------------------------------------- */

static json_t *group_row(const struct comparison *c, const struct compare_groups *g, int64_t group,
                         int64_t seeds, json_t *label) {
    json_t *runs = json_array();
    bool failed = false;
    for (int64_t i = 0; i < c->count; i++)
        if (g->of[i] == group) json_append(runs, json_integer(i), &failed);
    return json_pack("{s:o, s:I, s:I, s:O}", "runs", json_whole(runs, failed), "seeds",
                     (json_int_t)seeds, "builds", (json_int_t)compare_builds(c, g, group), "label",
                     label);
}

static enum status add_groups(const struct comparison *c, const struct compare_groups *g,
                              const json_t *names, json_t *rows, int64_t *least, struct err *e) {
    bool failed = false;
    for (int64_t k = 0; k < g->count; k++) {
        int64_t *run = NULL, seeds = 0;
        TRY(compare_repeats(c, g, k, &run, &seeds, e));
        free(run);
        if (seeds < *least) *least = seeds;
        json_append(rows, group_row(c, g, k, seeds, json_array_get(names, (size_t)k)), &failed);
    }
    return failed ? FAIL(e, ERR_MEMORY, "groups of runs") : OK;
}

static const char *note_of(const struct compare_groups *g, int64_t least) {
    if (g->count > 1 && least <= 1)
        return "one seed per side: no statistical verdict on losses (three seeds per side give "
               "one: seed = { 1, 2, 3 } in a suite's matrix)";
    if (g->count > 1 && least < SEEDS_MIN)
        return "fewer than 4 seeds per side: too few for a test of ranks";
    return "";
}

enum status compare_statistics(const struct comparison *c, const json_t *differences, json_t **out,
                               struct err *e) {
    struct compare_groups g = { 0 };
    json_t *rows = json_array(), *tests = json_array();
    json_t *names = NULL, *losses = NULL, *missing = NULL, *speed = NULL, *built = NULL;
    int64_t least = INT64_MAX;
    enum status st = rows && tests ? compare_find_groups(c, &g, e)
                                   : FAIL(e, ERR_MEMORY, "statistics of the comparison");
    if (st == OK) st = compare_names(c, &g, differences, &names, e);
    if (st == OK) st = add_groups(c, &g, names, rows, &least, e);
    if (st == OK) st = compare_losses(c, &g, names, &losses, &missing, e);
    if (st == OK) st = compare_spikes(c, &g, losses, e);
    if (st == OK) st = compare_faster(c, &g, names, &speed, e);
    if (st == OK) st = compare_faster_builds(c, &g, &built, e);
    int64_t only = compare_only_baseline(losses), base = only < 0 ? 0 : only;
    for (int64_t k = 0; st == OK && k < g.count; k++)
        if (k != base) st = test_group(c, &g, base, k, tests, e);
    if (st == OK)
        *out = json_pack("{s:I, s:O, s:O, s:O, s:O, s:O, s:O, s:s}", "builds",
                         (json_int_t)compare_builds(c, &g, -1), "groups", rows, "tests", tests,
                         "losses", losses, "losses_missing", missing, "speed", speed,
                         "speed_builds", built, "note", note_of(&g, least));
    if (st == OK && !*out) st = FAIL(e, ERR_MEMORY, "statistics of the comparison");
    json_decref(names);
    json_decref(rows);
    json_decref(tests);
    json_decref(losses);
    json_decref(missing);
    json_decref(speed);
    json_decref(built);
    compare_groups_free(&g);
    return st;
}
