/* Turns one tile of 128 x 128 values into FP8 codes, row-wise and transposed, for every scale kind.
 * quantise.cu runs it over stored values, fused producers over values that they just computed.
 *
 * A thread holds a patch of 8 x 8 values in registers, so that a row of the tile is read 16 bytes
 * at a time. Codes are transposed in groups of 4 x 4 bytes by permutations; shared memory holds
 * only codes. Bytes moved: 2 read and 1 written per element and side (plus scales). The maximum for
 * a scale is an integer maximum over |x| bits, so neither order nor NaN matters.
 *
 * All loads of a patch come before any arithmetic: a branch between loads would turn one wait into
 * eight. Hence WHOLE, the kernel for tensors of whole tiles, which tests no edges. Fused producers
 * have only this kernel, and leave other tensors to a second pass. */
#ifndef FP8LAB_KERNELS_CUDA_CAST_TILE_CUH
#define FP8LAB_KERNELS_CUDA_CAST_TILE_CUH

#include "kernels/cuda/quantise.cuh"

enum {
    TILE = 128,           /* rows and columns of a tile: one 128-block either way */
    TILE_THREADS = 256,
    TILE_WARPS = TILE_THREADS / WARP, /* a warp has 16 rows */
    PATCH = 8,            /* rows and columns of a thread's patch */
    SEGMENT = 32,         /* rows or columns of the smallest scale block */
    SEGMENTS = TILE / SEGMENT
};

/* One of the two outputs: codes along the rows of x, or along its columns. */
struct code_side {
    uint8_t *codes;       /* NULL: not wanted */
    void *scale;          /* row-major, scale_cols wide */
    uint32_t *line_amax;  /* SCALE_ROW: one maximum a row (or column) */
    int64_t ld, scale_cols;
    int kind;
};

struct tile_args {
    int64_t rows, cols;
    struct code_side row, col;
    const float *multiplier;     /* SCALE_TENSOR, scale known */
    const uint32_t *tensor_amax; /* SCALE_TENSOR, scale from the amax; written by the first tile */
    uint32_t *amax;              /* raised to the tile's maximum; or NULL */
    unsigned long long *stats;   /* [2] or NULL */
    const int32_t *flag;         /* nothing is written once flag[0] >= 0; or NULL */
    struct quant_rule rule;
    bool line_maxima, square_maxima; /* needed by a scale or the amax */
};

/* Aligned to 16 bytes, the size in which col_max and code are moved. */
struct __align__(16) tile_shared {
    uint2 code[TILE][TILE / PATCH];    /* [column][8 rows, exchanged by swizzle()] */
    uint16_t row_max[TILE][SEGMENTS];  /* |x| bits of 32 columns of a row */
    uint16_t col_max[TILE_WARPS][TILE]; /* of 16 rows of a column */
    uint32_t square_max[SEGMENTS][SEGMENTS];
    float row_m[TILE][SEGMENTS], col_m[SEGMENTS][TILE];
};

struct tile_at { int64_t row0, col0; };
struct counts { uint32_t saturated, underflow; };

/* The tile of this block, in a matrix of `cols` columns. */
__device__ static inline struct tile_at tile_of(int64_t cols) {
    uint32_t across = (uint32_t)((cols + TILE - 1) / TILE);
    struct tile_at t = { blockIdx.x / across * (int64_t)TILE, blockIdx.x % across * (int64_t)TILE };
    return t;
}

/* The position of this thread's patch in the tile. */
__device__ static inline int patch_row() { return threadIdx.x / 16 * PATCH; }
__device__ static inline int patch_col() { return threadIdx.x % 16 * PATCH; }

/* ---- maxima ---- */

