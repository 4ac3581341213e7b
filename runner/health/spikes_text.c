/* Spikes as one line of text, and as JSON. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/json_number.h"
#include "runner/health/spikes.h"

/* Steps that a line names. */
enum { SHOWN = 6 };

struct line { char *text; size_t used; };

static void add(struct line *l, const char *format, ...) PRINTF_LIKE(2, 3);
static void add(struct line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->used, SPIKES_TEXT_CAP - l->used, format, args);
    va_end(args);
    if (n > 0) l->used += (size_t)n;
    if (l->used >= SPIKES_TEXT_CAP) l->used = SPIKES_TEXT_CAP - 1;
}

static void separate(struct line *l) {
    if (l->used) add(l, "; ");
}

/* "+1.8 nats" or "14 times its median" */
static void add_size(struct line *l, double size, bool nats, const char *plus) {
    if (nats) add(l, "%s%.3g nats", plus, size);
    else add(l, size < 10 ? "%.2g times its median" : "%.0f times its median", size);
}

static double size_of(const struct spike *s, bool nats) {
    return nats ? s->top - s->base : s->top / s->base;
}

static bool is_spike(const struct spike *s) { return s->kind == SPIKE_RETURNED && !s->periodic; }

/* "3 of the loss (steps 412, 980, 1313), the largest +1.8 nats" */
static void add_spikes(struct line *l, const struct spike_list *list, const char *of, bool nats) {
    double largest = 0;
    int64_t count = 0, shown = 0;
    for (int64_t i = 0; i < list->count; i++) {
        const struct spike *s = &list->spike[i];
        if (!is_spike(s)) continue;
        largest = fmax(largest, size_of(s, nats));
        count++;
    }
    if (!count) return;
    separate(l);
    add(l, "%" PRId64 " of the %s (step%s", count, of, count == 1 ? "" : "s");
    for (int64_t i = 0; i < list->count && shown < SHOWN; i++)
        if (is_spike(&list->spike[i]))
            add(l, "%s %" PRId64, shown++ ? "," : "", list->spike[i].step);
    add(l, "%s), the largest ", count > shown ? ", ..." : "");
    add_size(l, largest, nats, "+");
}

/* Levels that did not come back, each of them; there cannot be many. */
static void add_shifts(struct line *l, const struct spike_list *list, const char *of, bool nats) {
    for (int64_t i = 0; i < list->count; i++) {
        const struct spike *s = &list->spike[i];
        if (s->kind == SPIKE_RETURNED) continue;
        separate(l);
        add(l, "the %s rose %s ", of, nats ? "by" : "to");
        add_size(l, size_of(s, nats), nats, "");
        add(l, " at step %" PRId64, s->step);
        if (s->kind == SPIKE_SHIFT) add(l, " and did not return");
        else add(l, ", to step %" PRId64 " at least", s->last);
    }
}

static void add_period(struct line *l, const struct spike_list *list, const char *of) {
    if (!list->period) return;
    add(l, "; each %" PRId64 " steps the %s is high for a moment, as if by the order of the data: "
        "not counted", list->period, of);
}

bool spikes_text(const struct spikes *s, char out[SPIKES_TEXT_CAP]) {
    struct line l = { .text = out };
    out[0] = '\0';
    if (!s->loss.judged && !s->norm.judged) return false;
    add_spikes(&l, &s->loss, "loss", true);
    add_spikes(&l, &s->norm, "gradient norm", false);
    add_shifts(&l, &s->loss, "loss", true);
    add_shifts(&l, &s->norm, "gradient norm", false);
    bool any = l.used > 0;
    if (!any)
        add(&l, "none in %" PRId64 " steps",
            s->loss.judged ? s->loss.judged : s->norm.judged);
    add_period(&l, &s->loss, "loss");
    add_period(&l, &s->norm, "gradient norm");
    return any;
}

/* ---- JSON ---- */

static json_t *list_json(const struct spike_list *l) {
    json_t *events = json_array();
    bool failed = false;
    for (int64_t i = 0; i < l->count; i++) {
        const struct spike *s = &l->spike[i];
        json_append(events, json_pack("{s:I, s:I, s:s, s:b, s:o, s:o}", "step",
                                      (json_int_t)s->step, "last", (json_int_t)s->last, "kind",
                                      SPIKE_KINDS[s->kind], "periodic", s->periodic, "top",
                                      json_finite(s->top), "median", json_finite(s->base)),
                    &failed);
    }
    return json_pack("{s:I, s:I, s:o, s:o}", "judged", (json_int_t)l->judged, "count",
                     (json_int_t)spike_count(l, INT64_MAX), "period",
                     l->period ? json_integer(l->period) : json_null(), "events",
                     json_whole(events, failed));
}

json_t *spikes_json(const struct spikes *s) {
    return json_pack("{s:o, s:o}", "loss", list_json(&s->loss), "grad_norm", list_json(&s->norm));
}
