/* Scratch memory of a GPU, computed from sizes alone. The kernels allocate these amounts, and
 * device.c counts them for the memory plan. C and C++. */
#ifndef FP8LAB_KERNELS_CUDA_SCRATCH_H
#define FP8LAB_KERNELS_CUDA_SCRATCH_H

#include "kernels/comm_codes.h"
#include "kernels/device.h"

/* cuBLASLt's workspace, of each lane that multiplies. */
static const int64_t GEMM_WORKSPACE_BYTES = (int64_t)64 << 20;

/* ---- attention ---- */

/* Whether our kernels on wgmma can serve: on Hopper. */
static inline bool attention_has_wgmma(int cc, int64_t head_dim) {
    return cc == 90 && (head_dim == 64 || head_dim == 128);
}

/* Their backward's scratch: for each 64 queries of a head an f32 gradient, log-sum-exp and delta,
 * and a counter; and one counter. */
static inline int64_t attention_query_tiles(const struct attention_size *a) {
    return a->batch * a->heads * ceil_div(a->length, 64);
}
static inline int64_t attention_sums_bytes(const struct attention_size *a) {
    return attention_query_tiles(a) * (64 * a->head_dim * 4 + 64 * 8 + 4) + 4;
}

/* Column sums of the gradients for a bias in front of attention: of every 16 rows, f32. */
static inline int64_t attention_partial_bytes(const struct attention_size *a) {
    return a->batch * ceil_div(a->length, 64) * 4 * (a->heads + 2 * a->kv_heads) * a->head_dim * 4;
}

/* Scratch of the backward: on wgmma its sums; none of our kernels for any device. */
static inline int64_t attention_scratch_bytes(int cc, const struct attention_size *a) {
    return attention_has_wgmma(cc, a->head_dim) ? attention_sums_bytes(a) : 0;
}

/* FP8 attention emulated: the codes of qkv and, behind them, of the gradient of the output as
 * BF16. */
static inline int64_t attention_qkv_wide_bytes(const struct attention_size *a) {
    int64_t heads = a->heads + 2 * a->kv_heads;
    return round_up(a->batch * a->length * heads * a->head_dim * 2, 256);
}
static inline int64_t attention_wide_bytes(const struct attention_size *a) {
    return attention_qkv_wide_bytes(a) + a->batch * a->length * a->heads * a->head_dim * 2;
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

/* The same for terms of 8 bits: elements in one piece; bytes from one rank's codes to the next
 * one's. The terms to send take as much as those received. */
static inline int64_t collective_codes_piece(int64_t slice, int world) {
    return collective_piece(slice, world, 4);
}
static inline int64_t collective_codes_stride(int64_t slice, int world) {
    return round_up(comm_codes_bytes(collective_codes_piece(slice, world)), 256);
}

/* ---- GEMM ---- */

/* Elements along K that share a factor; 0: all of them. */
static inline int64_t scale_block(enum scale_kind kind) {
    if (kind == SCALE_1X128 || kind == SCALE_128X128) return 128;
    if (scale_is_nvfp4(kind)) return 16;
    return kind == SCALE_1X32 || kind == SCALE_32X32 ? 32 : 0;
}

/* Whether cuBLASLt 13 multiplies operands of these scales directly on a device of compute
 * capability `cc` (90: 9.0). Otherwise they are widened first. m, n: of the product. */
static inline bool gemm_is_native(int cc, enum scale_kind a, enum scale_kind b, int64_t m,
                                  int64_t n) {
    if (a == SCALE_TENSOR && b == SCALE_TENSOR) return cc >= 89;
    if (cc != 90 || scale_block(a) == 32 || scale_block(a) == 16) return false;
    /* Block factors are laid out in rows of `outer`, which must then be padded by nothing. */
    bool one_dimensional = a == SCALE_1X128 || b == SCALE_1X128;
    return !one_dimensional || (m % 8 == 0 && n % 8 == 0);
}

#endif
