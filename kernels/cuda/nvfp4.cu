/* From a BF16 value to NVFP4's codes: tiles of 128 x 128, a block of threads each. nvfp4.cuh has
 * the arithmetic.
 *
 * A thread holds a patch of 16 rows by 8 columns: eight whole blocks along the columns, and halves
 * of 16 along the rows. The next lane has the other halves. Eight lanes store 128 bytes of a
 * column's codes, four store 32 of a row's. All loads come before any arithmetic, and no value goes
 * through shared memory. Bytes moved: 2 read and 1 written an element and copy. With a rotation the
 * value is read once more, for the amax of what the twin is made of. */
#include "kernels/cuda/nvfp4.cuh"

/* One of the two copies. */
struct fp4_side {
    uint8_t *codes, *scales; /* NULL: not wanted */
    const uint32_t *amax;    /* of what it is made of */
    int64_t ld, scale_cols;
};

struct fp4_args {
    const bf16_bits *x;
    int64_t rows, cols;
    struct fp4_side row, col;
    uint32_t *rotated;              /* amax of the rotated value */
    unsigned long long *stats;      /* [2] or NULL */
    const int32_t *step, *sequence; /* of stochastic rounding */
    int64_t sequence_rows, first;
    uint64_t seed;
    uint32_t tensor;
    bool rotate, vectors; /* vectors: x in pieces of 16 bytes */
    bool backwards;       /* from the last tile to the first */
};

/* NEAREST and STOCHASTIC have a scale for 16 values; SQUARES for 16 x 16, and round to nearest. */
enum fp4_kind { NEAREST, STOCHASTIC, SQUARES };

/* Table 1 is for columns with an amax of their own. */
struct __align__(16) fp4_shared {
    struct fp4_table table[2];
    uint64_t key[2]; /* of the draws: enum nvfp4_copy */
    uint8_t scale[FP4_TILE][FP4_DOWN]; /* of the tile's rows */
};

/* A thread's patch, and its place in its tile. */
struct fp4_patch {
    uint32_t v[NVFP4_BLOCK][FP4_WORDS];
    int64_t row, col;
    int down, across; /* in rows and columns */
};

__device__ static inline int64_t round_up_16(int64_t n) { return (n + 15) / 16 * 16; }

/* ---- loading ---- */

__device__ static inline void place_patch(const struct fp4_args &a, struct fp4_patch &p) {
    uint32_t across = (uint32_t)((a.cols + FP4_TILE - 1) / FP4_TILE);
    uint32_t tile = a.backwards ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    int lane = threadIdx.x % WARP;
    p.down = lane / FP4_ACROSS * NVFP4_BLOCK;
    p.across = ((int)threadIdx.x / WARP * FP4_ACROSS + lane % FP4_ACROSS) * FP4_COLS;
    p.row = tile / across * (int64_t)FP4_TILE + p.down;
    p.col = tile % across * (int64_t)FP4_TILE + p.across;
}

/* Zeros outside. */
template <bool WHOLE>
__device__ static inline void load_patch(const struct fp4_args &a, struct fp4_patch &p) {
    place_patch(a, p);
    const bf16_bits *from = a.x + p.row * a.cols + p.col;
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i++, from += a.cols) {
        uint4 v = make_uint4(0, 0, 0, 0);
        int64_t left = WHOLE || p.row + i < a.rows ? a.cols - p.col : 0;
        if (WHOLE || (a.vectors && left > 0)) v = *(const uint4 *)from;
        uint32_t word[FP4_WORDS] = { v.x, v.y, v.z, v.w };
        if (!WHOLE && !a.vectors)
            for (int j = 0; j < FP4_COLS; j++)
                if (j < left) word[j / 2] |= (uint32_t)from[j] << j % 2 * 16;
#pragma unroll
        for (int j = 0; j < FP4_WORDS; j++) p.v[i][j] = word[j];
    }
}

/* Whether this patch's columns are rotated: only if all 16 rows exist. */
template <bool WHOLE>
__device__ static inline bool rotates(const struct fp4_args &a, const struct fp4_patch &p) {
    return a.rotate && (WHOLE || p.row + NVFP4_BLOCK <= a.rows);
}

