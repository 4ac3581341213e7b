/* Attention's forward by cuDNN, if it is installed: private to the attention files.
 *
 * cuDNN is opened with dlopen, so that a machine without it runs our own kernels. All forwards keep
 * the same log-sum-exp, so that any forward works with any backward. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_CUDNN_CUH
#define FP8LAB_KERNELS_CUDA_ATTENTION_CUDNN_CUH

#include "kernels/cuda/attention.cuh"

/* Names one plan of a shape: its place in the heuristic's list, its engine's global index. */
struct cudnn_plan_name { int32_t place, engine; };
static inline bool cudnn_same_plan(struct cudnn_plan_name x, struct cudnn_plan_name y) {
    return x.place == y.place && x.engine == y.engine;
}

/* A finalised plan with all descriptors that it refers to. */
struct cudnn_nodes;
struct cudnn_plan {
    struct cudnn_plan_name name;
    int64_t workspace_bytes;
    void *execution;           /* among owned */
    struct cudnn_nodes *owned;
};

/* A deterministic plan for the shape: the named one, or for NULL the first that can be built. NULL
 * if cuDNN is missing or too old, or has no such plan. Takes up to seconds. fp8: of E4M3 codes, and
 * a->width is their stride. */
struct cudnn_plan *cudnn_plan_create(struct cuda_backend *b, const struct attention *a, bool fp8,
                                     const struct cudnn_plan_name *name);
void cudnn_plan_destroy(struct cuda_backend *b, struct cudnn_plan *p);

/* Computes outputs and log-sum-exp; another pass must take the maximum. Queued. */
NODISCARD enum status cudnn_plan_run(struct cuda_backend *b, const struct cudnn_plan *p,
                                     const struct forward *f, void *workspace, cudaStream_t stream,
                                     struct err *e);

/* What a plan of codes reads and writes; all on the device. */
enum { CUDNN_FP8_ONE, CUDNN_FP8_P_AMAX, CUDNN_FP8_O_AMAX, CUDNN_FP8_SCALARS };
struct cudnn_fp8_forward {
    const struct attention *a; /* the shape and the scale */
    const uint8_t *codes;      /* of qkv */
    const float *factor, *p_factor, *p_multiplier;
    bf16_bits *o;
    float *lse;
    float *scalars; /* [CUDNN_FP8_SCALARS]: 1, which o is multiplied by; out: amax of p and of o */
};
NODISCARD enum status cudnn_plan_run_fp8(struct cuda_backend *b, const struct cudnn_plan *p,
                                         const struct cudnn_fp8_forward *f, void *workspace,
                                         cudaStream_t stream, struct err *e);

int64_t cudnn_version(struct cuda_backend *b); /* 91900; 0 if missing or too old */
void cudnn_close(struct cuda_backend *b);      /* after all of its plans */

#endif
