/* Sinks: FP8 codes from BF16 values in one pass over tiles (cast_tile.cuh), maxima of tensors and
 * of lines, and dequantisation. */
#include "kernels/cuda/cast_tile.cuh"
#include "kernels/cuda/columns.cuh"
#include "kernels/nvfp4.h"
#include "kernels/transposed.h"

/* Stored values: with 16-byte loads where rows allow them, and element by element. */
struct stored_vectors {
    enum { MADE = 0, BLOCKS = 3 }; /* measured: 2 and 4 are slower */
    struct raw { uint4 v; };
    const bf16_bits *x;
    int64_t ld;
    __device__ struct raw load(int64_t row, int64_t col) const {
        return { *(const uint4 *)(x + row * ld + col) };
    }
    __device__ void make(uint4 (&v)[PATCH], const struct raw (&r)[PATCH], int64_t, int64_t) const {
#pragma unroll
        for (int j = 0; j < PATCH; j++) v[j] = r[j].v;
    }
    __device__ void keep(uint4, int64_t, int64_t) const {}
};
struct stored_scalars {
    enum { MADE = 0, BLOCKS = 3 };
    struct raw { uint4 v; };
    const bf16_bits *x;
    int64_t ld; /* and the number of columns */
    __device__ struct raw load(int64_t row, int64_t col) const {
        uint32_t word[4] = { 0, 0, 0, 0 };
#pragma unroll
        for (int i = 0; i < PATCH; i++)
            if (col + i < ld) word[i / 2] |= (uint32_t)x[row * ld + col + i] << (i % 2 * 16);
        return { make_uint4(word[0], word[1], word[2], word[3]) };
    }
    __device__ void make(uint4 (&v)[PATCH], const struct raw (&r)[PATCH], int64_t, int64_t) const {
#pragma unroll
        for (int j = 0; j < PATCH; j++) v[j] = r[j].v;
    }
    __device__ void keep(uint4, int64_t, int64_t) const {}
};

/* Maxima of whole rows and columns, which SCALE_ROW needs before the first code. Same grid. */
template <class Stored>
__global__ void __launch_bounds__(TILE_THREADS) line_amax_kernel(struct tile_args a, Stored from) {
    __shared__ struct tile_shared s;
    struct tile_at at = tile_of(a, a.cols);
    int64_t row0 = at.row0 + patch_row(), col0 = at.col0 + patch_col();
    uint4 v[PATCH];
#pragma unroll
    for (int j = 0; j < PATCH; j++) {
        v[j] = make_uint4(0, 0, 0, 0);
        if (row0 + j < a.rows && col0 < a.cols) v[j] = from.load(row0 + j, col0).v;
    }
    lines_maxima(v, range_of(v), s);
    __syncthreads();
    int line = threadIdx.x % TILE;
    bool transposed = threadIdx.x >= TILE;
    const struct code_side &side = transposed ? a.col : a.row;
    int64_t at_line = (transposed ? at.col0 : at.row0) + line;
    if (!side.line_amax || at_line >= (transposed ? a.cols : a.rows)) return;
    uint32_t top = transposed ? line_top(s.col_max, line, 0, SEGMENTS)
                              : line_top(s.row_max, line, 0, SEGMENTS);
    if (top) atomicMax(&side.line_amax[at_line], top << 16);
}

/* The largest |x| bits of n packed values, into one slot. */
__global__ void amax_kernel(uint32_t *amax, const bf16_bits *x, int64_t n) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    int64_t start = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    const uint32_t magnitude = 0x7FFF7FFFu;
    uint32_t top = 0;
    for (int64_t i = start; i < n / 8; i += step) {
        uint4 v = ((const uint4 *)x)[i];
        top = __vmaxu2(top, __vmaxu2(__vmaxu2(v.x & magnitude, v.y & magnitude),
                                     __vmaxu2(v.z & magnitude, v.w & magnitude)));
    }
    top = max(top & 0xFFFFu, top >> 16);
    if (start < n % 8) top = max(top, (uint32_t)x[n / 8 * 8 + start] & 0x7FFFu);
    block_amax_into(amax, top << 16);
}