/* Grid: one block of threads a tile. */
template <bool WHOLE>
__global__ void __launch_bounds__(FP4_THREADS, 4) rotated_amax_kernel(struct fp4_args a) {
    struct fp4_patch p;
    load_patch<WHOLE>(a, p);
    bool rotated = rotates<WHOLE>(a, p);
    uint32_t top = 0;
#pragma unroll
    for (int j = 0; j < FP4_COLS; j++) {
        uint32_t w[NVFP4_BLOCK / 2];
        fp4_column(w, p.v, j, rotated);
        top = __vmaxu2(top, fp4_tops(w));
    }
    if (rotated) top = __vminu2(top, 0x7FC07FC0u); /* the one NaN */
    block_amax_into(a.rotated, f32_bits(fp4_larger(top)));
}

/* ---- along the rows ---- */

__device__ static inline int64_t row_of_batch(const struct fp4_args &a, int64_t row) {
    return *a.sequence * a.sequence_rows + a.first + row;
}

/* Largest |x| of rows i and i + 1, of the patch and of its neighbour with the other halves. */
__device__ static inline uint32_t two_rows_tops(const struct fp4_patch &p, int i) {
    const uint32_t magnitude = 0x7FFF7FFFu;
    uint32_t top[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const uint32_t (&v)[FP4_WORDS] = p.v[i + k];
        top[k] = __vimax3_u16x2(v[0] & magnitude, v[1] & magnitude, v[2] & magnitude);
        top[k] = __vmaxu2(top[k], v[3] & magnitude);
    }
    uint32_t tops = __vmaxu2(__byte_perm(top[0], top[1], 0x5410),
                             __byte_perm(top[0], top[1], 0x7632));
    return __vmaxu2(tops, __shfl_xor_sync(0xFFFFFFFFu, tops, 1));
}

/* Codes along the rows, stored if they are wanted; `codes` has those of squares. Returns the rows
 * that are rare, a bit each: the last is bit 0. */
template <enum fp4_kind KIND, bool WHOLE, bool COUNT>
__device__ static inline uint32_t make_rows(const struct fp4_args &a, const struct fp4_patch &p,
                                            struct fp4_shared &s, const struct fp4_rule &rule,
                                            uint2 (&codes)[NVFP4_BLOCK], struct fp4_counts &n) {
    uint32_t rare = 0, tops[NVFP4_BLOCK / 2];
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i += 2) tops[i / 2] = two_rows_tops(p, i);
    struct fp4_block b;
    if (KIND == SQUARES) b = fp4_block_of<COUNT>(rule, fp4_larger(fp4_tops(tops)));
    uint64_t draw = 0, draws = 0;
    if (KIND == STOCHASTIC) {
        int64_t across = (a.cols + 7) / 8, row = row_of_batch(a, p.row);
        draw = rng_input(s.key[NVFP4_CODES], (uint64_t)(row * across + p.col / 8));
        draws = RNG_STRIDE * (uint64_t)across;
    }
    bool wanted = a.row.codes && (WHOLE || p.col < round_up_16(a.cols)); /* rows are padded */
    uint8_t *to = a.row.codes + p.row * a.row.ld + p.col;
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i++, to += a.row.ld, draw += draws) {
        if (KIND != SQUARES)
            b = fp4_block_of<COUNT>(rule, f32_from_bits(i % 2 ? tops[i / 2] & 0xFFFF0000u
                                                              : tops[i / 2] << 16));
        uint64_t random = KIND == STOCHASTIC ? rng_mix(draw) : 0;
        const uint32_t (&v)[FP4_WORDS] = p.v[i];
        uint2 c = make_uint2(
            fp4_codes<KIND == STOCHASTIC>(v[0], v[1], b, (uint32_t)random),
            fp4_codes<KIND == STOCHASTIC>(v[2], v[3], b, (uint32_t)(random >> 32)));
        if (COUNT) {
            fp4_count(n, v[0], v[1], c.x, b);
            fp4_count(n, v[2], v[3], c.y, b);
        }
        if (wanted && (WHOLE || p.row + i < a.rows)) *(uint2 *)to = c;
        if (KIND == SQUARES) codes[i] = c;
        rare = __funnelshift_l((uint32_t)b.over, rare, 1);
        if (KIND != SQUARES || i == 0) s.scale[p.down + i][p.across / NVFP4_BLOCK] = (uint8_t)b.d;
    }
    if (COUNT) n.flushed += FP4_COLS * (NVFP4_BLOCK - __popc(rare));
    return rare;
}

