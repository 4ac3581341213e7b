/* Model FLOP utilisation: the FLOP that a step needs, divided by the FLOP that the device could do
 * in the same time. Relative to the data sheet's dense peak, and to a large GEMM measured here.
 *
 * FLOP of a token, forward and backward: 6 for each weight of a GEMM (the padding of the vocabulary
 * not counted), and 6 * layers * heads * head_dim * seq_len for causal attention, counted once.
 * With a window, only the keys that a query sees count. Recomputation does not count. A run with
 * any FP8 GEMM is measured against FP8, any other against BF16; the text says which. */
#ifndef FP8LAB_RUNNER_PLAN_MFU_H
#define FP8LAB_RUNNER_PLAN_MFU_H

#include "kernels/base.h"

struct json_t;
struct run_options;

/* A rate in a readable unit: GFLOP/s below 1 TFLOP/s, else TFLOP/s. */
struct flop_rate { double value; const char *unit; };
struct flop_rate flop_rate_of(double tflops);

struct mfu {
    double flop_per_token;      /* 0: unknown, nothing is reported */
    bool fp8;
    double peak_tflops;         /* of one GPU; 0: a product that is not in the table */
    double ceiling_tflops;      /* measured; 0: not measured */
    const char *product, *source; /* of the peak; static or borrowed from the facts */
    bool derived;
    int64_t world;
};

/* config: resolved. facts: of the machine. ERR_FORMAT for an invalid configuration. */
NODISCARD enum status mfu_make(struct mfu *out, const struct json_t *config,
                               const struct json_t *facts, int64_t world, struct err *e);
/* The same from options, and a device by product and compute capability; nothing measured yet. */
void mfu_of_device(struct mfu *out, const struct run_options *run, const char *product,
                   const char *cc, int64_t world);

/* Adds to the record of a step: model_tflops (a GPU's), mfu_peak and mfu_gemm (fractions; absent
 * without a peak or a measured GEMM). ERR_MEMORY. */
NODISCARD enum status mfu_add(const struct mfu *m, struct json_t *record, struct err *e);

/* "9.3e+09 FLOP per token; peak 989 TFLOP/s dense BF16 (NVIDIA H200: H200 data sheet, SXM);
 * measured GEMM 790 TFLOP/s BF16". */
void mfu_text(const struct mfu *m, char *out, size_t size);

#endif
