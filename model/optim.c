#include "model/optim.h"

#include "kernels/exactmath.h"

/* From 1 at p = 0 to `final` at p = 1. */
static double decay_ratio(const struct schedule_options *s, double p) {
    const double PI = 3.14159265358979323846;
    if (s->kind == SCHEDULE_COSINE) return s->final + (1 - s->final) * (1 + exact_cos(PI * p)) / 2;
    return 1 - (1 - s->final) * p;
}

double schedule_lr(const struct schedule_options *s, double lr, int64_t step, int64_t steps) {
    if (step <= s->warmup) return lr * (double)step / (double)s->warmup;
    if (s->kind == SCHEDULE_CONSTANT) return lr;
    int64_t start = s->warmup, end = steps;
    if (s->kind == SCHEDULE_WSD) start = steps - s->decay > start ? steps - s->decay : start;
    else if (s->decay > 0) end = start + s->decay;
    if (step <= start) return lr;
    double p = step < end ? (double)(step - start) / (double)(end - start) : 1;
    return lr * decay_ratio(s, p);
}

double adamw_bias(double beta, int64_t step) {
    if (beta == 0) return 1;
    return 1 / (1 - exact_pow(beta, (double)step));
}

static enum status in_range(const char *name, double x, double low, double high, struct err *e) {
    if (x >= low && x <= high) return OK;
    return FAIL(e, ERR_CONFIG, "train.%s is %g; it must be between %g and %g", name, x, low, high);
}

enum status optimizer_check(const struct optimizer_options *o, const struct schedule_options *s,
                            struct err *e) {
    TRY(in_range("optimizer.lr", o->lr, 0, 1e3, e));
    TRY(in_range("optimizer.betas[1]", o->beta1, 0, 0.999999, e));
    TRY(in_range("optimizer.betas[2]", o->beta2, 0, 0.999999, e));
    TRY(in_range("optimizer.eps", o->eps, 1e-20, 1, e));
    TRY(in_range("optimizer.weight_decay", o->weight_decay, 0, 1e3, e));
    TRY(in_range("optimizer.clip", o->clip, 0, 1e9, e));
    TRY(in_range("schedule.warmup", (double)s->warmup, 0, 1e12, e));
    TRY(in_range("schedule.decay", (double)s->decay, 0, 1e12, e));
    return in_range("schedule.final", s->final, 0, 1, e);
}
