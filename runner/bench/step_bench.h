/* One training step, measured whole and in parts, and the floor of each part on this machine. */
#ifndef FP8LAB_RUNNER_BENCH_STEP_BENCH_H
#define FP8LAB_RUNNER_BENCH_STEP_BENCH_H

#include "runner/bench/bench_ceilings.h"
#include "runner/bench/step_each_gemm.h"
#include "runner/bench/step_whole.h"
#include "runner/plan/mfu.h"
#include "runner/plan/options.h"

struct json_t;
struct cli;

struct step_bench {
    char name[128]; /* of the run */
    char recipe[32]; /* the kind of its recipe */
    const char *backend;
    struct device_info device;
    int64_t micro_batch, seq_len;
    int64_t micro_steps, micro_steps_asked; /* micro-steps of a step: as measured, as in the
                                               experiment */
    double model_flop;   /* FLOP of a step: model_flops_per_token */
    int64_t memory_bytes;
    struct whole_steps whole;
    bool energy_asked;
    struct energy energy; /* of a whole step; the record has the operators' */
    struct timed_record record;
    struct bench_time gemm[SHAPES_MAX], attention[SHAPES_MAX]; /* ceilings, by shape */
    double copy_bytes_per_s;
    struct mfu mfu; /* without a product; ceiling as measured now */
    struct gemm_changes changes; /* of --each-gemm, else none */
    bool changes_asked;
};

/* Lowers the ceiling time of a shape to the time of a call in the step, if that is less. Another
 * program may have run while the ceiling was measured. */
void step_lower_ceilings(struct step_bench *s);
/* The floor of a call: its FLOP at the ceiling of its mode and shape, or its bytes at the bandwidth
 * of a copy. It is never above the measured time: a pure read, or data in a cache, is faster than a
 * copy. */
double step_call_floor_us(const struct step_bench *s, const struct timed_call *c);

/* Prints the result (bench_step_report.c); detail: also each operator and each shape of GEMM. */
void step_bench_print(const struct cli *cli, const struct step_bench *s, bool detail);
struct json_t *step_bench_json(const struct step_bench *s);

#endif
