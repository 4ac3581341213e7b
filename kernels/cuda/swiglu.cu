/* h = silu(gate) * up and its gradient.
 *
 * Eight elements a thread. Bound by memory: forward 6 bytes an element of h, backward 10. The
 * reference's exact exp and division take longer than the memory traffic (measured: 231 us, 128
 * us). So the device's own are used (2 ulp each). BF16 outputs hide the difference except at a
 * rounding boundary. EXACT: exactmath_fma.h's instead, which the CPU has too.
 *
 * If the scales need no earlier pass (cast_fuses), the same kernel makes the codes, and the value
 * is stored only if keep_value is set. An element of h then moves 6 bytes forward instead of 10,
 * and 10 backward instead of 18. If the scales need the amax, backward runs twice and stores no
 * value (16 bytes). */
#include "kernels/cuda/cast_pair.cuh"

/* 1 / (1 + e^-x); 0 where e^-x overflows. */
template <bool EXACT> __device__ static float sigmoid(float x) {
    return EXACT ? fma_sigmoidf(x) : fast_inverse(1.0f + fast_exp(-x));
}

template <bool EXACT, int N>
__device__ static void swiglu(float (&out)[N], const float (&gate)[N], const float (&up)[N]) {
#pragma unroll
    for (int j = 0; j < N; j++) out[j] = swiglu_of(gate[j], up[j], sigmoid<EXACT>(gate[j]));
}
template <bool EXACT, int N>
__device__ static void d_gate_of(float (&out)[N], const float (&gate)[N], const float (&up)[N],
                                 const float (&dh)[N]) {
#pragma unroll
    for (int j = 0; j < N; j++)
        out[j] = swiglu_d_gate(gate[j], up[j], dh[j], sigmoid<EXACT>(gate[j]));
}
template <bool EXACT, int N>
__device__ static void d_up_of(float (&out)[N], const float (&gate)[N], const float (&dh)[N]) {
#pragma unroll
    for (int j = 0; j < N; j++) out[j] = swiglu_d_up(gate[j], dh[j], sigmoid<EXACT>(gate[j]));
}

template <int N, bool EXACT>
__global__ void swiglu_fwd_kernel(bf16_bits *h, const bf16_bits *gate_up, int64_t ld, int64_t rows,
                                  int64_t width, uint32_t *amax) {
    int64_t across = width / N, step = (int64_t)gridDim.x * blockDim.x;
    uint32_t top = 0;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < rows * across; i += step) {
        int64_t row = i / across, col = i % across * N;
        float gate[N], up[N];
        load_bf16(gate, gate_up + row * ld + col);
        load_bf16(up, gate_up + row * ld + width + col);
        swiglu<EXACT>(gate, gate, up);
        top = max(top, store_bf16(h + row * width + col, gate));
    }
    block_amax_into(amax, top);
}

/* h for the tiles of cast_tile_kernel. */
template <bool EXACT> struct swiglu_values {
    enum { MADE = 1, BLOCKS = 2 }; /* three would spill */
    struct raw { uint4 gate, up; };
    const bf16_bits *gate_up;
    int64_t ld, width;
    bf16_bits *value; /* NULL: not kept */
    __device__ struct raw load(int64_t row, int64_t col) const {
        const bf16_bits *at = gate_up + row * ld + col;
        return { *(const uint4 *)at, *(const uint4 *)(at + width) };
    }
    __device__ void make(uint4 (&v)[PATCH], const struct raw (&r)[PATCH], int64_t, int64_t) const {
#pragma unroll
        for (int j = 0; j < PATCH; j++) {
            float gate[8], up[8];
            bf16x8_decode(gate, r[j].gate);
            bf16x8_decode(up, r[j].up);
            swiglu<EXACT>(gate, gate, up);
            v[j] = bf16x8_pack(gate);
        }
    }
    __device__ void keep(uint4 v, int64_t row, int64_t col) const {
        if (value) store_words(value + row * width + col, v);
    }
};

