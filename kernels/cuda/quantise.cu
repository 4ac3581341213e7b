/* FP8 codes from BF16 values: every scale kind, row-wise and transposed, in one pass over a tile.
 *
 * Bytes moved: 2 read and 1 written per element and side (plus scales): bound by memory. The
 * maximum that a scale rests on is an integer maximum over |x| bits, so neither order nor NaN
 * matters. */
#include "kernels/cuda/quantise.cuh"

enum {
    TILE = 128,           /* rows and columns of a tile: one 128-block either way */
    TILE_THREADS = 256,
    SEGMENT = 32,         /* rows or columns of the smallest scale block */
    SEGMENTS = TILE / SEGMENT,
    TILE_STRIDE = TILE + 2,   /* BF16 between rows in shared memory: columns fall on 32 banks */
    CODE_STRIDE = TILE + 16,  /* bytes between rows of transposed codes: 16-byte stores do too */
    VECTORS = TILE * TILE / 8 / TILE_THREADS, /* 16-byte vectors a thread loads */
    GROUPS = TILE / 16 / 2                    /* 16-code vectors a thread makes of its column */
};

/* One of the two outputs: rows of x, or its columns. */
struct code_side {
    uint8_t *codes;       /* NULL: not wanted */
    void *scale;          /* row-major, scale_cols wide */
    uint32_t *line_amax;  /* SCALE_ROW: one maximum a row (or column) */
    int64_t ld, scale_cols;
    int kind;
    bool e5m2;
};

struct tile_args {
    const bf16_bits *x;
    int64_t rows, cols, ld;
    struct code_side row, col;
    const float *multiplier;     /* SCALE_TENSOR, scale known */
    const uint32_t *tensor_amax; /* SCALE_TENSOR, scale from the amax; written by the first tile */
    uint32_t *amax;              /* to be maximised, or NULL */
    unsigned long long *stats;   /* [2] or NULL */
    const int32_t *flag;         /* nothing is written once flag[0] >= 0; or NULL */
    struct quant_rule rule;
    bool vectors;                /* x allows 16-byte loads */
};

struct tile_shared {
    union {
        uint16_t value[TILE][TILE_STRIDE];
        uint8_t code[TILE][CODE_STRIDE]; /* transposed: [column][row] */
    };
    uint16_t row_max[TILE][SEGMENTS]; /* |x| bits of 32 columns of a row */
    uint16_t col_max[SEGMENTS][TILE]; /* of 32 rows of a column */
    uint32_t square_max[SEGMENTS][SEGMENTS];
    float row_m[TILE][SEGMENTS], col_m[SEGMENTS][TILE];
};

struct tile_at { int64_t row0, col0; };

__device__ static struct tile_at tile_of(int64_t cols) {
    int64_t across = (cols + TILE - 1) / TILE;
    struct tile_at t = { (int64_t)blockIdx.x / across * TILE, (int64_t)blockIdx.x % across * TILE };
    return t;
}

