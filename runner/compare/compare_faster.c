/* The verdict on the ratio of two speeds: of a group and its baseline, or of two builds whose runs
 * are one group. faster_sides.c says which runs count. */
#include "runner/compare/compare_faster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"
#include "runner/compare/compare_family.h"
#include "runner/compare/faster_sides.h"
#include "runner/compare/stats.h"

/* Clocks that differ by more than this share need a reason. */
#define CLOCK_SHARE 0.02

/* What is compared. */
struct question {
    struct speeds s;
    const struct kinship *kin; /* borrowed; the sides are its groups; NULL: they are builds */
};

static const struct run_view *first_of(const struct speeds *s, int64_t side) {
    return &s->c->run[speeds_first(s, side)];
}

/* ---- sides that cannot be compared --------------------------------------------------------- */

/* Factors in which the work or the machine is another one. */
static bool is_other_work(const char *factor) {
    static const char *const WHOLE[] = { "gpu", "cpu", "backend", "ranks", "data" };
    for (size_t i = 0; i < sizeof WHOLE / sizeof *WHOLE; i++)
        if (!strcmp(factor, WHOLE[i])) return true;
    return !strncmp(factor, "model", 5);
}

/* Whether more than one thing, or the work itself, differs; `why` says what. */
static bool other_work(const struct question *q, int64_t group, char why[FAMILY_WHY_CAP]) {
    if (!q->kin) return false;
    const json_t *others = json_array_get(q->kin->others, (size_t)group), *factor;
    const char *only = json_string_value(json_array_get(q->kin->only, (size_t)group));
    bool recipes = !json_equal(json_object_get(first_of(&q->s, group)->resolved, "recipe"),
                               json_object_get(first_of(&q->s, q->s.baseline)->resolved,
                                               "recipe"));
    size_t i, n = json_array_size(others) + (recipes && !only);
    if (only && is_other_work(only)) {
        snprintf(why, FAMILY_WHY_CAP, "tokens/s of another %.60s is no measure", only);
        return true;
    }
    json_array_foreach(others, i, factor) {
        const char *name = json_string_value(factor);
        if (n < 2 && !is_other_work(name)) continue;
        snprintf(why, FAMILY_WHY_CAP, "it differs from the baseline %sin %.60s", recipes ? "also "
                 : "", name);
        return true;
    }
    return false;
}

/* GEMMs in FP8 that the GPU lacks: its time is that of other kernels. */
static int64_t emulated(const struct run_view *v) {
    return json_int(json_object_get(v->decisions, "gemm_ways"), "emulated");
}

/* Clocks that no power cap explains were set or limited outside of the recipe. */
static bool other_clocks(const struct side *x, const struct side *y, char why[FAMILY_WHY_CAP]) {
    const struct side *slow = x->clock < y->clock ? x : y;
    double high = fmax(x->clock, y->clock);
    if (!(slow->clock < (1 - CLOCK_SHARE) * high) || slow->capped) return false;
    snprintf(why, FAMILY_WHY_CAP, "its GPU clock was %.0f MHz, the baseline's %.0f MHz, and the "
             "driver reports no power cap that explains it", y->clock, x->clock);
    return true;
}

/* ---- the verdict --------------------------------------------------------------------------- */

struct gain { double ratio, low, high; };

/* A GPU that warms up gets slower, so the side that ran first has an advantage. */
static void note_order(const struct side *x, const struct side *y, char why[FAMILY_WHY_CAP]) {
    size_t at = strlen(why);
    const char *first = strcmp(x->to, y->from) < 0   ? "the baseline's runs were first"
                        : strcmp(y->to, x->from) < 0 ? "its runs were first"
                                                     : NULL;
    if (first)
        snprintf(why + at, FAMILY_WHY_CAP - at, "%s%s, on a colder GPU: run --repeat takes turns",
                 at ? "; " : "", first);
}

