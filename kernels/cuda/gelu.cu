/* GPT-2's GELU and its gradient. With u = sqrt(2/pi) (x + 0.044715 x^3) and s = 1 / (1 + e^-2u),
 * which is (1 + tanh u) / 2 without its cancellation:  h = x s,   dx = dh (s + 2 x s (1 - s) u').
 *
 * Eight elements a thread; bound by memory: 4 bytes an element forward, 6 backward. The reference's
 * exact tanh takes four times as long as the memory traffic (measured: 343 us for 86). So the
 * device's own exp and division are used (2 ulp each). BF16 outputs hide the difference except at a
 * rounding boundary. EXACT: exactmath_fma.h's, which the CPU has too. If the scales need no earlier
 * pass (casts_by_tile), the same kernel makes the codes, and backward also the column sums. The
 * value is stored only if keep_value is set. */
#include "kernels/cuda/cast_sums.cuh"

static constexpr float SQRT_2_OVER_PI = 0.79788456f, CUBIC = 0.044715f;

/* (1 + tanh u) / 2; 0 where e^-2u overflows. */
__device__ static float sigmoid_2u(float x, float square) {
    float u = SQRT_2_OVER_PI * (x + CUBIC * (x * square));
    return fast_inverse(1.0f + fast_exp(-2.0f * u));
}

template <bool EXACT> __device__ static float gelu(float x) {
    return EXACT ? fma_gelu(x) : x * sigmoid_2u(x, x * x);
}

template <bool EXACT> __device__ static float gelu_slope(float x) {
    if (EXACT) return fma_gelu_slope(x);
    float square = x * x, s = sigmoid_2u(x, square);
    float slope = SQRT_2_OVER_PI * (1.0f + (3.0f * CUBIC) * square);
    /* s (1 - s) vanishes long before x^2 overflows: this avoids 0 * infinity. */
    float sigmoid_slope = s * (1.0f - s);
    float tail = sigmoid_slope == 0.0f ? 0.0f : ((2.0f * x) * sigmoid_slope) * slope;
    return s + tail;
}

/* out = gelu(x), or dh * gelu'(x) if dh is not NULL. */
template <int N, bool EXACT>
__global__ void gelu_kernel(bf16_bits *out, const bf16_bits *x, int64_t ld, const bf16_bits *dh,
                            int64_t ld_dh, int64_t rows, int64_t width, uint32_t *amax) {
    int64_t across = width / N, step = (int64_t)gridDim.x * blockDim.x;
    uint32_t top = 0;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < rows * across; i += step) {
        int64_t row = i / across, col = i % across * N;
        float v[N], g[N];
        load_bf16(v, x + row * ld + col);
        if (dh) load_bf16(g, dh + row * ld_dh + col);
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = dh ? g[j] * gelu_slope<EXACT>(v[j]) : gelu<EXACT>(v[j]);
        top = max(top, store_bf16(out + row * width + col, v));
    }
    block_amax_into(amax, top);
}

/* The same for the tiles of cast_tile_kernel. */
template <bool FORWARD, bool EXACT> struct gelu_values {
    enum { MADE = 1, BLOCKS = FORWARD ? 3 : 2 };
    struct raw { uint4 x, dh; };
    const bf16_bits *x, *dh;
    int64_t ld, ld_dh;
    bf16_bits *value; /* NULL: not kept; packed rows of `width` */
    int64_t width;
    __device__ struct raw load(int64_t row, int64_t col) const {
        struct raw r = {};
        r.x = *(const uint4 *)(x + row * ld + col);
        if (!FORWARD) r.dh = *(const uint4 *)(dh + row * ld_dh + col);
        return r;
    }
    __device__ void make(uint4 (&out)[PATCH], const struct raw (&r)[PATCH], int64_t,
                         int64_t) const {
#pragma unroll
        for (int j = 0; j < PATCH; j++) {
            float v[8], g[8];
            bf16x8_decode(v, r[j].x);
            bf16x8_decode(g, r[j].dh);
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = FORWARD ? gelu<EXACT>(v[i]) : g[i] * gelu_slope<EXACT>(v[i]);
            out[j] = bf16x8_pack(v);
        }
    }
    __device__ void keep(uint4 out, int64_t row, int64_t col) const {
        if (value) store_words(value + row * width + col, out);
    }
};