/* Maxima of 32 columns of every row (four lanes) and of 16 rows of every column (two lanes). */
__device__ static inline void lines_maxima(const uint4 (&v)[PATCH], struct tile_shared &s) {
    int lane = threadIdx.x % WARP;
    const uint32_t whole = 0xFFFFFFFFu, magnitude = 0x7FFF7FFFu;
    uint32_t col[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int j = 0; j < PATCH; j += 2) {
        uint32_t even = bf16x8_largest(v[j]), odd = bf16x8_largest(v[j + 1]);
        uint32_t top = __vmaxu2(__byte_perm(even, odd, 0x5410), __byte_perm(even, odd, 0x7632));
        top = __vmaxu2(top, __shfl_xor_sync(whole, top, 1));
        top = __vmaxu2(top, __shfl_xor_sync(whole, top, 2));
        if (lane % 4 == 0) {
            s.row_max[patch_row() + j][patch_col() / SEGMENT] = (uint16_t)top;
            s.row_max[patch_row() + j + 1][patch_col() / SEGMENT] = (uint16_t)(top >> 16);
        }
    }
#pragma unroll
    for (int j = 0; j < PATCH; j++) {
        const uint32_t word[4] = { v[j].x, v[j].y, v[j].z, v[j].w };
#pragma unroll
        for (int i = 0; i < 4; i++) col[i] = __vmaxu2(col[i], word[i] & magnitude);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) col[i] = __vmaxu2(col[i], __shfl_xor_sync(whole, col[i], 16));
    if (lane < 16)
        *(uint4 *)&s.col_max[threadIdx.x / WARP][patch_col()] =
            make_uint4(col[0], col[1], col[2], col[3]);
}

/* Maxima of 32 x 32 values. */
__device__ static inline void squares_maxima(const uint4 (&v)[PATCH], struct tile_shared &s) {
    uint32_t top = 0;
#pragma unroll
    for (int j = 0; j < PATCH; j++) top = __vmaxu2(top, bf16x8_largest(v[j]));
    top = max(top & 0xFFFFu, top >> 16);
#pragma unroll
    for (int step = 1; step <= 16; step = step == 2 ? 16 : 2 * step)
        top = max(top, __shfl_xor_sync(0xFFFFFFFFu, top, step));
    if (threadIdx.x % WARP < 16 && threadIdx.x % 4 == 0)
        atomicMax(&s.square_max[patch_row() / SEGMENT][patch_col() / SEGMENT], top);
}

/* Fills the parts of s that the scales need. Contains a block barrier. */
__device__ static inline void tile_maxima(const struct tile_args &a, const uint4 (&v)[PATCH],
                                          struct tile_shared &s) {
    if (!a.line_maxima && !a.square_maxima) return;
    if (a.square_maxima) {
        if (threadIdx.x < SEGMENTS * SEGMENTS) (&s.square_max[0][0])[threadIdx.x] = 0;
        __syncthreads();
        squares_maxima(v, s);
    }
    if (a.line_maxima) lines_maxima(v, s);
    __syncthreads();
    if (a.amax && threadIdx.x < WARP) {
        uint32_t top = threadIdx.x < SEGMENTS * SEGMENTS ? (&s.square_max[0][0])[threadIdx.x] : 0;
        warp_amax_into(a.amax, top << 16);
    }
}

/* ---- multipliers ---- */

__device__ static inline uint32_t row_top(const struct tile_shared &s, int row, int segment,
                                          int segments) {
    uint32_t top = 0;
    for (int i = 0; i < segments; i++) top = max(top, (uint32_t)s.row_max[row][segment + i]);
    return top;
}
__device__ static inline uint32_t col_top(const struct tile_shared &s, int col, int segment,
                                          int segments) {
    uint32_t top = 0;
    for (int i = 2 * segment; i < 2 * (segment + segments); i++)
        top = max(top, (uint32_t)s.col_max[i][col]);
    return top;
}
__device__ static inline uint32_t square_of_tile(const struct tile_shared &s) {
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < SEGMENTS * SEGMENTS; i++) top = max(top, (&s.square_max[0][0])[i]);
    return top;
}

__device__ static inline bool in_small_blocks(int kind) {
    return kind == SCALE_1X32 || kind == SCALE_32X32;
}

/* Position and extent of a tile along the lines that share scales, and across them. */
struct tile_span { int64_t line0, lines, along0, along; };