/* Eight values at (row, col); those outside are +0. */
__device__ static uint4 load_eight(const struct tile_args &a, int64_t row, int64_t col) {
    uint32_t word[4] = { 0, 0, 0, 0 };
    if (row < a.rows && col < a.cols) {
        const bf16_bits *x = a.x + row * a.ld + col;
        if (a.vectors) return *(const uint4 *)x;
        for (int i = 0; i < 8 && col + i < a.cols; i++)
            word[i / 2] |= (uint32_t)x[i] << (i % 2 * 16);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Loads a tile into registers and shared memory, and its row maxima. Thread t holds, for j <
 * VECTORS, row t/16 + 16 j and columns 8 (t % 16) onwards. */
__device__ static void tile_load(const struct tile_args &a, struct tile_at at, uint4 (&v)[VECTORS],
                                 struct tile_shared &s) {
    int lane16 = threadIdx.x % 16, row16 = threadIdx.x / 16;
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
        v[j] = load_eight(a, at.row0 + row16 + 16 * j, at.col0 + 8 * lane16);
    if (threadIdx.x < SEGMENTS * SEGMENTS) (&s.square_max[0][0])[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int row = row16 + 16 * j;
        uint32_t *to = (uint32_t *)&s.value[row][8 * lane16];
        to[0] = v[j].x; to[1] = v[j].y; to[2] = v[j].z; to[3] = v[j].w;
        const uint32_t magnitude = 0x7FFF7FFFu;
        uint32_t top = __vmaxu2(__vmaxu2(v[j].x & magnitude, v[j].y & magnitude),
                                __vmaxu2(v[j].z & magnitude, v[j].w & magnitude));
        top = max(top & 0xFFFFu, top >> 16);
        top = max(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
        top = max(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
        if (lane16 % 4 == 0) {
            s.row_max[row][lane16 / 4] = (uint16_t)top;
            atomicMax(&s.square_max[row / SEGMENT][lane16 / 4], top);
        }
    }
    __syncthreads();
}

/* Column maxima, 32 rows at a time: thread t has column t % 128 and half of the rows. */
__device__ static void tile_columns(struct tile_shared &s) {
    int col = threadIdx.x % TILE, half = threadIdx.x / TILE;
#pragma unroll
    for (int part = 0; part < SEGMENTS / 2; part++) {
        int segment = half * (SEGMENTS / 2) + part;
        uint32_t top = 0;
#pragma unroll
        for (int i = 0; i < SEGMENT; i++)
            top = max(top, (uint32_t)s.value[segment * SEGMENT + i][col] & 0x7FFFu);
        s.col_max[segment][col] = (uint16_t)top;
    }
    __syncthreads();
}

__device__ static uint32_t square_of_tile(const struct tile_shared &s) {
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < SEGMENTS * SEGMENTS; i++) top = max(top, (&s.square_max[0][0])[i]);
    return top;
}

/* The multiplier of line `line` of the tile (a row, or a column when transposed) in segment
 * `segment` along the other axis; its owner also stores the factor. */
__device__ static float line_multiplier(const struct tile_args &a, const struct code_side &side,
                                        const struct tile_shared &s, int64_t line0, int64_t lines,
                                        int64_t along0, int64_t along, int line, int segment,
                                        bool transposed, float tensor_m) {
    if (side.kind == SCALE_TENSOR) return tensor_m;
    int64_t at = line0 + line;
    bool inside = at < lines && along0 + segment * SEGMENT < along;
    uint32_t top = 0;
    int64_t slot = 0;
    bool owner = inside;
    switch (side.kind) {
    case SCALE_ROW:
        top = inside ? side.line_amax[at] >> 16 : 0;
        slot = at;
        owner = inside && segment == 0 && along0 == 0;
        break;
    case SCALE_1X128:
        for (int i = 0; i < SEGMENTS; i++)
            top = max(top, (uint32_t)(transposed ? s.col_max[i][line] : s.row_max[line][i]));
        slot = at * side.scale_cols + along0 / TILE;
        owner = inside && segment == 0;
        break;
    case SCALE_128X128:
        top = square_of_tile(s);
        slot = line0 / TILE * side.scale_cols + along0 / TILE;
        owner = inside && segment == 0 && line == 0;
        break;
    case SCALE_1X32:
        top = transposed ? s.col_max[segment][line] : s.row_max[line][segment];
        slot = at * side.scale_cols + along0 / SEGMENT + segment;
        break;
    default: /* SCALE_32X32 */
        top = transposed ? s.square_max[segment][line / SEGMENT]
                         : s.square_max[line / SEGMENT][segment];
        slot = at / SEGMENT * side.scale_cols + along0 / SEGMENT + segment;
        owner = inside && line % SEGMENT == 0;
    }
    struct multiplier r = quant_multiplier_of(a.rule, side.e5m2, f32_from_bits(top << 16));
    if (owner) {
        if (side.kind == SCALE_1X32 || side.kind == SCALE_32X32)
            ((uint8_t *)side.scale)[slot] = r.e8m0;
        else ((float *)side.scale)[slot] = r.factor;
    }
    return r.m;
}

/* SCALE_TENSOR's one multiplier. */
__device__ static float tensor_multiplier(const struct tile_args &a) {
    if (!a.tensor_amax) return a.multiplier ? *a.multiplier : 1.0f;
    bool e5m2 = a.row.codes ? a.row.e5m2 : a.col.e5m2;
    struct multiplier r = quant_multiplier_of(a.rule, e5m2, f32_from_bits(*a.tensor_amax));
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (a.row.codes) *(float *)a.row.scale = r.factor;
        if (a.col.codes) *(float *)a.col.scale = r.factor;
    }
    return r.m;
}

struct counts { uint32_t saturated, underflow; };

/* Eight products rounded to codes, counted. */
__device__ static uint2 encode_eight(bool e5m2, const float (&x)[8], float m, struct counts &n) {
    uint32_t word[2] = { 0, 0 };
    float max = fp8_max_of(e5m2);
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        float low = x[i] * m, high = x[i + 1] * m;
        uint32_t pair = fp8x2_encode(e5m2, low, high);
        word[i / 4] |= pair << (i % 4 * 8);
        n.saturated += (fabsf(low) > max) + (fabsf(high) > max);
        n.underflow += (x[i] != 0.0f && !(pair & 0x7Fu)) + (x[i + 1] != 0.0f && !(pair & 0x7F00u));
    }
    return make_uint2(word[0], word[1]);
}

/* The first n of eight codes; the rest +0. Padding is zero by contract, whatever the multiplier. */
__device__ static uint2 keep_codes(uint2 codes, int64_t n) {
    if (n >= 8) return codes;
    uint64_t mask = n <= 0 ? 0 : ((uint64_t)1 << (8 * n)) - 1;
    return make_uint2(codes.x & (uint32_t)mask, codes.y & (uint32_t)(mask >> 32));
}

/* Rows: 8 codes a thread and vector, 128 bytes a row of the tile. */
__device__ static void tile_rows_out(const struct tile_args &a, struct tile_at at,
                                     const uint4 (&v)[VECTORS], const struct tile_shared &s,
                                     struct counts &n) {
    int lane16 = threadIdx.x % 16, row16 = threadIdx.x / 16;
    int64_t col = at.col0 + 8 * lane16, padded = (a.cols + 15) / 16 * 16;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int row = row16 + 16 * j;
        if (at.row0 + row >= a.rows || col >= padded) continue;
        const uint32_t word[4] = { v[j].x, v[j].y, v[j].z, v[j].w };
        float x[8];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[2 * i] = bf16_low(word[i]);
            x[2 * i + 1] = bf16_high(word[i]);
        }
        uint2 codes = encode_eight(a.row.e5m2, x, s.row_m[row][lane16 / 4], n);
        *(uint2 *)(a.row.codes + (at.row0 + row) * a.row.ld + col) =
            keep_codes(codes, a.cols - col);
    }
}