template <bool FORWARD, bool EXACT>
static enum status launch_tiles(struct backend *b, int lane, const struct sink *out,
                                const struct tensor *x, const struct tensor *dh, struct err *e) {
    struct gelu_values<FORWARD, EXACT> from = {
        (const bf16_bits *)x->data, dh ? (const bf16_bits *)dh->data : NULL, x->stride[0],
        dh ? dh->stride[0] : 0, out->keep_value ? sink_value_of(out) : NULL, tensor_cols(x)
    };
    struct tile_args a = tile_args_of(out, sink_amax(out));
    if constexpr (!FORWARD)
        if (out->sums) return cast_tiles_summed(b, lane, out, a, from, "gelu_bwd", e);
    return cast_tiles<true>(b, lane, out, a, from, e);
}

/* The gradient as a term of column sums; the term also stores it. */
template <bool EXACT> struct gelu_grad_term {
    bf16_bits *out;
    const bf16_bits *x, *dh;
    int64_t width, ld, ld_dh;
    template <int N> __device__ void operator()(int64_t row, int64_t col, float (&v)[N]) const {
        float g[N];
        load_bf16(v, x + row * ld + col);
        load_bf16(g, dh + row * ld_dh + col);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = g[i] * gelu_slope<EXACT>(v[i]);
        if constexpr (N == 8) {
            uint4 stored = bf16x8_encode(v);
            store_words(out + row * width + col, stored);
            bf16x8_decode(v, stored);
        } else {
#pragma unroll
            for (int i = 0; i < N; i++) {
                out[row * width + col + i] = bf16_encode(v[i]);
                v[i] = bf16_decode(out[row * width + col + i]);
            }
        }
    }
};

template <bool EXACT>
static enum status launch(struct backend *b, int lane, const struct sink *out,
                          const struct tensor *x, const struct tensor *dh, const char *what,
                          struct err *e) {
    int64_t rows = tensor_rows(x), width = tensor_cols(x);
    bool vectors = tensor_is_vectors(x) && (!dh || tensor_is_vectors(dh)) &&
                   rows_are_vectors(out->value->data, width, width);
    if (vectors && casts_by_tile(out) && (dh || !out->sums))
        return dh ? launch_tiles<false, EXACT>(b, lane, out, x, dh, e)
                  : launch_tiles<true, EXACT>(b, lane, out, x, dh, e);
    if (dh && out->sums) {
        struct gelu_grad_term<EXACT> term = { sink_value_of(out), (const bf16_bits *)x->data,
                                              (const bf16_bits *)dh->data, width, x->stride[0],
                                              dh->stride[0] };
        struct sink rest = *out;
        rest.sums = NULL;
        TRY(column_sums(b, lane, out->sums, term, rows, width, vectors, sink_amax(out), what, e));
        return cuda_sink_emit(b, lane, &rest, true, e);
    }
    auto kernel = vectors ? gelu_kernel<8, EXACT> : gelu_kernel<1, EXACT>;
    kernel<<<grid_for(b, rows * width, vectors ? 2048 : 256), 256, 0, cuda_lane(b, lane)>>>(
        sink_value_of(out), (const bf16_bits *)x->data, x->stride[0],
        dh ? (const bf16_bits *)dh->data : NULL, dh ? dh->stride[0] : 0, rows, width,
        sink_amax(out));
    TRY(cuda_launched(what, e));
    return cuda_sink_emit(b, lane, out, true, e);
}

enum status cuda_gelu_fwd(struct backend *b, int lane, const struct sink *h, const struct tensor *x,
                          struct err *e) {
    TRY(cuda_check(x, "gelu_fwd: x", IS_BF16, -1, -1, e));
    TRY(cuda_check_sink(h, "gelu_fwd: h", tensor_rows(x), tensor_cols(x), e));
    auto run = cuda_of(b)->exact ? launch<true> : launch<false>;
    return run(b, lane, h, x, NULL, "gelu_fwd", e);
}

enum status cuda_gelu_bwd(struct backend *b, int lane, const struct sink *dx,
                          const struct tensor *dh, const struct tensor *x, struct err *e) {
    TRY(cuda_check(x, "gelu_bwd: x", IS_BF16, -1, -1, e));
    TRY(cuda_check(dh, "gelu_bwd: dh", IS_BF16, tensor_rows(x), tensor_cols(x), e));
    TRY(cuda_check_sink(dx, "gelu_bwd: dx", tensor_rows(x), tensor_cols(x), e));
    auto run = cuda_of(b)->exact ? launch<true> : launch<false>;
    return run(b, lane, dx, x, dh, "gelu_bwd", e);
}