/* Transposes existing codes: makes the twin when codes are gathered. */
__global__ void __launch_bounds__(TILE_THREADS, 3) transpose_kernel(struct tile_args a) {
    __shared__ struct tile_shared s;
    struct tile_at at = tile_of(a, a.cols);
    int64_t row = at.row0 + patch_row(), col = at.col0 + patch_col();
    uint2 codes[PATCH];
#pragma unroll
    for (int j = 0; j < PATCH; j++)
        codes[j] = row + j < a.rows && col < a.cols
                       ? *(const uint2 *)(a.row.codes + (row + j) * a.row.ld + col)
                       : make_uint2(0, 0);
    store_transposed<false>(a, at, s, codes);
}

/* ---- launchers ---- */

static struct code_side side_of(const struct tensor *codes) {
    struct code_side side = {};
    if (!codes || !codes->data) return side;
    side.codes = (uint8_t *)codes->data;
    side.scale = codes->scale.data;
    side.ld = fp8_line(codes);
    side.untransposed = fp8_is_untransposed(codes);
    side.scale_cols = codes->scale.dim[1];
    side.kind = codes->scale.kind;
    return side;
}

static bool kind_is(const struct code_side *side, int kind, int other) {
    return side->codes && (side->kind == kind || side->kind == other);
}

struct tile_args tile_args_of(const struct sink *s, uint32_t *amax) {
    struct tile_args a = {};
    a.rows = s->codes->dim[0];
    a.cols = s->codes->dim[1];
    a.row = side_of(s->codes);
    a.col = side_of(s->codes->transposed);
    if (a.col.untransposed) a.row.ld = a.col.ld; /* the same; without rows it is not set */
    if (s->source == SCALE_SOURCE_KNOWN) a.multiplier = (const float *)s->multiplier->data;
    if (s->source == SCALE_SOURCE_AMAX) a.tensor_amax = (const uint32_t *)s->amax->data;
    a.amax = amax;
    a.stats = s->stats ? (unsigned long long *)s->stats->data : NULL;
    a.rule = s->rule;
    a.line_maxima = kind_is(&a.row, SCALE_1X128, SCALE_1X32) ||
                    kind_is(&a.col, SCALE_1X128, SCALE_1X32);
    a.square_maxima = kind_is(&a.row, SCALE_128X128, SCALE_32X32) ||
                      kind_is(&a.col, SCALE_128X128, SCALE_32X32);
    return a;
}

enum status tile_count(const struct sink *s, const struct tile_args *a, unsigned *tiles,
                       struct err *e) {
    int64_t n = ceil_div(a->rows, TILE) * ceil_div(a->cols, TILE);
    if (n > INT32_MAX) return FAIL(e, ERR_ARG, "quantise: %lld tiles", (long long)n);
    if (a->row.codes && a->col.codes && s->codes->dtype != s->codes->transposed->dtype)
        return FAIL(e, ERR_ARG, "quantise: codes in %s, transposed codes in %s",
                    dtype_name(s->codes->dtype), dtype_name(s->codes->transposed->dtype));
    *tiles = (unsigned)n;
    return OK;
}

static enum status launch_amax(struct backend *b, int lane, uint32_t *amax, const struct tensor *x,
                               struct err *e) {
    if ((uintptr_t)x->data % 16)
        return FAIL(e, ERR_ARG, "a value with an amax must be 16-byte aligned");
    int64_t n = tensor_count(x);
    amax_kernel<<<grid_for(b, n, 256 * 32), 256, 0, cuda_lane(b, lane)>>>(
        amax, (const bf16_bits *)x->data, n);
    return cuda_launched("amax", e);
}