/* Columns: each thread encodes half a column, shared memory turns the tile, 128 bytes a line go
 * out. */
__device__ static void tile_cols_out(const struct tile_args &a, struct tile_at at,
                                     struct tile_shared &s, struct counts &n) {
    int col = threadIdx.x % TILE, half = threadIdx.x / TILE;
    uint4 codes[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int row = (half * GROUPS + g) * 16;
        float m = s.col_m[row / SEGMENT][col];
        uint2 part[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float x[8];
#pragma unroll
            for (int i = 0; i < 8; i++) x[i] = bf16_decode(s.value[row + 8 * h + i][col]);
            part[h] = keep_codes(encode_eight(a.col.e5m2, x, m, n), a.rows - at.row0 - row - 8 * h);
        }
        codes[g] = make_uint4(part[0].x, part[0].y, part[1].x, part[1].y);
    }
    __syncthreads();
#pragma unroll
    for (int g = 0; g < GROUPS; g++) *(uint4 *)&s.code[col][(half * GROUPS + g) * 16] = codes[g];
    __syncthreads();
    int group = threadIdx.x % 8;
    int64_t row = at.row0 + group * 16;
    for (int line = threadIdx.x / 8; line < TILE; line += TILE_THREADS / 8)
        if (at.col0 + line < a.cols && row < a.rows)
            *(uint4 *)(a.col.codes + (at.col0 + line) * a.col.ld + row) =
                *(const uint4 *)&s.code[line][group * 16];
}

