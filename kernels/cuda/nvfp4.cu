/* From a BF16 value to NVFP4's codes: the CPU's strips of 16 rows by 128 columns, a block of
 * threads each (kernels/nvfp4.h has the arithmetic, equal to the bit).
 *
 * A thread makes the 16 codes of one block: first along a row, then along a column, where it can
 * rotate its 16 values in registers. So each copy is stored in pieces of 16 bytes. Bound by memory:
 * 2 bytes read and 1 written an element and copy; with a rotation the value is read once more, for
 * the amax of what the twin is made of. */
#include "kernels/cuda/quantise.cuh"
#include "kernels/nvfp4.h"

enum { ROWS = NVFP4_BLOCK, COLS = 128, BLOCKS = COLS / NVFP4_BLOCK, THREADS = ROWS * BLOCKS };
static_assert(THREADS == COLS, "one thread for each block, along rows and along columns");

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
    bool square, rotate;
};

/* Sixteen values of a block, the block's multiplier, and a byte of draws for each. */
struct fp4_block { float x[NVFP4_BLOCK]; float m; uint8_t random[NVFP4_BLOCK]; };
struct fp4_counts { uint32_t saturated, flushed; };

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
    for (int i = 0; i < NVFP4_BLOCK; i++) x[i] = bf16_decode(bf16_encode(x[i]));
}

__device__ static uint32_t top_of(const float (&x)[NVFP4_BLOCK]) {
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i++) top = max(top, f32_bits(x[i]) & 0x7FFFFFFFu);
    return top;
}

/* The column of this thread from row0 on; zeros outside. Rotated if the strip is whole. */
__device__ static void load_column(const struct fp4_args &a, int64_t row0, int64_t col,
                                   float (&x)[NVFP4_BLOCK]) {
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i++) {
        bool inside = row0 + i < a.rows && col < a.cols;
        x[i] = inside ? bf16_decode(a.x[(row0 + i) * a.cols + col]) : 0.0f;
    }
    if (a.rotate && row0 + ROWS <= a.rows) rotate(x);
}

/* Grid: one block of threads a strip. */
__global__ void __launch_bounds__(THREADS) rotated_amax_kernel(struct fp4_args a) {
    int64_t across = (a.cols + COLS - 1) / COLS;
    float x[NVFP4_BLOCK];
    load_column(a, blockIdx.x / across * ROWS, blockIdx.x % across * COLS + threadIdx.x, x);
    block_amax_into(a.rotated, top_of(x));
}