/* SCALE_ROW: zeroed maxima for each side that has it, then one pass that fills them. */
template <class Stored>
static enum status launch_line_amax(struct backend *b, int lane, const struct sink *s,
                                    struct tile_args *a, Stored from, struct err *e) {
    bool row = kind_is(&a->row, SCALE_ROW, SCALE_ROW), col = kind_is(&a->col, SCALE_ROW, SCALE_ROW);
    unsigned tiles;
    TRY(tile_count(s, a, &tiles, e));
    if ((!row && !col) || tiles == 0) return OK;
    void *lines;
    size_t bytes = (size_t)(a->rows + a->cols) * sizeof(uint32_t);
    TRY(cuda_scratch(b, lane, SCRATCH_AMAX, (int64_t)bytes, &lines, e));
    CUDA_TRY(e, cudaMemsetAsync(lines, 0, bytes, cuda_lane(b, lane)));
    if (row) a->row.line_amax = (uint32_t *)lines;
    if (col) a->col.line_amax = (uint32_t *)lines + a->rows;
    line_amax_kernel<<<tiles, TILE_THREADS, 0, cuda_lane(b, lane)>>>(*a, from);
    return cuda_launched("quantise", e);
}

bool cuda_is_transposed_copy(const struct tensor *out, const struct tensor *x) {
    bool aligned = (uintptr_t)out->data % 16 == 0 && (uintptr_t)x->data % 16 == 0;
    return aligned && dtype_is_fp8(x->dtype) && x->dim[2] * x->dim[3] == 1 && x->stride[0] == 1 &&
           out->stride[1] == 1 && x->dim[0] % PATCH == 0 && x->dim[1] % 16 == 0 &&
           x->stride[1] % PATCH == 0 && out->stride[0] % 16 == 0;
}

enum status cuda_transpose(struct backend *b, int lane, const struct tensor *out,
                      const struct tensor *x, struct err *e) {
    struct tile_args a = {};
    a.rows = x->dim[1]; /* x is the transposed view of the stored codes */
    a.cols = x->dim[0];
    a.row.codes = (uint8_t *)x->data;
    a.row.ld = x->stride[1];
    a.col.codes = (uint8_t *)out->data;
    a.col.ld = out->stride[0];
    int64_t tiles = ceil_div(a.rows, TILE) * ceil_div(a.cols, TILE);
    if (tiles > INT32_MAX) return FAIL(e, ERR_ARG, "copy: %lld tiles", (long long)tiles);
    transpose_kernel<<<(unsigned)tiles, TILE_THREADS, 0, cuda_lane(b, lane)>>>(a);
    return cuda_launched("copy", e);
}

template <bool WHOLE, class Stored>
static enum status launch_stored(struct backend *b, int lane, const struct sink *s,
                                 struct tile_args a, Stored from, struct err *e) {
    TRY(launch_line_amax(b, lane, s, &a, from, e));
    return cast_tiles<WHOLE>(b, lane, s, a, from, e);
}

static enum status launch_codes(struct backend *b, int lane, const struct sink *s, uint32_t *amax,
                                const int32_t *flag, struct err *e) {
    if (scale_is_nvfp4(codes_made(s)->scale.kind)) return cuda_nvfp4_codes(b, lane, s, e);
    struct tile_args a = tile_args_of(s, amax);
    a.flag = flag;
    a.backwards = true; /* the producer's last rows may still be in the L2 cache */
    struct stored_vectors vectors = { sink_value_of(s), a.cols };
    struct stored_scalars scalars = { sink_value_of(s), a.cols };
    if (!rows_are_vectors(s->value->data, a.cols, a.cols))
        return launch_stored<false>(b, lane, s, a, scalars, e);
    if (whole_tiles(a.rows, a.cols)) return launch_stored<true>(b, lane, s, a, vectors, e);
    return launch_stored<false>(b, lane, s, a, vectors, e);
}