/* Grid: one block a tile of 128 x 128. */
__global__ void __launch_bounds__(TILE_THREADS) quantise_tile_kernel(struct tile_args a) {
    __shared__ struct tile_shared s;
    if (a.flag && *a.flag >= 0) return;
    struct tile_at at = tile_of(a.cols);
    uint4 v[VECTORS];
    tile_load(a, at, v, s);
    if (a.col.codes) tile_columns(s);
    float tensor_m = tensor_multiplier(a);
    for (int i = threadIdx.x; i < TILE * SEGMENTS; i += TILE_THREADS) {
        if (a.row.codes)
            s.row_m[i / SEGMENTS][i % SEGMENTS] =
                line_multiplier(a, a.row, s, at.row0, a.rows, at.col0, a.cols, i / SEGMENTS,
                                i % SEGMENTS, false, tensor_m);
        if (a.col.codes)
            s.col_m[i / TILE][i % TILE] =
                line_multiplier(a, a.col, s, at.col0, a.cols, at.row0, a.rows, i % TILE, i / TILE,
                                true, tensor_m);
    }
    if (a.amax && threadIdx.x == 0) {
        uint32_t top = square_of_tile(s) << 16;
        if (top) atomicMax(a.amax, top);
    }
    __syncthreads();
    struct counts rows = { 0, 0 }, cols = { 0, 0 };
    if (a.row.codes) tile_rows_out(a, at, v, s, rows);
    if (a.col.codes) tile_cols_out(a, at, s, cols);
    if (!a.stats) return;
    struct counts n = a.row.codes ? rows : cols;
    uint32_t saturated = __reduce_add_sync(0xFFFFFFFFu, n.saturated);
    uint32_t underflow = __reduce_add_sync(0xFFFFFFFFu, n.underflow);
    if (threadIdx.x % WARP) return;
    if (saturated) atomicAdd(&a.stats[0], saturated);
    if (underflow) atomicAdd(&a.stats[1], underflow);
}

/* Maxima of whole rows and columns, which SCALE_ROW needs before the first code. Same grid. */
__global__ void __launch_bounds__(TILE_THREADS) line_amax_kernel(struct tile_args a) {
    __shared__ struct tile_shared s;
    struct tile_at at = tile_of(a.cols);
    uint4 v[VECTORS];
    tile_load(a, at, v, s);
    if (a.col.line_amax) tile_columns(s);
    int line = threadIdx.x;
    if (line >= TILE) return;
    uint32_t row = 0, col = 0;
    for (int i = 0; i < SEGMENTS; i++) {
        row = max(row, (uint32_t)s.row_max[line][i]);
        if (a.col.line_amax) col = max(col, (uint32_t)s.col_max[i][line]);
    }
    if (a.row.line_amax && at.row0 + line < a.rows && row)
        atomicMax(&a.row.line_amax[at.row0 + line], row << 16);
    if (a.col.line_amax && at.col0 + line < a.cols && col)
        atomicMax(&a.col.line_amax[at.col0 + line], col << 16);
}

/* |x| bits over n packed values into one slot. */
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
    warp_amax_into(amax, top << 16);
}

/* ---- launchers ---- */

static struct code_side side_of(const struct tensor *codes) {
    struct code_side side = {};
    if (!codes || !codes->data) return side;
    side.codes = (uint8_t *)codes->data;
    side.scale = codes->scale.data;
    side.ld = codes->stride[0];
    side.scale_cols = codes->scale.dim[1];
    side.kind = codes->scale.kind;
    side.e5m2 = codes->dtype == DTYPE_E5M2;
    return side;
}

static enum status launch_amax(struct backend *b, int lane, uint32_t *amax, const struct tensor *x,
                               struct err *e) {
    if ((uintptr_t)x->data % 16)
        return FAIL(e, ERR_ARG, "a value whose amax is wanted starts on a 16-byte boundary");
    int64_t n = tensor_count(x);
    amax_kernel<<<grid_for(b, n, 256 * 32), 256, 0, cuda_lane(b, lane)>>>(
        amax, (const bf16_bits *)x->data, n);
    return cuda_launched("amax", e);
}

/* SCALE_ROW: zeroed maxima for each side that has it, then one pass that fills them. */
static enum status launch_line_amax(struct backend *b, int lane, struct tile_args *a,
                                    unsigned tiles, struct err *e) {
    bool row = a->row.codes && a->row.kind == SCALE_ROW;
    bool col = a->col.codes && a->col.kind == SCALE_ROW;
    if (!row && !col) return OK;
    void *lines;
    size_t bytes = (size_t)(a->rows + a->cols) * sizeof(uint32_t);
    TRY(cuda_scratch(b, lane, SCRATCH_AMAX, (int64_t)bytes, &lines, e));
    CUDA_TRY(e, cudaMemsetAsync(lines, 0, bytes, cuda_lane(b, lane)));
    if (row) a->row.line_amax = (uint32_t *)lines;
    if (col) a->col.line_amax = (uint32_t *)lines + a->rows;
    line_amax_kernel<<<tiles, TILE_THREADS, 0, cuda_lane(b, lane)>>>(*a);
    return cuda_launched("quantise", e);
}

