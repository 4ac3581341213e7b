/* From a BF16 value to NVFP4's codes: tiles of 64 rows by 128 columns, a block of threads each
 * (kernels/nvfp4.h has the arithmetic, equal to the bit).
 *
 * A thread makes the 16 codes of two blocks along a row and of two along a column, where it can
 * rotate its 16 values in registers. Four neighbours store 64 bytes of a column's codes. Memory
 * bounds the time: 2 bytes read and 1 written an element and copy. With a rotation the value is
 * read once more, for the amax of what the twin is made of. */
#include "kernels/cuda/quantise.cuh"
#include "kernels/nvfp4.h"

enum {
    ROWS = 64, COLS = 128, THREADS = 256,
    ACROSS = COLS / NVFP4_BLOCK,         /* blocks of 16 in a tile's row */
    DOWN = ROWS / NVFP4_BLOCK,           /* and in its column */
    PASSES = ROWS * ACROSS / THREADS,    /* blocks that a thread makes along rows */
    LINE = COLS + 8, GAP = 8             /* the tile in shared memory, without conflicts of banks */
};
static_assert(COLS * DOWN == ROWS * ACROSS, "as many blocks along columns");

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
    uint32_t *rotated;         /* amax of the rotated value */
    unsigned long long *stats; /* [2] or NULL */
    const int32_t *step, *sequence; /* NULL: to nearest */
    int64_t sequence_rows, first;
    uint64_t seed;
    uint32_t tensor;
    bool square, rotate, vectors; /* vectors: x in pieces of 16 bytes */
};

/* Sixteen values of a block, the block's multiplier, and a byte of draws for each. */
struct fp4_block { float x[NVFP4_BLOCK]; float m; uint64_t random[2]; };
struct fp4_counts { uint32_t saturated, flushed; };

struct __align__(16) fp4_tile {
    bf16_bits x[ROWS * LINE + (DOWN - 1) * GAP];
    uint32_t square[DOWN][ACROSS]; /* amax of 16 x 16 values */
    int64_t row0, col0;
};
__device__ static int place_of(int row, int col) {
    return row * LINE + row / NVFP4_BLOCK * GAP + col;
}

__device__ static void rotate(float (&x)[NVFP4_BLOCK]) {
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i++) x[i] = x[i] * nvfp4_sign(i);
#pragma unroll
    for (int apart = 1; apart < NVFP4_BLOCK; apart *= 2)
#pragma unroll
        for (int i = 0; i < NVFP4_BLOCK; i++) {
            if (i & apart) continue;
            float a = x[i], b = x[i + apart];
            x[i] = a + b;
            x[i + apart] = a - b;
        }
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i += 8) {
        float eight[8];
#pragma unroll
        for (int j = 0; j < 8; j++) eight[j] = x[i + j];
        bf16x8_decode(eight, bf16x8_encode(eight));
#pragma unroll
        for (int j = 0; j < 8; j++) x[i + j] = eight[j];
    }
}

__device__ static uint32_t top_of(const float (&x)[NVFP4_BLOCK]) {
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i++) top = max(top, f32_bits(x[i]) & 0x7FFFFFFFu);
    return top;
}

/* The tile of this block of threads; zeros outside. */
__device__ static void load_tile(const struct fp4_args &a, struct fp4_tile &t) {
    int64_t across = (a.cols + COLS - 1) / COLS;
    int64_t row0 = blockIdx.x / across * ROWS, col0 = blockIdx.x % across * COLS;
    for (int i = threadIdx.x; i < ROWS * COLS / 8; i += THREADS) {
        int row = i / (COLS / 8), col = i % (COLS / 8) * 8;
        const bf16_bits *from = a.x + (row0 + row) * a.cols + col0 + col;
        int64_t left = row0 + row < a.rows ? a.cols - col0 - col : 0;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (a.vectors) {
            if (left > 0) v = *(const uint4 *)from;
            *(uint4 *)&t.x[place_of(row, col)] = v;
        } else {
            for (int j = 0; j < 8; j++) t.x[place_of(row, col) + j] = j < left ? from[j] : 0;
        }
    }
    if (threadIdx.x < DOWN * ACROSS) t.square[threadIdx.x / ACROSS][threadIdx.x % ACROSS] = 0;
    if (threadIdx.x == 0) {
        t.row0 = row0;
        t.col0 = col0;
    }
    __syncthreads();
}

/* The i-th block of a thread along a row: its row in the tile, and its place there. */
struct fp4_at { int line, block; };
__device__ static struct fp4_at row_at(int i) {
    return { (int)threadIdx.x / ACROSS + i * (THREADS / ACROSS), (int)threadIdx.x % ACROSS };
}
/* Along a column: neighbours have the blocks of one column. */
__device__ static struct fp4_at column_at(int i) {
    return { (int)threadIdx.x / DOWN + i * (THREADS / DOWN), (int)threadIdx.x % DOWN };
}