/* The multiplier of line `line` of the tile (a row, or a column when transposed) in segment
 * `segment` along the other axis. The owning thread also stores the factor. */
template <bool E5M2>
__device__ static float line_multiplier(const struct tile_args &a, const struct code_side &side,
                                        const struct tile_shared &s, struct tile_span span,
                                        int line, int segment, bool transposed) {
    int64_t at = span.line0 + line;
    bool inside = at < span.lines && span.along0 + segment * SEGMENT < span.along;
    uint32_t top = 0;
    int64_t slot = 0;
    bool owner = inside;
    switch (side.kind) {
    case SCALE_ROW:
        top = inside ? side.line_amax[at] >> 16 : 0;
        slot = at;
        owner = inside && span.along0 == 0;
        break;
    case SCALE_1X128:
        top = transposed ? col_top(s, line, 0, SEGMENTS) : row_top(s, line, 0, SEGMENTS);
        slot = at * side.scale_cols + span.along0 / TILE;
        break;
    case SCALE_128X128:
        top = square_of_tile(s);
        slot = span.line0 / TILE * side.scale_cols + span.along0 / TILE;
        owner = inside && line == 0;
        break;
    case SCALE_1X32:
        top = transposed ? col_top(s, line, segment, 1) : row_top(s, line, segment, 1);
        slot = at * side.scale_cols + span.along0 / SEGMENT + segment;
        break;
    default: /* SCALE_32X32 */
        top = transposed ? s.square_max[segment][line / SEGMENT]
                         : s.square_max[line / SEGMENT][segment];
        slot = at / SEGMENT * side.scale_cols + span.along0 / SEGMENT + segment;
        owner = inside && line % SEGMENT == 0;
    }
    struct multiplier r = quant_multiplier_of(a.rule, E5M2, f32_from_bits(top << 16));
    if (owner) {
        if (in_small_blocks(side.kind)) ((uint8_t *)side.scale)[slot] = r.e8m0;
        else ((float *)side.scale)[slot] = r.factor;
    }
    return r.m;
}

/* Every line's multipliers: half of the threads compute the rows', half the columns'. */
template <bool E5M2>
__device__ static inline void tile_multipliers(const struct tile_args &a, struct tile_at at,
                                               struct tile_shared &s) {
    bool transposed = threadIdx.x >= TILE;
    int line = threadIdx.x % TILE;
    const struct code_side side = transposed ? a.col : a.row;
    struct tile_span span = { at.row0, a.rows, at.col0, a.cols };
    if (transposed) span = { at.col0, a.cols, at.row0, a.rows };
    if (!side.codes) return;
    int step = in_small_blocks(side.kind) ? 1 : SEGMENTS;
    for (int segment = 0; segment < SEGMENTS; segment += step) {
        float m = line_multiplier<E5M2>(a, side, s, span, line, segment, transposed);
        for (int i = segment; i < segment + step; i++)
            (transposed ? s.col_m[i][line] : s.row_m[line][i]) = m;
    }
}

/* The single multiplier of SCALE_TENSOR. */
template <bool E5M2> __device__ static inline float tensor_multiplier(const struct tile_args &a) {
    if (!a.tensor_amax) return a.multiplier ? *a.multiplier : 1.0f;
    struct multiplier r = quant_multiplier_of(a.rule, E5M2, f32_from_bits(*a.tensor_amax));
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (a.row.codes) *(float *)a.row.scale = r.factor;
        if (a.col.codes) *(float *)a.col.scale = r.factor;
    }
    return r.m;
}

/* ---- codes ---- */

/* Bit 7 of every byte whose lower seven bits equal those of `like`. */
__device__ static inline uint32_t bytes_like(uint32_t codes, uint32_t like) {
    return ~(((codes & 0x7F7F7F7Fu) ^ like) + 0x7F7F7F7Fu) & 0x80808080u;
}

/* Eight products rounded to codes. Codes of zero or of the largest value are rare. They may be
 * underflows or saturations, and only they are counted one by one. */
