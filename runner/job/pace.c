#include "runner/job/pace.h"

#include <jansson.h>
#include <string.h>

#include "runner/base/run_files.h"

void pace_begin(struct pace *p, int64_t world) {
    memset(p, 0, sizeof *p);
    p->world = world;
}

static json_t *make_record(const struct pace_step *s, int64_t world) {
    double mean = (double)s->exposed_us_sum / (double)world;
    int64_t least = s->exposed_us_least, step_us = s->step_us_max > 1 ? s->step_us_max : 1;
    return json_pack("{s:s,s:I,s:I,s:I,s:f,s:I,s:I,s:f,s:I,s:I}", "event", "ranks", "step",
                     (json_int_t)s->step, "ranks", (json_int_t)world, "slowest_rank",
                     (json_int_t)s->slowest, "wait_share", (mean - (double)least) / (double)step_us,
                     "wait_us_max", (json_int_t)(s->exposed_us_most - least), "comm_us_least",
                     (json_int_t)s->comm_us_slowest, "exposed_share", mean / (double)step_us,
                     "exposed_us_least", (json_int_t)least, "step_time_us_max",
                     (json_int_t)step_us);
}

/* Of ranks with equal idle time the lowest is the slowest, in any order of events. */
static void add_rank(struct pace_step *s, int64_t rank, const json_t *event) {
    int64_t step_us = json_int(event, "step_time_us");
    int64_t exposed_us = json_int(event, "exposed_us");
    bool slowest = !s->count || exposed_us < s->exposed_us_least ||
                   (exposed_us == s->exposed_us_least && rank < s->slowest);
    if (slowest) {
        s->slowest = rank;
        s->exposed_us_least = exposed_us;
        s->comm_us_slowest = json_int(event, "comm_us");
    }
    if (exposed_us > s->exposed_us_most) s->exposed_us_most = exposed_us;
    if (step_us > s->step_us_max) s->step_us_max = step_us;
    s->exposed_us_sum += exposed_us;
    s->count++;
}

enum status pace_put(struct pace *p, int64_t rank, const json_t *event, json_t **record,
                     struct err *e) {
    int64_t step = json_int(event, "step");
    *record = NULL;
    if (rank < 0 || rank >= p->world || step < 0) return OK;
    struct pace_step *s = &p->recent[step % PACE_STEPS];
    if (step < s->step) return OK;
    if (step > s->step) {
        if (s->count && s->count < p->world) p->lost++;
        *s = (struct pace_step){ .step = step };
    }
    add_rank(s, rank, event);
    if (s->count < p->world) return OK;
    *record = make_record(s, p->world);
    return *record ? OK : FAIL(e, ERR_MEMORY, "the record of a step of all ranks");
}
