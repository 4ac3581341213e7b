/* Finds spikes: the rule of a step, and of a whole series.
 *
 * It must not mislead. tests/bundle/test_spikes.c has the cases that came first: a loss that still
 * falls, tiny noise, waves, batches of two kinds, another level, restarts of the learning rate.
 * Similar rules: llm.c (llmc/outlier_detector.h) takes the z-score in a window of 128 steps;
 * Megatron-LM has --check-for-spiky-loss and --check-for-large-grads. A mean and a standard
 * deviation of a window with one spike hide the next one; medians and percentiles do not. */
#include "runner/health/spikes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Seven standard deviations: one step in 10^12 of normal noise, and few of the skewed noise of real
 * batches. 3 %: of a loss of 2.5 what a step of 0.075 nats is. 0.05 nats: below it a loss of text
 * learned by heart is noise. */
const struct spike_rule SPIKE_OF_LOSS = { 7, 0.03, 0.05 };
/* A norm varies by factors from batch to batch: three times the median, at least. */
const struct spike_rule SPIKE_OF_NORM = { 7, 2, 0 };
const char *const SPIKE_KINDS[] = { "spike", "shift", "open" };

/* ---- the window ---- */

static void window_clear(struct spike_detector *d) { d->count = d->next = 0; }

/* Keeps `sorted` sorted: the oldest value leaves it, the new one gets its place. */
static void window_add(struct spike_detector *d, double value) {
    int64_t at = 0;
    if (d->count == SPIKE_WINDOW) {
        while (d->sorted[at] < d->ring[d->next]) at++;
        memmove(d->sorted + at, d->sorted + at + 1,
                (size_t)(SPIKE_WINDOW - at - 1) * sizeof *d->sorted);
        d->count--;
    }
    for (at = d->count; at > 0 && d->sorted[at - 1] > value; at--)
        d->sorted[at] = d->sorted[at - 1];
    d->sorted[at] = value;
    d->count++;
    d->ring[d->next] = value;
    d->next = (d->next + 1) % SPIKE_WINDOW;
}

static double window_median(const struct spike_detector *d) {
    return (d->sorted[(d->count - 1) / 2] + d->sorted[d->count / 2]) / 2;
}

/* The standard deviation of normal values, by the 90th percentile. The median deviation would not
 * see that a tenth of the batches, or a quarter, is of another kind. */
static double window_scatter(const struct spike_detector *d, double median) {
    return (d->sorted[9 * (d->count - 1) / 10] - median) / 1.2816;
}

/* ---- a step ---- */

static bool end_event(struct spike_detector *d, enum spike_kind kind, struct spike *ended) {
    d->within = false;
    *ended = d->event;
    ended->kind = kind;
    return true;
}

/* A further step of an event. Ordinary ones enter the window. */
static bool go_on(struct spike_detector *d, int64_t step, double value, struct spike *ended) {
    d->steps++;
    if (value > d->limit) {
        d->event.last = step;
        d->event.top = fmax(d->event.top, value);
        d->back = 0;
    } else {
        window_add(d, value);
        if (++d->back == SPIKE_BACK) return end_event(d, SPIKE_RETURNED, ended);
    }
    if (d->steps < SPIKE_LASTS) return false;
    window_clear(d);
    return end_event(d, SPIKE_SHIFT, ended);
}

/* A step outside of events: is it high? */
static void judge(struct spike_detector *d, int64_t step, double value) {
    if (d->count >= SPIKE_LEAST) {
        const struct spike_rule *r = d->rule;
        double base = window_median(d);
        double least = fmax(r->scatters * window_scatter(d, base), r->relative * base);
        if (!d->judged++) d->first = step;
        d->limit = base + fmax(least, r->absolute);
        if (value > d->limit) {
            d->event = (struct spike){ .step = step, .last = step, .top = value, .base = base };
            d->within = true;
            d->steps = d->back = 0;
            return;
        }
    }
    window_add(d, value);
}

bool spike_take(struct spike_detector *d, int64_t step, double value, double rate,
                struct spike *ended) {
    bool again = d->begun && step <= d->step, rising = d->begun && rate > d->rate * (1 + 1e-9);
    bool within = d->within;
    d->begun = true;
    d->step = step;
    d->rate = rate;
    if (again || rising) {
        window_clear(d);
        d->within = false;
        if (rising && !again) return within && end_event(d, SPIKE_OPEN, ended);
    }
    if (!isfinite(value)) return false;
    if (d->within) {
        d->judged++;
        return go_on(d, step, value, ended);
    }
    judge(d, step, value);
    return false;
}

