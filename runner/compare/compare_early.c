/* Rows and runs that ended early.
 *
 * A row that was evaluated to less than half of another one would take the whole comparison to its
 * place, where recipes are still alike. So it is judged by itself. A run that is left out of its
 * row must not hide a bad loss: its last evaluation can contradict "holds". */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/compare/compare_family.h"

/* ---- rows ---------------------------------------------------------------------------------- */

/* Takes every row out of a part. */
static void keep_none(int64_t *of, int64_t groups) {
    for (int64_t k = 0; k < groups; k++) of[k] = -1;
}

/* The place at which a row would be compared without the others. */
static enum status place_alone(const struct comparison *c, const struct compare_groups *g,
                               int64_t baseline, int64_t row, double *tokens, int64_t *step,
                               struct err *e) {
    int64_t *of = calloc((size_t)g->count + 1, sizeof *of);
    if (!of) return FAIL(e, ERR_MEMORY, "the rows of a verdict");
    keep_none(of, g->count);
    of[row] = baseline;
    struct kinship kin = { .of = of };
    struct family f = { .c = c, .g = g, .kin = &kin, .curve = c->curve, .baseline = baseline };
    enum status st = family_place(&f, e);
    *tokens = st == OK ? f.tokens : (double)NAN;
    *step = st == OK ? family_step(&f) : -1;
    family_free(&f);
    free(of);
    return st;
}

/* The row that is in no part yet and has the farthest place; -1: none has a place. */
static int64_t farthest_of(const double *place, const bool *taken, int64_t groups) {
    int64_t best = -1;
    for (int64_t k = 0; k < groups; k++)
        if (!taken[k] && !isnan(place[k]) && (best < 0 || place[k] > place[best])) best = k;
    return best;
}

/* Takes into a part the rows with at least half of the farthest place; without one, the rest. */
static bool take_part(const struct kinship *kin, int64_t baseline, const double *place,
                      bool *taken, int64_t groups, int64_t *of) {
    int64_t best = farthest_of(place, taken, groups);
    bool any = false;
    keep_none(of, groups);
    for (int64_t k = 0; k < groups; k++) {
        if (taken[k] || kin->of[k] != baseline) continue;
        if (best >= 0 && !(2 * place[k] >= place[best])) continue;
        of[k] = baseline;
        taken[k] = any = true;
    }
    return any;
}

enum status family_split(const struct comparison *c, const struct compare_groups *g,
                         const struct kinship *kin, int64_t baseline, struct family_parts *out,
                         struct err *e) {
    size_t n = (size_t)g->count;
    double *place = calloc(n + 1, sizeof *place);
    bool *taken = calloc(n + 1, sizeof *taken);
    *out = (struct family_parts){ .of = calloc(n * n + n + 1, sizeof *out->of) };
    enum status st = place && taken && out->of ? OK
                                               : FAIL(e, ERR_MEMORY, "the rows of a verdict");
    for (int64_t k = 0; st == OK && k < g->count; k++) {
        int64_t step = -1;
        place[k] = (double)NAN;
        if (kin->of[k] == baseline) st = place_alone(c, g, baseline, k, &place[k], &step, e);
        if (step > out->farthest) out->farthest = step;
    }
    while (st == OK && take_part(kin, baseline, place, taken, g->count,
                                 out->of + out->count * g->count))
        out->count++;
    free(place);
    free(taken);
    if (st != OK) family_parts_free(out);
    return st;
}

void family_parts_free(struct family_parts *p) {
    free(p->of);
    *p = (struct family_parts){ 0 };
}

/* ---- runs ---------------------------------------------------------------------------------- */

static const json_t *seed_of(const struct family *f, int64_t run) {
    return json_object_get(f->c->run[run].run, "seed");
}

/* The last loss of a run relative to that of the baseline's run of its seed at the same place: of
 * several such runs the one that shares most tokens. NaN: there is none. *tokens: the place. */
static double from_pair(const struct family *f, int64_t run, double *tokens) {
    const struct curve *mine = &f->curve[run];
    double relative = (double)NAN;
    *tokens = -1;
    for (int64_t i = 0; i < f->c->count; i++) {
        if (f->g->of[i] != f->baseline || !json_equal(seed_of(f, i), seed_of(f, run))) continue;
        const struct curve *both[] = { mine, &f->curve[i] };
        double common = curve_common(both, 2);
        if (!(common > *tokens)) continue;
        *tokens = common;
        relative = mine->loss[curve_find(mine, common)] /
                   f->curve[i].loss[curve_find(&f->curve[i], common)] - 1;
    }
    return relative;
}

static double from_lowest(const struct curve *c) {
    return c->points ? c->loss[c->points - 1] / curve_lowest(c) - 1 : (double)NAN;
}

/* What its pair does not cover, a run's own lowest loss does. */
static struct family_stopped stopped_run(const struct family *f, int64_t run, int64_t step) {
    const struct curve *c = &f->curve[run];
    const char *status = json_text(f->c->run[run].run, "status", "");
    double tokens, pair = from_pair(f, run, &tokens), own = from_lowest(c);
    bool covered = c->points && tokens >= c->tokens[c->points - 1];
    bool paired = !isnan(pair) && (covered || pair >= own);
    return (struct family_stopped){ .run = run, .step = step, .relative = paired ? pair : own,
                                    .paired = paired,
                                    .ended = !strcmp(status, "done") ||
                                             !strcmp(status, "time_limit") };
}

struct family_stopped family_stopped(const struct family *f, int64_t group) {
    struct family_stopped worst = { .relative = -(double)INFINITY };
    size_t i;
    const json_t *row;
    json_array_foreach(f->left_out, i, row) {
        int64_t run = json_integer_value(json_object_get(row, "run"));
        if (f->g->of[run] != group) continue;
        struct family_stopped one =
            stopped_run(f, run, json_integer_value(json_object_get(row, "step")));
        if (one.relative > worst.relative) worst = one;
    }
    return worst;
}
