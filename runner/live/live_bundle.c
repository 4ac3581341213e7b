#include "runner/live/live_bundle.h"

#include <math.h>
#include <stdio.h>

#include "kernels/f32_bits.h"
#include "runner/bundle/columns.h"

struct row { const struct columns *columns; int64_t row; };

static double number_of_row(const void *source, const char *metric) {
    const struct row *r = source;
    char bits_name[COLUMN_NAME_CAP];
    const struct column *c = columns_scalar(r->columns, metric);
    if (c && c->type != COLUMN_U32) return column_value(c, r->row, 0);
    snprintf(bits_name, sizeof bits_name, "%s_bits", metric); /* the only form in format 1 */
    if (!c) c = columns_scalar(r->columns, bits_name);
    return c ? (double)f32_from_bits((uint32_t)column_bits(c, r->row, 0)) : (double)NAN;
}

static double share_of_row(const void *source, const char *metric, int64_t label) {
    const struct row *r = source;
    const struct column *c = columns_find(r->columns, metric);
    if (!c || label >= c->width) return (double)NAN;
    if (c->type != COLUMN_U32) return column_value(c, r->row, label);
    return (double)f32_from_bits((uint32_t)column_bits(c, r->row, label));
}

static const char *label_of_row(const void *source, int64_t label) {
    const struct row *r = source;
    return columns_label(r->columns, label);
}

/* The last record of a wide stream with this metric. */
static void take_last(struct live *l, const struct columns *wide, const char *metric,
                      void (*take)(struct live *l, int64_t step, const struct live_shares *s)) {
    const struct column *step = columns_scalar(wide, "step");
    const struct column *share = columns_find(wide, metric);
    if (!step || !share || wide->rows < 1) return;
    struct row last = { .columns = wide, .row = wide->rows - 1 };
    struct live_shares shares = { .share = share_of_row, .label = label_of_row, .source = &last,
                                  .width = share->width };
    take(l, (int64_t)column_value(step, last.row, 0), &shares);
}

void live_of_view(struct live *l, const struct run_view *view) {
    live_begin(l);
    live_take_run(l, view->run);
    live_take_resolved(l, view->resolved);
    live_take_decisions(l, view->decisions);
    for (int i = 0; i < LIVE_STREAM_COUNT; i++) {
        struct row row = { .columns = view->columns.of[LIVE_STREAMS[i]] };
        struct live_record record = { .number = number_of_row, .source = &row };
        for (; row.columns && row.row < row.columns->rows; row.row++)
            live_take(l, LIVE_STREAMS[i], &record);
    }
    take_last(l, view->columns.of[STREAM_FP8], "saturated", live_take_fp8);
    take_last(l, view->columns.of[STREAM_EVAL_SETS], "loss", live_take_sets);
}
