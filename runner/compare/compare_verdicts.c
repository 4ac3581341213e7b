/* Does the loss hold? Chooses the groups and the step to compare, and asks compare_loss.c.
 *
 * A family is one group of BF16 runs and the FP8 groups that differ from it only in their recipe.
 * All runs of a family are compared at one step, the last that all of them evaluated. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/compare/compare_loss.h"
#include "runner/compare/stats.h"

enum { WHY_CAP = 512 };

struct family {
    const struct comparison *c;
    const struct compare_groups *g;
    int64_t baseline;      /* group */
    const int64_t *of;     /* the baseline of each group, -1: none; borrowed */
    int64_t step;          /* step of the comparison; -1: there is none */
    char why[WHY_CAP];     /* why no group of the family gets a verdict; "" */
    int64_t *run, runs;    /* one run for each seed and group, without diverged runs; owned */
};

bool compare_is_fp8(const json_t *recipe) {
    return strncmp(json_text(recipe, "kind", ""), "fp8.", 4) == 0 ||
           json_array_size(json_object_get(recipe, "layers")) > 0;
}

static const json_t *recipe_of(const struct comparison *c, const struct compare_groups *g,
                               int64_t group) {
    return json_object_get(c->run[g->first[group]].resolved, "recipe");
}

static bool is_bf16(const json_t *recipe) {
    return !strcmp(json_text(recipe, "kind", ""), "bf16") && !compare_is_fp8(recipe);
}

static json_t *number_or_null(double v) { return isfinite(v) ? json_real(v) : json_null(); }

/* ---- what diverged ------------------------------------------------------------------------- */

/* Whether a run of the group diverged; `why` says "B diverged: ...". */
static bool group_diverged(const struct comparison *c, const struct compare_groups *g,
                           int64_t group, char why[WHY_CAP]) {
    char how[256], name[8];
    for (int64_t i = 0; i < c->count; i++) {
        if (g->of[i] != group || !loss_diverged(&c->run[i], how)) continue;
        snprintf(why, WHY_CAP, "%s diverged: %s", compare_letter(i, name), how);
        return true;
    }
    return false;
}

/* ---- at which step ------------------------------------------------------------------------- */

static enum status add_runs(struct family *f, int64_t group, struct err *e) {
    int64_t count = 0, *run = NULL;
    char how[256];
    TRY(compare_repeats(f->c, f->g, group, &run, &count, e));
    for (int64_t i = 0; i < count; i++)
        if (!loss_diverged(&f->c->run[run[i]], how)) f->run[f->runs++] = run[i];
    free(run);
    return OK;
}

static const struct columns *eval_of(const struct family *f, int64_t at) {
    return f->c->run[f->run[at]].columns.of[STREAM_EVAL];
}

/* The reason why no step was evaluated by all runs. */
static void say_no_step(struct family *f) {
    char name[8];
    for (int64_t i = 0; i < f->runs; i++)
        if (compare_last_step(eval_of(f, i)) < 0) {
            snprintf(f->why, WHY_CAP, "%s was never evaluated; compare without it",
                     compare_letter(f->run[i], name));
            return;
        }
    int at = snprintf(f->why, WHY_CAP,
                      "there is no step at which all were evaluated; the last are");
    for (int64_t i = 0; i < f->runs && at < WHY_CAP - 40; i++)
        at += snprintf(f->why + at, WHY_CAP - (size_t)at, "%s %s %lld", i ? "," : "",
                       compare_letter(f->run[i], name),
                       (long long)compare_last_step(eval_of(f, i)));
}

/* Evaluations over different numbers of tokens cannot be compared. */
static void check_evaluations(struct family *f) {
    char a[8], b[8];
    double tokens = compare_value_at(eval_of(f, 0), "tokens", f->step);
    for (int64_t i = 1; i < f->runs && !*f->why; i++) {
        double other = compare_value_at(eval_of(f, i), "tokens", f->step);
        if (isnan(tokens) || isnan(other) || tokens == other) continue;
        snprintf(f->why, WHY_CAP, "%s was evaluated on %.0f tokens, %s on %.0f",
                 compare_letter(f->run[0], a), tokens, compare_letter(f->run[i], b), other);
    }
}

