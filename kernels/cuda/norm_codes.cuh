/* FP8 codes with one known scale, made by the pass of a norm over its rows. The transposed codes
 * are the same codes: a second pass transposes them, with most of them still in the L2 cache. That
 * moves 1 byte an element in the first pass and at most 2 in the second, instead of the 4 of a pass
 * over stored values. */
#ifndef FP8LAB_KERNELS_CUDA_NORM_CODES_CUH
#define FP8LAB_KERNELS_CUDA_NORM_CODES_CUH

#include "kernels/cuda/cast_tile.cuh"

struct row_codes {
    uint8_t *to;               /* rows without padding; NULL: no codes */
    const float *multiplier;   /* [1] */
    unsigned long long *stats; /* [2] or NULL */
};

/* True if a pass over rows may make these codes, in format `code`. The sink has passed
 * cast_fuses. */
static inline bool codes_by_rows(const struct sink *s, enum dtype code) {
    return s->source == SCALE_SOURCE_KNOWN && s->codes->data && s->codes->dtype == code &&
           s->codes->scale.kind == SCALE_TENSOR;
}

static inline struct row_codes row_codes_of(const struct sink *s) {
    return { (uint8_t *)s->codes->data, (const float *)s->multiplier->data,
             s->stats ? (unsigned long long *)s->stats->data : NULL };
}

/* Eight values into codes number `at` and following. They are counted one by one only if some may
 * saturate or vanish. */
template <bool E5M2>
__device__ static inline void put_codes(const struct row_codes &c, int64_t at, uint4 v, float m,
                                        struct counts &n) {
    const float eight[PATCH] = { m, m, m, m, m, m, m, m };
    float x[PATCH];
    bf16x8_decode(x, v);
    if (c.stats) {
        uint32_t top = bf16x8_largest(v), least = bf16x8_least(v, 0x7FFF7FFFu);
        top = max(top & 0xFFFFu, top >> 16);
        least = min(least & 0xFFFFu, least >> 16);
        bool rare = !(f32_from_bits(top << 16) * m <= fp8_max_of(E5M2)) ||
                    !(f32_from_bits(least << 16) * m > fp8_vanishes_of(E5M2));
#pragma unroll
        for (int i = 0; rare && i < PATCH; i++) {
            float product = fabsf(x[i] * m);
            n.saturated += product > fp8_max_of(E5M2);
            n.underflow += x[i] != 0.0f && product <= fp8_vanishes_of(E5M2);
        }
    }
    *(uint2 *)(c.to + at) = encode_products<E5M2>(x, eight);
}

/* All threads call it, once. */
__device__ static inline void add_row_counts(const struct row_codes &c, struct counts n) {
    struct tile_args counted = {};
    counted.stats = c.stats;
    if (c.stats) add_counts(counted, n);
}

static inline enum status transpose_row_codes(struct backend *b, int lane, const struct sink *s,
                                              struct err *e) {
    const struct tensor *codes = s->codes;
    if (!codes->transposed) return OK;
    struct tensor view = *codes;
    view.dim[0] = codes->dim[1];
    view.dim[1] = codes->dim[0];
    view.stride[0] = codes->stride[1];
    view.stride[1] = codes->stride[0];
    return cuda_transpose(b, lane, codes->transposed, &view, e);
}

#endif