__device__ static void load_row(const struct fp4_tile &t, struct fp4_at at,
                                float (&x)[NVFP4_BLOCK]) {
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i += 8) {
        float eight[8];
        bf16x8_decode(eight,
                      *(const uint4 *)&t.x[place_of(at.line, at.block * NVFP4_BLOCK + i)]);
#pragma unroll
        for (int j = 0; j < 8; j++) x[i + j] = eight[j];
    }
}

/* Rotated if all 16 rows exist. */
__device__ static void load_column(const struct fp4_args &a, const struct fp4_tile &t,
                                   struct fp4_at at, float (&x)[NVFP4_BLOCK]) {
    int row = at.block * NVFP4_BLOCK;
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i++) x[i] = bf16_decode(t.x[place_of(row + i, at.line)]);
    if (a.rotate && t.row0 + row + NVFP4_BLOCK <= a.rows) rotate(x);
}

/* Grid: one block of threads a tile. */
__global__ void __launch_bounds__(THREADS) rotated_amax_kernel(struct fp4_args a) {
    __shared__ struct fp4_tile t;
    load_tile(a, t);
    uint32_t top = 0;
    float x[NVFP4_BLOCK];
    for (int i = 0; i < PASSES; i++) {
        load_column(a, t, column_at(i), x);
        top = max(top, top_of(x));
    }
    block_amax_into(a.rotated, top);
}