/* The codes of rare rows again. */
template <enum fp4_kind KIND>
__device__ static void rare_rows(const struct fp4_args &a, const struct fp4_patch &p,
                                 const struct fp4_shared &s, float tensor, uint32_t rare,
                                 struct fp4_counts &n) {
    for (; rare; rare &= rare - 1) {
        int i = NVFP4_BLOCK - __ffs((int)rare), down = p.down + (KIND == SQUARES ? 0 : i);
        int64_t row = p.row + i;
        if (row >= a.rows) continue;
        float m = nvfp4_block_multiplier(tensor, s.scale[down][p.across / NVFP4_BLOCK]);
        uint64_t draw = 0;
        if (KIND == STOCHASTIC)
            draw = nvfp4_draw_of_codes(s.key[NVFP4_CODES], row_of_batch(a, row), p.col, a.cols);
        for (int64_t col = p.col; col < p.col + FP4_COLS; col++) {
            uint32_t code = 0;
            if (col < a.cols)
                code = fp4_rare_code<KIND == STOCHASTIC>(bf16_decode(a.x[row * a.cols + col]), m,
                                                         nvfp4_byte(draw, col), n);
            if (a.row.codes && col < round_up_16(a.cols))
                a.row.codes[row * a.row.ld + col] = (uint8_t)code;
        }
    }
}

/* The rows' scales of the tile, eight bytes a thread. */
__device__ static inline void store_row_scales(const struct fp4_args &a, const struct fp4_patch &p,
                                               const struct fp4_shared &s) {
    int64_t row = p.row - p.down + threadIdx.x, block = (p.col - p.across) / NVFP4_BLOCK;
    if (row >= a.rows) return;
    uint8_t *to = a.row.scales + row * a.row.scale_cols + block;
    const uint8_t *from = s.scale[threadIdx.x];
    if ((uintptr_t)to % 8 == 0 && block + FP4_DOWN <= a.row.scale_cols)
        *(uint2 *)to = *(const uint2 *)from;
    else
        for (int i = 0; i < FP4_DOWN && block + i < a.row.scale_cols; i++) to[i] = from[i];
}

/* ---- along the columns ---- */

/* Draws begin at rows that are multiples of 8. `late`: bits of the first that belong to rows before
 * the patch. draw: the first's input; eight: what 8 rows add to it. */
struct column_draws { uint64_t draw, eight; int late; };

__device__ static inline struct column_draws draws_of(const struct fp4_args &a,
                                                      const struct fp4_patch &p,
                                                      const struct fp4_shared &s) {
    int64_t row = row_of_batch(a, p.row);
    return { rng_input(s.key[NVFP4_TWIN], (uint64_t)(row / 8 * a.cols + p.col)),
             RNG_STRIDE * (uint64_t)a.cols, (int)(row & 7) * 8 };
}

/* A byte for each of 16 rows of the patch's column j. */
__device__ static inline void draw_column(uint64_t (&random)[2], const struct column_draws &d,
                                          int j) {
    uint64_t draw = d.draw + RNG_STRIDE * (uint64_t)j;
    random[0] = rng_mix(draw);
    random[1] = rng_mix(draw + d.eight);
    if (d.late == 0) return;
    uint64_t last = rng_mix(draw + 2 * d.eight);
    random[0] = random[0] >> d.late | random[1] << (64 - d.late);
    random[1] = random[1] >> d.late | last << (64 - d.late);
}

