/* Token (and learned position) embedding.
 *
 * Backward adds many rows into one table row, in row order and without atomics on floats. The
 * tokens are sorted (stable: equal tokens keep their rows in ascending order). Then each run of
 * equal tokens has one owner. Positions that are not r % T are added in the same way. */
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/cuda_common.cuh"

template <int N>
__global__ void embedding_fwd_kernel(bf16_bits *x, int64_t ld, const int32_t *tokens,
                                     const bf16_bits *table, int64_t ld_table, int64_t vocab,
                                     const bf16_bits *position, int64_t ld_position, int64_t length,
                                     const int32_t *positions, int64_t rows, int64_t cols) {
    int64_t across = cols / N, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < rows * across; i += step) {
        int64_t row = i / across, col = i % across * N, token = tokens[row];
        float v[N], p[N];
        if (token >= 0 && token < vocab) load_bf16(v, table + token * ld_table + col);
        else
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = f32_from_bits(0x7FC00000u); /* shows in the loss */
        if (position) {
            int64_t at = positions ? positions[row] : row % length;
            load_bf16(p, position + at * ld_position + col);
#pragma unroll
            for (int j = 0; j < N; j++) v[j] += p[j];
        }
        store_bf16(x + row * ld + col, v);
    }
}

enum status cuda_embedding_fwd(struct backend *b, int lane, const struct tensor *x,
                               const struct tensor *tokens, const struct tensor *table,
                               const struct tensor *position, const struct tensor *positions,
                               struct err *e) {
    TRY(cuda_check(x, "embedding_fwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    TRY(cuda_check_indices(tokens, "embedding_fwd: tokens", rows, e));
    TRY(cuda_check(table, "embedding_fwd: table", IS_BF16, -1, cols, e));
    if (position) TRY(cuda_check(position, "embedding_fwd: position", IS_BF16, -1, cols, e));
    if (position && positions)
        TRY(cuda_check_indices(positions, "embedding_fwd: positions", rows, e));
    bool vectors = tensor_is_vectors(x) && tensor_is_vectors(table) &&
                   (!position || tensor_is_vectors(position));
    auto kernel = vectors ? embedding_fwd_kernel<8> : embedding_fwd_kernel<1>;
    kernel<<<grid_for(b, rows * cols, vectors ? 2048 : 256), 256, 0, cuda_lane(b, lane)>>>(
        (bf16_bits *)x->data, x->stride[0], (const int32_t *)tokens->data,
        (const bf16_bits *)table->data, table->stride[0], table->dim[0],
        position ? (const bf16_bits *)position->data : NULL, position ? position->stride[0] : 0,
        position ? position->dim[0] : 1,
        position && positions ? (const int32_t *)positions->data : NULL, rows, cols);
    return cuda_launched("embedding_fwd", e);
}

/* ---- backward: (token, row) pairs by token ---- */

/* The block bounds give each thread more registers. Without them the compiler saves registers, and
 * then has fewer than DEPTH rows in flight. */
enum {
    RUN_THREADS = 128, RUN_BLOCKS = 10,          /* of embedding_bwd_kernel */
    POSITION_THREADS = 256, POSITION_BLOCKS = 4, /* of position_bwd_kernel */
    DEPTH = 4                                    /* rows of a thread in flight */
};

/* sum += DEPTH rows in order. All are in flight before the first is added. */
template <int N>
__device__ static void add_rows(float (&sum)[N], const bf16_bits *const (&row)[DEPTH]) {
    float v[DEPTH][N];
#pragma unroll
    for (int d = 0; d < DEPTH; d++) load_bf16(v[d], row[d]);
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] += v[d][j];
}

template <int N> __device__ static void add_row(float (&sum)[N], const bf16_bits *row) {
    float v[N];
    load_bf16(v, row);
#pragma unroll
    for (int j = 0; j < N; j++) sum[j] += v[j];
}

/* Tokens outside the table become `vocab` and sort last: their rows are not added. */
__global__ void sort_keys_kernel(uint32_t *key, uint32_t *row, const int32_t *tokens, int64_t n,
                                 int64_t vocab) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    key[i] = tokens[i] >= 0 && tokens[i] < vocab ? (uint32_t)tokens[i] : (uint32_t)vocab;
    row[i] = (uint32_t)i;
}

