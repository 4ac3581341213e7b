#include "runner/bench/bench_energy.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "runner/base/clock.h"
#include "runner/hardware/telemetry.h"

enum { BATCH_US = 50000,      /* far above the time of a reading, which may take 20 ms */
       BATCH_MAX = 1 << 14,
       MARK = TIMER_MARKS - 8, /* of the batches' ends, alternating; the trainer has the last 4 */
       STILL_MAX = 2 };       /* windows without a movement of the counter */

enum status energy_meter_open(const struct cli *cli, const struct backend *b,
                              struct energy_meter *out, struct err *e) {
    int64_t seconds = 0;
    *out = (struct energy_meter){ 0 };
    TRY(cli_int(cli, "energy", 1, 60, &seconds, e));
    TRY(cli_int(cli, "device", 0, 1024, &out->device, e));
    out->window_us = seconds * 1000000;
    if (strcmp(b->ops->name, "cpu") != 0) out->telemetry = telemetry_open();
    return OK;
}

void energy_meter_close(struct energy_meter *m) {
    telemetry_close(m->telemetry);
    m->telemetry = NULL;
}

static bool read_mj(const struct energy_meter *m, int64_t *mj) {
    return telemetry_energy_mj(m->telemetry, m->device, mj);
}

bool energy_is_measurable(const struct energy_meter *m) {
    int64_t mj;
    return read_mj(m, &mj);
}

void energy_watch_begin(struct energy_watch *w, const struct energy_meter *m) {
    *w = (struct energy_watch){ .meter = m, .last_mj = -1 };
    w->began_us = w->moved_us = clock_us();
    if (!read_mj(m, &w->last_mj)) w->last_mj = -1;
}

bool energy_watch_add(struct energy_watch *w, int64_t calls, struct energy *out) {
    int64_t mj, now = clock_us(), window = w->meter->window_us;
    *out = (struct energy){ 0 };
    if (!read_mj(w->meter, &mj)) return false;
    bool moved = mj != w->last_mj;
    w->last_mj = mj;
    if (moved) w->moved_us = now;
    if (w->open) w->calls += calls;
    if (w->open && moved && now - w->from_us >= window) {
        out->joules = (double)(mj - w->from_mj) * 1e-3 / (double)w->calls;
        out->time_us = (double)(now - w->from_us) / (double)w->calls;
        return false;
    }
    if (!w->open && moved && now - w->began_us >= window / 3) {
        w->open = true;
        w->from_us = now;
        w->from_mj = mj;
    }
    return now - w->moved_us <= STILL_MAX * window;
}

void energy_loop_begin(struct energy_loop *l, struct backend *b, const struct energy_meter *m,
                       double call_us) {
    double batch = BATCH_US / (call_us + 1);
    *l = (struct energy_loop){ .b = b };
    l->batch = batch < 1 ? 1 : batch > BATCH_MAX ? BATCH_MAX : (int64_t)batch;
    energy_watch_begin(&l->watch, m);
}

enum status energy_loop_more(struct energy_loop *l, bool *more, struct err *e) {
    *more = true;
    if (++l->calls < l->batch) return OK;
    int mark = MARK + (int)(l->batches % 2), before = MARK + (int)((l->batches + 1) % 2);
    double us = 0;
    TRY(l->b->ops->timer_mark(l->b, LANE_COMPUTE, mark, e));
    if (l->batches++ > 0) { /* waits for the batch before; this one keeps the device at work */
        TRY(l->b->ops->timer_read(l->b, before, before, &us, e));
        *more = energy_watch_add(&l->watch, l->before, &l->result);
    }
    l->before = l->calls;
    l->calls = 0;
    return OK;
}

void energy_text(double joules, char out[ENERGY_TEXT_CAP]) {
    if (joules > 0) snprintf(out, ENERGY_TEXT_CAP, "%.3f", joules);
    else snprintf(out, ENERGY_TEXT_CAP, "not measured");
}

void energy_end_row(const struct cli *cli, const struct energy_meter *m, double joules) {
    char text[ENERGY_TEXT_CAP];
    energy_text(joules * 1e3, text);
    if (m->window_us > 0) cli_out(cli, "  %12s%s", text, joules > 0 ? " mJ" : "");
    cli_out(cli, "\n");
}

json_t *energy_json(double joules) { return joules > 0 ? json_real(joules) : json_null(); }