bool spike_finish(struct spike_detector *d, struct spike *open) {
    return d->within && end_event(d, SPIKE_OPEN, open);
}

/* ---- a series ---- */

static enum status list_add(struct spike_list *l, const struct spike *s, struct err *e) {
    if ((l->count & (l->count - 1)) == 0) { /* 0, 1, 2, 4...: it is full */
        size_t room = l->count ? 2 * (size_t)l->count : 1;
        struct spike *more = realloc(l->spike, room * sizeof *more);
        if (!more) return FAIL(e, ERR_MEMORY, "%lld spikes", (long long)l->count);
        l->spike = more;
    }
    l->spike[l->count++] = *s;
    return OK;
}

static enum status list_make(const struct columns *train, const char *name,
                             const struct spike_rule *rule, struct spike_list *out,
                             struct err *e) {
    const struct column *value = columns_scalar(train, name), *step = columns_scalar(train, "step");
    const struct column *rate = columns_scalar(train, "lr");
    struct spike_detector d = { .rule = rule };
    struct spike event;
    for (int64_t i = 0; value && step && i < train->rows; i++) {
        double at = column_value(step, i, 0);
        columns_pass(train, step, i);
        if (!(at >= 0 && at <= 0x1p53)) continue; /* a foreign file may have any number there */
        if (spike_take(&d, (int64_t)at, column_value(value, i, 0),
                       rate ? column_value(rate, i, 0) : (double)NAN, &event))
            TRY(list_add(out, &event, e));
    }
    if (spike_finish(&d, &event)) TRY(list_add(out, &event, e));
    out->judged = d.judged;
    out->first = d.first;
    return OK;
}

/* ---- spikes at equal distances ---- */

enum { PERIODIC_LEAST = 4 };

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The median distance between one spike and the next. */
static enum status middle_distance(const struct spike_list *l, int64_t *out, struct err *e) {
    int64_t *distance = malloc((size_t)l->count * sizeof *distance);
    if (!distance) return FAIL(e, ERR_MEMORY, "%lld spikes", (long long)l->count);
    for (int64_t i = 1; i < l->count; i++)
        distance[i - 1] = l->spike[i].step - l->spike[i - 1].step;
    qsort(distance, (size_t)l->count - 1, sizeof *distance, by_size);
    *out = distance[(l->count - 1) / 2];
    free(distance);
    return OK;
}

static enum status find_period(struct spike_list *l, struct err *e) {
    int64_t period = 0, found = 0;
    if (l->count < PERIODIC_LEAST) return OK;
    TRY(middle_distance(l, &period, e));
    int64_t off = period / 20 > 2 ? period / 20 : 2;
    for (int64_t i = 0; i < l->count; i++) {
        struct spike *s = &l->spike[i];
        for (int64_t k = i - 1; k <= i + 1; k += 2) {
            bool fits = k >= 0 && k < l->count &&
                        llabs(llabs(l->spike[k].step - s->step) - period) <= off;
            if (fits && s->kind == SPIKE_RETURNED) s->periodic = true;
        }
        found += s->periodic;
    }
    bool counts = found >= PERIODIC_LEAST && 2 * found >= l->count;
    if (counts) l->period = period;
    for (int64_t i = 0; i < l->count && !counts; i++) l->spike[i].periodic = false;
    return OK;
}

enum status spikes_make(const struct columns *train, struct spikes *out, struct err *e) {
    *out = (struct spikes){ 0 };
    TRY(list_make(train, "loss", &SPIKE_OF_LOSS, &out->loss, e));
    TRY(list_make(train, "grad_norm", &SPIKE_OF_NORM, &out->norm, e));
    TRY(find_period(&out->loss, e));
    return find_period(&out->norm, e);
}

void spikes_free(struct spikes *s) {
    free(s->loss.spike);
    free(s->norm.spike);
    *s = (struct spikes){ 0 };
}

int64_t spike_count_all(const struct spike_list *l, int64_t last) {
    int64_t n = 0;
    for (int64_t i = 0; i < l->count; i++) n += l->spike[i].step <= last;
    return n;
}

int64_t spike_count(const struct spike_list *l, int64_t last) {
    int64_t n = 0;
    for (int64_t i = 0; i < l->count; i++) n += !l->spike[i].periodic && l->spike[i].step <= last;
    return n;
}
