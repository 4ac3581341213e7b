#include "runner/job/pace.h"

#include <jansson.h>
#include <string.h>

void pace_begin(struct pace *p, int64_t world) {
    memset(p, 0, sizeof *p);
    p->world = world;
}

static json_t *make_record(const struct pace_step *s, int64_t world) {
    int64_t slowest = 0, still = 0, most = 0, step_us = 1;
    for (int64_t r = 0; r < world; r++) {
        if (s->exposed_us[r] < s->exposed_us[slowest]) slowest = r;
        if (s->exposed_us[r] > most) most = s->exposed_us[r];
        if (s->step_us[r] > step_us) step_us = s->step_us[r];
        still += s->exposed_us[r];
    }
    int64_t least = s->exposed_us[slowest];
    double mean = (double)still / (double)world;
    return json_pack("{s:s,s:I,s:I,s:I,s:f,s:I,s:I,s:f,s:I,s:I}", "event", "ranks", "step",
                     (json_int_t)s->step, "ranks", (json_int_t)world, "slowest_rank",
                     (json_int_t)slowest, "wait_share", (mean - (double)least) / (double)step_us,
                     "wait_us_max", (json_int_t)(most - least), "comm_us_least",
                     (json_int_t)s->comm_us[slowest], "exposed_share", mean / (double)step_us,
                     "exposed_us_least", (json_int_t)least, "step_time_us_max",
                     (json_int_t)step_us);
}

enum status pace_put(struct pace *p, int64_t rank, const json_t *event, json_t **record,
                     struct err *e) {
    int64_t step = json_integer_value(json_object_get(event, "step"));
    struct pace_step *s = &p->recent[step % PACE_STEPS];
    *record = NULL;
    if (rank < 0 || rank >= p->world || step < s->step) return OK;
    if (step > s->step) *s = (struct pace_step){ .step = step };
    s->step_us[rank] = json_integer_value(json_object_get(event, "step_time_us"));
    s->comm_us[rank] = json_integer_value(json_object_get(event, "comm_us"));
    s->exposed_us[rank] = json_integer_value(json_object_get(event, "exposed_us"));
    if (++s->count < p->world) return OK;
    *record = make_record(s, p->world);
    return *record ? OK : FAIL(e, ERR_MEMORY, "record of the ranks");
}
