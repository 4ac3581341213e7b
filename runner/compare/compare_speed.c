/* What a recipe gains in time: its loss after equal time, and the time and the tokens that it takes
 * to the same loss. */
#include <math.h>
#include <stdio.h>

#include "model/ground/json_safe.h"
#include "runner/base/json_number.h"
#include "runner/compare/compare_family.h"

static double at_time(const struct curve *c, const struct family_value *v) {
    return curve_at_time(c, v->at);
}

/* The logarithm of what a run took to the loss: a ratio of two means of it has an interval. */
static double to_loss(const struct curve *c, const struct family_value *v) {
    double tokens, seconds;
    if (!curve_reach(c, v->at, &tokens, &seconds)) return (double)NAN;
    return log(v->time ? seconds : tokens);
}

/* Compares the group with the baseline by a value of each run. */
static enum status gap_of(const struct family *f, int64_t group, const struct family_value *value,
                          struct loss_gap *out, struct err *e) {
    struct loss_sample x = { 0 }, y = { 0 };
    int64_t seeds = 0;
    enum status st = family_sample(f, f->baseline, value, &x, &seeds, e);
    if (st == OK) st = family_sample(f, group, value, &y, &seeds, e);
    if (st == OK) st = loss_compare(&x, &y, out, e);
    loss_sample_free(&x);
    loss_sample_free(&y);
    return st;
}

/* `diverged`: a run of a side did, so there is no value. */
static enum status put_time(const struct family *f, int64_t group, bool diverged, json_t *row,
                            struct err *e) {
    const double at = diverged ? (double)NAN : f->seconds;
    const struct family_value value = { .of = at_time, .at = at };
    struct loss_gap gap;
    bool failed = false;
    TRY(gap_of(f, group, &value, &gap, e));
    double base = gap.baseline_mean, relative = gap.mean / base - 1;
    json_put(row, "at_time",
             json_pack("{s:o, s:o, s:o, s:o, s:o}", "baseline_mean", json_finite(base), "mean",
                       json_finite(gap.mean), "relative", json_finite(relative), "low",
                       json_finite(relative - gap.half / base), "high",
                       json_finite(relative + gap.half / base)), &failed);
    return failed ? FAIL(e, ERR_MEMORY, "losses at equal time") : OK;
}

/* The lowest loss that each run of both groups had. */
static double loss_of_both(const struct family *f, int64_t group) {
    double loss = -(double)INFINITY;
    for (int64_t i = 0; i < f->runs; i++) {
        int64_t of = f->g->of[f->run[i]];
        if (of == f->baseline || of == group)
            loss = fmax(loss, curve_lowest(&f->curve[f->run[i]]));
    }
    return loss;
}

/* How many times less the group takes than the baseline, with its bounds. */
static enum status put_factor(const struct family *f, int64_t group, double loss, bool time,
                              json_t *out, struct err *e) {
    const struct family_value value = { .of = to_loss, .at = loss, .time = time };
    struct loss_gap gap;
    bool failed = false;
    TRY(gap_of(f, group, &value, &gap, e));
    double less = gap.baseline_mean - gap.mean;
    json_put(out, time ? "time" : "tokens",
             json_pack("{s:o, s:o, s:o}", "factor", json_finite(exp(less)), "low",
                       json_finite(exp(less - gap.half)), "high",
                       json_finite(exp(less + gap.half))), &failed);
    return failed ? FAIL(e, ERR_MEMORY, "times to a loss") : OK;
}

static enum status put_same_loss(const struct family *f, int64_t group, bool diverged, json_t *row,
                                 struct err *e) {
    double loss = f->apart || diverged ? (double)NAN : loss_of_both(f, group);
    bool failed = false;
    json_t *out = json_pack("{s:o}", "loss", json_finite(loss));
    enum status st = out ? put_factor(f, group, loss, true, out, e)
                         : FAIL(e, ERR_MEMORY, "times to a loss");
    if (st == OK) st = put_factor(f, group, loss, false, out, e);
    json_put(row, "same_loss", out, &failed);
    return failed && st == OK ? FAIL(e, ERR_MEMORY, "times to a loss") : st;
}

enum status family_speed(const struct family *f, int64_t group, json_t *row, struct err *e) {
    char why[FAMILY_WHY_CAP];
    bool diverged = f->diverged || family_diverged(f, group, why);
    TRY(put_time(f, group, diverged, row, e));
    return put_same_loss(f, group, diverged, row, e);
}