/* Sixteen codes, the first `n` of values inside. */
template <bool STOCHASTIC>
__device__ static uint4 encode(const struct fp4_block &b, int n, bool counted,
                               struct fp4_counts &count) {
    uint32_t word[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i++) {
        float product = b.x[i] * b.m;
        uint32_t code = STOCHASTIC ? e2m1_round_stochastic(product, b.random[i])
                                   : e2m1_encode_inline(product);
        if (i >= n) code = 0;
        word[i / 4] |= code << 8 * (i % 4);
        if (!counted || i >= n) continue;
        uint32_t size = f32_bits(product) & 0x7FFFFFFFu;
        count.saturated += size > 0x40C00000u && size <= 0x7F800000u; /* 6 */
        count.flushed += (f32_bits(b.x[i]) & 0x7FFFFFFFu) != 0 && (code & 7) == 0;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Values of a block that lie inside, of `left` from its first on. */
__device__ static int inside_block(int64_t left) {
    return left < NVFP4_BLOCK ? (int)left : (int)NVFP4_BLOCK;
}

struct fp4_shared {
    float x[ROWS][COLS + BLOCKS + 1]; /* a gap behind each block: banks */
    uint32_t square[BLOCKS];          /* amax of 16 x 16 values */
};

/* The codes along row `row` of block `block` of the strip. */
template <bool STOCHASTIC>
__device__ static void make_row(const struct fp4_args &a, struct fp4_shared &s, int64_t row0,
                                int64_t col0, struct fp4_counts &count) {
    int row = threadIdx.x / BLOCKS, block = threadIdx.x % BLOCKS;
    int64_t at_row = row0 + row, at_col = col0 + block * NVFP4_BLOCK;
    struct fp4_block b;
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i++) b.x[i] = s.x[row][block * (NVFP4_BLOCK + 1) + i];
    uint32_t top = top_of(b.x);
    if (a.square) {
        atomicMax(&s.square[block], top);
        __syncthreads();
        top = s.square[block];
    }
    if (!a.row.codes || at_row >= a.rows || at_col >= a.cols) return;
    float multiplier = nvfp4_tensor_multiplier(f32_from_bits(*a.row.amax));
    uint8_t d = nvfp4_block_scale(multiplier, f32_from_bits(top));
    b.m = nvfp4_block_multiplier(multiplier, d);
    int64_t down = a.square ? row0 / NVFP4_BLOCK : at_row;
    if (!a.square || row == 0) a.row.scales[down * a.row.scale_cols + at_col / NVFP4_BLOCK] = d;
    if (STOCHASTIC) {
        uint64_t key = nvfp4_key(a.seed, *a.step, a.tensor, NVFP4_CODES);
        int64_t from = *a.sequence * a.sequence_rows + a.first + at_row;
#pragma unroll
        for (int half = 0; half < NVFP4_BLOCK; half += 8) {
            uint64_t draw = nvfp4_draw_of_codes(key, from, at_col + half, a.cols);
#pragma unroll
            for (int i = 0; i < 8; i++) b.random[half + i] = (uint8_t)nvfp4_byte(draw, i);
        }
    }
    int n = inside_block(a.cols - at_col);
    *(uint4 *)(a.row.codes + at_row * a.row.ld + at_col) =
        encode<STOCHASTIC>(b, n, a.stats != NULL, count);
}

template <bool STOCHASTIC>
__device__ static void make_column(const struct fp4_args &a, const struct fp4_shared &s,
                                   int64_t row0, int64_t col0, struct fp4_counts &count) {
    int64_t col = col0 + threadIdx.x;
    if (col >= a.cols) return;
    struct fp4_block b;
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i++)
        b.x[i] = s.x[i][threadIdx.x + threadIdx.x / NVFP4_BLOCK];
    if (a.rotate && row0 + ROWS <= a.rows) rotate(b.x);
    uint32_t top = a.square ? s.square[threadIdx.x / NVFP4_BLOCK] : top_of(b.x);
    float multiplier = nvfp4_tensor_multiplier(f32_from_bits(*a.col.amax));
    uint8_t d = nvfp4_block_scale(multiplier, f32_from_bits(top));
    b.m = nvfp4_block_multiplier(multiplier, d);
    int64_t down = a.square ? col / NVFP4_BLOCK : col;
    if (!a.square || col % NVFP4_BLOCK == 0)
        a.col.scales[down * a.col.scale_cols + row0 / NVFP4_BLOCK] = d;
    if (STOCHASTIC) {
        uint64_t key = nvfp4_key(a.seed, *a.step, a.tensor, NVFP4_TWIN), draw = 0;
        int64_t from = *a.sequence * a.sequence_rows + a.first + row0;
#pragma unroll
        for (int i = 0; i < NVFP4_BLOCK; i++) {
            if (i == 0 || (from + i) % 8 == 0)
                draw = nvfp4_draw_of_twin(key, from + i, col, a.cols);
            b.random[i] = (uint8_t)nvfp4_byte(draw, from + i);
        }
    }
    int n = inside_block(a.rows - row0);
    *(uint4 *)(a.col.codes + col * a.col.ld + row0) =
        encode<STOCHASTIC>(b, n, a.stats && !a.row.codes, count);
}

/* Grid: one block of threads a strip. The first stores the amax of each copy. */
template <bool STOCHASTIC>
__global__ void __launch_bounds__(THREADS) nvfp4_kernel(struct fp4_args a) {
    __shared__ struct fp4_shared s;
    int64_t across = (a.cols + COLS - 1) / COLS;
    int64_t row0 = blockIdx.x / across * ROWS, col0 = blockIdx.x % across * COLS;
    int64_t col = col0 + threadIdx.x;
    for (int i = 0; i < ROWS; i++) {
        bool inside = row0 + i < a.rows && col < a.cols;
        s.x[i][threadIdx.x + threadIdx.x / NVFP4_BLOCK] =
            inside ? bf16_decode(a.x[(row0 + i) * a.cols + col]) : 0.0f;
    }
    if (threadIdx.x < BLOCKS) s.square[threadIdx.x] = 0;
    __syncthreads();
    struct fp4_counts count = { 0, 0 };
    make_row<STOCHASTIC>(a, s, row0, col0, count);
    if (a.col.codes) make_column<STOCHASTIC>(a, s, row0, col0, count);
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
    int64_t strips = ceil_div(a.rows, ROWS) * ceil_div(a.cols, COLS);
    if (strips == 0) return OK;
    if (strips > INT32_MAX) return FAIL(e, ERR_ARG, "quantise: %lld strips", (long long)strips);
    if (a.rotate) {
        void *rotated;
        TRY(cuda_scratch(b, lane, SCRATCH_AMAX, sizeof *a.rotated, &rotated, e));
        CUDA_TRY(e, cudaMemsetAsync(rotated, 0, sizeof *a.rotated, stream));
        a.rotated = (uint32_t *)rotated;
        a.col.amax = a.rotated;
        rotated_amax_kernel<<<(unsigned)strips, THREADS, 0, stream>>>(a);
        TRY(cuda_launched("quantise", e));
    }
    if (a.step) nvfp4_kernel<true><<<(unsigned)strips, THREADS, 0, stream>>>(a);
    else nvfp4_kernel<false><<<(unsigned)strips, THREADS, 0, stream>>>(a);
    return cuda_launched("quantise", e);
}