/* Codes along the columns. Returns the columns that are rare, as make_rows(). */
template <enum fp4_kind KIND, bool WHOLE, bool COUNT>
__device__ static inline uint32_t make_columns(const struct fp4_args &a, const struct fp4_patch &p,
                                               const struct fp4_shared &s,
                                               const struct fp4_rule &rule,
                                               struct fp4_counts &n) {
    bool rotated = rotates<WHOLE>(a, p), counted = COUNT && !a.row.codes;
    uint32_t rare = 0;
    struct column_draws d = {};
    if (KIND == STOCHASTIC) d = draws_of(a, p, s);
    uint8_t *to = a.col.codes + p.col * a.col.ld + p.row;
    uint8_t *scale = a.col.scales + p.col * a.col.scale_cols + p.row / NVFP4_BLOCK;
#pragma unroll
    for (int j = 0; j < FP4_COLS; j++, to += a.col.ld, scale += a.col.scale_cols) {
        uint32_t w[NVFP4_BLOCK / 2], c[4];
        fp4_column(w, p.v, j, rotated);
        struct fp4_block b = fp4_block_of<COUNT>(rule, fp4_larger(fp4_tops(w)));
        uint64_t random[2] = { 0, 0 };
        if (KIND == STOCHASTIC) draw_column(random, d, j);
#pragma unroll
        for (int k = 0; k < 4; k++)
            c[k] = fp4_codes<KIND == STOCHASTIC>(w[2 * k], w[2 * k + 1], b,
                                                 (uint32_t)(random[k / 2] >> k % 2 * 32));
        if (counted) {
#pragma unroll
            for (int k = 0; k < 4; k++) fp4_count(n, w[2 * k], w[2 * k + 1], c[k], b);
            n.flushed += b.over < 0 ? 0 : NVFP4_BLOCK;
        }
        rare = __funnelshift_l((uint32_t)b.over, rare, 1);
        if (!WHOLE && (p.row >= a.rows || p.col + j >= a.cols)) continue;
        store_words(to, make_uint4(c[0], c[1], c[2], c[3]));
        *scale = (uint8_t)b.d;
    }
    return rare;
}

/* The codes of squares along the columns: those of the rows, transposed. */
template <bool WHOLE>
__device__ static inline void turn_squares(const struct fp4_args &a, const struct fp4_patch &p,
                                           const uint2 (&codes)[NVFP4_BLOCK]) {
    uint8_t *to = a.col.codes + p.col * a.col.ld + p.row;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t c[4][4]; /* [four rows][column] */
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint2 *four = &codes[4 * k];
            if (half) transpose_4x4(c[k], four[0].y, four[1].y, four[2].y, four[3].y);
            else transpose_4x4(c[k], four[0].x, four[1].x, four[2].x, four[3].x);
        }
#pragma unroll
        for (int j = 0; j < 4; j++, to += a.col.ld)
            if (WHOLE || (p.row < a.rows && p.col + 4 * half + j < a.cols))
                store_words(to, make_uint4(c[0][j], c[1][j], c[2][j], c[3][j]));
    }
}

/* The scale of the patch's square, into both copies. */
__device__ static inline void store_square_scale(const struct fp4_args &a,
                                                 const struct fp4_patch &p, uint8_t d) {
    if (p.col % NVFP4_BLOCK || p.row >= a.rows || p.col >= a.cols) return;
    int64_t down = p.row / NVFP4_BLOCK, across = p.col / NVFP4_BLOCK;
    if (a.row.codes) a.row.scales[down * a.row.scale_cols + across] = d;
    if (a.col.codes) a.col.scales[across * a.col.scale_cols + down] = d;
}

/* The codes of rare columns again. Their scales are stored. */
template <enum fp4_kind KIND>
__device__ static void rare_columns(const struct fp4_args &a, const struct fp4_patch &p,
                                    const struct fp4_shared &s, float tensor, uint32_t rare,
                                    struct fp4_counts &n) {
    struct fp4_counts count = { n.over, n.zero, 0, 0, 0 };
    for (; rare; rare &= rare - 1) {
        int j = FP4_COLS - __ffs((int)rare);
        int64_t col = p.col + j, line = KIND == SQUARES ? col / NVFP4_BLOCK : col;
        if (col >= a.cols || p.row >= a.rows) continue;
        float m = nvfp4_block_multiplier(
            tensor, a.col.scales[line * a.col.scale_cols + p.row / NVFP4_BLOCK]);
        uint64_t random[2] = { 0, 0 };
        if (KIND == STOCHASTIC) draw_column(random, draws_of(a, p, s), j);
        float x[NVFP4_BLOCK];
#pragma unroll
        for (int i = 0; i < NVFP4_BLOCK; i++)
            x[i] = p.row + i < a.rows ? bf16_decode(a.x[(p.row + i) * a.cols + col]) : 0.0f;
        if (rotates<false>(a, p)) fp4_rotate(x);
        uint8_t *to = a.col.codes + col * a.col.ld + p.row;
#pragma unroll
        for (int i = 0; i < NVFP4_BLOCK; i++) {
            uint32_t code = 0;
            if (p.row + i < a.rows)
                code = fp4_rare_code<KIND == STOCHASTIC>(bf16_decode(bf16_encode(x[i])), m,
                                                         nvfp4_byte(random[i / 8], i), count);
            to[i] = (uint8_t)code;
        }
    }
    if (a.row.codes || KIND == SQUARES) return;
    n.saturated += count.saturated;
    n.flushed += count.flushed;
}