template <bool E5M2>
__device__ static inline uint2 encode_eight(uint4 v, const float (&m)[PATCH], bool counted,
                                            struct counts &n) {
    float x[PATCH];
    uint32_t word[2] = { 0, 0 };
    bf16x8_decode(x, v);
#pragma unroll
    for (int i = 0; i < PATCH; i += 2)
        word[i / 4] |= fp8x2_encode(E5M2, x[i] * m[i], x[i + 1] * m[i + 1]) << (i % 4 * 8);
    const uint32_t largest = E5M2 ? 0x7B7B7B7Bu : 0x7E7E7E7Eu;
    if (counted && (bytes_like(word[0], 0) | bytes_like(word[1], 0) |
                    bytes_like(word[0], largest) | bytes_like(word[1], largest)))
#pragma unroll
        for (int i = 0; i < PATCH; i++) {
            n.saturated += fabsf(x[i] * m[i]) > fp8_max_of(E5M2);
            n.underflow += x[i] != 0.0f && !(word[i / 4] >> (i % 4 * 8) & 0x7Fu);
        }
    return make_uint2(word[0], word[1]);
}

/* Keeps the first n of eight codes; the rest become +0. Padding must be zero for any multiplier. */
__device__ static inline uint2 keep_codes(uint2 codes, int64_t n) {
    if (n >= PATCH) return codes;
    uint64_t mask = n <= 0 ? 0 : ((uint64_t)1 << (8 * n)) - 1;
    return make_uint2(codes.x & (uint32_t)mask, codes.y & (uint32_t)(mask >> 32));
}

/* Codes of the patch with the rows' multipliers, stored if rows are wanted: 128 bytes a row of the
 * tile. Codes outside the tensor are +0. */
template <bool E5M2, bool WHOLE>
__device__ static inline void encode_rows(const struct tile_args &a, struct tile_at at,
                                          const uint4 (&v)[PATCH], const struct tile_shared &s,
                                          float tensor_m, bool counted, uint2 (&codes)[PATCH],
                                          struct counts &n) {
    int64_t col = at.col0 + patch_col(), padded = (a.cols + 15) / 16 * 16;
    int kind = a.row.codes ? a.row.kind : a.col.kind;
#pragma unroll
    for (int j = 0; j < PATCH; j++) {
        int row = patch_row() + j;
        float one = kind == SCALE_TENSOR ? tensor_m : s.row_m[row][patch_col() / SEGMENT];
        const float m[PATCH] = { one, one, one, one, one, one, one, one };
        bool inside = WHOLE || at.row0 + row < a.rows;
        codes[j] = encode_eight<E5M2>(v[j], m, counted, n);
        if (!WHOLE) codes[j] = keep_codes(codes[j], inside ? a.cols - col : 0);
        if (a.row.codes && inside && (WHOLE || col < padded))
            *(uint2 *)(a.row.codes + (at.row0 + row) * a.row.ld + col) = codes[j];
    }
}

/* The same with the columns' multipliers; not stored yet. */
template <bool E5M2, bool WHOLE>
__device__ static inline void encode_cols(const struct tile_args &a, struct tile_at at,
                                          const uint4 (&v)[PATCH], const struct tile_shared &s,
                                          bool counted, uint2 (&codes)[PATCH], struct counts &n) {
    float m[PATCH];
#pragma unroll
    for (int i = 0; i < PATCH; i++) m[i] = s.col_m[patch_row() / SEGMENT][patch_col() + i];
#pragma unroll
    for (int j = 0; j < PATCH; j++) {
        bool inside = WHOLE || at.row0 + patch_row() + j < a.rows;
        codes[j] = encode_eight<E5M2>(v[j], m, counted, n);
        if (!WHOLE) codes[j] = keep_codes(codes[j], inside ? PATCH : 0);
    }
}

