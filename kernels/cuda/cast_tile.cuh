/* Turns one tile of 128 x 128 values into FP8 codes, row-wise and transposed, for every scale kind.
 * quantise.cu runs it over stored values, fused producers over values that they just computed.
 *
 * A thread holds a patch of 8 x 8 values in registers, so that a row of the tile is read 16 bytes
 * at a time. Codes are transposed in groups of 4 x 4 bytes by permutations; shared memory holds
 * only codes. Bytes moved: 2 read and 1 written per element and side (plus scales). The maximum for
 * a scale is an integer maximum over |x| bits, so neither order nor NaN matters.
 *
 * At the clock of a whole step, instructions bound these kernels as much as memory does. So a patch
 * is tested as a whole, for NaN and for codes to be counted, and a value is decoded once for both
 * sides.
 *
 * All loads of a patch come before any arithmetic: a branch between loads would turn one wait into
 * eight. Hence WHOLE, the kernel for tensors of whole tiles, which tests no edges. Fused producers
 * have only this kernel, and leave other tensors to a second pass. cast_pair.cuh has the kernel for
 * producers of two tiles at a time. */
#ifndef FP8LAB_KERNELS_CUDA_CAST_TILE_CUH
#define FP8LAB_KERNELS_CUDA_CAST_TILE_CUH

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

/* Aligned to 16 bytes, the size in which most of it is moved. A multiplier's sign is set if its
 * line may have saturated codes. */