/* The sums of a stored value, and its amax in the same read. */
static enum status emit_sums(struct backend *b, int lane, const struct sink *s, uint32_t *amax,
                             struct err *e) {
    int64_t cols = tensor_count(s->sums);
    if (cols == 0) return OK;
    struct value_term term = { sink_value_of(s), cols };
    return column_sums(b, lane, s->sums, term, tensor_count(s->value) / cols, cols,
                       rows_are_vectors(term.x, cols, cols), amax, "a sink's sums", e);
}

enum status cuda_sink_emit(struct backend *b, int lane, const struct sink *s, bool amax_done,
                           struct err *e) {
    uint32_t *amax = amax_done ? NULL : sink_amax(s);
    if (s->sums) TRY(emit_sums(b, lane, s, amax, e));
    if (s->sums) amax = NULL;
    if (s->source == SCALE_SOURCE_KNOWN || s->source == SCALE_SOURCE_BLOCK)
        return launch_codes(b, lane, s, amax, NULL, e);
    if (amax) TRY(launch_amax(b, lane, amax, s->value, e));
    if (s->source == SCALE_SOURCE_NONE || sink_waits(s)) return OK;
    return launch_codes(b, lane, s, NULL, NULL, e);
}

enum status cuda_sink_emit_gated(struct backend *b, int lane, const struct sink *s,
                                 const int32_t *flag, struct err *e) {
    if (s->source == SCALE_SOURCE_NONE || sink_waits(s)) return OK;
    return launch_codes(b, lane, s, NULL, flag, e);
}

enum status cuda_quantise(struct backend *b, int lane, const struct sink *out,
                          const struct tensor *x, struct err *e) {
    TRY(cuda_check(x, "quantise: x", IS_BF16, -1, -1, e));
    TRY(cuda_check_sink(out, "quantise: out", tensor_rows(x), tensor_cols(x), e));
    if (out->value->data != x->data) TRY(cuda_copy(b, lane, out->value, x, e));
    return cuda_sink_emit(b, lane, out, false, e);
}

enum status cuda_quantise_finish(struct backend *b, int lane, const struct sink *out,
                                 struct err *e) {
    if (!sink_waits(out)) return OK;
    return launch_codes(b, lane, out, NULL, NULL, e);
}

/* ---- back to BF16 ---- */

struct factor_view {
    const void *data;
    int64_t cols;
    int kind;
};

__device__ static float factor_at(const struct factor_view &f, int64_t row, int64_t col) {
    switch (f.kind) {
    case SCALE_TENSOR: return *(const float *)f.data;
    case SCALE_ROW: return ((const float *)f.data)[row];
    case SCALE_1X128: return ((const float *)f.data)[row * f.cols + col / 128];
    case SCALE_128X128: return ((const float *)f.data)[row / 128 * f.cols + col / 128];
    case SCALE_1X32: return e8m0_decode_inline(((const uint8_t *)f.data)[row * f.cols + col / 32]);
    case SCALE_32X32:
        return e8m0_decode_inline(((const uint8_t *)f.data)[row / 32 * f.cols + col / 32]);
    case SCALE_1X16:
    case SCALE_16X16: {
        int64_t down = f.kind == SCALE_1X16 ? row : row / NVFP4_BLOCK;
        const uint8_t *scales = (const uint8_t *)f.data + SCALE_HEADER;
        return e4m3_decode_inline(scales[down * f.cols + col / NVFP4_BLOCK]);
    }
    default: return 1.0f;
    }
}

/* Two codes of one word to f32. */
__device__ static inline void code_decode_pair(enum dtype t, uint32_t pair, float &low,
                                               float &high) {
#if __CUDA_ARCH__ >= 890
    if (t != DTYPE_E2M1) {
        uint32_t halves;
        uint16_t codes = (uint16_t)pair;
        if (t == DTYPE_E5M2) asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(codes));
        else asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
        float2 x = __half22float2(*(const __half2 *)&halves);
        low = x.x;
        high = x.y;
        return;
    }
