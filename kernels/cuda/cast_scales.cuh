/* A tile of 128 x 128 values on its way to codes: which thread has what, the maxima, and from them
 * the multipliers and stored factors of each scale kind. cast_tile.cuh makes the codes. */
#ifndef FP8LAB_KERNELS_CUDA_CAST_SCALES_CUH
#define FP8LAB_KERNELS_CUDA_CAST_SCALES_CUH

#include "kernels/cuda/quantise.cuh"

enum {
    TILE = 128,           /* rows and columns of a tile: one 128-block either way */
    TILE_THREADS = 256,
    TILE_WARPS = TILE_THREADS / WARP, /* a warp has 16 rows */
    PATCH = 8,            /* rows and columns of a thread's patch */
    PATCHES = TILE / PATCH, /* of a tile, along either axis */
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
    bool untransposed;    /* of the columns: stored as the rows are, in lines of row.ld */
};

struct tile_args {
    int64_t rows, cols;
    struct code_side row, col;
    const float *multiplier;     /* SCALE_TENSOR, scale known */
    const uint32_t *tensor_amax; /* SCALE_TENSOR, scale from the amax; written by the first tile */
    uint32_t *amax;              /* raised to the tiles' maximum; or NULL */
    unsigned long long *stats;   /* [2] or NULL */
    const int32_t *flag;         /* nothing is written once flag[0] >= 0; or NULL */
    struct quant_rule rule;
    bool line_maxima, square_maxima; /* needed by a scale */
    bool backwards;              /* from the last tile to the first */
};

/* Of both outputs: one set of codes is enough (the transposed ones are the same codes, or not
 * wanted); each has its own factors of 1x128; or any others, told apart as the kernel runs. */
enum code_sides { SIDES_SAME, SIDES_LINES, SIDES_APART };

/* Aligned to 16 bytes, the size in which most of it is moved. A multiplier's sign is set if its
 * line may have saturated codes. */
struct __align__(16) tile_shared {
    uint2 code[TILE][PATCHES];           /* [column][8 rows, permuted: store_transposed()] */
    uint16_t row_max[PATCHES][TILE + 8]; /* |x| bits of 8 columns of a row; + 8: banks */
    uint16_t col_max[PATCHES][TILE + 8]; /* of 8 rows of a column; as long, for one loop */
    uint32_t square_max[TILE_WARPS][SEGMENTS]; /* of a warp's rows of 32 columns */
    float row_m[SEGMENTS][TILE], col_m[SEGMENTS][TILE];
};

struct tile_at { int64_t row0, col0; };
struct counts { uint32_t saturated, underflow; };

/* The tile of this block, in a matrix of `cols` columns. */
__device__ static inline struct tile_at tile_of(const struct tile_args &a, int64_t cols) {
    uint32_t across = (uint32_t)((cols + TILE - 1) / TILE);
    uint32_t tile = a.backwards ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    struct tile_at t = { tile / across * (int64_t)TILE, tile % across * (int64_t)TILE };
    return t;
}

/* The position of this thread's patch in the tile. */
__device__ static inline int patch_row() { return threadIdx.x / PATCHES * PATCH; }
__device__ static inline int patch_col() { return threadIdx.x % PATCHES * PATCH; }

/* ---- maxima ---- */

/* The extremes of a patch: packed maxima of |x| bits of each row (in both halves), the largest, and
 * the smallest. */
struct patch_range { uint32_t row[PATCH], top, least; };

/* Smallest |x| bits of eight values, in both halves of a word, or of `least`. */
__device__ static inline uint32_t bf16x8_least(uint4 v, uint32_t least) {
    const uint32_t magnitude = 0x7FFF7FFFu;
    least = __vimin3_u16x2(least, v.x & magnitude, v.y & magnitude);
    return __vimin3_u16x2(least, v.z & magnitude, v.w & magnitude);
}