/* Fills the runs of a family, the step of the comparison, and the reason for no verdict. */
static enum status find_step(struct family *f, struct err *e) {
    f->step = -1;
    f->run = calloc((size_t)f->c->count, sizeof *f->run);
    const struct columns **eval = calloc((size_t)f->c->count, sizeof *eval);
    enum status st = f->run && eval ? OK : FAIL(e, ERR_MEMORY, "the runs of a verdict");
    if (st == OK) st = add_runs(f, f->baseline, e);
    for (int64_t k = 0; st == OK && k < f->g->count; k++)
        if (f->of[k] == f->baseline) st = add_runs(f, k, e);
    for (int64_t i = 0; st == OK && i < f->runs; i++) eval[i] = eval_of(f, i);
    if (st == OK) f->step = compare_common_step(eval, f->runs);
    free(eval);
    if (st != OK) return st;
    bool smoke = false;
    for (int64_t i = 0; i < f->runs; i++)
        smoke = smoke || json_is_true(json_object_get(f->c->run[f->run[i]].run, "smoke"));
    if (group_diverged(f->c, f->g, f->baseline, f->why)) return OK;
    if (smoke) snprintf(f->why, WHY_CAP, "a smoke run, whose sizes and steps are shrunk");
    else if (f->step < 0) say_no_step(f);
    else check_evaluations(f);
    return OK;
}

/* ---- one group ----------------------------------------------------------------------------- */

/* The losses of the group at the family's step. If a seed has no loss there, the sample is empty: a
 * mean of the other seeds is not the group's. */
static enum status take_sample(const struct family *f, int64_t group, struct loss_sample *out,
                               int64_t *seeds, struct err *e) {
    int64_t *run = NULL;
    *out = (struct loss_sample){ 0 };
    TRY(compare_repeats(f->c, f->g, group, &run, seeds, e));
    out->seed = calloc((size_t)*seeds + 1, sizeof *out->seed);
    out->value = calloc((size_t)*seeds + 1, sizeof *out->value);
    enum status st = out->seed && out->value ? OK : FAIL(e, ERR_MEMORY, "losses of a verdict");
    for (int64_t i = 0; st == OK && i < *seeds; i++) {
        const struct run_view *v = &f->c->run[run[i]];
        out->seed[i] = json_integer_value(json_object_get(v->run, "seed"));
        out->value[i] = compare_value_at(v->columns.of[STREAM_EVAL], "loss", f->step);
        if (isfinite(out->value[i])) out->count++;
    }
    if (out->count < *seeds) out->count = 0;
    free(run);
    return st;
}

static void free_sample(struct loss_sample *s) {
    free(s->seed);
    free(s->value);
}

/* The verdict and its reason. Conditions that exclude a verdict come first, the interval last. */
static const char *judge(const struct family *f, int64_t group, const struct loss_judgement *j,
                         int64_t n, int64_t m, char why[WHY_CAP]) {
    why[0] = '\0';
    if (*f->why) {
        snprintf(why, WHY_CAP, "%s", f->why);
        return NULL;
    }
    if (group_diverged(f->c, f->g, group, why)) return loss_verdict_name(LOSS_DOES_NOT_HOLD);
    if (n < LOSS_SEEDS_MIN || m < LOSS_SEEDS_MIN)
        snprintf(why, WHY_CAP, "a verdict needs %d seeds a side; here are %lld and %lld",
                 LOSS_SEEDS_MIN, (long long)n, (long long)m);
    else if (j->verdict == LOSS_NONE)
        snprintf(why, WHY_CAP, "the losses have no finite ratio");
    else if (j->pairs && (j->pairs < n || j->pairs < m))
        snprintf(why, WHY_CAP, "on the %lld seeds that both have", (long long)j->pairs);
    return loss_verdict_name(j->verdict);
}

static enum status put_row(const struct family *f, int64_t group, json_t *rows, struct err *e) {
    struct loss_sample x = { 0 }, y = { 0 };
    struct loss_judgement j;
    int64_t n = 0, m = 0;
    char why[WHY_CAP];
    const char *kind = json_text(recipe_of(f->c, f->g, group), "kind", "?");
    double tolerance = loss_tolerance(kind);
    bool failed = false;
    enum status st = take_sample(f, f->baseline, &x, &n, e);
    if (st == OK) st = take_sample(f, group, &y, &m, e);
    if (st == OK) st = loss_judge(&x, &y, tolerance, &j, e);
    if (st == OK) {
        const char *verdict = judge(f, group, &j, n, m, why);
        json_append(rows,
                    json_pack("{s:I, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:f, s:s?, s:o}",
                              "group", (json_int_t)group, "recipe", kind, "seeds", (json_int_t)m,
                              "pairs", (json_int_t)j.pairs, "baseline_mean",
                              number_or_null(j.baseline_mean), "mean", number_or_null(j.mean),
                              "relative", number_or_null(j.relative), "low", number_or_null(j.low),
                              "high", number_or_null(j.high), "tolerance", tolerance, "verdict",
                              verdict, "why", json_from_text(why)), &failed);
    }
    free_sample(&x);
    free_sample(&y);
    return failed ? FAIL(e, ERR_MEMORY, "a row of losses") : st;
}

/* ---- one family ---------------------------------------------------------------------------- */

