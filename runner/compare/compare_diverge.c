/* Finds the first difference of two runs. Columns are compared bit by bit, never after rounding. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/compare/compare.h"

/* One result of two runs, side by side. */
struct pair {
    const struct stream *stream;
    const struct metric *metric;
    const struct columns *a, *b;
    const struct column *step_a, *step_b, *value_a, *value_b;
    const struct run_view *run_a, *run_b;
};

struct place { /* in a stream */
    bool found;
    int64_t step, row_a, row_b, slot_a, slot_b;
    int64_t common, last_equal; /* rows with a common step; the last equal step, or -1 */
};

static bool open_pair(struct pair *p, int stream, const struct metric *m,
                      const struct columns *a, const struct columns *b) {
    char column[COLUMN_NAME_CAP];
    *p = (struct pair){ .stream = &STREAMS[stream], .metric = m, .a = a, .b = b };
    result_column(p->stream, m, column);
    p->step_a = columns_scalar(a, "step");
    p->step_b = columns_scalar(b, "step");
    p->value_a = columns_find(a, column);
    p->value_b = columns_find(b, column);
    return p->step_a && p->step_b && p->value_a && p->value_b &&
           p->step_a->type == COLUMN_I64 && p->step_b->type == COLUMN_I64 &&
           p->value_a->type == p->value_b->type;
}

/* ---- slots --------------------------------------------------------------------------------- */

struct named {
    const char *name;
    int64_t slot;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* For each slot of a the slot of b with the same label, or -1. Runs of one configuration have the
 * same labels in the same order; others share some. NULL without memory or without a common
 * slot. */
static int64_t *match_slots(const struct pair *p) {
    int64_t n = p->value_a->width, m = p->value_b->width, shared = 0;
    int64_t *match = malloc((size_t)(n + 1) * sizeof *match);
    struct named *names = malloc((size_t)(m + 1) * sizeof *names);
    for (int64_t j = 0; names && j < m; j++) {
        const char *label = columns_label(p->b, j);
        names[j] = (struct named){ label ? label : "", j };
    }
    if (names) qsort(names, (size_t)m, sizeof *names, by_name);
    for (int64_t i = 0; match && names && i < n; i++) {
        struct named key = { columns_label(p->a, i), 0 };
        const struct named *hit =
            key.name ? bsearch(&key, names, (size_t)m, sizeof *names, by_name) : NULL;
        if (hit && p->stream == &STREAMS[STREAM_EVAL_SETS] &&
            !compare_same_set(p->run_a, p->run_b, key.name))
            hit = NULL; /* its loss is that of other text */
        /* Without labels, slots of records of the same width match by index. */
        match[i] = hit ? hit->slot : !key.name && n == m ? i : -1;
        shared += match[i] >= 0;
    }
    bool usable = match && names && shared > 0;
    free(names);
    if (usable) return match;
    free(match);
    return NULL;
}

static const char *value_at(const struct column *c, int64_t row, int64_t slot) {
    return column_row(c, row) + slot * column_type_bytes(c->type);
}

/* The first slot that differs in two rows, or -1. */
static int64_t differing_slot(const struct pair *p, const int64_t *match, bool aligned,
                              int64_t row_a, int64_t row_b) {
    size_t bytes = (size_t)column_type_bytes(p->value_a->type);
    if (aligned && memcmp(value_at(p->value_a, row_a, 0), value_at(p->value_b, row_b, 0),
                          bytes * (size_t)p->value_a->width) == 0)
        return -1;
    for (int64_t i = 0; i < p->value_a->width; i++)
        if (match[i] >= 0 && memcmp(value_at(p->value_a, row_a, i),
                                    value_at(p->value_b, row_b, match[i]), bytes) != 0)
            return i;
    return -1;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Walks the steps that both runs have, in order, up to the first difference. */
static struct place search(const struct pair *p) {
    struct place at = { .last_equal = -1 };
    int64_t *match = match_slots(p);
    if (!match) return at;
    bool aligned = p->value_a->width == p->value_b->width;
    for (int64_t i = 0; aligned && i < p->value_a->width; i++) aligned = match[i] == i;
    for (int64_t i = 0, j = 0; i < p->a->rows && j < p->b->rows;) {
        int64_t step = (int64_t)column_bits(p->step_a, i, 0);
        int64_t step_b = (int64_t)column_bits(p->step_b, j, 0);
        if (step != step_b) {
            if (step < step_b) i++;
            else j++;
            continue;
        }
        at.common++;
        int64_t slot = at.found ? -1 : differing_slot(p, match, aligned, i, j);
        if (slot >= 0) {
            at.found = true;
            at.step = step;
            at.row_a = i;
            at.row_b = j;
            at.slot_a = slot;
            at.slot_b = match[slot];
        } else if (!at.found) {
            at.last_equal = step;
        }
        i++;
        j++;
    }
    free(match);
    return at;
}

static void write_bits(const struct column *c, int64_t row, int64_t slot, char out[20]) {
    snprintf(out, 20, "%0*llx", (int)(2 * column_type_bytes(c->type)),
             (unsigned long long)column_bits(c, row, slot));
}

static void take_place(struct divergence *out, const struct pair *p, const struct place *at) {
    const char *label = columns_label(p->a, at->slot_a);
    out->found = true;
    out->step = at->step;
    out->result = p->metric->result;
    /* A stream with one metric beside the step is named without it: "trace". */
    bool single = p->stream->metric_count == 2;
    snprintf(out->stream, sizeof out->stream, "%s%s%s", p->stream->name, single ? "" : ".",
             single ? "" : p->metric->name);
    out->tensor[0] = 0;
    if (label) snprintf(out->tensor, sizeof out->tensor, "%s", label);
    write_bits(p->value_a, at->row_a, at->slot_a, out->a_bits);
    write_bits(p->value_b, at->row_b, at->slot_b, out->b_bits);
}

void compare_diverge(const struct run_view *a, const struct run_view *b, struct divergence *out) {
    *out = (struct divergence){ .traced = -1 };
    for (int i = 0; i < STREAM_COUNT; i++) {
        const struct columns *x = a->columns.of[i], *y = b->columns.of[i];
        for (int64_t k = 0; k < STREAMS[i].metric_count; k++) {
            const struct metric *m = &STREAMS[i].metric[k];
            struct pair pair;
            if (!m->result || !open_pair(&pair, i, m, x, y)) continue;
            pair.run_a = a;
            pair.run_b = b;
            struct place at = search(&pair);
            if (i == STREAM_TRACE) out->traced = at.last_equal;
            if (i == STREAM_TRAIN && at.common > out->common_steps) out->common_steps = at.common;
            bool first = !out->found || at.step < out->step ||
                         (at.step == out->step && m->result < out->result);
            if (at.found && first) take_place(out, &pair, &at);
        }
    }
}
