/* Attention by cuDNN, if it is installed: private to the attention files.
 *
 * cuDNN is opened with dlopen, so that a machine without it runs our own kernels. All forwards keep
 * the same log-sum-exp, so that any forward works with any backward. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_CUDNN_CUH
#define FP8LAB_KERNELS_CUDA_ATTENTION_CUDNN_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_rule.h"

/* Names one plan of a shape: its place in the heuristic's list, its engine's global index. The
 * place CUDNN_LISTED_MAX is the configuration of CUDNN_FP8_BACKWARD that no heuristic lists. */
enum { CUDNN_LISTED_MAX = 16 };
struct cudnn_plan_name { int32_t place, engine; };
static inline bool cudnn_same_plan(struct cudnn_plan_name x, struct cudnn_plan_name y) {
    return x.place == y.place && x.engine == y.engine;
}

/* A finalised plan with all descriptors that it refers to. */
struct cudnn_nodes;
struct cudnn_plan {
    struct cudnn_plan_name name;
    struct cudnn_spec spec;
    int64_t workspace_bytes;
    void *execution;           /* among owned */
    struct cudnn_nodes *owned;
};

/* What was found for a shape. */
struct cudnn_found { int listed, deterministic; };

/* A deterministic plan for the shape: the named one, or for NULL the first that can be built. NULL
 * if cuDNN is missing or too old, or has no such plan. Takes up to seconds. Of codes a->width is
 * their stride. *found, unless NULL: of the plans that were looked at. */
struct cudnn_plan *cudnn_plan_create(struct cuda_backend *b, const struct attention *a,
                                     const struct cudnn_spec *spec,
                                     const struct cudnn_plan_name *name,
                                     struct cudnn_found *found);
void cudnn_plan_destroy(struct cuda_backend *b, struct cudnn_plan *p);

/* Computes outputs and log-sum-exp; another pass must take the maximum. Queued. */
NODISCARD enum status cudnn_plan_run(struct cuda_backend *b, const struct cudnn_plan *p,
                                     const struct forward *f, void *workspace, cudaStream_t stream,
                                     struct err *e);

/* Scalars of a plan of codes, f32 on the device: 1; what the output is multiplied by, or d_q, d_k
 * and d_v; then maxima, which the plan writes. */
enum {
    CUDNN_FP8_ONE, CUDNN_FP8_MULTIPLIER, CUDNN_FP8_P_AMAX = CUDNN_FP8_MULTIPLIER + 3,
    CUDNN_FP8_DS_AMAX, CUDNN_FP8_OUT_AMAX, CUDNN_FP8_SCALARS = CUDNN_FP8_OUT_AMAX + 3
};

/* What a plan of codes reads and writes; all on the device. */
struct cudnn_fp8_call {
    const struct attention *a; /* the shape and the scale */
    const uint8_t *codes;      /* of qkv */
    const float *factor, *p_factor, *p_multiplier;
    float *lse;     /* written by the forward */
    float *scalars; /* [CUDNN_FP8_SCALARS] */
    void *o;        /* written by the forward */
    /* backward */
    const float *o_factor; /* of the codes of o; NULL: it is BF16 */
    const uint8_t *d_o;
    const float *d_o_factor, *ds_factor, *ds_multiplier;
    void *d_qkv;
};
NODISCARD enum status cudnn_plan_run_fp8_fwd(struct cuda_backend *b, const struct cudnn_plan *p,
                                             const struct cudnn_fp8_call *c, void *workspace,
                                             cudaStream_t stream, struct err *e);
NODISCARD enum status cudnn_plan_run_fp8_bwd(struct cuda_backend *b, const struct cudnn_plan *p,
                                             const struct cudnn_fp8_call *c, void *workspace,
                                             cudaStream_t stream, struct err *e);

int64_t cudnn_version(struct cuda_backend *b); /* 91900; 0 if missing or too old */
/* What the library says of its last failure in this thread; "" if it says nothing. */
void cudnn_last_error(struct cuda_backend *b, char *out, size_t size);
void cudnn_close(struct cuda_backend *b); /* after all of its plans */

#endif