/* The runs with evaluations after the step. */
static json_t *cut_runs(const struct family *f) {
    json_t *cut = json_array();
    bool failed = false;
    for (int64_t i = 0; f->step >= 0 && i < f->runs; i++) {
        int64_t last = compare_last_step(eval_of(f, i));
        if (last > f->step)
            json_append(cut, json_pack("{s:I, s:I}", "run", (json_int_t)f->run[i], "step",
                                       (json_int_t)last), &failed);
    }
    return json_whole(cut, failed);
}

static enum status family_json(struct family *f, json_t **out, struct err *e) {
    struct loss_sample x = { 0 };
    int64_t seeds = 0;
    json_t *rows = json_array();
    *out = NULL;
    enum status st = rows ? find_step(f, e) : FAIL(e, ERR_MEMORY, "rows of losses");
    if (st == OK) st = take_sample(f, f->baseline, &x, &seeds, e);
    for (int64_t k = 0; st == OK && k < f->g->count; k++)
        if (f->of[k] == f->baseline) st = put_row(f, k, rows, e);
    if (st == OK)
        *out = json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:O}", "baseline",
                         (json_int_t)f->baseline, "seeds", (json_int_t)seeds, "mean",
                         number_or_null(stats_mean(x.value, x.count)), "step",
                         f->step < 0 ? json_null() : json_integer(f->step), "why",
                         json_from_text(f->why), "cut", cut_runs(f), "rows", rows);
    if (st == OK && !*out) st = FAIL(e, ERR_MEMORY, "a family of losses");
    json_decref(rows);
    free_sample(&x);
    free(f->run);
    return st;
}

/* ---- who is compared with whom ------------------------------------------------------------- */

/* The BF16 group that differs from the group only in its recipe; -1: none, and `why` says in what
 * the nearest one differs. At most one exists: two such groups would be one group. */
static enum status find_baseline(const struct comparison *c, const struct compare_groups *g,
                                 int64_t group, int64_t *baseline, char why[WHY_CAP],
                                 struct err *e) {
    size_t least = SIZE_MAX;
    *baseline = -1;
    snprintf(why, WHY_CAP, "no run is BF16; add recipe = bf16 with the same seeds");
    for (int64_t b = 0; b < g->count && *baseline < 0; b++) {
        json_t *others = NULL;
        char name[8];
        if (!is_bf16(recipe_of(c, g, b))) continue;
        TRY(compare_other_factors(&c->run[g->first[b]], &c->run[g->first[group]], true, &others,
                                  e));
        size_t n = json_array_size(others);
        if (n == 0) *baseline = b;
        if (n > 0 && n < least) {
            int at = snprintf(why, WHY_CAP, "it differs from %s, which is BF16, in more than its "
                              "recipe:", compare_letter(g->first[b], name));
            for (size_t i = 0; i < n && at < WHY_CAP - 64; i++)
                at += snprintf(why + at, WHY_CAP - (size_t)at, "%s %.60s", i ? "," : "",
                               json_string_value(json_array_get(others, i)));
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

static enum status find_families(const struct comparison *c, const struct compare_groups *g,
                                 int64_t *of, json_t *missing, struct err *e) {
    bool asked = recipes_differ(c, g), failed = false;
    for (int64_t k = 0; k < g->count; k++) {
        char why[WHY_CAP];
        of[k] = -1;
        if (!asked || !compare_is_fp8(recipe_of(c, g, k))) continue;
        TRY(find_baseline(c, g, k, &of[k], why, e));
        if (of[k] < 0)
            json_append(missing, json_pack("{s:I, s:o}", "group", (json_int_t)k, "why",
                                           json_from_text(why)), &failed);
    }
    return failed ? FAIL(e, ERR_MEMORY, "groups without a verdict") : OK;
}

enum status compare_losses(const struct comparison *c, const struct compare_groups *g,
                           json_t **losses, json_t **missing, struct err *e) {
    int64_t *of = calloc((size_t)g->count + 1, sizeof *of);
    bool failed = false;
    *losses = json_array();
    *missing = json_array();
    enum status st = of && *losses && *missing ? OK : FAIL(e, ERR_MEMORY, "verdicts on losses");
    if (st == OK) st = find_families(c, g, of, *missing, e);
    for (int64_t b = 0; st == OK && b < g->count; b++) {
        json_t *family = NULL;
        bool has = false;
        for (int64_t k = 0; k < g->count; k++) has = has || of[k] == b;
        if (!has) continue;
        struct family f = { .c = c, .g = g, .baseline = b, .of = of };
        st = family_json(&f, &family, e);
        if (st == OK) json_append(*losses, family, &failed);
    }
    free(of);
    if (st == OK && failed) st = FAIL(e, ERR_MEMORY, "verdicts on losses");
    if (st == OK) return OK;
    json_decref(*losses);
    json_decref(*missing);
    *losses = *missing = NULL;
    return st;
}