__device__ static inline struct patch_range range_of(const uint4 (&v)[PATCH]) {
    const uint32_t magnitude = 0x7FFF7FFFu;
    struct patch_range r;
    r.least = magnitude;
    r.top = 0;
#pragma unroll
    for (int j = 0; j < PATCH; j++) {
        r.row[j] = __vmaxu2(
            __vimax3_u16x2(v[j].x & magnitude, v[j].y & magnitude, v[j].z & magnitude),
            v[j].w & magnitude);
        r.least = bf16x8_least(v[j], r.least);
    }
#pragma unroll
    for (int j = 0; j < PATCH; j += 2) r.top = __vimax3_u16x2(r.top, r.row[j], r.row[j + 1]);
    r.top = max(r.top & 0xFFFFu, r.top >> 16);
    r.least = min(r.least & 0xFFFFu, r.least >> 16);
    return r;
}

/* Maxima of every row of the patch, and of every column. */
__device__ static inline void lines_maxima(const uint4 (&v)[PATCH],
                                           const struct patch_range &r,
                                           struct tile_shared &s) {
    const uint32_t magnitude = 0x7FFF7FFFu;
    uint32_t row[PATCH / 2], col[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int j = 0; j < PATCH; j += 2)
        row[j / 2] = __vmaxu2(__byte_perm(r.row[j], r.row[j + 1], 0x5410),
                              __byte_perm(r.row[j], r.row[j + 1], 0x7632));
    *(uint4 *)&s.row_max[patch_col() / PATCH][patch_row()] =
        make_uint4(row[0], row[1], row[2], row[3]);
#pragma unroll
    for (int j = 0; j < PATCH; j += 2) {
        const uint32_t even[4] = { v[j].x, v[j].y, v[j].z, v[j].w };
        const uint32_t odd[4] = { v[j + 1].x, v[j + 1].y, v[j + 1].z, v[j + 1].w };
#pragma unroll
        for (int i = 0; i < 4; i++)
            col[i] = __vimax3_u16x2(col[i], even[i] & magnitude, odd[i] & magnitude);
    }
    *(uint4 *)&s.col_max[patch_row() / PATCH][patch_col()] =
        make_uint4(col[0], col[1], col[2], col[3]);
}

/* Maxima of a warp's rows of 32 columns. */
__device__ static inline void squares_maxima(uint32_t top, struct tile_shared &s) {
#pragma unroll
    for (int step = 1; step <= 16; step = step == 2 ? 16 : 2 * step)
        top = max(top, __shfl_xor_sync(0xFFFFFFFFu, top, step));
    if (threadIdx.x % WARP < 16 && threadIdx.x % 4 == 0)
        s.square_max[threadIdx.x / WARP][patch_col() / SEGMENT] = top;
}

/* ---- multipliers ---- */

/* The maximum of a row (of row_max) or a column (of col_max) over `segments` segments. */
__device__ static inline uint32_t line_top(const uint16_t (&maxima)[PATCHES][TILE + 8], int line,
                                           int segment, int segments) {
    uint32_t top = 0;
#pragma unroll 4
    for (int i = segment * PATCHES / SEGMENTS; i < (segment + segments) * PATCHES / SEGMENTS; i++)
        top = max(top, (uint32_t)maxima[i][line]);
    return top;
}
__device__ static inline uint32_t square_top(const struct tile_shared &s, int down, int across) {
    constexpr int OF = TILE_WARPS / SEGMENTS;
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < OF; i++) top = max(top, s.square_max[OF * down + i][across]);
    return top;
}
__device__ static inline uint32_t square_of_tile(const struct tile_shared &s) {
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < TILE_WARPS * SEGMENTS; i++)
        top = max(top, (&s.square_max[0][0])[i]);
    return top;
}

__device__ static inline bool in_small_blocks(int kind) {
    return kind == SCALE_1X32 || kind == SCALE_32X32;
}

/* m, with its sign set if a value whose |bits| are `top` saturates, or may do so. */
template <bool E5M2> __device__ static inline float marked(float m, uint32_t top) {
    bool fits = f32_from_bits(top << 16) * m <= fp8_max_of(E5M2);
    return f32_from_bits(f32_bits(m) | (fits ? 0 : 0x80000000u));
}