/* Whether a small difference of the clocks, without a power cap, is as large as what is shown. */
static bool clocks_explain(const struct side *x, const struct side *y, const struct gain *gain) {
    const struct side *slow = x->clock < y->clock ? x : y;
    double clocks = y->clock / x->clock;
    if (!(x->clock > 0 && y->clock > 0) || slow->capped) return false;
    return gain->low > 1 ? gain->low <= clocks : gain->high >= clocks;
}

/* Whether the GPUs that only one side had may be what is shown; *there: the ratio on the others. */
static bool chips_explain(const struct side *x, const struct side *y, const struct gain *gain,
                          double *there) {
    double gap = speeds_shared_gap(x, y), half = log(gain->high / gain->ratio);
    *there = exp(gap);
    return gain->low > 1 ? gap <= half : gap >= -half;
}

static const char *judge_bounds(const struct side *x, const struct side *y, const struct gain *gain,
                                char why[FAMILY_WHY_CAP]) {
    double spread = fmax(x->spread, y->spread), there;
    const char *verdict = gain->low > 1 ? "faster" : gain->high < 1 ? "slower" : "not shown";
    bool shown = strcmp(verdict, "not shown") != 0;
    if (shown && spread > fabs(log(gain->ratio)))
        snprintf(why, FAMILY_WHY_CAP, "within a run the quartiles of the step times are %.1f %% "
                 "apart, more than the difference", 100 * spread);
    else if (shown && clocks_explain(x, y, gain))
        snprintf(why, FAMILY_WHY_CAP, "its GPU clock was %.0f MHz, the baseline's %.0f MHz, which "
                 "may be the difference", y->clock, x->clock);
    else if (shown && chips_explain(x, y, gain, &there))
        snprintf(why, FAMILY_WHY_CAP, "on the GPUs that both sides had the ratio is %.3fx", there);
    if (*why) verdict = "not shown";
    note_order(x, y, why);
    speeds_note_gpus(x, y, why);
    return verdict;
}

/* The verdict and its reason; NULL: none is given. */
static const char *judge(const struct question *q, int64_t side, const struct side *x,
                         const struct side *y, const struct gain *gain, char why[FAMILY_WHY_CAP]) {
    const struct run_view *base = first_of(&q->s, q->s.baseline), *row = first_of(&q->s, side);
    int64_t n = emulated(row) ? emulated(row) : emulated(base);
    why[0] = '\0';
    if (compare_on_cpu(base) || compare_on_cpu(row))
        snprintf(why, FAMILY_WHY_CAP, "a CPU emulates FP8: its times say nothing about FP8's "
                 "speed");
    else if (other_work(q, side, why)) return NULL;
    else if (n)
        snprintf(why, FAMILY_WHY_CAP, "%lld GEMMs are emulated, since this GPU lacks their FP8 "
                 "(fp8lab doctor)", (long long)n);
    else if (x->count < SPEED_RUNS_MIN || y->count < SPEED_RUNS_MIN) {
        snprintf(why, FAMILY_WHY_CAP, "row and baseline need %d runs each that count; here are "
                 "%lld and %lld", SPEED_RUNS_MIN, (long long)y->count, (long long)x->count);
        speeds_note_gpus(x, y, why);
        speeds_advise(&q->s, side, x, y, why);
    } else if (speeds_other_gpus(x, y)) {
        speeds_note_gpus(x, y, why);
        speeds_advise(&q->s, side, x, y, why);
    } else if (!other_clocks(x, y, why)) return judge_bounds(x, y, gain, why);
    return NULL;
}

/* ---- the report ---------------------------------------------------------------------------- */

/* Step times are whole microseconds. Runs whose medians are equal may still differ by one, so they
 * are taken to scatter by that. */
static void raise_to_grain(double *variance, double grain) {
    if (*variance < grain * grain) *variance = grain * grain;
}

/* The ratio of geometric means, with its one-sided 95 % bounds. */
static struct gain gain_of(const struct side *x, const struct side *y) {
    struct stats_scatter scatter = stats_scatter_apart(x->log, x->count, y->log, y->count);
    raise_to_grain(&scatter.x, x->grain);
    raise_to_grain(&scatter.y, y->grain);
    double middle = stats_mean(y->log, y->count) - stats_mean(x->log, x->count);
    double half = stats_half(&scatter);
    return (struct gain){ exp(middle), exp(middle - half), exp(middle + half) };
}