struct sorted { const uint32_t *key, *row; };

static enum status sort_tokens(struct backend *b, int lane, struct sorted *out,
                               const struct tensor *tokens, int64_t n, int64_t vocab,
                               struct err *e) {
    int bits = 1;
    while (vocab >> bits) bits++;
    cudaStream_t stream = cuda_lane(b, lane);
    size_t temporary = 0;
    cub::DoubleBuffer<uint32_t> key, row;
    CUDA_TRY(e, cub::DeviceRadixSort::SortPairs(NULL, temporary, key, row, (int)n, 0, bits,
                                                stream));
    int64_t pairs = round_up(n * 16, 256);
    void *memory;
    TRY(cuda_scratch(b, lane, SCRATCH_SORT, pairs + (int64_t)temporary, &memory, e));
    uint32_t *at = (uint32_t *)memory;
    key = cub::DoubleBuffer<uint32_t>(at, at + n);
    row = cub::DoubleBuffer<uint32_t>(at + 2 * n, at + 3 * n);
    sort_keys_kernel<<<(unsigned)ceil_div(n, 256), 256, 0, stream>>>(
        key.Current(), row.Current(), (const int32_t *)tokens->data, n, vocab);
    TRY(cuda_launched("embedding_bwd: sort keys", e));
    CUDA_TRY(e, cub::DeviceRadixSort::SortPairs((char *)memory + pairs, temporary, key, row, (int)n,
                                                0, bits, stream));
    *out = (struct sorted){ key.Current(), row.Current() };
    return OK;
}

/* The end of the run of `value` that begins at key[from], in sorted key[from, n). Most runs are
 * short, so the search starts nearby; each load depends on the one before. */
__device__ static int64_t run_end(const uint32_t *key, int64_t from, int64_t n, uint32_t value) {
    int64_t low = from, high = from + 1;
    for (int64_t step = 1; high < n && key[high] <= value; step *= 2) {
        low = high;
        high += step;
    }
    if (high > n) high = n;
    for (low++; low < high;) {
        int64_t middle = low + (high - low) / 2;
        if (key[middle] <= value) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Grid: x over sorted positions; the first position of each run works. y over columns. */
template <int N>
__global__ void __launch_bounds__(RUN_THREADS, RUN_BLOCKS)
    embedding_bwd_kernel(struct grad_view d_table, int64_t ld, int64_t vocab, const bf16_bits *dx,
                         int64_t ld_dx, const uint32_t *key, const uint32_t *row, int64_t n,
                         int64_t cols) {
    int64_t place = blockIdx.x, col = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    uint32_t token = key[place];
    if ((place && key[place - 1] == token) || token >= vocab || col >= cols) return;
    int64_t end = run_end(key, place, n, token);
    float sum[N];
#pragma unroll
    for (int j = 0; j < N; j++) sum[j] = grad_load(d_table, token * ld + col + j);
    int64_t i = place;
    for (; i + DEPTH <= end; i += DEPTH) {
        const bf16_bits *from[DEPTH];
#pragma unroll
        for (int d = 0; d < DEPTH; d++) from[d] = dx + row[i + d] * ld_dx + col;
        add_rows(sum, from);
    }
    for (; i < end; i++) add_row(sum, dx + row[i] * ld_dx + col);
#pragma unroll
    for (int j = 0; j < N; j++) grad_store(d_table, token * ld + col + j, sum[j]);
}

/* d_position[t] += rows t, t + T, ... ascending. */
template <int N>
__global__ void __launch_bounds__(POSITION_THREADS, POSITION_BLOCKS)
    position_bwd_kernel(struct grad_view d_position, int64_t ld, int64_t length,
                        const bf16_bits *dx, int64_t ld_dx, int64_t batch, int64_t cols) {
    int64_t across = cols / N, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < length * across;
         i += step) {
        int64_t t = i / across, col = i % across * N, next = length * ld_dx, left = batch;
        const bf16_bits *at = dx + t * ld_dx + col;
        float sum[N];
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] = 0.0f;
        for (; left >= DEPTH; left -= DEPTH) {
            const bf16_bits *from[DEPTH];
#pragma unroll
            for (int d = 0; d < DEPTH; d++) from[d] = at + d * next;
            add_rows(sum, from);
            at += DEPTH * next;
        }
        for (; left > 0; left--, at += next) add_row(sum, at);
#pragma unroll
        for (int j = 0; j < N; j++)
            grad_store(d_position, t * ld + col + j,
                       grad_load(d_position, t * ld + col + j) + sum[j]);
    }
}