#endif
    low = code_decode_of(t, (uint8_t)pair);
    high = code_decode_of(t, (uint8_t)(pair >> 8));
}

/* Sixteen codes a thread, which share a factor. Rows of codes are padded to 16, rows of out need
 * not be. Grid: threads along a row, then blocks of rows. UNTRANSPOSED: rows and cols are those of
 * the memory, the rows and columns of the factors are the other way round, and each code has its
 * own. */
enum { DEQUANTISE_ACROSS = 32, DEQUANTISE_DOWN = 8 };
template <bool UNTRANSPOSED>
__global__ void __launch_bounds__(DEQUANTISE_ACROSS * DEQUANTISE_DOWN)
    dequantise_kernel(bf16_bits *out, int64_t ld_out, bool vectors, const uint8_t *codes,
                      int64_t ld, int64_t rows, int64_t cols, struct factor_view f,
                      enum dtype code) {
    int64_t down = (int64_t)gridDim.x * DEQUANTISE_DOWN;
    for (int64_t row = blockIdx.x * (int64_t)DEQUANTISE_DOWN + threadIdx.y; row < rows; row += down)
        for (int64_t col = threadIdx.x * 16; col < cols; col += DEQUANTISE_ACROSS * 16) {
            uint4 packed = *(const uint4 *)(codes + row * ld + col);
            const uint32_t word[4] = { packed.x, packed.y, packed.z, packed.w };
            float factor = UNTRANSPOSED ? 1.0f : factor_at(f, row, col);
            bf16_bits *to = out + row * ld_out + col;
#pragma unroll
            for (int half = 0; half < 16; half += 8) {
                float x[8];
#pragma unroll
                for (int j = 0; j < 8; j += 2) {
                    uint32_t pair = word[(half + j) / 4] >> (j % 4 * 8);
                    code_decode_pair(code, pair & 0xFFFFu, x[j], x[j + 1]);
                    x[j] *= factor;
                    x[j + 1] *= factor;
                }
                for (int j = 0; UNTRANSPOSED && j < 8 && col + half + j < cols; j++)
                    x[j] *= factor_at(f, col + half + j, row);
                if (vectors && col + half < cols) store_bf16<8>(to + half, x);
                for (int j = 0; !vectors && j < 8 && col + half + j < cols; j++)
                    to[half + j] = bf16_encode(x[j]);
            }
        }
}

enum status cuda_dequantise(struct backend *b, int lane, const struct tensor *out,
                            const struct tensor *codes, struct err *e) {
    bool untransposed = codes->data && fp8_is_untransposed(codes);
    struct tensor stored = untransposed ? tensor_transposed(codes) : *codes;
    struct tensor to = untransposed ? tensor_transposed(out) : *out;
    TRY(cuda_check(&stored, "dequantise: codes", IS_FP8, -1, -1, e));
    int64_t rows = tensor_rows(&stored), cols = tensor_cols(&stored);
    TRY(cuda_check(&to, "dequantise: out", IS_BF16, rows, cols, e));
    if (stored.stride[0] % FP8_ROW_ALIGN || (uintptr_t)stored.data % 16)
        return FAIL(e, ERR_ARG, "dequantise: rows of codes must be 16-byte aligned");
    struct factor_view f = { codes->scale.data, codes->scale.dim[1], codes->scale.kind };
    dim3 threads(DEQUANTISE_ACROSS, DEQUANTISE_DOWN);
    auto kernel = untransposed ? dequantise_kernel<true> : dequantise_kernel<false>;
    kernel<<<grid_for(b, rows, DEQUANTISE_DOWN), threads, 0, cuda_lane(b, lane)>>>(
        (bf16_bits *)to.data, to.stride[0], tensor_is_vectors(&to),
        (const uint8_t *)stored.data, stored.stride[0], rows, cols, f, codes->dtype);
    return cuda_launched("dequantise", e);
}
