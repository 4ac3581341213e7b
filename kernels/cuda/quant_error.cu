/* quant_error: what a cast to FP8 kept of a tensor, and what it lost; the reference's order of
 * sums, so its bits.
 *
 * Bound by memory: 2 bytes of value and 1 of code an element. Only some steps call it. f64 keeps
 * the squares of any gradient; a thread has two sums. */
#include "kernels/cuda/quantise.cuh"
#include "kernels/nvfp4.h"
#include "kernels/transposed.h"

enum { STRIP = 8, GROUP = 8, LANES = 256 };

struct error_args {
    const bf16_bits *x;
    const uint8_t *codes;
    const void *scale;
    int64_t rows, cols, ld_row, ld_col, ld_codes, scale_cols;
    int kind;
    enum dtype code;
    bool vectors, untransposed; /* untransposed: codes of a row are ld_codes apart */
};
struct sums { double signal, noise; };

__device__ static float factor_at(const struct error_args &a, int64_t row, int64_t col) {
    bool mx = a.kind == SCALE_1X32 || a.kind == SCALE_32X32;
    bool nvfp4 = a.kind == SCALE_1X16 || a.kind == SCALE_16X16;
    bool square = a.kind == SCALE_128X128 || a.kind == SCALE_32X32 || a.kind == SCALE_16X16;
    int64_t block = nvfp4 ? NVFP4_BLOCK : mx ? 32 : 128, at = 0;
    if (a.kind == SCALE_ROW) at = row;
    else if (a.kind != SCALE_TENSOR) at = (square ? row / block : row) * a.scale_cols + col / block;
    if (nvfp4)
        return e4m3_decode_inline(((const uint8_t *)a.scale)[SCALE_HEADER + at]) *
               nvfp4_tensor_factor(*(const float *)a.scale);
    return mx ? e8m0_decode_inline(((const uint8_t *)a.scale)[at]) : ((const float *)a.scale)[at];
}

/* n codes of a row, of an untransposed twin. */
__device__ static uint2 codes_across(const struct error_args &a, int64_t row, int64_t col, int n) {
    uint32_t word[2] = { 0, 0 };
    for (int j = 0; j < n; j++)
        word[j / 4] |= (uint32_t)a.codes[(col + j) * a.ld_codes + row] << j % 4 * 8;
    return make_uint2(word[0], word[1]);
}

/* The sum of all threads' sums, in thread 0. */
__device__ static struct sums join(struct sums mine, struct sums *shared) {
    shared[threadIdx.x] = mine;
    for (int half = LANES / 2; half; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x >= half) continue;
        shared[threadIdx.x].signal += shared[threadIdx.x + half].signal;
        shared[threadIdx.x].noise += shared[threadIdx.x + half].noise;
    }
    return shared[threadIdx.x];
}

/* Grid: a block for each strip of rows; a thread is a lane, and reads eight elements at a time. */
__global__ void __launch_bounds__(LANES)
    quant_error_kernel(struct sums *out, const __grid_constant__ struct error_args a) {
    __shared__ struct sums shared[LANES];
    int64_t row0 = (int64_t)blockIdx.x * STRIP, across = (a.cols + GROUP - 1) / GROUP;
    int64_t rows = a.rows - row0 < STRIP ? a.rows - row0 : STRIP;
    struct sums mine = { 0.0, 0.0 };
    for (int64_t group = threadIdx.x; group < rows * across; group += LANES) {
        int64_t row = row0 + group / across, col = group % across * GROUP;
        int n = a.cols - col < GROUP ? (int)(a.cols - col) : GROUP;
        const bf16_bits *from = a.x + row * a.ld_row + col * a.ld_col;
        uint2 packed = a.untransposed ? codes_across(a, row, col, n)
                                      : *(const uint2 *)(a.codes + row * a.ld_codes + col);
        float factor = factor_at(a, row, col), x[GROUP];
        if (a.vectors) load_bf16<GROUP>(x, from);
        else
#pragma unroll
            for (int j = 0; j < GROUP; j++)
                x[j] = j < n ? bf16_decode(from[j * a.ld_col]) : 0.0f;
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            if (j >= n) break;
            uint32_t word = j < 4 ? packed.x : packed.y;
            float back = code_decode_of(a.code, (uint8_t)(word >> (j % 4 * 8))) * factor;
            double value = (double)x[j], lost = value - (double)back;
            mine.signal += value * value;
            mine.noise += lost * lost;
        }
    }
    mine = join(mine, shared);
    if (threadIdx.x == 0) out[blockIdx.x] = mine;
}

