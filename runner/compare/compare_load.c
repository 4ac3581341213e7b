/* Loads the runs of a comparison, several at a time. What only the bits of run 0 are compared with
 * is freed at once, so that memory does not grow with every record of every run. */
#include <stdlib.h>

#include "runner/compare/compare.h"
#include "runner/compare/curve.h"
#include "runner/compare/run_speed.h"
#include "runner/compare/spread.h"
#include "runner/health/heat.h"
#include "runner/health/spikes.h"

/* Frees the records that are not needed any more. */
static void drop_records(const struct comparison *c, struct run_view *v) {
    static const char *const LOSSES[] = { "step", "loss", "loss_tokens", NULL };
    static const char *const PLOTTED[] = { "step", "loss", "loss_tokens", "grad_norm",
                                           "tokens_per_s", "step_time_us", NULL };
    static const char *const WAITED[] = { "step", "wait_share", "exposed_share", NULL };
    static const enum stream_id COMPARED[] = { STREAM_FP8, STREAM_FP8_ERROR, STREAM_TRACE,
                                               STREAM_SAMPLES };
    for (size_t k = 0; k < sizeof COMPARED / sizeof *COMPARED; k++) {
        columns_destroy(v->columns.of[COMPARED[k]]);
        v->columns.of[COMPARED[k]] = NULL;
    }
    if (v->columns.of[STREAM_TRAIN])
        columns_keep(v->columns.of[STREAM_TRAIN], c->options.lean ? LOSSES : PLOTTED);
    if (c->options.lean) {
        columns_destroy(v->columns.of[STREAM_RANKS]);
        v->columns.of[STREAM_RANKS] = NULL;
    } else if (v->columns.of[STREAM_RANKS]) {
        columns_keep(v->columns.of[STREAM_RANKS], WAITED);
    }
}

static enum status load_one(struct comparison *c, const char *path, int64_t i, struct err *e) {
    TRY(run_view_load(path, RUN_VIEW_FULL, &c->run[i], e));
    TRY(curve_make(&c->run[i], &c->curve[i], e));
    TRY(spikes_make(c->run[i].columns.of[STREAM_TRAIN], &c->spikes[i], e));
    TRY(run_speed_make(&c->run[i], &c->speed[i], e));
    if (!c->options.lean) TRY(heat_make(&c->run[i], &c->heat[i], e));
    if (!c->options.lean) TRY(spread_make(&c->run[i], &c->spread[i], e));
    if (!c->options.lean) TRY(step_times_make(&c->run[i], &c->times[i], e));
    return OK;
}

/* What needs run 0. */
static void settle(struct comparison *c, int64_t i) {
    compare_diverge(&c->run[0], &c->run[i], &c->divergence[i]);
    drop_records(c, &c->run[i]);
}

struct loaded { enum status st; bool settled; struct err why; };

/* One thread reads each run. Runs that were read before run 0 are compared with it at the end. */
static void load_each(struct comparison *c, const char *const *paths, struct loaded *each) {
    bool ready = false; /* run 0 */
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t i = 0; i < c->count; i++) {
        bool known;
        each[i].st = load_one(c, paths[i], i, &each[i].why);
        if (each[i].st != OK) continue;
        if (i == 0) {
#pragma omp atomic write seq_cst
            ready = true;
            continue;
        }
#pragma omp atomic read seq_cst
        known = ready;
        if (known) settle(c, i);
        each[i].settled = known;
    }
}

/* The error reported is the first one in the order of the arguments. */
static enum status load_all(struct comparison *c, const char *const *paths, struct err *e) {
    struct loaded *each = calloc((size_t)c->count, sizeof *each);
    enum status st = OK;
    if (!each) return FAIL(e, ERR_MEMORY, "%lld runs", (long long)c->count);
    load_each(c, paths, each);
    for (int64_t i = 0; st == OK && i < c->count; i++) {
        st = each[i].st;
        if (st != OK && e) *e = each[i].why;
    }
    for (int64_t i = 1; st == OK && i < c->count; i++)
        if (!each[i].settled) settle(c, i);
    free(each);
    return st;
}

enum status compare_load(struct comparison *c, const char *const *paths, struct err *e) {
    c->run = calloc((size_t)c->count, sizeof *c->run);
    c->curve = calloc((size_t)c->count, sizeof *c->curve);
    c->speed = calloc((size_t)c->count, sizeof *c->speed);
    c->times = calloc((size_t)c->count, sizeof *c->times);
    c->spikes = calloc((size_t)c->count, sizeof *c->spikes);
    c->divergence = calloc((size_t)c->count, sizeof *c->divergence);
    c->heat = calloc((size_t)c->count, sizeof *c->heat);
    c->spread = calloc((size_t)c->count, sizeof *c->spread);
    if (!c->run || !c->curve || !c->speed || !c->times || !c->spikes || !c->divergence ||
        !c->heat || !c->spread)
        return FAIL(e, ERR_MEMORY, "%lld runs", (long long)c->count);
    TRY(load_all(c, paths, e));
    drop_records(c, &c->run[0]);
    return OK;
}

void compare_free(struct comparison *c) {
    for (int64_t i = 0; c->run && i < c->count; i++) run_view_free(&c->run[i]);
    for (int64_t i = 0; c->curve && i < c->count; i++) curve_free(&c->curve[i]);
    for (int64_t i = 0; c->heat && i < c->count; i++) heat_free(&c->heat[i]);
    for (int64_t i = 0; c->spread && i < c->count; i++) spread_free(&c->spread[i]);
    for (int64_t i = 0; c->times && i < c->count; i++) step_times_free(&c->times[i]);
    for (int64_t i = 0; c->spikes && i < c->count; i++) spikes_free(&c->spikes[i]);
    free(c->run);
    free(c->curve);
    free(c->heat);
    free(c->spread);
    free(c->speed);
    free(c->times);
    free(c->spikes);
    free(c->divergence);
    json_decref(c->report);
    *c = (struct comparison){ 0 };
}