static enum status launch_codes(struct backend *b, int lane, const struct sink *s, uint32_t *amax,
                                const int32_t *flag, struct err *e) {
    struct tile_args a = {};
    a.x = sink_value_of(s);
    a.rows = s->codes->dim[0];
    a.cols = a.ld = s->codes->dim[1];
    a.flag = flag;
    a.row = side_of(s->codes);
    a.col = side_of(s->codes->transposed);
    if (s->source == SCALE_SOURCE_KNOWN) a.multiplier = (const float *)s->multiplier->data;
    if (s->source == SCALE_SOURCE_AMAX) a.tensor_amax = (const uint32_t *)s->amax->data;
    a.amax = amax;
    a.stats = s->stats ? (unsigned long long *)s->stats->data : NULL;
    a.rule = s->rule;
    a.vectors = rows_are_vectors(a.x, a.cols, a.ld);
    int64_t tiles = ceil_div(a.rows, TILE) * ceil_div(a.cols, TILE);
    if (tiles == 0) return OK;
    if (tiles > INT32_MAX) return FAIL(e, ERR_ARG, "quantise: %lld tiles", (long long)tiles);
    TRY(launch_line_amax(b, lane, &a, (unsigned)tiles, e));
    quantise_tile_kernel<<<(unsigned)tiles, TILE_THREADS, 0, cuda_lane(b, lane)>>>(a);
    return cuda_launched("quantise", e);
}

enum status cuda_sink_emit(struct backend *b, int lane, const struct sink *s, bool amax_done,
                           struct err *e) {
    uint32_t *amax = amax_done ? NULL : sink_amax(s);
    if (s->source == SCALE_SOURCE_KNOWN || s->source == SCALE_SOURCE_BLOCK)
        return launch_codes(b, lane, s, amax, NULL, e);
    return amax ? launch_amax(b, lane, amax, s->value, e) : OK;
}

enum status cuda_sink_emit_gated(struct backend *b, int lane, const struct sink *s,
                                 const int32_t *flag, struct err *e) {
    if (s->source != SCALE_SOURCE_KNOWN && s->source != SCALE_SOURCE_BLOCK) return OK;
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
    if (out->source != SCALE_SOURCE_AMAX) return OK;
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
    case SCALE_1X32: return e8m0_decode_of(((const uint8_t *)f.data)[row * f.cols + col / 32]);
    case SCALE_32X32:
        return e8m0_decode_of(((const uint8_t *)f.data)[row / 32 * f.cols + col / 32]);
    default: return 1.0f;
    }
}

/* Eight codes a thread; rows of codes are padded to 16, those of out need not be. */
__global__ void dequantise_kernel(bf16_bits *out, int64_t ld_out, bool vectors,
                                  const uint8_t *codes, int64_t ld, int64_t rows, int64_t cols,
                                  struct factor_view f, bool e5m2) {
    int64_t across = (cols + 7) / 8, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < rows * across; i += step) {
        int64_t row = i / across, col = i % across * 8;
        uint2 packed = *(const uint2 *)(codes + row * ld + col);
        float factor = factor_at(f, row, col), x[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            uint32_t word = j < 4 ? packed.x : packed.y;
            x[j] = fp8_decode_of(e5m2, (uint8_t)(word >> (j % 4 * 8))) * factor;
        }
        bf16_bits *to = out + row * ld_out + col;
        if (vectors) store_bf16<8>(to, x);
        else for (int j = 0; j < 8 && col + j < cols; j++) to[j] = bf16_encode(x[j]);
    }
}

enum status cuda_dequantise(struct backend *b, int lane, const struct tensor *out,
                            const struct tensor *codes, struct err *e) {
    TRY(cuda_check(codes, "dequantise: codes", IS_FP8, -1, -1, e));
    int64_t rows = tensor_rows(codes), cols = tensor_cols(codes);
    TRY(cuda_check(out, "dequantise: out", IS_BF16, rows, cols, e));
    if (codes->stride[0] % FP8_ROW_ALIGN || (uintptr_t)codes->data % 16)
        return FAIL(e, ERR_ARG, "dequantise: rows of codes start on 16-byte boundaries");
    struct factor_view f = { codes->scale.data, codes->scale.dim[1], codes->scale.kind };
    dequantise_kernel<<<grid_for(b, rows * ceil_div(cols, 8), 256), 256, 0, cuda_lane(b, lane)>>>(
        (bf16_bits *)out->data, out->stride[0], tensor_is_vectors(out),
        (const uint8_t *)codes->data, codes->stride[0], rows, cols, f, codes->dtype == DTYPE_E5M2);
    return cuda_launched("dequantise", e);
}