template <bool EXACT>
static enum status forward(struct backend *b, int lane, const struct sink *h,
                           const struct tensor *gate_up, struct err *e) {
    TRY(cuda_check(gate_up, "swiglu_fwd: gate_up", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(gate_up), width = tensor_cols(gate_up) / 2;
    if (tensor_cols(gate_up) % 2)
        return FAIL(e, ERR_ARG, "swiglu_fwd: gate_up has %lld columns, which is odd",
                    (long long)tensor_cols(gate_up));
    TRY(cuda_check_sink(h, "swiglu_fwd: h", rows, width, e));
    bool vectors = tensor_is_vectors(gate_up) && rows_are_vectors(h->value->data, width, width);
    if (vectors && cast_fuses(h)) {
        struct swiglu_values<EXACT> from = { (const bf16_bits *)gate_up->data, gate_up->stride[0],
                                             width, h->keep_value ? sink_value_of(h) : NULL };
        return cast_tiles<true>(b, lane, h, tile_args_of(h, sink_amax(h)), from, e);
    }
    auto kernel = vectors ? swiglu_fwd_kernel<8, EXACT> : swiglu_fwd_kernel<1, EXACT>;
    kernel<<<grid_for(b, rows * width, vectors ? 2048 : 256), 256, 0, cuda_lane(b, lane)>>>(
        sink_value_of(h), (const bf16_bits *)gate_up->data, gate_up->stride[0], rows, width,
        sink_amax(h));
    TRY(cuda_launched("swiglu_fwd", e));
    return cuda_sink_emit(b, lane, h, true, e);
}

/* d may be gate_up: a thread reads both of its places before it writes them. d may be NULL if only
 * the amax is wanted. */
template <int N, bool EXACT>
__global__ void swiglu_bwd_kernel(bf16_bits *d, const bf16_bits *dh, int64_t ld_dh,
                                  const bf16_bits *gate_up, int64_t ld, int64_t rows, int64_t width,
                                  uint32_t *amax) {
    int64_t across = width / N, step = (int64_t)gridDim.x * blockDim.x;
    uint32_t top = 0;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < rows * across; i += step) {
        int64_t row = i / across, col = i % across * N;
        float gate[N], up[N], g[N], d_gate[N];
        load_bf16(gate, gate_up + row * ld + col);
        load_bf16(up, gate_up + row * ld + width + col);
        load_bf16(g, dh + row * ld_dh + col);
        d_gate_of<EXACT>(d_gate, gate, up, g);
        d_up_of<EXACT>(up, gate, g);
        bf16_bits *to = d ? d + row * 2 * width + col : NULL;
        top = max(top, put_bf16(to, d_gate));
        top = max(top, put_bf16(to ? to + width : NULL, up));
    }
    block_amax_into(amax, top);
}

/* d_gate_up for the pairs of cast_pair_kernel: a tile of d_gate and the tile of d_up beside it. */
template <bool EXACT> struct swiglu_grads {
    enum { BLOCKS = 2 };
    struct raw { uint4 gate, up, dh; };
    const bf16_bits *dh, *gate_up;
    int64_t ld_dh, ld, width;
    bf16_bits *value; /* NULL: not kept */
    __device__ struct raw load(int64_t row, int64_t col) const {
        const bf16_bits *at = gate_up + row * ld + col;
        return { *(const uint4 *)at, *(const uint4 *)(at + width),
                 *(const uint4 *)(dh + row * ld_dh + col) };
    }
    __device__ void make(uint4 (&v)[2], struct raw r) const {
        float gate[8], up[8], g[8], d_gate[8];
        bf16x8_decode(gate, r.gate);
        bf16x8_decode(up, r.up);
        bf16x8_decode(g, r.dh);
        d_gate_of<EXACT>(d_gate, gate, up, g);
        d_up_of<EXACT>(up, gate, g);
        v[0] = bf16x8_pack(d_gate);
        v[1] = bf16x8_pack(up);
    }
    __device__ void keep(uint4 v, int64_t row, int64_t col) const {
        if (value) store_words(value + row * 2 * width + col, v);
    }
};

template <bool EXACT>
static enum status backward(struct backend *b, int lane, const struct sink *d_gate_up,
                            const struct tensor *dh, const struct tensor *gate_up, struct err *e) {
    TRY(cuda_check(dh, "swiglu_bwd: dh", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(dh), width = tensor_cols(dh);
    TRY(cuda_check(gate_up, "swiglu_bwd: gate_up", IS_BF16, rows, 2 * width, e));
    TRY(cuda_check_sink(d_gate_up, "swiglu_bwd: d_gate_up", rows, 2 * width, e));
    bool vectors = tensor_is_vectors(gate_up) && tensor_is_vectors(dh) &&
                   rows_are_vectors(d_gate_up->value->data, width, width);
    bool tiles = vectors && width % TILE == 0, repeated = tiles && cast_repeats(d_gate_up);
    bool fused = tiles && cast_fuses(d_gate_up);
    if (!fused) {
        auto kernel = vectors ? swiglu_bwd_kernel<8, EXACT> : swiglu_bwd_kernel<1, EXACT>;
        kernel<<<grid_for(b, rows * width, vectors ? 2048 : 256), 256, 0, cuda_lane(b, lane)>>>(
            repeated ? NULL : sink_value_of(d_gate_up), (const bf16_bits *)dh->data, dh->stride[0],
            (const bf16_bits *)gate_up->data, gate_up->stride[0], rows, width,
            sink_amax(d_gate_up));
        TRY(cuda_launched("swiglu_bwd", e));
    }
    if (!fused && !repeated) return cuda_sink_emit(b, lane, d_gate_up, true, e);
    struct swiglu_grads<EXACT> from = {
        (const bf16_bits *)dh->data, (const bf16_bits *)gate_up->data, dh->stride[0],
        gate_up->stride[0], width, d_gate_up->keep_value ? sink_value_of(d_gate_up) : NULL
    };
    struct tile_args codes = tile_args_of(d_gate_up, fused ? sink_amax(d_gate_up) : NULL);
    codes.backwards = repeated; /* the last rows may still be in the L2 cache */
    return cast_pairs(b, lane, d_gate_up, codes, from, e);
}

enum status cuda_swiglu_fwd(struct backend *b, int lane, const struct sink *h,
                            const struct tensor *gate_up, struct err *e) {
    auto run = cuda_of(b)->exact ? forward<true> : forward<false>;
    return run(b, lane, h, gate_up, e);
}

enum status cuda_swiglu_bwd(struct backend *b, int lane, const struct sink *d_gate_up,
                            const struct tensor *dh, const struct tensor *gate_up, struct err *e) {
    auto run = cuda_of(b)->exact ? backward<true> : backward<false>;
    return run(b, lane, d_gate_up, dh, gate_up, e);
}
