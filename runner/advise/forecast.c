#include "runner/advise/forecast.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double LAUNCH_US = 2; /* of an operator without work on a GPU, about */
/* Added to the square of a distance, which is of natural logarithms. A shape that was measured
 * itself then weighs some fifty times more than one of twice its size. */
static const double NEAR = 0.02;
static const double OUTSIDE = 8;
static const double TILE = 128; /* queries, and keys, that attention multiplies at once */

/* ---- classes: how like a measured operator is, from 0 (the same kind of work) -----------------*/

enum { LEVEL_NONE = 9 };

static int gemm_level(const struct gemm_shape *a, const struct gemm_shape *b) {
    bool fp8 = dtype_is_fp8(a->a);
    if (a->a_scale != b->a_scale || dtype_is_fp8(b->a) != fp8) return LEVEL_NONE;
    if (!fp8 && a->a != b->a) return LEVEL_NONE;
    if (a->direction != b->direction) return 2;
    bool same = a->a == b->a && a->b == b->b && a->b_scale == b->b_scale;
    return same && (!fp8 || a->fast_accumulate == b->fast_accumulate) ? 0 : 1;
}

static int attention_level(const struct attention_shape *a, const struct attention_shape *b) {
    if (a->backward != b->backward || a->act != b->act) return LEVEL_NONE;
    return (a->head_dim == b->head_dim ? 0 : 2) + (a->codes != b->codes || a->d_o != b->d_o);
}

static int other_level(const struct step_work *a, enum recipe_kind recipe,
                       const struct step_work *b, enum recipe_kind other) {
    if (!strcmp(a->op, b->op))
        return a->part == b->part ? recipe != other : 2;
    return a->part != b->part ? LEVEL_NONE : recipe == other ? 3 : 4;
}

static int level_of(const struct step_work *a, enum recipe_kind recipe, const struct step_work *b,
                    enum recipe_kind other) {
    if (a->kind != b->kind) return LEVEL_NONE;
    return a->kind == WORK_GEMM        ? gemm_level(&a->gemm, &b->gemm)
           : a->kind == WORK_ATTENTION ? attention_level(&a->attention, &b->attention)
                                       : other_level(a, recipe, b, other);
}

/* ---- distance ---------------------------------------------------------------------------------*/

static double log_square(double a, double b) {
    double d = log(a / b);
    return d * d;
}

static double distance(const struct step_work *a, const struct step_work *b) {
    const struct gemm_shape *g = &a->gemm, *h = &b->gemm;
    const struct attention_shape *x = &a->attention, *y = &b->attention;
    if (a->kind == WORK_GEMM)
        return log_square((double)g->m, (double)h->m) + log_square((double)g->n, (double)h->n) +
               log_square((double)g->k, (double)h->k);
    if (a->kind == WORK_ATTENTION)
        return log_square((double)(x->batch * x->heads), (double)(y->batch * y->heads)) +
               log_square((double)x->seq_len, (double)y->seq_len);
    return log_square(a->bytes / (double)a->calls + 1000, b->bytes / (double)b->calls + 1000);
}

/* ---- one operator -----------------------------------------------------------------------------*/

/* What a step is compared with: the measured operators of one class. */
struct class {
    const struct measured *m;
    const struct step_works *step; /* that is forecast */
    const struct step_work *work;  /* of it */
    enum recipe_kind recipe;
    int level;
    double flop_per_us; /* the best of the class; 0: it has no FLOP */
};

static bool is_member(const struct class *c, const struct measured_step *s,
                      const struct step_work *w) {
    return w->time_us > 0 && level_of(c->work, c->recipe, w, s->recipe) == c->level;
}

/* FLOP of all calls. Attention multiplies whole tiles: of one that the diagonal or the edge of the
 * window cuts, half for nothing. At 256 tokens that is a third of the work, at 8192 a sixtieth. */
static double flop_of(const struct step_work *w) {
    const struct attention_shape *a = &w->attention;
    double flop = step_work_flop(w) * (double)w->calls;
    if (w->kind != WORK_ATTENTION) return flop;
    double more = a->window && a->window < a->seq_len ? TILE : TILE / 2;
    return flop * (1 + more / attention_keys(a));
}

static void class_find(struct class *c) {
    c->level = LEVEL_NONE;
    for (int64_t i = 0; i < c->m->count; i++)
        for (int64_t k = 0; k < c->m->step[i].works.count; k++) {
            const struct step_work *w = &c->m->step[i].works.work[k];
            int level = level_of(c->work, c->recipe, w, c->m->step[i].recipe);
            if (w->time_us > 0 && level < c->level) c->level = level;
        }
    c->flop_per_us = 0;
    for (int64_t i = 0; i < c->m->count && c->level < LEVEL_NONE; i++)
        for (int64_t k = 0; k < c->m->step[i].works.count; k++) {
            const struct step_work *w = &c->m->step[i].works.work[k];
            if (!is_member(c, &c->m->step[i], w)) continue;
            double rate = flop_of(w) / w->time_us;
            if (rate > c->flop_per_us) c->flop_per_us = rate;
        }
}

