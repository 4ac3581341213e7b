/* Further sets of held-out data (eval.also): the last loss of each, and whether the loss holds on
 * it. The rule is that of compare_verdicts.c, at the same place; only the losses are the set's.
 *
 * Each set is one more test, so N sets share the 5 % of the bounds. A name is not a text: runs are
 * compared only if the set has the same bytes in both. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"
#include "runner/compare/compare_family.h"

static const char *hash_of(const struct run_view *v, const char *name) {
    const json_t *sets = json_object_get(json_object_get(v->run, "inputs"), "also");
    return json_text(sets, name, "");
}

bool compare_same_set(const struct run_view *a, const struct run_view *b, const char *name) {
    return !strcmp(hash_of(a, name), hash_of(b, name));
}

/* The number of the set in the run's records; -1: it has none of that name. */
static int64_t find_set(const struct run_view *v, const char *name) {
    const struct columns *sets = v->columns.of[STREAM_EVAL_SETS];
    int64_t count = eval_set_count(sets);
    for (int64_t i = 0; i < count; i++)
        if (!strcmp(columns_label(sets, i), name)) return i;
    return -1;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

json_t *compare_set_names(const struct comparison *c) {
    json_t *all = json_object(), *out = json_array(), *value;
    const char *name, **names = NULL;
    bool failed = !all;
    size_t n = 0;
    for (int64_t r = 0; r < c->count; r++) {
        const struct columns *sets = c->run[r].columns.of[STREAM_EVAL_SETS];
        int64_t count = eval_set_count(sets);
        for (int64_t i = 0; i < count; i++)
            json_put(all, columns_label(sets, i), json_true(), &failed);
    }
    names = calloc(json_object_size(all) + 1, sizeof *names);
    json_object_foreach(all, name, value) if (names) names[n++] = name;
    if (names) qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++) json_append(out, json_string(names[i]), &failed);
    failed = failed || !names;
    free(names);
    json_decref(all);
    return json_whole(out, failed);
}

/* ---- the last losses ------------------------------------------------------------------------- */

static double number_at(const struct columns *t, const char *column, int64_t row, int64_t set) {
    const struct column *c = columns_find(t, column);
    return c && set < c->width ? column_value(c, row, set) : (double)NAN;
}

/* NaN: null. */
static json_t *whole(double x) { return isnan(x) ? json_null() : json_integer((json_int_t)x); }

static json_t *last_loss(const struct run_view *v, const char *name) {
    const struct columns *t = v->columns.of[STREAM_EVAL_SETS];
    int64_t set = find_set(v, name), last = t ? t->rows - 1 : -1;
    if (set < 0 || last < 0) return json_null();
    return json_pack("{s:o, s:o, s:o, s:o}", "step", whole(number_at(t, "step", last, 0)),
                     "tokens", whole(number_at(t, "tokens", last, set)), "loss_tokens",
                     whole(number_at(t, "loss_tokens", last, set)), "loss",
                     json_finite(eval_set_loss(t, last, set)));
}

/* Why two last losses have no ratio; NULL: they have one. */
static const char *no_ratio(const struct comparison *c, int64_t run, int64_t reference,
                            const char *name, const json_t *a, const json_t *b) {
    static const struct { const char *key, *why; } EQUAL[] = {
        { "step", "its loss is of another step" },
        { "loss_tokens", "its loss is of another number of tokens" },
    };
    if (json_is_null(a)) return "the run of ratios lacks the set";
    if (!compare_same_set(&c->run[run], &c->run[reference], name))
        return "its loss is of other files";
    for (size_t i = 0; i < sizeof EQUAL / sizeof *EQUAL; i++)
        if (!json_equal(json_object_get(a, EQUAL[i].key), json_object_get(b, EQUAL[i].key)))
            return EQUAL[i].why;
    return NULL;
}

static void put_ratio(const struct comparison *c, int64_t run, int64_t reference,
                      const char *name, json_t *first, json_t *mine, bool *failed) {
    const char *why = no_ratio(c, run, reference, name, first, mine);
    double a = json_double(json_object_get(first, "loss"));
    double b = json_double(json_object_get(mine, "loss"));
    json_put(mine, "ratio", why ? json_null() : json_finite(b / a), failed);
    json_put(mine, "why", json_string(why ? why : ""), failed);
}

