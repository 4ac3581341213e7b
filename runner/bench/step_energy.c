#include "runner/bench/step_energy.h"

#include <string.h>

static const double SHARE_MIN = 0.002; /* of the operators' time: less is not measured */
enum { STEP_WINDOWS = 3 };

enum status energy_of_steps(struct trainer *t, const struct energy_meter *m, struct energy *out,
                            struct err *e) {
    struct energy_meter meter = *m;
    struct energy_watch watch;
    struct step_result result;
    meter.window_us *= STEP_WINDOWS;
    energy_watch_begin(&watch, &meter);
    TRY(trainer_queue(t, false, e));
    for (bool more = true; more;) {
        TRY(trainer_queue(t, false, e));
        TRY(trainer_collect(t, &result, e));
        more = energy_watch_add(&watch, 1, out);
    }
    return trainer_collect(t, &result, e);
}

/* ---- operators --------------------------------------------------------------------------------*/

static bool same_kind(const struct timed_call *a, const struct timed_call *b) {
    return a->op == b->op && a->part == b->part && a->gemm == b->gemm &&
           a->attention == b->attention && a->bytes == b->bytes;
}

/* Time of all calls of this kind; 0 if an earlier call has the same kind. */
static double time_of_kind(const struct timed_record *r, int64_t first) {
    double us = 0;
    for (int64_t i = 0; i < r->call_count; i++) {
        if (!same_kind(&r->call[i], &r->call[first])) continue;
        if (i < first) return 0;
        us += r->call[i].time_us;
    }
    return us;
}

struct session {
    struct backend *b;
    const struct trainer_inputs *in;
    struct trainer *trainer; /* owned; NULL: the next step needs a new one */
};

static void session_end(struct session *s) {
    trainer_destroy(s->trainer);
    s->trainer = NULL;
    s->b->ops->graph_drop(s->b); /* graphs hold addresses of the trainer's memory */
}

static enum status more(void *context, bool *again, struct err *e) {
    return energy_loop_more(context, again, e);
}

/* One step, in which call number `at` is repeated. A value that is no longer finite ends the
 * trainer, not the measurement. */
static enum status measure_call(struct session *s, const struct energy_meter *m, int64_t at,
                                const struct timed_call *call, struct energy *out, struct err *e) {
    struct timed_record record = { 0 };
    struct step_result result;
    struct energy_loop loop;
    struct timed *timed = NULL;
    const struct trainer_inputs *in = s->in;
    if (!s->trainer)
        TRY(trainer_create(&s->trainer, s->b, in->model, in->recipe, in->train, in->data, e));
    TRY(timed_start(s->b, &timed, e));
    energy_loop_begin(&loop, s->b, m, call->time_us);
    timed_repeat(timed, at, more, &loop);
    enum status st = trainer_step(s->trainer, false, &result, e);
    timed_stop(timed, &record);
    if (st == ERR_NUMERIC) {
        session_end(s);
        st = OK;
    }
    if (st == OK && (at >= record.call_count || strcmp(record.call[at].op, call->op) != 0))
        st = FAIL(e, ERR_STATE, "operator %lld of a step is %s; it was %s before", (long long)at,
                  at < record.call_count ? record.call[at].op : "none", call->op);
    *out = loop.result;
    timed_record_free(&record);
    return st;
}

enum status energy_of_operators(struct backend *b, const struct trainer_inputs *in,
                                const struct energy_meter *m, struct timed_record *r,
                                struct err *e) {
    struct session s = { .b = b, .in = in };
    enum status st = OK;
    double all_us = 0;
    if (!energy_is_measurable(m)) return OK;
    for (int64_t i = 0; i < r->call_count; i++) all_us += r->call[i].time_us;
    for (int optimizer = 0; optimizer < 2; optimizer++)
        for (int64_t i = 0; i < r->call_count && st == OK; i++) {
            struct energy energy = { 0 };
            if ((r->call[i].part == PART_OPTIMIZER) != optimizer) continue;
            if (time_of_kind(r, i) <= SHARE_MIN * all_us) continue;
            st = measure_call(&s, m, i, &r->call[i], &energy, e);
            for (int64_t j = i; j < r->call_count; j++)
                if (same_kind(&r->call[i], &r->call[j])) r->call[j].joules = energy.joules;
        }
    session_end(&s);
    return st;
}