/* Sixteen codes, the first `n` of values inside. */
template <bool STOCHASTIC>
__device__ static uint4 encode(const struct fp4_block &b, int n, bool counted,
                               struct fp4_counts &count) {
    uint32_t word[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i++) {
        float product = b.x[i] * b.m;
        uint32_t code = STOCHASTIC
            ? e2m1_round_stochastic(product, nvfp4_byte(b.random[i / 8], i))
            : e2m1_encode_inline(product);
        word[i / 4] |= code << 8 * (i % 4);
        if (!counted) continue;
        uint32_t size = f32_bits(product) & 0x7FFFFFFFu;
        count.saturated += size > 0x40C00000u && size <= 0x7F800000u; /* 6 */
        count.flushed += (f32_bits(b.x[i]) & 0x7FFFFFFFu) != 0 && (code & 7) == 0;
    }
    if (n < NVFP4_BLOCK)
        for (int i = 0; i < NVFP4_BLOCK; i++)
            if (i >= n) word[i / 4] &= ~(0xFFu << 8 * (i % 4));
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Values of a block that lie inside, of `left` from its first on. */
__device__ static int inside_block(int64_t left) {
    return left < NVFP4_BLOCK ? (int)left : (int)NVFP4_BLOCK;
}

/* The multiplier of a block with this amax; its scale goes to `to`, unless NULL. */
__device__ static float block_scale(float tensor, uint32_t top, uint8_t *to) {
    uint8_t d = nvfp4_block_scale(tensor, f32_from_bits(top));
    if (to) *to = d;
    return nvfp4_block_multiplier(tensor, d);
}

__device__ static int64_t row_of_batch(const struct fp4_args &a, int64_t row) {
    return *a.sequence * a.sequence_rows + a.first + row;
}

/* `tensor`: the tensor's multiplier. */
template <bool STOCHASTIC>
__device__ static void make_row(const struct fp4_args &a, const struct fp4_tile &t,
                                struct fp4_at at, float tensor, struct fp4_counts &count) {
    int64_t row = t.row0 + at.line, col = t.col0 + at.block * NVFP4_BLOCK;
    if (row >= a.rows || col >= a.cols) return;
    struct fp4_block b;
    load_row(t, at, b.x);
    uint32_t top = a.square ? t.square[at.line / NVFP4_BLOCK][at.block] : top_of(b.x);
    int64_t down = a.square ? row / NVFP4_BLOCK : row;
    bool first = !a.square || at.line % NVFP4_BLOCK == 0;
    uint8_t *scale = a.row.scales + down * a.row.scale_cols + col / NVFP4_BLOCK;
    b.m = block_scale(tensor, top, first ? scale : NULL);
    if (STOCHASTIC) {
        uint64_t key = nvfp4_key(a.seed, *a.step, a.tensor, NVFP4_CODES);
        int64_t from = row_of_batch(a, row);
        b.random[0] = nvfp4_draw_of_codes(key, from, col, a.cols);
        b.random[1] = nvfp4_draw_of_codes(key, from, col + 8, a.cols);
    }
    store_words(a.row.codes + row * a.row.ld + col,
                encode<STOCHASTIC>(b, inside_block(a.cols - col), a.stats != NULL, count));
}

template <bool STOCHASTIC>
__device__ static void make_column(const struct fp4_args &a, const struct fp4_tile &t,
                                   struct fp4_at at, float tensor, struct fp4_counts &count) {
    int64_t col = t.col0 + at.line, row = t.row0 + at.block * NVFP4_BLOCK;
    if (col >= a.cols || row >= a.rows) return;
    struct fp4_block b;
    load_column(a, t, at, b.x);
    uint32_t top = a.square ? t.square[at.block][at.line / NVFP4_BLOCK] : top_of(b.x);
    int64_t down = a.square ? col / NVFP4_BLOCK : col;
    bool first = !a.square || at.line % NVFP4_BLOCK == 0;
    uint8_t *scale = a.col.scales + down * a.col.scale_cols + row / NVFP4_BLOCK;
    b.m = block_scale(tensor, top, first ? scale : NULL);
    if (STOCHASTIC) {
        /* Draws begin at rows that are multiples of 8, and the block may begin between them. */
        uint64_t key = nvfp4_key(a.seed, *a.step, a.tensor, NVFP4_TWIN);
        int64_t from = row_of_batch(a, row);
        int late = (int)(from & 7) * 8;
        b.random[0] = nvfp4_draw_of_twin(key, from, col, a.cols);
        b.random[1] = nvfp4_draw_of_twin(key, from + 8, col, a.cols);
        if (late) {
            uint64_t last = nvfp4_draw_of_twin(key, from + 16, col, a.cols);
            b.random[0] = b.random[0] >> late | b.random[1] << (64 - late);
            b.random[1] = b.random[1] >> late | last << (64 - late);
        }
    }
    store_words(a.col.codes + col * a.col.ld + row,
                encode<STOCHASTIC>(b, inside_block(a.rows - row), a.stats && !a.row.codes, count));
}

/* amax of the tile's squares. */
__device__ static void squares(struct fp4_tile &t) {
    float x[NVFP4_BLOCK];
    for (int i = 0; i < PASSES; i++) {
        struct fp4_at at = row_at(i);
        load_row(t, at, x);
        atomicMax(&t.square[at.line / NVFP4_BLOCK][at.block], top_of(x));
    }
    __syncthreads();
}

/* Grid: one block of threads a tile. The first stores the amax of each copy. */
template <bool STOCHASTIC>
__global__ void __launch_bounds__(THREADS) nvfp4_kernel(struct fp4_args a) {
    __shared__ struct fp4_tile t;
    load_tile(a, t);
    if (a.square) squares(t);
    struct fp4_counts count = { 0, 0 };
    if (a.row.codes) {
        float tensor = nvfp4_tensor_multiplier(f32_from_bits(*a.row.amax));
        for (int i = 0; i < PASSES; i++) make_row<STOCHASTIC>(a, t, row_at(i), tensor, count);
    }
    if (a.col.codes) {
        float tensor = nvfp4_tensor_multiplier(f32_from_bits(*a.col.amax));
        for (int i = 0; i < PASSES; i++)
            make_column<STOCHASTIC>(a, t, column_at(i), tensor, count);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (a.row.codes) *(uint32_t *)(a.row.scales - SCALE_HEADER) = *a.row.amax;
        if (a.col.codes) *(uint32_t *)(a.col.scales - SCALE_HEADER) = *a.col.amax;
    }
    if (!a.stats) return;
    uint32_t saturated = __reduce_add_sync(0xFFFFFFFFu, count.saturated);
    uint32_t flushed = __reduce_add_sync(0xFFFFFFFFu, count.flushed);
    if (threadIdx.x % WARP) return;
    if (saturated) atomicAdd(&a.stats[0], saturated);
    if (flushed) atomicAdd(&a.stats[1], flushed);
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
    a.square = (s->codes->data ? s->codes : s->codes->transposed)->scale.kind == SCALE_16X16;
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

enum status cuda_nvfp4_codes(struct backend *b, int lane, const struct sink *s, struct err *e) {
    struct fp4_args a = args_of(s);
    cudaStream_t stream = cuda_lane(b, lane);
    int64_t tiles = ceil_div(a.rows, ROWS) * ceil_div(a.cols, COLS);
    if (tiles == 0) return OK;
    if (tiles > INT32_MAX) return FAIL(e, ERR_ARG, "quantise: %lld tiles", (long long)tiles);
    if (a.rotate) {
        void *rotated;
        TRY(cuda_scratch(b, lane, SCRATCH_AMAX, sizeof *a.rotated, &rotated, e));
        CUDA_TRY(e, cudaMemsetAsync(rotated, 0, sizeof *a.rotated, stream));
        a.rotated = (uint32_t *)rotated;
        a.col.amax = a.rotated;
        rotated_amax_kernel<<<(unsigned)tiles, THREADS, 0, stream>>>(a);
        TRY(cuda_launched("quantise", e));
    }
    if (a.step) nvfp4_kernel<true><<<(unsigned)tiles, THREADS, 0, stream>>>(a);
    else nvfp4_kernel<false><<<(unsigned)tiles, THREADS, 0, stream>>>(a);
    return cuda_launched("quantise", e);
}