static json_t *mean_json(const struct side *side) {
    return json_finite(exp(stats_mean(side->log, side->count)));
}

/* Says in an entry or a row which side it is of. */
static void put_side(const struct question *q, json_t *object, const char *group, int64_t side,
                     bool *failed) {
    if (q->kin) {
        json_put(object, group, json_integer((json_int_t)side), failed);
        return;
    }
    const json_t *inputs = json_object_get(first_of(&q->s, side)->run, "inputs");
    json_put(object, "run", json_integer((json_int_t)speeds_first(&q->s, side)), failed);
    json_put(object, "build", json_string(json_text(inputs, "code", "?")), failed);
}

static enum status put_row(const struct question *q, int64_t side, const struct side *x,
                           json_t *rows, struct err *e) {
    struct side y;
    char why[FAMILY_WHY_CAP];
    bool failed = false, cpu = compare_on_cpu(first_of(&q->s, q->s.baseline)) ||
                               compare_on_cpu(first_of(&q->s, side));
    TRY(speeds_take(&q->s, side, &y, e));
    struct gain gain = gain_of(x, &y);
    const char *verdict = judge(q, side, x, &y, &gain, why);
    if (cpu) gain = (struct gain){ (double)NAN, (double)NAN, (double)NAN };
    json_t *row = json_pack("{s:I, s:o, s:o, s:o, s:o, s:s?, s:o}", "runs", (json_int_t)y.count,
                            "tokens_per_s", mean_json(&y), "ratio", json_finite(gain.ratio), "low",
                            json_finite(gain.low), "high", json_finite(gain.high), "verdict",
                            verdict, "why", json_from_text(why));
    put_side(q, row, "group", side, &failed);
    json_append(rows, row, &failed);
    speeds_side_free(&y);
    return failed ? FAIL(e, ERR_MEMORY, "a row of speeds") : OK;
}

