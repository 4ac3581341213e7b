/* The step with one kind of GEMM changed, for `bench step --each-gemm`: each kind that a recipe has
 * in 8 or 4 bits is put into BF16, and a head in BF16 into the recipe. Whole steps are measured,
 * with the passes that a change saves or adds. */
#ifndef FP8LAB_RUNNER_BENCH_STEP_EACH_GEMM_H
#define FP8LAB_RUNNER_BENCH_STEP_EACH_GEMM_H

#include "runner/bench/step_energy.h"

struct cli;
struct json_t;

enum { CHANGE_ROUNDS = 3, CHANGES_MAX = GEMM_SITE_COUNT + 4 };

/* Of the step with the change. It is faster (slower) if each of its rounds was faster (slower) than
 * each round without the change, and the medians differ by more than half a percent. */
enum change_verdict { CHANGE_UNCLEAR, CHANGE_FASTER, CHANGE_SLOWER, CHANGE_NO_MEMORY };

struct gemm_change {
    char name[48];            /* "attn_out in BF16" */
    double us[CHANGE_ROUNDS]; /* the median step of each round */
    float loss;               /* of the last step, equal in all rounds */
    bool no_memory;           /* its trainer did not fit; us is 0 */
};
struct gemm_changes {
    double base_us[CHANGE_ROUNDS]; /* without a change */
    struct gemm_change change[CHANGES_MAX];
    int count; /* 0: nothing is in 8 or 4 bits */
};

/* Trains each changed recipe in turn with the unchanged one, `steps` steps a round. Trainers are
 * created and destroyed; the backend has no other. A change that takes over `room` bytes more is
 * not tried: without memory a host ends programs. */
NODISCARD enum status gemm_changes_measure(struct backend *b, const struct trainer_inputs *in,
                                           int64_t room, int64_t steps,
                                           const struct energy_meter *m, struct gemm_changes *out,
                                           struct err *e);

enum change_verdict gemm_change_verdict(const struct gemm_changes *c, int at);
void gemm_changes_print(const struct cli *cli, const struct gemm_changes *c);
/* An array with an object for each change; NULL: no memory. */
struct json_t *gemm_changes_json(const struct gemm_changes *c);

#endif