static double base_us(const struct class *c, const struct step_work *w) {
    double flop = flop_of(w);
    return (c->flop_per_us > 0 ? flop / c->flop_per_us : 0) + w->bytes / c->m->copy_bytes_per_us +
           LAUNCH_US * (double)w->calls;
}

static int64_t calls_of(const struct step_works *works) {
    int64_t calls = 0;
    for (int64_t i = 0; i < works->count; i++) calls += works->work[i].calls;
    return calls;
}
static double bytes_of_call(const struct step_works *works) {
    double bytes = 0;
    for (int64_t i = 0; i < works->count; i++) bytes += works->work[i].bytes;
    return bytes / (double)calls_of(works);
}

/* Between the steps of two operators that move no bytes. These have no size, but in a step of small
 * operators they take longer, since each waits for its launch. */
static double step_distance(const struct class *c, const struct measured_step *s) {
    return c->work->kind == WORK_OTHER && c->work->bytes <= 0
               ? log_square(bytes_of_call(c->step), bytes_of_call(&s->works))
               : 0;
}

/* The geometric mean of the ratios of a class. */
static double class_ratio(const struct class *c) {
    double sum = 0, weights = 0;
    for (int64_t i = 0; i < c->m->count; i++) {
        double between = step_distance(c, &c->m->step[i]);
        for (int64_t k = 0; k < c->m->step[i].works.count; k++) {
            const struct step_work *w = &c->m->step[i].works.work[k];
            if (!is_member(c, &c->m->step[i], w)) continue;
            double weight = 1 / (distance(c->work, w) + between + NEAR);
            sum += weight * log(w->time_us / base_us(c, w));
            weights += weight;
        }
    }
    return exp(sum / weights);
}

/* ---- the step ---------------------------------------------------------------------------------*/

/* The mean time of an operator of a measured step. */
static double mean_us(const struct measured_step *s) {
    return s->parts_us / (double)calls_of(&s->works);
}

/* Compared with the measured steps of this recipe; if it has none, with all. */
static bool is_outside(const struct measured *m, enum recipe_kind recipe, double us_of_call) {
    bool of_recipe = false, near = false, near_of_recipe = false;
    for (int64_t i = 0; i < m->count; i++) {
        double mean = mean_us(&m->step[i]);
        bool is_near = us_of_call * OUTSIDE >= mean && us_of_call <= mean * OUTSIDE;
        near = near || is_near;
        if (m->step[i].recipe != recipe) continue;
        of_recipe = true;
        near_of_recipe = near_of_recipe || is_near;
    }
    return of_recipe ? !near_of_recipe : !near;
}

/* A whole step beside its operators one at a time: the saved launches of a graph, the marks between
 * operators. Steps with operators of about the same length weigh most. */
static double whole_ratio(const struct measured *m, double us_of_call) {
    double sum = 0, weights = 0;
    for (int64_t i = 0; i < m->count; i++) {
        const struct measured_step *s = &m->step[i];
        double weight = 1 / (log_square(us_of_call, mean_us(s)) + NEAR);
        sum += weight * log(s->step_us / s->parts_us);
        weights += weight;
    }
    return exp(sum / weights);
}

static void say_missing(const struct step_work *w, char *out, size_t size) {
    if (w->kind == WORK_GEMM)
        snprintf(out, size, "no GEMM of %s operands with these scales was measured",
                 dtype_name(w->gemm.a));
    else
        snprintf(out, size, "the operator '%s'%s was not measured", w->op,
                 w->kind == WORK_ATTENTION && dtype_is_fp8(w->attention.act) ? " in FP8" : "");
}

void forecast_step(const struct measured *m, const struct step_works *works,
                   enum recipe_kind recipe, struct forecast *out) {
    double all = 0, assumed = 0;
    memset(out, 0, sizeof *out);
    for (int64_t i = 0; i < works->count; i++) {
        struct class c = { .m = m, .step = works, .work = &works->work[i], .recipe = recipe };
        if (c.work->calls <= 0) continue;
        class_find(&c);
        if (c.level == LEVEL_NONE) {
            say_missing(c.work, out->missing, sizeof out->missing);
            return;
        }
        double us = base_us(&c, c.work) * class_ratio(&c);
        out->part_us[c.work->part] += us;
        all += us;
        if (c.level > 0) assumed += us;
    }
    if (all <= 0) return;
    double of_call = all / (double)calls_of(works), step_us = all * whole_ratio(m, of_call);
    out->known = step_us >= MEASURED_US_MIN && step_us < 0x1p53; /* not NaN */
    if (!out->known) {
        snprintf(out->missing, sizeof out->missing,
                 "the measured times lead to no time of a step");
        return;
    }
    out->step_us = step_us;
    out->assumed = assumed / all;
    out->outside = is_outside(m, recipe, of_call);
}
