/* One training step, measured whole and in parts, beside the floor that this machine sets it. */
#ifndef FP8LAB_RUNNER_BENCH_BENCH_STEP_H
#define FP8LAB_RUNNER_BENCH_BENCH_STEP_H

#include "runner/bench/bench_ceilings.h"
#include "runner/plan/mfu.h"
#include "runner/plan/options.h"

struct json_t;
struct cli;

struct step_bench {
    char name[128]; /* of the run */
    const char *backend;
    struct device_info device;
    int64_t tokens;      /* a step, this rank's */
    int64_t micro_batch, seq_len;
    int64_t micro_steps, micro_steps_asked; /* of a step: as measured, as the experiment has it */
    double model_flop;   /* a step: model_flops_per_token */
    int64_t memory_bytes;
    struct bench_time step; /* whole steps, as a run takes them: graphs replayed where there are */
    int64_t steps;          /* that were measured whole */
    double clock_mhz, power_w; /* meanwhile: median SM clock, highest power; 0: nobody says */
    int64_t throttle; /* NVML's reasons for low clocks, of all samples (hardware/telemetry.h) */
    struct timed_record record;
    struct bench_time gemm[SHAPES_MAX], attention[SHAPES_MAX]; /* ceilings, by shape */
    double copy_bytes_per_s;
    struct mfu mfu; /* without product; ceiling as measured now */
    float loss; /* of the last step: a figure that is not finite is no figure */
};

/* Takes for the ceiling of a shape what a call of it needed in the step, where that is less: then
 * something else was running while the ceiling was measured. */
void step_lower_ceilings(struct step_bench *s);
/* The least time that a call could take: its FLOP at the ceiling of its mode and shape, or its
 * bytes at the bandwidth of a copy, but no more than it took: a pure read, or what is in a cache,
 * is faster than a copy. */
double step_call_floor_us(const struct step_bench *s, const struct timed_call *c);

/* bench_step_report.c; detail: also each operator and each shape of GEMM. */
void step_bench_print(const struct cli *cli, const struct step_bench *s, bool detail);
struct json_t *step_bench_json(const struct step_bench *s);

#endif
