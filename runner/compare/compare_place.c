/* After how many tokens the runs of a family are compared, and which of them that place is of.
 *
 * One short run must not move the comparison to its few tokens, where recipes are still alike. So
 * two kinds of runs have no say: a run whose seed is in no pair, and a run that ended far before
 * the others of its row. Those without an evaluation at the place are left out, and named. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/ground/json_safe.h"
#include "runner/compare/compare_family.h"

struct choice {
    struct family *f;
    bool *paired; /* for each group: it is compared with the baseline in pairs */
    bool *has_say; /* for each run of the family */
};

static const struct curve *curve_of(const struct family *f, int64_t at) {
    return &f->curve[f->run[at]];
}

static int64_t group_of(const struct family *f, int64_t at) { return f->g->of[f->run[at]]; }

static bool is_left_out(const struct family *f, int64_t at) { return f->out[f->run[at]]; }

static double last_tokens(const struct family *f, int64_t at) {
    const struct curve *c = curve_of(f, at);
    return c->points ? c->tokens[c->points - 1] : 0;
}

static int64_t last_step(const struct family *f, int64_t at) {
    const struct curve *c = curve_of(f, at);
    return c->points ? (int64_t)c->step[c->points - 1] : 0;
}

/* ---- pairs --------------------------------------------------------------------------------- */

static const json_t *seed_of(const struct family *f, int64_t at) {
    return json_object_get(f->c->run[f->run[at]].run, "seed");
}

/* The run of the group that has the seed of a run and is not left out; -1: none. */
static int64_t partner(const struct family *f, int64_t at, int64_t group) {
    for (int64_t i = 0; i < f->runs; i++)
        if (group_of(f, i) == group && !is_left_out(f, i) &&
            json_equal(seed_of(f, i), seed_of(f, at)))
            return i;
    return -1;
}

static bool has_partner(const struct family *f, int64_t at, int64_t group) {
    return partner(f, at, group) >= 0;
}

static bool in_pairs(const struct family *f, int64_t group) {
    int64_t pairs = 0;
    for (int64_t i = 0; i < f->runs; i++)
        pairs += group_of(f, i) == group && !is_left_out(f, i) && has_partner(f, i, f->baseline);
    return pairs >= LOSS_SEEDS_MIN;
}

/* All runs of a group that is not compared in pairs have a say. */
static bool has_say(const struct choice *x, int64_t at) {
    const struct family *f = x->f;
    int64_t group = group_of(f, at);
    if (is_left_out(f, at)) return false;
    if (group != f->baseline) return !x->paired[group] || has_partner(f, at, f->baseline);
    for (int64_t k = 0; k < f->g->count; k++)
        if (f->kin->of[k] == f->baseline && (!x->paired[k] || has_partner(f, at, k))) return true;
    return false;
}

static void find_say(struct choice *x) {
    for (int64_t k = 0; k < x->f->g->count; k++) x->paired[k] = in_pairs(x->f, k);
    for (int64_t i = 0; i < x->f->runs; i++) x->has_say[i] = has_say(x, i);
}

/* ---- runs that are left out ---------------------------------------------------------------- */

static enum status leave_out(struct family *f, int64_t at, const char *why, struct err *e) {
    bool failed = false;
    f->out[f->run[at]] = true;
    json_append(f->left_out, json_pack("{s:I, s:I, s:s}", "run", (json_int_t)f->run[at], "step",
                                       (json_int_t)last_step(f, at), "why", why), &failed);
    return failed ? FAIL(e, ERR_MEMORY, "runs that are left out") : OK;
}

/* The run with a say in the group that was evaluated longest. */
static int64_t longest(const struct choice *x, int64_t group) {
    int64_t best = -1;
    for (int64_t i = 0; i < x->f->runs; i++)
        if (group_of(x->f, i) == group && x->has_say[i] &&
            (best < 0 || last_tokens(x->f, i) > last_tokens(x->f, best)))
            best = i;
    return best;
}

/* Leaves out the runs that were evaluated to less than half of the longest of their row. Without
 * them other runs may have a say: `any` says that there were some. A run that was never evaluated
 * remains, as a reason for no verdict. */
static enum status leave_out_short(struct choice *x, bool *any, struct err *e) {
    struct family *f = x->f;
    char why[120];
    *any = false;
    find_say(x);
    for (int64_t i = 0; i < f->runs; i++) {
        int64_t most = x->has_say[i] ? longest(x, group_of(f, i)) : i;
        if (curve_of(f, i)->points == 0 || !(2 * last_tokens(f, i) < last_tokens(f, most)))
            continue;
        snprintf(why, sizeof why, "it was evaluated to step %lld, others of its row to step %lld",
                 (long long)last_step(f, i), (long long)last_step(f, most));
        TRY(leave_out(f, i, why, e));
        *any = true;
    }
    return OK;
}

/* Leaves out the runs without a say that were not evaluated at the place. */
static enum status leave_out_others(struct choice *x, struct err *e) {
    struct family *f = x->f;
    char why[120];
    for (int64_t i = 0; i < f->runs; i++) {
        if (x->has_say[i] || is_left_out(f, i) || curve_find(curve_of(f, i), f->tokens) >= 0)
            continue;
        snprintf(why, sizeof why, "it was evaluated to step %lld, and its seed is in no pair",
                 (long long)last_step(f, i));
        TRY(leave_out(f, i, why, e));
    }
    return OK;
}

