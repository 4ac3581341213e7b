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

#include <type_traits>

#include "kernels/cuda/cast_scales.cuh"

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
 * tile. `moved`: the codes for the transposed side, which are these (SIDES_SAME) or have the
 * columns' multipliers; those of an untransposed twin are stored here. Codes outside the tensor are
 * +0. */
template <bool E5M2, enum code_sides SIDES, bool WHOLE>
__device__ static inline void encode_patch(const struct tile_args &a, struct tile_at at,
                                           const uint4 (&v)[PATCH], const float (&row_m)[PATCH],
                                           const float (&col_m)[PATCH], uint2 (&moved)[PATCH]) {
    int64_t row0 = at.row0 + patch_row();
    int64_t col = at.col0 + patch_col(), padded = (a.cols + 15) / 16 * 16;
    uint8_t *to = a.row.codes + row0 * a.row.ld + col;
    constexpr bool SAME = SIDES == SIDES_SAME, LINES = SIDES == SIDES_LINES;
    bool rows = LINES || a.row.codes != NULL;
    int64_t apart = a.col.codes - a.row.codes; /* an untransposed twin's lines are as long */
    bool again = !LINES && a.col.untransposed && apart; /* 0: squares share their codes' memory */
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
    constexpr int STEP = TILE_THREADS / 8;
    int first = threadIdx.x / 8, pair = threadIdx.x % 8 * 2; /* two groups: 16 rows */
    int64_t row = at.row0 + pair * PATCH;
    uint8_t *to = a.col.codes + (at.col0 + first) * a.col.ld + row;
#pragma unroll
    for (int i = 0; i < TILE / STEP; i++, to += STEP * a.col.ld) {
        int line = first + i * STEP, mask = first / PATCH ^ i * STEP / PATCH;
        uint4 v = *(const uint4 *)&s.code[line][pair ^ (mask & ~1)];
        if (mask & 1) v = make_uint4(v.z, v.w, v.x, v.y);
        if (WHOLE || (at.col0 + line < a.cols && row < a.rows)) *(uint4 *)to = v;
    }
}

__device__ static inline void add_counts(const struct tile_args &a, struct counts n) {
    uint32_t saturated = __reduce_add_sync(0xFFFFFFFFu, n.saturated);
    uint32_t underflow = __reduce_add_sync(0xFFFFFFFFu, n.underflow);
    if (threadIdx.x % WARP) return;
    if (saturated) atomicAdd(&a.stats[0], saturated);
    if (underflow) atomicAdd(&a.stats[1], underflow);
}

/* One tile of values into codes. Between two calls all threads pass a barrier after the last read
 * of s.code. */
