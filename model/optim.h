/* AdamW: its options, the learning rate of each step, the format of the moments. Schedules and bias
 * corrections use kernels/exactmath.h, so they have the same bits on every machine. */
#ifndef FP8LAB_MODEL_OPTIM_H
#define FP8LAB_MODEL_OPTIM_H

#include "kernels/base.h"

enum state_kind { STATE_F32, STATE_BF16, STATE_8BIT /* E4M3, one scale per 128 */ };

struct optimizer_options {
    double lr, beta1, beta2, eps, weight_decay;
    double clip; /* largest gradient norm; 0 = no clipping */
    enum state_kind state;
    bool master; /* f32 master copies; without them BF16 weights are rounded stochastically */
    bool offload; /* moments and masters in pinned host memory, which AdamW reads in place */
};

enum { LR_SCALES_MAX = 128 }; /* different factors of the learning rate in a run, 1 included */

enum schedule_kind { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_WSD, SCHEDULE_CONSTANT };

/* Learning rate by step. All warm up linearly over `warmup` steps (step 1 gets lr/warmup). Then
 *   cosine    lr * (final + (1-final) * (1 + cos(pi p)) / 2)
 *   linear    lr * (1 - (1-final) p)
 *   wsd       lr until steps - decay, then linear to lr * final at the last step; a decay longer
 *             than what follows the warm-up begins right after it   (arXiv:2405.18392)
 *   constant  lr
 * where p goes from 0 after the warm-up to 1 `decay` steps later (0: at the last step), and stays
 * there. */
struct schedule_options {
    enum schedule_kind kind;
    int64_t warmup, decay; /* steps */
    double final;          /* ratio of lr at the end */
};

/* The learning rate of `step` (1-based) of `steps`. */
double schedule_lr(const struct schedule_options *s, double lr, int64_t step, int64_t steps);

/* 1/(1 - beta^step), the bias correction of a moment. */
double adamw_bias(double beta, int64_t step);

/* ERR_CONFIG naming the field, its value and the range. */
NODISCARD enum status optimizer_check(const struct optimizer_options *o,
                                      const struct schedule_options *s, struct err *e);

#endif