/* ---- the kernel ---- */

/* The tables and keys of the block of threads. row_s, col_s: the tensors' multipliers; two: they
 * differ. */
template <enum fp4_kind KIND, bool COUNT>
__device__ static inline void fill_shared(const struct fp4_args &a, struct fp4_shared &s,
                                          float row_s, float col_s, bool two) {
    static_assert(FP4_THREADS == FP4_SCALES, "an entry a thread");
    fp4_fill_table<COUNT>(s.table[0], row_s, (int)threadIdx.x);
    if (two) fp4_fill_table<COUNT>(s.table[1], col_s, (int)threadIdx.x);
    if (KIND == STOCHASTIC && threadIdx.x < 2)
        s.key[threadIdx.x] = nvfp4_key(a.seed, *a.step, a.tensor, (enum nvfp4_copy)threadIdx.x);
    __syncthreads();
}

__device__ static inline void add_counts(const struct fp4_args &a, const struct fp4_counts &n) {
    uint32_t saturated = __reduce_add_sync(0xFFFFFFFFu, fp4_saturated(n));
    uint32_t flushed = __reduce_add_sync(0xFFFFFFFFu, fp4_flushed(n));
    if (threadIdx.x % WARP) return;
    if (saturated) atomicAdd(&a.stats[0], saturated);
    if (flushed) atomicAdd(&a.stats[1], flushed);
}

/* Grid: one block of threads a tile. The first stores the amax of each copy. WHOLE: the tensor has
 * whole tiles, and rows that can be read 16 bytes at a time. */
template <enum fp4_kind KIND, bool WHOLE, bool COUNT>
__global__ void __launch_bounds__(FP4_THREADS, 4) nvfp4_kernel(struct fp4_args a) {
    __shared__ struct fp4_shared s;
    struct fp4_patch p;
    load_patch<WHOLE>(a, p);
    const uint32_t *amax = a.row.codes ? a.row.amax : a.col.amax;
    float row_s = nvfp4_tensor_multiplier(f32_from_bits(*amax)), col_s = row_s;
    bool two = a.col.codes && a.col.amax != amax;
    if (two) col_s = nvfp4_tensor_multiplier(f32_from_bits(*a.col.amax));
    fill_shared<KIND, COUNT>(a, s, row_s, col_s, two);
    const struct fp4_rule row = { &s.table[0], row_s * (1.0f / 6.0f) };
    const struct fp4_rule col = { &s.table[two], col_s * (1.0f / 6.0f) };
    struct fp4_counts n = { fp4_pair(0), fp4_pair(0), 0, 0, 0 };
    uint32_t rare_row = 0, rare_col = 0;
    uint2 codes[NVFP4_BLOCK];
    if (KIND == SQUARES || a.row.codes)
        rare_row = make_rows<KIND, WHOLE, COUNT>(a, p, s, row, codes, n);
    if (KIND == SQUARES) {
        store_square_scale(a, p, s.scale[p.down][p.across / NVFP4_BLOCK]);
        if (a.col.codes) turn_squares<WHOLE>(a, p, codes);
        if (a.col.codes && rare_row) rare_col = 0xFFu;
    } else if (a.col.codes) {
        rare_col = make_columns<KIND, WHOLE, COUNT>(a, p, s, col, n);
    }
    __syncthreads();
    if (KIND != SQUARES && a.row.codes) store_row_scales(a, p, s);
    if (rare_row) rare_rows<KIND>(a, p, s, row_s, rare_row, n);
    if (rare_col) rare_columns<KIND>(a, p, s, col_s, rare_col, n);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (a.row.codes) *(uint32_t *)(a.row.scales - SCALE_HEADER) = *a.row.amax;
        if (a.col.codes) *(uint32_t *)(a.col.scales - SCALE_HEADER) = *a.col.amax;
    }
    if (COUNT && a.stats) add_counts(a, n);
}