template <bool E5M2, enum code_sides SIDES, bool WHOLE>
__device__ static inline void emit_tile(const struct tile_args &a, struct tile_at at,
                                        const uint4 (&v)[PATCH], const struct patch_range &r,
                                        struct tile_shared &s, float tensor_m,
                                        struct counts &n) {
    constexpr bool SAME = SIDES == SIDES_SAME, LINES = SIDES == SIDES_LINES;
    float row_m[PATCH], col_m[PATCH];
    if (LINES || a.line_maxima) lines_maxima(v, r, s);
    if (!LINES && a.square_maxima) squares_maxima(r.top, s);
    if constexpr (LINES) {
        __syncthreads();
        lines_multipliers<E5M2>(a, at, s);
        __syncthreads();
        load_multipliers(row_m, &s.row_m[0][patch_row()]);
        load_multipliers(col_m, &s.col_m[0][patch_col()]);
    } else if ((a.row.codes ? a.row.kind : a.col.kind) != SCALE_TENSOR) {
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
    if (a.stats && (SAME || LINES || a.row.codes)) count_patch<E5M2, true>(v, r.least, row_m, n);
    if (a.stats && !SAME && !LINES && !a.row.codes) count_patch<E5M2, false>(v, r.least, col_m, n);
    uint2 codes[PATCH];
    encode_patch<E5M2, SIDES, WHOLE>(a, at, v, row_m, col_m, codes);
    if (LINES || (a.col.codes && !a.col.untransposed)) store_transposed<WHOLE>(a, at, s, codes);
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

/* NaN becomes 0x7FC0. */
__device__ static inline uint32_t canonical_pair(uint32_t v) {
    return v ^ (__vcmpgtu2(v & 0x7FFF7FFFu, 0x7F807F80u) & (v ^ 0x7FC07FC0u));
}

/* The range of values whose NaN is not yet canonical. NaN becomes 0x7FC0, as everywhere else. */
__device__ static inline struct patch_range range_of_made(uint4 (&v)[PATCH]) {
    struct patch_range r = range_of(v);
    if (r.top <= 0x7F80u) return r;
#pragma unroll
    for (int j = 0; j < PATCH; j++)
        v[j] = make_uint4(canonical_pair(v[j].x), canonical_pair(v[j].y),
                          canonical_pair(v[j].z), canonical_pair(v[j].w));
    return range_of(v);
}

/* Behind a patch's loads: whether nothing is to be written. The loads stay together before it: the
 * compiler would otherwise move some of them behind arithmetic, and a warp would wait several
 * times. */
__device__ static inline bool loaded_in_vain(const struct tile_args &a) {
    __syncwarp();
    return a.flag && *a.flag >= 0;
}

/* Grid: one block a tile. A Source has:
 *   MADE                  whether the values' NaN is not yet canonical
 *   BLOCKS                blocks per multiprocessor, which bounds the registers
 *   struct raw            the inputs of eight values
 *   load(row, col)        returns struct raw for a place inside the tensor
 *   make(v, raw, row, col) makes a patch's values
 *   keep(v, row, col)     stores eight of them, if they are to be kept */
template <class Source, bool E5M2, enum code_sides SIDES, bool WHOLE>
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
    if (loaded_in_vain(a)) return;
    uint32_t seen = amax_seen(a.amax);
    float tensor_m = SIDES == SIDES_LINES ? 1.0f : tensor_multiplier<E5M2>(a);
    uint4 v[PATCH];
    from.make(v, raw, row0, col0);
    struct patch_range r;
    if constexpr (Source::MADE) r = range_of_made(v);
    else r = range_of(v);
#pragma unroll
    for (int j = 0; j < PATCH; j++) from.keep(v[j], row0 + j, col0);
    struct counts n = { 0, 0 };
    emit_tile<E5M2, SIDES, WHOLE>(a, at, v, r, s, tensor_m, n);
    warp_amax_above(a.amax, seen, r.top << 16);
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

/* A square block's transpose is itself a block, so one set of codes then serves both sides. */
static inline enum code_sides sides_of(const struct sink *s, const struct tile_args &a) {
    int kind = codes_made(s)->scale.kind;
    if (!a.col.codes || kind == SCALE_TENSOR) return SIDES_SAME;
    if (a.row.codes && (kind == SCALE_128X128 || kind == SCALE_32X32)) return SIDES_SAME;
    bool lines = a.row.codes && kind == SCALE_1X128 && a.col.kind == SCALE_1X128;
    return lines && whole_tiles(a.rows, a.cols) && !a.col.untransposed ? SIDES_LINES : SIDES_APART;
}

/* kernel<E5M2, SIDES> for a sink's codes. `kernel` is a lambda of both, as integral constants. */
template <class Kernel>
static inline auto kernel_for(const struct sink *s, const struct tile_args &a, Kernel kernel) {
    typedef std::integral_constant<enum code_sides, SIDES_SAME> same;
    typedef std::integral_constant<enum code_sides, SIDES_LINES> lines;
    typedef std::integral_constant<enum code_sides, SIDES_APART> apart;
    bool e5m2 = codes_made(s)->dtype == DTYPE_E5M2;
    std::true_type yes;
    std::false_type no;
    switch (sides_of(s, a)) {
    case SIDES_SAME: return e5m2 ? kernel(yes, same()) : kernel(no, same());
    case SIDES_LINES: return e5m2 ? kernel(yes, lines()) : kernel(no, lines());
    default: return e5m2 ? kernel(yes, apart()) : kernel(no, apart());
    }
}

/* WHOLE as above. A Source with edges loads eight columns, of which only the first must be
 * inside. */
template <bool WHOLE, class Source>
static enum status cast_tiles(struct backend *b, int lane, const struct sink *s,
                              const struct tile_args &a, const Source &from, struct err *e) {
    unsigned tiles;
    TRY(tile_count(s, &a, &tiles, e));
    if (tiles == 0) return OK;
    auto kernel = kernel_for(s, a, [](auto e5m2, auto sides) {
        constexpr bool lines = sides == SIDES_LINES; /* of whole tiles alone */
        return cast_tile_kernel<Source, e5m2, WHOLE || !lines ? sides : SIDES_APART, WHOLE>;
    });
    kernel<<<tiles, TILE_THREADS, 0, cuda_lane(b, lane)>>>(a, from);
    return cuda_launched("quantise", e);
}

#endif