struct __align__(16) tile_shared {
    uint2 code[TILE][PATCHES];           /* [column][8 rows, permuted: store_transposed()] */
    uint16_t row_max[PATCHES][TILE + 8]; /* |x| bits of 8 columns of a row; + 8: banks */
    uint16_t col_max[PATCHES][TILE];     /* of 8 rows of a column */
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

__device__ static inline uint32_t row_top(const struct tile_shared &s, int row, int segment,
                                          int segments) {
    uint32_t top = 0;
#pragma unroll 4
    for (int i = segment * PATCHES / SEGMENTS; i < (segment + segments) * PATCHES / SEGMENTS; i++)
        top = max(top, (uint32_t)s.row_max[i][row]);
    return top;
}
__device__ static inline uint32_t col_top(const struct tile_shared &s, int col, int segment,
                                          int segments) {
    uint32_t top = 0;
#pragma unroll 4
    for (int i = segment * PATCHES / SEGMENTS; i < (segment + segments) * PATCHES / SEGMENTS; i++)
        top = max(top, (uint32_t)s.col_max[i][col]);
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

/* ---- codes ---- */

/* The largest |x*m| whose code is zero: half of the smallest subnormal. */
__device__ static inline float fp8_vanishes_of(bool e5m2) { return e5m2 ? 0x1p-17f : 0x1p-10f; }

/* Counts saturations and underflows in a patch. They are rare: one test excludes both in the whole
 * patch, then in a row. m: marked multipliers of the rows (BY_ROW) or of the columns. */
template <bool E5M2, bool BY_ROW>
__device__ static inline void count_patch(const uint4 (&v)[PATCH], uint32_t patch_least,
                                          const float (&m)[PATCH], struct counts &n) {
    float least = fabsf(m[0]);
    uint32_t marks = f32_bits(m[0]);
#pragma unroll
    for (int j = 1; j < PATCH; j++) {
        least = fminf(least, fabsf(m[j]));
        marks |= f32_bits(m[j]);
    }
    bool marked = marks >> 31;
    if (!marked && f32_from_bits(patch_least << 16) * least > fp8_vanishes_of(E5M2)) return;
#pragma unroll
    for (int j = 0; j < PATCH; j++) {
        uint32_t row_least = bf16x8_least(v[j], 0x7FFF7FFFu);
        row_least = min(row_least & 0xFFFFu, row_least >> 16);
        float by = BY_ROW ? fabsf(m[j]) : least, x[PATCH];
        if (!marked && f32_from_bits(row_least << 16) * by > fp8_vanishes_of(E5M2)) continue;
        bf16x8_decode(x, v[j]);
#pragma unroll
        for (int i = 0; i < PATCH; i++) {
            float product = fabsf(x[i] * m[BY_ROW ? j : i]);
            n.saturated += product > fp8_max_of(E5M2);
            n.underflow += x[i] != 0.0f && product <= fp8_vanishes_of(E5M2);
        }
    }
}

/* Eight products rounded to codes. */
template <bool E5M2>
__device__ static inline uint2 encode_products(const float (&x)[PATCH], const float (&m)[PATCH]) {
    uint32_t word[2] = { 0, 0 };
#pragma unroll
    for (int i = 0; i < PATCH; i += 2)
        word[i / 4] |= fp8x2_encode(E5M2, x[i] * fabsf(m[i]), x[i + 1] * fabsf(m[i + 1]))
                       << (i % 4 * 8);
    return make_uint2(word[0], word[1]);
}

/* Keeps the first n of eight codes; the rest become +0. Padding must be zero for any multiplier. */
__device__ static inline uint2 keep_codes(uint2 codes, int64_t n) {
    if (n >= PATCH) return codes;
    uint64_t mask = n <= 0 ? 0 : ((uint64_t)1 << (8 * n)) - 1;
    return make_uint2(codes.x & (uint32_t)mask, codes.y & (uint32_t)(mask >> 32));
}

/* Codes of the patch with the rows' multipliers, stored if rows are wanted: 128 bytes a row of the
 * tile. `moved`: the codes for the transposed side, which are these (SAME) or have the columns'
 * multipliers; those of an untransposed twin are stored here. Codes outside the tensor are +0. */
template <bool E5M2, bool SAME, bool WHOLE>
__device__ static inline void encode_patch(const struct tile_args &a, struct tile_at at,
                                           const uint4 (&v)[PATCH], const float (&row_m)[PATCH],
                                           const float (&col_m)[PATCH], uint2 (&moved)[PATCH]) {
    int64_t row0 = at.row0 + patch_row();
    int64_t col = at.col0 + patch_col(), padded = (a.cols + 15) / 16 * 16;
    uint8_t *to = a.row.codes + row0 * a.row.ld + col;
    bool rows = a.row.codes != NULL;
    int64_t apart = a.col.codes - a.row.codes; /* an untransposed twin's lines are as long */
    bool again = a.col.untransposed && apart;  /* 0: squares share their codes' memory */
#pragma unroll
    for (int j = 0; j < PATCH; j++, to += a.row.ld) {
        const float m[PATCH] = { row_m[j], row_m[j], row_m[j], row_m[j],
                                 row_m[j], row_m[j], row_m[j], row_m[j] };
        bool inside = WHOLE || row0 + j < a.rows;
        float x[PATCH];
        bf16x8_decode(x, v[j]);
        uint2 codes = encode_products<E5M2>(x, m);
        if (!WHOLE) codes = keep_codes(codes, inside ? a.cols - col : 0);
        if (rows && inside && (WHOLE || col < padded)) *(uint2 *)to = codes;
        moved[j] = codes;
        if (!SAME) moved[j] = encode_products<E5M2>(x, col_m);
        if (!SAME && !WHOLE) moved[j] = keep_codes(moved[j], inside ? a.cols - col : 0);
        if (again && inside && (WHOLE || col < padded))
            *(uint2 *)(to + apart) = moved[j];
    }
}

/* Transposes the codes through shared memory and stores them: 128 bytes a column of the tile.
 * Groups of eight rows are permuted by the column's patch, which avoids bank conflicts on both
 * sides. */
template <bool WHOLE>
__device__ static inline void store_transposed(const struct tile_args &a, struct tile_at at,
                                           struct tile_shared &s,
                                           const uint2 (&codes)[PATCH]) {
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

/* One tile of values into codes. SAME: the transposed codes are the row-wise codes, transposed.
 * Between two calls all threads pass a barrier after the last read of s.code. */
template <bool E5M2, bool SAME, bool WHOLE>
__device__ static inline void emit_tile(const struct tile_args &a, struct tile_at at,
                                        const uint4 (&v)[PATCH], const struct patch_range &r,
                                        struct tile_shared &s, float tensor_m,
                                        struct counts &n) {
    float row_m[PATCH], col_m[PATCH];
    if (a.line_maxima) lines_maxima(v, r, s);
    if (a.square_maxima) squares_maxima(r.top, s);
    if ((a.row.codes ? a.row.kind : a.col.kind) != SCALE_TENSOR) {
        if (a.line_maxima || a.square_maxima) __syncthreads();
        tile_multipliers<E5M2>(a, at, s);
        __syncthreads();
        load_multipliers(row_m, &s.row_m[patch_col() / SEGMENT][patch_row()]);
        load_multipliers(col_m, &s.col_m[patch_row() / SEGMENT][patch_col()]);
    } else {
        float m = marked<E5M2>(tensor_m, r.top);
#pragma unroll
        for (int j = 0; j < PATCH; j++) row_m[j] = col_m[j] = m;
    }
    if (a.stats && (SAME || a.row.codes)) count_patch<E5M2, true>(v, r.least, row_m, n);
    if (a.stats && !SAME && !a.row.codes) count_patch<E5M2, false>(v, r.least, col_m, n);
    uint2 codes[PATCH];
    encode_patch<E5M2, SAME, WHOLE>(a, at, v, row_m, col_m, codes);
    if (a.col.codes && !a.col.untransposed) store_transposed<WHOLE>(a, at, s, codes);
}

/* ---- values that were just computed ---- */

/* bf16x8_encode, but NaN becomes 0x7FFF. */
__device__ static inline uint4 bf16x8_pack(const float (&in)[8]) {
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word[i]) : "f"(in[2 * i + 1]), "f"(in[2 * i]));
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* The range of values from bf16x8_pack. NaN becomes 0x7FC0, as everywhere else. */
__device__ static inline struct patch_range range_of_made(uint4 (&v)[PATCH]) {
    const uint32_t nan = 0x7FFF7FFFu, change = 0x7FFF7FFFu ^ 0x7FC07FC0u;
    struct patch_range r = range_of(v);
    if (r.top <= 0x7F80u) return r;
#pragma unroll
    for (int j = 0; j < PATCH; j++) {
        v[j].x ^= __vcmpeq2(v[j].x, nan) & change;
        v[j].y ^= __vcmpeq2(v[j].y, nan) & change;
        v[j].z ^= __vcmpeq2(v[j].z, nan) & change;
        v[j].w ^= __vcmpeq2(v[j].w, nan) & change;
    }
    return range_of(v);
}

/* Grid: one block a tile. A Source has:
 *   MADE                  whether the values are from bf16x8_pack
 *   BLOCKS                blocks per multiprocessor, which bounds the registers
 *   struct raw            the inputs of eight values
 *   load(row, col)        returns struct raw for a place inside the tensor
 *   make(raw, row, col)   returns the eight values
 *   keep(v, row, col)     stores them, if they are to be kept */
template <class Source, bool E5M2, bool SAME, bool WHOLE>
__global__ void __launch_bounds__(TILE_THREADS, Source::BLOCKS)
    cast_tile_kernel(struct tile_args a, Source from) {
    __shared__ struct tile_shared s;
    struct tile_at at = tile_of(a, a.cols);
    int64_t row0 = at.row0 + patch_row(), col0 = at.col0 + patch_col();
    typename Source::raw raw[PATCH];
#pragma unroll
    for (int j = 0; j < PATCH; j++) {
        raw[j] = {};
        if (WHOLE || (row0 + j < a.rows && col0 < a.cols)) raw[j] = from.load(row0 + j, col0);
    }
    if (a.flag && *a.flag >= 0) return;
    float tensor_m = tensor_multiplier<E5M2>(a);
    uint4 v[PATCH];
#pragma unroll
    for (int j = 0; j < PATCH; j++) v[j] = from.make(raw[j], row0 + j, col0);
    struct patch_range r;
    if constexpr (Source::MADE) r = range_of_made(v);
    else r = range_of(v);
#pragma unroll
    for (int j = 0; j < PATCH; j++) from.keep(v[j], row0 + j, col0);
    struct counts n = { 0, 0 };
    emit_tile<E5M2, SAME, WHOLE>(a, at, v, r, s, tensor_m, n);
    warp_amax_into(a.amax, r.top << 16);
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

/* The codes that a sink has: those along the rows, if wanted. */
static inline const struct tensor *codes_made(const struct sink *s) {
    return s->codes->data ? s->codes : s->codes->transposed;
}

/* True if codes can be made tile by tile: each scale is known or depends on one tile only. */
static inline bool casts_by_tile(const struct sink *s) {
    if (s->source != SCALE_SOURCE_KNOWN && s->source != SCALE_SOURCE_BLOCK) return false;
    return codes_made(s)->scale.kind != SCALE_ROW &&
           whole_tiles(s->codes->dim[0], s->codes->dim[1]);
}

/* True if a producer may then emit the codes of its value itself. Column sums are taken from the
 * stored value (but see cast_sums.cuh). */
static inline bool cast_fuses(const struct sink *s) { return !s->sums && casts_by_tile(s); }

/* True if the producer may compute that value twice instead of storing it: once for the amax, once
 * for the codes. This pays if the inputs are no larger than value, codes and value again. */
static inline bool cast_repeats(const struct sink *s) {
    return s->source == SCALE_SOURCE_AMAX &&
           !scale_is_nvfp4(codes_made(s)->scale.kind) && /* nvfp4.cu reads it stored */
           !sink_waits(s) && !s->keep_value && !s->sums &&
           whole_tiles(s->codes->dim[0], s->codes->dim[1]);
}

/* Whether a tile needs one set of codes only. A square block's transpose is itself a block, so one
 * set then serves both sides. */
static inline bool codes_are_same(const struct sink *s, const struct tile_args &a) {
    int kind = codes_made(s)->scale.kind;
    if (!a.col.codes || kind == SCALE_TENSOR) return true;
    return a.row.codes && (kind == SCALE_128X128 || kind == SCALE_32X32);
}

/* WHOLE as above. A Source with edges loads eight columns, of which only the first must be
 * inside. */
template <bool WHOLE, class Source>
static enum status cast_tiles(struct backend *b, int lane, const struct sink *s,
                              const struct tile_args &a, const Source &from, struct err *e) {
    unsigned tiles;
    TRY(tile_count(s, &a, &tiles, e));
    if (tiles == 0) return OK;
    bool e5m2 = codes_made(s)->dtype == DTYPE_E5M2, same = codes_are_same(s, a);
    auto kernel = same ? cast_tile_kernel<Source, false, true, WHOLE>
                       : cast_tile_kernel<Source, false, false, WHOLE>;
    if (e5m2)
        kernel = same ? cast_tile_kernel<Source, true, true, WHOLE>
                      : cast_tile_kernel<Source, true, false, WHOLE>;
    kernel<<<tiles, TILE_THREADS, 0, cuda_lane(b, lane)>>>(a, from);
    return cuda_launched("quantise", e);
}

#endif
