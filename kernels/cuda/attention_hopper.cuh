/* Attention on Hopper's wgmma: private to the attention files. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_HOPPER_CUH
#define FP8LAB_KERNELS_CUDA_ATTENTION_HOPPER_CUH

#include "kernels/cuda/attention.cuh"

/* The order in which blocks begin. Each has one tile of a head, and tiles differ in work. Of
 * `together` heads comes the longest tile of each, then the second of each, and so on; then the
 * next heads. So few multiprocessors are idle at the end, and the heads in work fit into the L2
 * cache. Two to three tiles a multiprocessor are about the fewest that keep all of them busy. No
 * bit depends on it. */
struct sweeps { int tiles, heads, together; }; /* tiles of a head; heads of all sequences */

static inline struct sweeps sweeps_of(int64_t tiles, int64_t heads, int multiprocessors) {
    int64_t of_sweep = multiprocessors * 5 / 2, count = (tiles * heads + of_sweep / 2) / of_sweep;
    return { (int)tiles, (int)heads, (int)ceil_div(heads, max_i64(1, min_i64(count, heads))) };
}
static inline unsigned sweeps_blocks(const struct sweeps &w) {
    return (unsigned)(w.tiles * w.heads);
}

NODISCARD enum status hopper_attention_fwd_open(struct err *e);
NODISCARD enum status hopper_attention_bwd_open(struct err *e);

/* Whether this device has wgmma and there is a kernel for the shape. */
static inline bool hopper_attention_serves(const struct cuda_backend *b,
                                           const struct attention *a) {
    return b->cc == 90 && attention_has_wgmma(b->caps, a->head_dim) &&
           !cuda_is_forbidden(b, "attention", "wgmma");
}

/* Computes outputs and log-sum-exp; raises f->amax. Queued. */
NODISCARD enum status hopper_attention_fwd(const struct cuda_backend *b, const struct forward *f,
                                           cudaStream_t stream, struct err *e);
/* Gradients of keys, values and queries; raises f->amax; sums, unless NULL, += their column sums.
 * Does not use f->delta. Queued on the lane. */
NODISCARD enum status hopper_attention_bwd(struct cuda_backend *b, int lane,
                                           const struct backward *f, const struct tensor *sums,
                                           struct err *e);

#ifdef __CUDACC__
/* Its tile, counted from the longest, and its head. */
struct swept { int tile, head; };
__device__ static inline struct swept swept_at(const struct sweeps &w, int index) {
    int size = w.together * w.tiles, head = index / size * w.together, at = index % size;
    int heads = min(w.together, w.heads - head);
    return { at / heads, head + at % heads };
}
#endif

#endif