/* ---- the place ----------------------------------------------------------------------------- */

static enum status find_tokens(struct choice *x, struct err *e) {
    struct family *f = x->f;
    int64_t count = 0;
    const struct curve **curves = calloc((size_t)f->runs + 1, sizeof *curves);
    if (!curves) return FAIL(e, ERR_MEMORY, "the evaluations of a verdict");
    for (int64_t i = 0; i < f->runs; i++)
        if (x->has_say[i]) curves[count++] = curve_of(f, i);
    f->tokens = curve_common(curves, count);
    free(curves);
    return OK;
}

static void drop_left_out(struct family *f) {
    int64_t kept = 0;
    for (int64_t i = 0; i < f->runs; i++)
        if (!is_left_out(f, i)) f->run[kept++] = f->run[i];
    f->runs = kept;
}

static enum status add_runs(struct family *f, int64_t group, struct err *e) {
    int64_t count = 0, *run = NULL;
    char how[256];
    TRY(compare_repeats(f->c, f->g, group, &run, &count, e));
    for (int64_t i = 0; i < count; i++)
        if (!loss_diverged(&f->c->run[run[i]], how)) f->run[f->runs++] = run[i];
    free(run);
    return OK;
}

static enum status gather(struct family *f, struct err *e) {
    f->run = calloc((size_t)f->c->count, sizeof *f->run);
    f->out = calloc((size_t)f->c->count, sizeof *f->out);
    f->left_out = json_array();
    if (!f->run || !f->out || !f->left_out) return FAIL(e, ERR_MEMORY, "the runs of a verdict");
    TRY(add_runs(f, f->baseline, e));
    for (int64_t k = 0; k < f->g->count; k++)
        if (f->kin->of[k] == f->baseline) TRY(add_runs(f, k, e));
    return OK;
}

enum status family_place(struct family *f, struct err *e) {
    TRY(gather(f, e));
    struct choice x = { f, calloc((size_t)f->g->count + 1, sizeof *x.paired),
                        calloc((size_t)f->runs + 1, sizeof *x.has_say) };
    bool any = true;
    enum status st = x.paired && x.has_say ? OK : FAIL(e, ERR_MEMORY, "the place of a verdict");
    while (st == OK && any) st = leave_out_short(&x, &any, e);
    if (st == OK) st = find_tokens(&x, e);
    if (st == OK) st = leave_out_others(&x, e);
    if (st == OK) drop_left_out(f);
    free(x.paired);
    free(x.has_say);
    return st;
}

void family_free(struct family *f) {
    free(f->run);
    free(f->out);
    json_decref(f->left_out);
    f->run = NULL;
    f->out = NULL;
    f->left_out = NULL;
}

int64_t family_step(const struct family *f) {
    int64_t point = f->runs && !isnan(f->tokens) ? curve_find(curve_of(f, 0), f->tokens) : -1;
    return point < 0 ? -1 : (int64_t)curve_of(f, 0)->step[point];
}

/* ---- after the place ----------------------------------------------------------------------- */

/* The last tokens behind the place at which both runs were evaluated; NaN: none. */
static double last_of_both(const struct family *f, int64_t a, int64_t b) {
    const struct curve *both[] = { curve_of(f, a), curve_of(f, b) };
    double tokens = curve_common(both, 2);
    return tokens > f->tokens ? tokens : (double)NAN;
}

static double loss_at(const struct family *f, int64_t at, double tokens) {
    int64_t point = curve_find(curve_of(f, at), tokens);
    return point < 0 ? (double)NAN : curve_of(f, at)->loss[point];
}

/* The means of the pairs of seeds at the last evaluation that any pair has. */
static void later_of_pairs(const struct family *f, int64_t group, struct family_later *out) {
    double tokens = (double)NAN, base = 0, mean = 0;
    for (int64_t i = 0; i < f->runs; i++) {
        int64_t b = group_of(f, i) == group ? partner(f, i, f->baseline) : -1;
        double last = b < 0 ? (double)NAN : last_of_both(f, i, b);
        if (!isnan(last)) tokens = fmax(last, tokens);
    }
    for (int64_t i = 0; i < f->runs && !isnan(tokens); i++) {
        int64_t b = group_of(f, i) == group ? partner(f, i, f->baseline) : -1;
        double x = b < 0 ? (double)NAN : loss_at(f, b, tokens), y = loss_at(f, i, tokens);
        if (isnan(x) || isnan(y)) continue;
        out->step = (int64_t)curve_of(f, i)->step[curve_find(curve_of(f, i), tokens)];
        out->seeds++;
        base += x;
        mean += y;
    }
    out->relative = out->seeds ? mean / base - 1 : (double)NAN;
}

/* The means of the group's runs with later evaluations, at their last and at the place. */
static void later_of_group(const struct family *f, int64_t group, struct family_later *out) {
    double then = 0, last = 0;
    for (int64_t i = 0; i < f->runs; i++) {
        if (group_of(f, i) != group || !(last_tokens(f, i) > f->tokens)) continue;
        then += loss_at(f, i, f->tokens);
        last += loss_at(f, i, last_tokens(f, i));
        out->last_step = last_step(f, i);
    }
    out->rise = then > 0 ? last / then - 1 : (double)NAN;
}

struct family_later family_later(const struct family *f, int64_t group) {
    struct family_later out = { .relative = (double)NAN };
    later_of_pairs(f, group, &out);
    later_of_group(f, group, &out);
    return out;
}