/* out[i] = byte i of a, b, c, d. */
__device__ static inline void transpose_4x4(uint32_t (&out)[4], uint32_t a, uint32_t b, uint32_t c,
                                        uint32_t d) {
    uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
    uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
    out[0] = __byte_perm(ab_low, cd_low, 0x5410);
    out[1] = __byte_perm(ab_low, cd_low, 0x7632);
    out[2] = __byte_perm(ab_high, cd_high, 0x5410);
    out[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

/* Transposes the codes through shared memory and stores them: 128 bytes a column of the tile.
 * Groups of eight rows are permuted by the column's patch, which avoids bank conflicts on both
 * sides. */
template <bool WHOLE>
__device__ static inline void store_transposed(const struct tile_args &a, struct tile_at at,
                                           struct tile_shared &s, const uint2 (&codes)[PATCH]) {
    int group = patch_row() / PATCH ^ patch_col() / PATCH;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t upper[4], lower[4];
#define HALF(j) (half ? codes[j].y : codes[j].x)
        transpose_4x4(upper, HALF(0), HALF(1), HALF(2), HALF(3));
        transpose_4x4(lower, HALF(4), HALF(5), HALF(6), HALF(7));
#undef HALF
#pragma unroll
        for (int i = 0; i < 4; i++)
            s.code[patch_col() + 4 * half + i][group] = make_uint2(upper[i], lower[i]);
    }
    __syncthreads();
    int pair = threadIdx.x % 8 * 2; /* two groups: 16 rows */
    int64_t row = at.row0 + pair * PATCH;
    for (int line = threadIdx.x / 8; line < TILE; line += TILE_THREADS / 8) {
        int mask = line / PATCH;
        uint4 v = *(const uint4 *)&s.code[line][pair ^ (mask & ~1)];
        if (mask & 1) v = make_uint4(v.z, v.w, v.x, v.y);
        if (WHOLE || (at.col0 + line < a.cols && row < a.rows))
            *(uint4 *)(a.col.codes + (at.col0 + line) * a.col.ld + row) = v;
    }
}

__device__ static inline void add_counts(const struct tile_args &a, struct counts n) {
    uint32_t saturated = __reduce_add_sync(0xFFFFFFFFu, n.saturated);
    uint32_t underflow = __reduce_add_sync(0xFFFFFFFFu, n.underflow);
    if (threadIdx.x % WARP) return;
    if (saturated) atomicAdd(&a.stats[0], saturated);
    if (underflow) atomicAdd(&a.stats[1], underflow);
}

/* One tile of values into codes. SAME: the transposed codes are the row-wise codes, transposed. */
template <bool E5M2, bool SAME, bool WHOLE>
__device__ static inline void emit_tile(const struct tile_args &a, struct tile_at at,
                                        const uint4 (&v)[PATCH], struct tile_shared &s,
                                        float tensor_m, struct counts &n) {
    tile_maxima(a, v, s);
    if ((a.row.codes ? a.row.kind : a.col.kind) != SCALE_TENSOR) {
        tile_multipliers<E5M2>(a, at, s);
        __syncthreads();
    }
    uint2 codes[PATCH];
    bool counted = a.stats != NULL, rows = a.row.codes != NULL;
    if (SAME || rows) encode_rows<E5M2, WHOLE>(a, at, v, s, tensor_m, counted, codes, n);
    if (!a.col.codes) return;
    if (!SAME) encode_cols<E5M2, WHOLE>(a, at, v, s, counted && !rows, codes, n);
    store_transposed<WHOLE>(a, at, s, codes);
}

/* Grid: one block a tile, or a pair of tiles. A Source has:
 *   TILES             1; or 2: one input gives a tile in each half of the columns
 *   BLOCKS            blocks per multiprocessor, which bounds the registers
 *   struct raw        the inputs of eight values
 *   load(row, col)    returns struct raw for a place inside the tensor
 *   make(v, raw, row, col)   computes the values, eight for each tile; may also store them */
template <class Source, bool E5M2, bool SAME, bool WHOLE>
__global__ void __launch_bounds__(TILE_THREADS, Source::BLOCKS)
    cast_tile_kernel(struct tile_args a, Source from) {
    __shared__ struct tile_shared s;
    struct tile_at at = tile_of(a.cols / Source::TILES);
    int64_t row0 = at.row0 + patch_row(), col0 = at.col0 + patch_col();
    typename Source::raw raw[PATCH];
#pragma unroll
    for (int j = 0; j < PATCH; j++) {
        raw[j] = {};
        if (WHOLE || (row0 + j < a.rows && col0 < a.cols)) raw[j] = from.load(row0 + j, col0);
    }
    if (a.flag && *a.flag >= 0) return;
    float tensor_m = tensor_multiplier<E5M2>(a);
    uint4 v[Source::TILES][PATCH];
#pragma unroll
    for (int j = 0; j < PATCH; j++) {
        uint4 made[Source::TILES];
        from.make(made, raw[j], row0 + j, col0);
#pragma unroll
        for (int t = 0; t < Source::TILES; t++) v[t][j] = made[t];
    }
    struct counts n = { 0, 0 };
#pragma unroll
    for (int t = 0; t < Source::TILES; t++) {
        if (t) __syncthreads(); /* s has been read */
        emit_tile<E5M2, SAME, WHOLE>(a, at, v[t], s, tensor_m, n);
        at.col0 += a.cols / Source::TILES;
    }
    if (a.stats) add_counts(a, n);
}

/* ---- launching ---- */

/* All arguments that a sink determines. amax: to be raised, or NULL. */
struct tile_args tile_args_of(const struct sink *s, uint32_t *amax);
/* ERR_ARG for a grid too large or two formats in one sink. */
NODISCARD enum status tile_count(const struct sink *s, const struct tile_args *a, unsigned *tiles,
                                 struct err *e);

/* True if tensors of rows x cols are whole tiles. */
static inline bool whole_tiles(int64_t rows, int64_t cols) {
    return rows % TILE == 0 && cols % TILE == 0;
}

/* True if a producer may emit the codes of its value tile by tile: each scale is known or depends
 * on one tile only. */
static inline bool cast_fuses(const struct sink *s) {
    if (s->source != SCALE_SOURCE_KNOWN && s->source != SCALE_SOURCE_BLOCK) return false;
    if (s->sums) return false; /* they are sums of the stored value */
    const struct tensor *made = s->codes->data ? s->codes : s->codes->transposed;
    return made->scale.kind != SCALE_ROW && whole_tiles(s->codes->dim[0], s->codes->dim[1]);
}

/* True if the producer may compute that value twice instead of storing it: once for the amax, once
 * for the codes. This pays if the inputs are no larger than value, codes and value again. */
static inline bool cast_repeats(const struct sink *s) {
    return s->source == SCALE_SOURCE_AMAX && !sink_waits(s) && !s->keep_value && !s->sums &&
           whole_tiles(s->codes->dim[0], s->codes->dim[1]);
}

/* A square block's transpose is itself a block: one set of codes serves both sides. */
static inline bool codes_are_moved(int kind) {
    return kind == SCALE_TENSOR || kind == SCALE_128X128 || kind == SCALE_32X32;
}

/* WHOLE as above. A Source with edges loads eight columns, of which only the first must be
 * inside. */
template <bool WHOLE, class Source>
static enum status cast_tiles(struct backend *b, int lane, const struct sink *s,
                              const struct tile_args &a, const Source &from, struct err *e) {
    unsigned tiles;
    TRY(tile_count(s, &a, &tiles, e));
    if (tiles == 0) return OK;
    const struct tensor *made = s->codes->data ? s->codes : s->codes->transposed;
    bool same = codes_are_moved(made->scale.kind) &&
                (a.row.codes || made->scale.kind == SCALE_TENSOR);
    auto kernel = cast_tile_kernel<Source, false, true, WHOLE>;
    if (made->dtype == DTYPE_E5M2) {
        kernel = cast_tile_kernel<Source, true, true, WHOLE>;
        if (!same) kernel = cast_tile_kernel<Source, true, false, WHOLE>;
    } else if (!same) {
        kernel = cast_tile_kernel<Source, false, false, WHOLE>;
    }
    kernel<<<tiles / Source::TILES, TILE_THREADS, 0, cuda_lane(b, lane)>>>(a, from);
    return cuda_launched("quantise", e);
}

#endif
