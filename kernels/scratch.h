/* What a GPU takes beside the memory that it is asked for, as far as sizes tell: the CUDA backend
 * takes as much, and the memory plan counts it without a device. */
#ifndef FP8LAB_KERNELS_SCRATCH_H
#define FP8LAB_KERNELS_SCRATCH_H

#include "kernels/tensor.h"

/* cuBLASLt's workspace, of each lane that multiplies. */
static const int64_t GEMM_WORKSPACE_BYTES = (int64_t)64 << 20;

/* ---- attention ---- */
struct attention_size { int64_t batch, length, heads, kv_heads, head_dim; };

/* Whether our kernels on wgmma can serve: on Hopper. */
static inline bool attention_has_wgmma(int cc, int64_t head_dim) {
    return cc == 90 && (head_dim == 64 || head_dim == 128);
}

/* Their backward's scratch: for each 64 queries of a head an f32 gradient, log-sum-exp and delta, and a
 * counter; and one counter. */
static inline int64_t attention_query_tiles(const struct attention_size *a) {
    return a->batch * a->heads * ceil_div(a->length, 64);
}
static inline int64_t attention_sums_bytes(const struct attention_size *a) {
    return attention_query_tiles(a) * (64 * a->head_dim * 4 + 64 * 8 + 4) + 4;
}

/* cuDNN's deterministic backward keeps score gradients: 2 bytes for each query head, query and key.
 * So it runs in groups, of whole sequences or of key/value heads of one, which changes no bit: no
 * sum crosses heads that share nothing. */

/* Score gradients of one group at most: a 32nd of the device's memory, since a smaller group is
 * slower (H200, 1 x 8192, 32 heads of 128: 2.9 ms in one group, 3.1 in two, 3.6 in four). */
static inline int64_t attention_scores_max(int64_t device_bytes) {
    int64_t most = (int64_t)4 << 30, share = device_bytes / 32;
    return share > 0 && share < most ? share : most;
}

static inline int64_t attention_divisor(int64_t n, int64_t most) {
    int64_t d = n < most ? n : most;
    while (d > 1 && n % d) d--;
    return d;
}

/* The largest group whose score gradients have at most scores_max bytes, all groups of one size:
 * *group has its batch and heads. False where one key/value head of one sequence has more. */
static inline bool attention_group(const struct attention_size *a, int64_t scores_max,
                                   struct attention_size *group) {
    int64_t share = a->heads / a->kv_heads, padded = round_up(a->length, 128);
    int64_t fit = scores_max / (2 * share * padded * padded);
    if (fit < 1) return false;
    *group = *a;
    if (fit >= a->kv_heads) {
        group->batch = attention_divisor(a->batch, fit / a->kv_heads);
        return true;
    }
    group->batch = 1;
    group->kv_heads = attention_divisor(a->kv_heads, fit);
    group->heads = group->kv_heads * share;
    return true;
}

/* Whether our backward on wgmma comes before cuDNN's: where it is the faster one (H200, cuDNN 9.19):
 * for heads of 64, and where cuDNN needs more than one group. */
static inline bool attention_prefers_wgmma(int cc, const struct attention_size *a,
                                           int64_t device_bytes) {
    struct attention_size g;
    if (!attention_has_wgmma(cc, a->head_dim)) return false;
    return a->head_dim == 64 || !attention_group(a, attention_scores_max(device_bytes), &g) ||
           g.batch != a->batch || g.kv_heads != a->kv_heads;
}

/* Scratch of the backward that serves: ours on wgmma; cuDNN's, as plans of 9.19 have it: score
 * gradients, and keys' and values' gradients by query head before they are summed; or none, which
 * our kernels for any device need. */
static inline int64_t attention_scratch_bytes(int cc, const struct attention_size *a,
                                              int64_t device_bytes) {
    struct attention_size g;
    if (attention_prefers_wgmma(cc, a, device_bytes)) return attention_sums_bytes(a);
    if ((cc != 90 && cc != 100) || a->head_dim < 64 ||
        !attention_group(a, attention_scores_max(device_bytes), &g))
        return 0;
    int64_t padded = round_up(g.length, 128), rows = g.batch * g.heads * padded;
    return rows * (2 * padded + (g.heads > g.kv_heads ? 4 * g.head_dim : 0));
}

/* ---- collectives ----
 * A sum over ranks brings the others' terms of this rank's slice here, a piece at a time. */
static const int64_t COLLECTIVE_TERMS_MAX = (int64_t)128 << 20; /* bytes */

/* Elements of `size` bytes in one piece of a slice of `slice`. */
static inline int64_t collective_piece(int64_t slice, int world, int64_t size) {
    int64_t most = COLLECTIVE_TERMS_MAX / world / size & ~(int64_t)127;
    return slice < most ? slice : most;
}

/* From one rank's terms to the next one's, in bytes. */
static inline int64_t collective_stride(int64_t slice, int world, int64_t size) {
    return round_up(collective_piece(slice, world, size) * size, 256);
}

/* ---- GEMM ---- */

/* Elements along K that share a factor; 0: all of them. */
static inline int64_t scale_block(enum scale_kind kind) {
    if (kind == SCALE_1X128 || kind == SCALE_128X128) return 128;
    return kind == SCALE_1X32 || kind == SCALE_32X32 ? 32 : 0;
}

/* Whether cuBLASLt 13 multiplies operands of these scales on a device of compute capability `cc`
 * (90: 9.0) as they are; else they are widened first. m, n: of the product. */
static inline bool gemm_is_native(int cc, enum scale_kind a, enum scale_kind b, int64_t m,
                                  int64_t n) {
    if (a == SCALE_TENSOR && b == SCALE_TENSOR) return cc >= 89;
    if (cc != 90 || scale_block(a) == 32) return false;
    /* Block factors are laid out in rows of `outer`, which must then be padded by nothing. */
    bool one_dimensional = a == SCALE_1X128 || b == SCALE_1X128;
    return !one_dimensional || (m % 8 == 0 && n % 8 == 0);
}

#endif