/* One block: the strips' sums into the two results. */
__global__ void __launch_bounds__(LANES)
    quant_error_join_kernel(float *out, const struct sums *strip, int64_t strips) {
    __shared__ struct sums shared[LANES];
    struct sums mine = { 0.0, 0.0 };
    for (int64_t i = threadIdx.x; i < strips; i += LANES) {
        mine.signal += strip[i].signal;
        mine.noise += strip[i].noise;
    }
    mine = join(mine, shared);
    if (threadIdx.x) return;
    out[0] = f32_canonical(out[0] + (float)mine.signal);
    out[1] = f32_canonical(out[1] + (float)mine.noise);
}

static enum status check(const struct tensor *out, const struct tensor *x,
                         const struct tensor *codes, struct err *e) {
    TRY(cuda_check_packed(out, "quant_error: out", IS_F32, 2, 1, e));
    if (!codes) return FAIL(e, ERR_ARG, "quant_error: codes is missing");
    TRY(cuda_check_codes(codes, "quant_error: codes", codes->dim[0], codes->dim[1], e));
    if (!x || !x->data) return FAIL(e, ERR_ARG, "quant_error: x is missing");
    if (!is_transposed_view(x))
        return cuda_check_packed(x, "quant_error: x", IS_BF16, codes->dim[0], codes->dim[1], e);
    struct tensor stored = tensor_transposed(x); /* its rows are contiguous */
    return cuda_check_packed(&stored, "quant_error: x", IS_BF16, codes->dim[1], codes->dim[0], e);
}

enum status cuda_quant_error(struct backend *b, int lane, const struct tensor *out,
                             const struct tensor *x, const struct tensor *codes, struct err *e) {
    TRY(check(out, x, codes, e));
    int64_t strips = ceil_div(codes->dim[0], STRIP);
    if (strips > INT32_MAX)
        return FAIL(e, ERR_ARG, "quant_error: %lld rows", (long long)codes->dim[0]);
    struct error_args a = {};
    a.x = (const bf16_bits *)x->data;
    a.codes = (const uint8_t *)codes->data;
    a.scale = codes->scale.data;
    a.rows = codes->dim[0];
    a.cols = codes->dim[1];
    a.ld_row = x->stride[0];
    a.ld_col = x->stride[1];
    a.ld_codes = fp8_line(codes);
    a.untransposed = fp8_is_untransposed(codes);
    a.scale_cols = codes->scale.dim[1];
    a.kind = codes->scale.kind;
    a.code = codes->dtype;
    a.vectors = a.ld_col == 1 && rows_are_vectors(a.x, a.cols, a.ld_row);
    void *partial;
    cudaStream_t stream = cuda_lane(b, lane);
    TRY(cuda_scratch(b, lane, SCRATCH_PARTIAL, max_i64(1, strips) * (int64_t)sizeof(struct sums),
                     &partial, e));
    if (strips)
        quant_error_kernel<<<(unsigned)strips, LANES, 0, stream>>>((struct sums *)partial, a);
    TRY(cuda_launched("quant_error", e));
    quant_error_join_kernel<<<1, LANES, 0, stream>>>((float *)out->data,
                                                     (const struct sums *)partial, strips);
    return cuda_launched("quant_error", e);
}
