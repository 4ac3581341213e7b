#include "runner/bench/step_whole.h"

#include <jansson.h>
#include <stdlib.h>

#include "runner/base/clock.h"
#include "runner/hardware/telemetry.h"

enum { WARM_STEPS = 4 /* warm-up: plain, captured, replayed, and one more */,
       SAMPLE_EVERY_US = 50000 /* the driver takes 1 ms for a sample: longer than a small step */ };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A sample of the driver's clock and power during the steps. A lower clock is why a step is slower
 * than a burst. */
static enum status sample_device(const struct energy_meter *m, struct whole_steps *out,
                                 double *clock, struct err *e) {
    json_t *record = json_object();
    enum status st = telemetry_add(m->telemetry, m->device, record, e);
    double power = json_number_value(json_object_get(record, "gpu_power_mw")) * 1e-3;
    *clock = json_number_value(json_object_get(record, "gpu_clock_sm_mhz"));
    if (power > out->power_w) out->power_w = power;
    out->throttle |= json_integer_value(json_object_get(record, "gpu_throttle"));
    json_decref(record);
    return st;
}

/* The next step is queued before the last one is waited for. */
enum status whole_steps_measure(struct trainer *t, int64_t steps, const struct energy_meter *m,
                                struct whole_steps *out, struct err *e) {
    double *us = calloc((size_t)steps, sizeof *us);
    double *clock = calloc((size_t)steps, sizeof *clock);
    struct step_result result = { 0 };
    int64_t samples = 0, sampled_us = 0;
    enum status st = us && clock ? OK : FAIL(e, ERR_MEMORY, "times of %lld steps",
                                             (long long)steps);
    *out = (struct whole_steps){ .steps = steps };
    for (int i = 0; i < WARM_STEPS && st == OK; i++) {
        if (i >= 2 && result.time_us > WHOLE_LONG_US) break;
        st = trainer_step(t, false, &result, e);
    }
    if (st == OK) st = trainer_queue(t, false, e);
    for (int64_t i = 0; i < steps && st == OK; i++) {
        if (i + 1 < steps) st = trainer_queue(t, false, e);
        if (st == OK && (!samples || clock_us() - sampled_us >= SAMPLE_EVERY_US)) {
            st = sample_device(m, out, &clock[samples++], e);
            sampled_us = clock_us();
        }
        if (st == OK) st = trainer_collect(t, &result, e);
        us[i] = (double)result.time_us;
    }
    if (st == OK) {
        qsort(us, (size_t)steps, sizeof *us, by_value);
        qsort(clock, (size_t)samples, sizeof *clock, by_value);
        out->time = (struct bench_time){ .median_us = us[steps / 2], .best_us = us[0],
                                         .calls = 1 };
        out->clock_mhz = clock[samples / 2];
        out->tokens = result.tokens;
        out->loss = result.loss;
    }
    free(us);
    free(clock);
    return st;
}
