#include "runner/compare/compare_loss.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/recipe.h"
#include "runner/compare/stats.h"

const char *loss_verdict_name(enum loss_verdict verdict) {
    static const char *const NAMES[] = { NULL, "holds", "does not hold", "undecided" };
    return NAMES[verdict];
}

/* A kind that this version does not know is judged as FP8 with tensor scales. */
double loss_tolerance(const char *kind) {
    const struct recipe_info *info = recipe_info_named(kind);
    return (info ? info : recipe_info(RECIPE_TENSORWISE))->loss_tolerance;
}

/* ---- the bounds ---------------------------------------------------------------------------- */

/* The values of the seeds that both sides have, in the baseline's order; returns their number. */
static int64_t match_seeds(const struct loss_sample *x, const struct loss_sample *y, double *a,
                           double *b) {
    int64_t n = 0;
    for (int64_t i = 0; i < x->count; i++)
        for (int64_t j = 0; j < y->count; j++)
            if (x->seed[i] == y->seed[j]) {
                a[n] = x->value[i];
                b[n++] = y->value[j];
                break;
            }
    return n;
}

enum status loss_compare(const struct loss_sample *baseline, const struct loss_sample *sample,
                         struct loss_gap *out, struct err *e) {
    int64_t n = baseline->count, m = sample->count;
    double *a = malloc((size_t)(n + 1) * sizeof *a), *b = malloc((size_t)(n + 1) * sizeof *b);
    enum status st = a && b ? OK : FAIL(e, ERR_MEMORY, "pairs of %lld losses", (long long)n);
    int64_t pairs = st == OK ? match_seeds(baseline, sample, a, b) : 0;
    *out = (struct loss_gap){ .pairs = pairs >= LOSS_SEEDS_MIN ? pairs : 0 };
    if (st == OK && out->pairs) {
        out->baseline_mean = stats_mean(a, pairs);
        out->mean = stats_mean(b, pairs);
        st = stats_scatter_pairs(a, b, pairs, &out->scatter, e);
    } else if (st == OK) {
        out->baseline_mean = stats_mean(baseline->value, n);
        out->mean = stats_mean(sample->value, m);
        out->scatter = stats_scatter_apart(baseline->value, n, sample->value, m);
    }
    if (st == OK) out->half = stats_half(&out->scatter);
    free(a);
    free(b);
    return st;
}

static enum loss_verdict verdict_of(const struct loss_judgement *j, double tolerance) {
    const struct loss_gap *g = &j->gap;
    if (g->scatter.n < LOSS_SEEDS_MIN || g->scatter.m < LOSS_SEEDS_MIN) return LOSS_NONE;
    if (!(g->baseline_mean > 0) || !isfinite(j->low) || !isfinite(j->high)) return LOSS_NONE;
    if (j->high <= tolerance) return LOSS_HOLDS;
    return j->low > tolerance ? LOSS_DOES_NOT_HOLD : LOSS_UNDECIDED;
}

enum status loss_judge(const struct loss_sample *baseline, const struct loss_sample *sample,
                       double tolerance, struct loss_judgement *out, struct err *e) {
    return loss_judge_of(baseline, sample, tolerance, 1, out, e);
}

enum status loss_judge_of(const struct loss_sample *baseline, const struct loss_sample *sample,
                          double tolerance, int64_t tests, struct loss_judgement *out,
                          struct err *e) {
    *out = (struct loss_judgement){ .verdict = LOSS_NONE };
    struct loss_gap *g = &out->gap;
    TRY(loss_compare(baseline, sample, g, e));
    g->scatter.tests = tests;
    g->half = stats_half(&g->scatter);
    out->relative = g->mean / g->baseline_mean - 1;
    out->low = out->relative - g->half / g->baseline_mean;
    out->high = out->relative + g->half / g->baseline_mean;
    out->verdict = verdict_of(out, tolerance);
    if (out->verdict == LOSS_UNDECIDED)
        out->needed = stats_seeds_for(&g->scatter,
                                      fabs(tolerance - out->relative) * g->baseline_mean);
    return OK;
}

/* ---- divergence ---------------------------------------------------------------------------- */

/* The step of the first loss that is not finite; -1: none. A step without a token with loss is no
 * such step. */
static int64_t first_bad(const struct columns *t) {
    const struct column *loss = columns_scalar(t, "loss"), *step = columns_scalar(t, "step");
    for (int64_t i = 0; loss && step && i < t->rows; i++)
        if (!isfinite(column_value(loss, i, 0)) && !step_lacks_loss(t, i))
            return (int64_t)column_value(step, i, 0);
    return -1;
}

double loss_of_guess(const struct run_view *v) {
    double vocab = json_number_value(
        json_object_get(json_object_get(v->resolved, "model"), "vocab"));
    return vocab > 1 ? log(vocab) : (double)INFINITY;
}

double loss_of_frequencies(const struct run_view *v) {
    double nats = json_number_value(json_object_get(v->run, "guess_loss"));
    return nats > 0 ? nats : (double)INFINITY;
}

double loss_of_training(const struct run_view *v, double step) {
    enum { STEPS = 10 };
    const struct columns *t = v->columns.of[STREAM_TRAIN];
    const struct column *loss = columns_scalar(t, "loss"), *at = columns_scalar(t, "step");
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = loss && at ? t->rows : 0; i > 0 && n < STEPS; i--) {
        double value = column_value(loss, i - 1, 0);
        if (!isfinite(value) || column_value(at, i - 1, 0) > step) continue;
        sum += value;
        n++;
    }
    return n ? sum / (double)n : (double)INFINITY;
}

/* The bound of the last evaluation: the first evaluation, or the loss of a guess, whichever is
 * smaller. */
static double loss_at_first(const struct run_view *v, int64_t first, int64_t last) {
    double guess = loss_of_guess(v);
    if (first >= last) return guess;
    return fmin(guess, compare_value_at(v->columns.of[STREAM_EVAL], "loss", first));
}

bool loss_diverged(const struct run_view *v, char why[256]) {
    static const double FAR = 1.10;
    const struct columns *eval = v->columns.of[STREAM_EVAL];
    const json_t *error = json_object_get(v->run, "error");
    int64_t bad = first_bad(v->columns.of[STREAM_TRAIN]), last = compare_last_step(eval);
    why[0] = '\0';
    if (!strcmp(json_text(error, "code", ""), "ERR_NUMERIC")) {
        snprintf(why, 256, "%.200s", json_text(error, "text", "a value is not finite"));
        return true;
    }
    if (bad < 0) bad = first_bad(eval);
    if (bad >= 0) {
        snprintf(why, 256, "the loss of step %lld is not finite", (long long)bad);
        return true;
    }
    if (last < 0) return false;
    const struct column *step = columns_find(eval, "step");
    int64_t first = (int64_t)column_value(step, 0, 0);
    double found = compare_value_at(eval, "loss", last), start = loss_at_first(v, first, last);
    if (!(found > FAR * start)) return false;
    snprintf(why, 256, "evaluation loss %.5g at step %lld, %s %.5g", found, (long long)last,
             first < last && start == compare_value_at(eval, "loss", first)
                 ? "its first evaluation had" : "guessing reaches", start);
    return true;
}