/* ---- launching ---- */

static struct fp4_side side_of(const struct tensor *codes, const uint32_t *amax) {
    struct fp4_side side = {};
    if (!codes || !codes->data) return side;
    side.codes = (uint8_t *)codes->data;
    side.scales = (uint8_t *)codes->scale.data + SCALE_HEADER;
    side.amax = amax;
    side.ld = codes->stride[0];
    side.scale_cols = codes->scale.dim[1];
    return side;
}

static struct fp4_args args_of(const struct sink *s) {
    struct fp4_args a = {};
    const uint32_t *amax = (const uint32_t *)s->amax->data;
    a.x = sink_value_of(s);
    a.rows = s->codes->dim[0];
    a.cols = s->codes->dim[1];
    a.row = side_of(s->codes, amax);
    a.col = side_of(s->codes->transposed, amax);
    a.rotate = s->rotate && a.col.codes;
    a.vectors = rows_are_vectors(a.x, a.cols, a.cols);
    a.stats = s->stats ? (unsigned long long *)s->stats->data : NULL;
    if (!s->draws) return a;
    a.step = (const int32_t *)s->draws->step->data;
    a.sequence = (const int32_t *)s->draws->sequence->data;
    a.sequence_rows = s->draws->sequence_rows;
    a.first = s->draws->row;
    a.seed = s->draws->seed;
    a.tensor = s->draws->tensor;
    return a;
}

static bool is_whole(const struct fp4_args &a) {
    return a.vectors && a.rows % FP4_TILE == 0 && a.cols % FP4_TILE == 0;
}

template <enum fp4_kind KIND>
static void launch_codes(const struct fp4_args &a, unsigned tiles, cudaStream_t stream) {
    auto kernel = nvfp4_kernel<KIND, false, true>;
    if (is_whole(a)) kernel = a.stats ? nvfp4_kernel<KIND, true, true>
                                      : nvfp4_kernel<KIND, true, false>;
    kernel<<<tiles, FP4_THREADS, 0, stream>>>(a);
}

enum status cuda_nvfp4_codes(struct backend *b, int lane, const struct sink *s, struct err *e) {
    struct fp4_args a = args_of(s);
    cudaStream_t stream = cuda_lane(b, lane);
    int64_t tiles = ceil_div(a.rows, FP4_TILE) * ceil_div(a.cols, FP4_TILE);
    if (tiles == 0) return OK;
    if (tiles > INT32_MAX) return FAIL(e, ERR_ARG, "quantise: %lld tiles", (long long)tiles);
    a.backwards = true; /* the end of the pass before may still be in the L2 cache */
    if (a.rotate) {
        void *rotated;
        TRY(cuda_scratch(b, lane, SCRATCH_AMAX, sizeof *a.rotated, &rotated, e));
        CUDA_TRY(e, cudaMemsetAsync(rotated, 0, sizeof *a.rotated, stream));
        a.rotated = (uint32_t *)rotated;
        a.col.amax = a.rotated;
        auto kernel = is_whole(a) ? rotated_amax_kernel<true> : rotated_amax_kernel<false>;
        kernel<<<(unsigned)tiles, FP4_THREADS, 0, stream>>>(a);
        TRY(cuda_launched("quantise", e));
        a.backwards = false;
    }
    enum scale_kind kind = (s->codes->data ? s->codes : s->codes->transposed)->scale.kind;
    if (kind == SCALE_16X16) launch_codes<SQUARES>(a, (unsigned)tiles, stream);
    else if (a.step) launch_codes<STOCHASTIC>(a, (unsigned)tiles, stream);
    else launch_codes<NEAREST>(a, (unsigned)tiles, stream);
    return cuda_launched("quantise", e);
}