/* is_row: for each side; the baseline is none. */
static enum status put_entry(struct question *q, const bool *is_row, json_t *list,
                             struct err *e) {
    struct side x = { 0 };
    bool failed = false;
    json_t *rows = json_array();
    enum status st = rows ? speeds_open(&q->s, e) : FAIL(e, ERR_MEMORY, "speeds");
    if (st == OK) st = speeds_choose(&q->s, e);
    if (st == OK) st = speeds_take(&q->s, q->s.baseline, &x, e);
    for (int64_t k = 0; st == OK && k < q->s.sides; k++)
        if (is_row[k]) st = put_row(q, k, &x, rows, e);
    if (st == OK) {
        json_t *entry = json_pack("{s:I, s:o, s:O, s:O}", "runs", (json_int_t)x.count,
                                  "tokens_per_s", mean_json(&x), "left_out", q->s.left_out, "rows",
                                  rows);
        put_side(q, entry, "baseline", q->s.baseline, &failed);
        json_append(list, entry, &failed);
    }
    speeds_side_free(&x);
    speeds_close(&q->s);
    json_decref(rows);
    return failed && st == OK ? FAIL(e, ERR_MEMORY, "speeds") : st;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Whether the group differs from its baseline in nothing but the build. */
static bool asks_build(const struct kinship *kin, int64_t group) {
    const json_t *others = json_array_get(kin->others, (size_t)group);
    return json_array_size(others) == 1 &&
           !strcmp(json_string_value(json_array_get(others, 0)), "code");
}

static enum status put_family(const struct comparison *c, const struct compare_groups *g,
                              const struct kinship *kin, int64_t baseline, json_t *list,
                              struct err *e) {
    int64_t *of = calloc((size_t)c->count + 1, sizeof *of);
    bool *is_row = calloc((size_t)g->count + 1, sizeof *is_row), any = false;
    bool *any_build = calloc((size_t)g->count + 1, sizeof *any_build);
    enum status st = of && is_row && any_build ? OK : FAIL(e, ERR_MEMORY, "speeds");
    for (int64_t k = 0; st == OK && k < g->count; k++) {
        is_row[k] = kin->of[k] == baseline;
        any_build[k] = is_row[k] && asks_build(kin, k);
        any = any || is_row[k];
    }
    for (int64_t i = 0; st == OK && i < c->count; i++)
        of[i] = g->of[i] == baseline || is_row[g->of[i]] ? g->of[i] : -1;
    struct question q = { { .c = c, .of = of, .sides = g->count, .baseline = baseline,
                            .any_build = any_build }, kin };
    if (st == OK && any) st = put_entry(&q, is_row, list, e);
    free(of);
    free(is_row);
    free(any_build);
    return st;
}

enum status compare_faster(const struct comparison *c, const struct compare_groups *g,
                           const json_t *names, json_t **out, struct err *e) {
    struct kinship kin = { 0 };
    json_t *missing = json_array(); /* "losses_missing" has the same groups */
    *out = json_array();
    enum status st = *out && missing ? kinship_find(c, g, names, &kin, missing, e)
                                     : FAIL(e, ERR_MEMORY, "speeds");
    for (int64_t b = 0; st == OK && b < g->count; b++) st = put_family(c, g, &kin, b, *out, e);
    kinship_free(&kin);
    json_decref(missing);
    if (st == OK) return OK;
    json_decref(*out);
    *out = NULL;
    return st;
}

/* ---- builds -------------------------------------------------------------------------------- */

/* Numbers the builds of a group in the order of their runs; returns how many there are. */
static int64_t number_builds(const struct comparison *c, const struct compare_groups *g,
                             int64_t group, int64_t *of) {
    int64_t builds = 0;
    for (int64_t i = 0; i < c->count; i++) {
        of[i] = -1;
        if (g->of[i] != group) continue;
        for (int64_t k = 0; k < i && of[i] < 0; k++)
            if (speeds_same_build(c, k, i)) of[i] = of[k]; /* -1: of another group */
        if (of[i] < 0) of[i] = builds++;
    }
    return builds;
}

static enum status put_builds(const struct comparison *c, const struct compare_groups *g,
                              int64_t group, json_t *list, struct err *e) {
    size_t room = (size_t)c->count + 1;
    int64_t *of = calloc(room, sizeof *of), builds = 0;
    bool *is_row = calloc(room, sizeof *is_row), *any_build = calloc(room, sizeof *any_build);
    enum status st = of && is_row && any_build ? OK : FAIL(e, ERR_MEMORY, "speeds of builds");
    if (st == OK) builds = number_builds(c, g, group, of);
    for (int64_t k = 0; k < builds; k++) {
        is_row[k] = k > 0;
        any_build[k] = true;
    }
    struct question q = { { .c = c, .of = of, .sides = builds, .any_build = any_build }, NULL };
    if (st == OK && builds > 1) st = put_entry(&q, is_row, list, e);
    free(of);
    free(is_row);
    free(any_build);
    return st;
}

enum status compare_faster_builds(const struct comparison *c, const struct compare_groups *g,
                                  json_t **out, struct err *e) {
    enum status st = (*out = json_array()) ? OK : FAIL(e, ERR_MEMORY, "speeds of builds");
    for (int64_t k = 0; st == OK && k < g->count; k++)
        if (!compare_on_cpu(&c->run[g->first[k]])) st = put_builds(c, g, k, *out, e);
    if (st == OK) return OK;
    json_decref(*out);
    *out = NULL;
    return st;
}

/* ---- for readers --------------------------------------------------------------------------- */

const json_t *compare_speed_row(const json_t *statistics, int64_t group, const json_t **family) {
    size_t i, k;
    const json_t *table, *row;
    json_array_foreach(json_object_get(statistics, "speed"), i, table)
        json_array_foreach(json_object_get(table, "rows"), k, row)
            if (json_int(row, "group") == group) {
                *family = table;
                return row;
            }
    return NULL;
}