/* quant_multiplier_of, for TransformerEngine's powers of two without a division. */
template <bool E5M2>
__device__ static inline struct multiplier block_multiplier_of(const struct quant_rule &rule,
                                                               float amax) {
    bool te = rule.constants == QUANT_TE || rule.constants == QUANT_TE_BLOCK;
    float raised = amax < rule.amax_min ? rule.amax_min : amax;
    if (!te || !rule.pow2 || !(raised >= 0x1p-100f && raised <= 0x1p100f))
        return quant_multiplier_of(rule, E5M2, amax);
    /* max = 1.75 * 2^e: the quotient's exponent is one less if raised has a larger mantissa. */
    uint32_t bits = f32_bits(raised), e = E5M2 ? 15 : 8;
    uint32_t m = ((2 * 127 + e) << 23) - (bits & 0x7F800000u);
    if ((bits & 0x7FFFFFu) > 0x600000u) m -= 1u << 23;
    return { f32_from_bits(m), f32_from_bits((254u << 23) - m), 127 };
}

/* Position and extent of a tile along the lines that share scales, and across them. */
struct tile_span { int64_t line0, lines, along0, along; };

/* The marked multiplier of line `line` of the tile (a row, or a column when transposed) in segment
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
        top = transposed ? line_top(s.col_max, line, 0, SEGMENTS)
                         : line_top(s.row_max, line, 0, SEGMENTS);
        slot = at * side.scale_cols + span.along0 / TILE;
        break;
    case SCALE_128X128:
        top = square_of_tile(s);
        slot = span.line0 / TILE * side.scale_cols + span.along0 / TILE;
        owner = inside && line == 0;
        break;
    case SCALE_1X32:
        top = transposed ? line_top(s.col_max, line, segment, 1)
                         : line_top(s.row_max, line, segment, 1);
        slot = at * side.scale_cols + span.along0 / SEGMENT + segment;
        break;
    default: /* SCALE_32X32 */
        top = transposed ? square_top(s, segment, line / SEGMENT)
                         : square_top(s, line / SEGMENT, segment);
        slot = at / SEGMENT * side.scale_cols + span.along0 / SEGMENT + segment;
        owner = inside && line % SEGMENT == 0;
    }
    struct multiplier r = block_multiplier_of<E5M2>(a.rule, f32_from_bits(top << 16));
    if (owner) {
        if (in_small_blocks(side.kind)) ((uint8_t *)side.scale)[slot] = r.e8m0;
        else ((float *)side.scale)[slot] = r.factor;
    }
    return marked<E5M2>(r.m, top);
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
            (transposed ? s.col_m : s.row_m)[i][line] = m;
    }
}

/* The same if both sides have factors of 1x128. Only the first segment's multipliers are set. */
template <bool E5M2>
__device__ static inline void lines_multipliers(const struct tile_args &a, struct tile_at at,
                                                struct tile_shared &s) {
    bool transposed = threadIdx.x >= TILE;
    int line = threadIdx.x % TILE;
    const uint16_t *from = transposed ? &s.col_max[0][line] : &s.row_max[0][line];
    const struct code_side &side = transposed ? a.col : a.row;
    int64_t slot = transposed ? (at.col0 + line) * side.scale_cols + at.row0 / TILE
                              : (at.row0 + line) * side.scale_cols + at.col0 / TILE;
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < PATCHES; i++) top = max(top, (uint32_t)from[i * (TILE + 8)]);
    struct multiplier r = block_multiplier_of<E5M2>(a.rule, f32_from_bits(top << 16));
    ((float *)side.scale)[slot] = r.factor;
    (transposed ? s.col_m : s.row_m)[0][line] = marked<E5M2>(r.m, top);
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

/* Multipliers of the patch's rows, or of its columns. */
__device__ static inline void load_multipliers(float (&m)[PATCH], const float *from) {
#pragma unroll
    for (int i = 0; i < PATCH; i += 4) {
        float4 four = *(const float4 *)(from + i);
        m[i] = four.x; m[i + 1] = four.y; m[i + 2] = four.z; m[i + 3] = four.w;
    }
}

#endif
