/* Whole training steps, timed as they run: graphs replayed, the host a step ahead. */
#ifndef FP8LAB_RUNNER_BENCH_STEP_WHOLE_H
#define FP8LAB_RUNNER_BENCH_STEP_WHOLE_H

#include "model/train.h"
#include "runner/bench/bench_energy.h"
#include "runner/bench/bench_measure.h"

/* Steps longer than this need few samples and little warm-up: operators do not change. */
enum { WHOLE_LONG_US = 500000 };

struct whole_steps {
    struct bench_time time;      /* of one step */
    int64_t steps;               /* measured, after the warm-up */
    int64_t tokens;              /* of a step of this rank */
    double clock_mhz, power_w;   /* meanwhile: median SM clock, highest power; 0: not known */
    int64_t throttle; /* NVML's reasons for low clocks, OR of all samples (hardware/telemetry.h) */
    float loss;       /* of the last step; a loss that is not finite invalidates the figures */
};

/* Takes `steps` (1 and more) steps of the trainer. The meter only samples clock and power. */
NODISCARD enum status whole_steps_measure(struct trainer *t, int64_t steps,
                                          const struct energy_meter *m, struct whole_steps *out,
                                          struct err *e);

#endif