/* d_table[index[r]] += row r of dx, rows ascending. */
static enum status add_indexed(struct backend *b, int lane, const struct tensor *d_table,
                               const struct tensor *dx, const struct tensor *index, struct err *e) {
    int64_t rows = tensor_rows(dx), cols = tensor_cols(dx);
    bool vectors = tensor_is_vectors(dx);
    struct sorted sorted = {};
    TRY(sort_tokens(b, lane, &sorted, index, rows, d_table->dim[0], e));
    auto kernel = vectors ? embedding_bwd_kernel<8> : embedding_bwd_kernel<1>;
    dim3 grid((unsigned)rows, (unsigned)ceil_div(cols, RUN_THREADS * (vectors ? 8 : 1)));
    kernel<<<grid, RUN_THREADS, 0, cuda_lane(b, lane)>>>(
        grad_of(d_table), d_table->stride[0], d_table->dim[0], (const bf16_bits *)dx->data,
        dx->stride[0], sorted.key, sorted.row, rows, cols);
    return cuda_launched("embedding_bwd", e);
}

/* d_position[t] += rows t, t + T, ... */
static enum status add_positions(struct backend *b, int lane, const struct tensor *d_position,
                                 const struct tensor *dx, struct err *e) {
    int64_t length = d_position->dim[0], rows = tensor_rows(dx), cols = tensor_cols(dx);
    bool vectors = tensor_is_vectors(dx);
    auto kernel = vectors ? position_bwd_kernel<8> : position_bwd_kernel<1>;
    int64_t threads = length * cols / (vectors ? 8 : 1);
    kernel<<<grid_for(b, threads, POSITION_THREADS), POSITION_THREADS, 0, cuda_lane(b, lane)>>>(
        grad_of(d_position), d_position->stride[0], length, (const bf16_bits *)dx->data,
        dx->stride[0], rows / length, cols);
    return cuda_launched("embedding_bwd: positions", e);
}

enum status cuda_embedding_bwd(struct backend *b, int lane, const struct tensor *d_table,
                               const struct tensor *d_position, const struct tensor *dx,
                               const struct tensor *tokens, const struct tensor *positions,
                               struct err *e) {
    TRY(cuda_check(dx, "embedding_bwd: dx", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(dx), cols = tensor_cols(dx);
    TRY(cuda_check_indices(tokens, "embedding_bwd: tokens", rows, e));
    TRY(cuda_check(d_table, "embedding_bwd: d_table", IS_GRAD, -1, cols, e));
    if (rows > INT32_MAX) return FAIL(e, ERR_ARG, "embedding_bwd: %lld rows", (long long)rows);
    if (d_position) {
        TRY(cuda_check(d_position, "embedding_bwd: d_position", IS_GRAD, -1, cols, e));
        int64_t length = d_position->dim[0];
        if (length == 0 || rows % length)
            return FAIL(e, ERR_ARG, "embedding_bwd: %lld rows are not whole sequences of %lld",
                        (long long)rows, (long long)length);
        if (positions) TRY(cuda_check_indices(positions, "embedding_bwd: positions", rows, e));
        if (!positions) TRY(add_positions(b, lane, d_position, dx, e));
        else if (rows > 0) TRY(add_indexed(b, lane, d_position, dx, positions, e));
    }
    return rows > 0 ? add_indexed(b, lane, d_table, dx, tokens, e) : OK;
}