void compare_put_sets(const struct comparison *c, json_t *rows, int64_t reference, bool *failed) {
    json_t *names = compare_set_names(c), *item;
    size_t i;
    *failed = *failed || !names;
    for (int64_t r = 0; r < c->count; r++) {
        json_t *sets = json_object();
        json_array_foreach(names, i, item) {
            const char *name = json_string_value(item);
            json_t *mine = last_loss(&c->run[r], name);
            json_t *first = last_loss(&c->run[reference], name);
            if (json_is_object(mine)) put_ratio(c, r, reference, name, first, mine, failed);
            json_put(sets, name, mine, failed);
            json_decref(first);
        }
        json_put(json_array_get(rows, (size_t)r), "eval_sets", sets, failed);
    }
    json_decref(names);
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* The evaluations of a set, at the places of the run's own ones; none without the set. */
static enum status set_curve(const struct run_view *v, const struct curve *own, const char *name,
                             struct curve *out, struct err *e) {
    const struct columns *t = v->columns.of[STREAM_EVAL_SETS];
    int64_t set = find_set(v, name), rows = set < 0 ? 0 : t->rows, n = own->points;
    TRY(curve_room(out, n, e));
    for (int64_t i = 0, row = 0; i < n; i++) {
        while (row < rows && number_at(t, "step", row, 0) < own->step[i]) row++;
        if (row == rows || number_at(t, "step", row, 0) != own->step[i]) continue;
        int64_t k = out->points++;
        out->step[k] = own->step[i];
        out->tokens[k] = own->tokens[i];
        out->seconds[k] = own->seconds[i];
        out->loss[k] = eval_set_loss(t, row, set);
        out->evaluated[k] = number_at(t, "tokens", row, set);
        out->counted[k] = number_at(t, "loss_tokens", row, set);
    }
    return OK;
}

/* A family whose losses are those of a set. */
struct set_family {
    struct family f;     /* run, out, left_out: its own */
    const char *name;
    struct curve *curve; /* [c->count], owned */
    json_t *left_out;    /* [{run, why}] of the set alone, owned */
};

static enum status open_curves(struct set_family *s, struct err *e) {
    const struct comparison *c = s->f.c;
    s->curve = calloc((size_t)c->count + 1, sizeof *s->curve);
    if (!s->curve) return FAIL(e, ERR_MEMORY, "the evaluations of a set");
    for (int64_t i = 0; i < c->count; i++)
        TRY(set_curve(&c->run[i], &c->curve[i], s->name, &s->curve[i], e));
    s->f.curve = s->curve;
    return OK;
}

/* The first run of the baseline that has the set; -1: none. */
static int64_t first_with_set(const struct family *f, const char *name) {
    for (int64_t i = 0; i < f->runs; i++)
        if (f->g->of[f->run[i]] == f->baseline && find_set(&f->c->run[f->run[i]], name) >= 0)
            return f->run[i];
    return -1;
}

/* Why a run has no loss to compare with that of `first`; NULL: it has one. */
static const char *why_not(const struct set_family *s, int64_t run, int64_t first) {
    if (s->curve[run].points == 0) return "it has no such set";
    if (!compare_same_set(&s->f.c->run[run], &s->f.c->run[first], s->name))
        return "its set has other files than the baseline's under the same name";
    if (curve_find(&s->curve[run], s->f.tokens) < 0) return "it was not evaluated on the set there";
    return NULL;
}

/* Leaves out the runs without the baseline's set, and says why. */
static enum status take_runs(struct set_family *s, const struct family *all, struct err *e) {
    struct family *f = &s->f;
    int64_t first = first_with_set(all, s->name);
    bool failed = false;
    f->run = calloc((size_t)f->c->count + 1, sizeof *f->run);
    f->out = calloc((size_t)f->c->count + 1, sizeof *f->out);
    s->left_out = json_array();
    if (!f->run || !f->out || !s->left_out) return FAIL(e, ERR_MEMORY, "the runs of a set");
    memcpy(f->out, all->out, (size_t)f->c->count * sizeof *f->out);
    f->runs = 0;
    for (int64_t i = 0; i < all->runs; i++) {
        int64_t run = all->run[i];
        const char *why = first < 0 ? "the baseline has no such set" : why_not(s, run, first);
        if (!why) f->run[f->runs++] = run;
        else f->out[run] = true;
        if (why)
            json_append(s->left_out, json_pack("{s:I, s:s}", "run", (json_int_t)run, "why", why),
                        &failed);
    }
    return failed ? FAIL(e, ERR_MEMORY, "the runs of a set") : OK;
}

/* What of the family's reason holds for a set too. */
static void keep_why(struct family *f) {
    if (f->apart) f->why[0] = '\0'; /* the run's own data may be cut otherwise */
    if (!*f->why) family_check_evaluations(f);
}

static bool has_runs(const struct family *f, int64_t group) {
    for (int64_t i = 0; i < f->runs; i++)
        if (f->g->of[f->run[i]] == group) return true;
    return false;
}

/* The reason for which the first run of the group is left out; "": none is. */
static const char *why_left_out(const struct set_family *s, int64_t group) {
    size_t i;
    const json_t *row;
    json_array_foreach(s->left_out, i, row)
        if (s->f.g->of[json_int(row, "run")] == group) return json_text(row, "why", "");
    return "";
}

/* A set whose runs of a group are all left out has no verdict: the reason is why they are. */
static void withhold(const struct set_family *s, int64_t group, json_t *row, bool *failed) {
    char why[FAMILY_WHY_CAP], name[8];
    if (*s->f.why || (has_runs(&s->f, group) && has_runs(&s->f, s->f.baseline))) return;
    bool base = has_runs(&s->f, s->f.baseline);
    snprintf(why, sizeof why, "no comparison of %s: %s",
             compare_letter(s->f.g->first[base ? group : s->f.baseline], name),
             why_left_out(s, base ? group : s->f.baseline));
    json_put(row, "why", json_string(why), failed);
}

/* A loss that is not finite, beside a baseline's that is, is no missing value. */
static void mark_bad(const struct set_family *s, int64_t group, json_t *row, bool *failed) {
    const struct family *f = &s->f;
    char why[FAMILY_WHY_CAP], name[8];
    if (*f->why || !json_is_number(json_object_get(row, "baseline_mean"))) return;
    for (int64_t i = 0; i < f->runs; i++) {
        const struct curve *c = &s->curve[f->run[i]];
        int64_t at = curve_find(c, f->tokens); /* why_not(): it is there */
        if (f->g->of[f->run[i]] != group || isfinite(c->loss[at])) continue;
        snprintf(why, sizeof why, "%s diverged: its loss on the set is not finite",
                 compare_letter(f->run[i], name));
        json_put(row, "verdict", json_string(loss_verdict_name(LOSS_DOES_NOT_HOLD)), failed);
        json_put(row, "why", json_string(why), failed);
        return;
    }
}

static enum status put_rows(const struct set_family *s, json_t *rows, struct err *e) {
    bool failed = false;
    for (int64_t k = 0; k < s->f.g->count; k++) {
        json_t *row = NULL;
        if (s->f.kin->of[k] != s->f.baseline) continue;
        TRY(family_row(&s->f, k, &row, e));
        mark_bad(s, k, row, &failed);
        withhold(s, k, row, &failed);
        json_append(rows, row, &failed);
    }
    return failed ? FAIL(e, ERR_MEMORY, "verdicts on a set") : OK;
}

static enum status set_json(const struct set_family *s, json_t *sets, struct err *e) {
    struct loss_sample x = { 0 };
    int64_t seeds = 0;
    json_t *rows = json_array();
    bool failed = false;
    enum status st = rows ? put_rows(s, rows, e) : FAIL(e, ERR_MEMORY, "verdicts on a set");
    if (st == OK) st = family_losses(&s->f, s->f.baseline, &x, &seeds, e);
    if (st == OK)
        json_append(sets, json_pack("{s:s, s:I, s:o, s:I, s:o, s:o, s:O, s:O}", "name", s->name,
                                    "tests", (json_int_t)s->f.tests, "counted",
                                    json_finite(family_counted(&s->f)), "seeds",
                                    (json_int_t)seeds, "mean",
                                    json_finite(stats_mean(x.value, x.count)), "why",
                                    json_from_text(s->f.why), "left_out", s->left_out, "rows",
                                    rows), &failed);
    loss_sample_free(&x);
    json_decref(rows);
    return failed ? FAIL(e, ERR_MEMORY, "verdicts on a set") : st;
}

static enum status judge_set(const struct family *all, const char *name, int64_t tests,
                             json_t *sets, struct err *e) {
    struct set_family s = { .f = *all, .name = name };
    s.f.tests = tests;
    s.f.run = NULL;
    s.f.out = NULL;
    enum status st = open_curves(&s, e);
    if (st == OK) st = take_runs(&s, all, e);
    if (st == OK) keep_why(&s.f);
    if (st == OK) st = set_json(&s, sets, e);
    for (int64_t i = 0; s.curve && i < all->c->count; i++) curve_free(&s.curve[i]);
    free(s.curve);
    free(s.f.run);
    free(s.f.out);
    json_decref(s.left_out);
    return st;
}

/* Whether a run of the family has the set. */
static bool in_family(const struct family *f, const char *name) {
    for (int64_t i = 0; i < f->runs; i++)
        if (find_set(&f->c->run[f->run[i]], name) >= 0) return true;
    return false;
}

enum status family_sets(const struct family *f, json_t **out, struct err *e) {
    json_t *names = compare_set_names(f->c), *sets = json_array(), *item;
    enum status st = names && sets ? OK : FAIL(e, ERR_MEMORY, "the sets of a comparison");
    int64_t tests = 0;
    size_t i;
    json_array_foreach(names, i, item) tests += in_family(f, json_string_value(item));
    json_array_foreach(names, i, item) {
        const char *name = json_string_value(item);
        if (st == OK && in_family(f, name)) st = judge_set(f, name, tests, sets, e);
    }
    json_decref(names);
    *out = json_whole(sets, st != OK);
    return st;
}
