/* Causal softmax of whole score matrices, the middle of unfused attention; see the CPU's.
 *
 * A block takes a row, that is a query. The keys that it sees stay in registers: one read and one
 * write of each, 4 bytes an element forward, 6 backward. Sums are in f32, in the order of
 * kernels/sum_order.h. EXACT: exp is that of exactmath_fma.h. */
#include "kernels/cuda/loss.cuh"
#include "kernels/sum_order.h"

enum { SOFTMAX_DEPTH_MAX = 16 /* vectors of a thread, of 8 or 1 elements */ };

/* The elements of a thread in row `row` of [N,T,T]: vector d begins at key (d * threads + id) * N.
 * Keys that the query does not see are `unseen`. */
template <int N, int DEPTH>
__device__ static void load_seen(float (&v)[DEPTH][N], const bf16_bits *row, int64_t seen,
                                 float unseen) {
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        int64_t at = ((int64_t)d * SOFTMAX_THREADS + threadIdx.x) * N;
        if (at < seen) load_bf16(v[d], row + at);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (at + i >= seen) v[d][i] = unseen;
    }
}

template <int N, int DEPTH>
__device__ static void store_row(bf16_bits *row, int64_t length,
                                 const float (&v)[DEPTH][N]) {
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        int64_t at = ((int64_t)d * SOFTMAX_THREADS + threadIdx.x) * N;
        if (at < length) store_bf16(row + at, v[d]);
    }
}

template <int N, int DEPTH, bool EXACT>
__global__ void __launch_bounds__(SOFTMAX_THREADS)
    softmax_fwd_kernel(bf16_bits *p, const bf16_bits *s, int64_t length, float factor) {
    __shared__ float shared[WARP];
    int64_t row = blockIdx.x, seen = row % length + 1;
    float v[DEPTH][N], max = -INFINITY, sum = 0.0f;
    load_seen<N, DEPTH>(v, s + row * length, seen, -INFINITY);
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
#pragma unroll
        for (int i = 0; i < N; i++) {
            bool sees = ((int64_t)d * SOFTMAX_THREADS + threadIdx.x) * N + i < seen;
            v[d][i] = sees ? v[d][i] * factor : -INFINITY;
            max = max_of(max, v[d][i]);
        }
    max = block_max(max, shared);
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
#pragma unroll
        for (int i = 0; i < N; i++) {
            bool sees = ((int64_t)d * SOFTMAX_THREADS + threadIdx.x) * N + i < seen;
            v[d][i] = sees ? exp_of<EXACT>(v[d][i] - max) : 0.0f;
            sum += v[d][i];
        }
    float inverse = 1.0f / block_sum(sum, shared);
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
#pragma unroll
        for (int i = 0; i < N; i++) {
            bool sees = ((int64_t)d * SOFTMAX_THREADS + threadIdx.x) * N + i < seen;
            v[d][i] = sees ? v[d][i] * inverse : 0.0f; /* 0 * NaN is not 0 */
        }
    store_row<N, DEPTH>(p + row * length, length, v);
}

/* dp is read again for the result: two rows in registers would spill. */
template <int N, int DEPTH>
__global__ void __launch_bounds__(SOFTMAX_THREADS)
    softmax_bwd_kernel(bf16_bits *ds, const bf16_bits *p, const bf16_bits *dp, int64_t length,
                       float factor) {
    __shared__ float shared[WARP];
    int64_t row = blockIdx.x, seen = row % length + 1;
    const bf16_bits *p_row = p + row * length, *dp_row = dp + row * length;
    float v[DEPTH][N], dot = 0.0f;
    load_seen<N, DEPTH>(v, p_row, seen, 0.0f);
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        int64_t at = ((int64_t)d * SOFTMAX_THREADS + threadIdx.x) * N;
        float g[N];
        if (at >= seen) continue;
        load_bf16(g, dp_row + at);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (at + i < seen) dot += v[d][i] * g[i];
    }
    dot = block_sum(dot, shared);
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        int64_t at = ((int64_t)d * SOFTMAX_THREADS + threadIdx.x) * N;
        float g[N];
        if (at >= seen) continue;
        load_bf16(g, dp_row + at);
#pragma unroll
        for (int i = 0; i < N; i++)
            v[d][i] = at + i < seen ? (v[d][i] * (g[i] - dot)) * factor : 0.0f;
    }
    store_row<N, DEPTH>(ds + row * length, length, v);
}

/* [N,T,T] BF16, packed. */
static enum status check(const struct tensor *x, const char *what, const struct tensor *like,
                         struct err *e) {
    TRY(cuda_check_packed(x, what, IS_BF16, like ? tensor_rows(like) : -1,
                          like ? tensor_cols(like) : -1, e));
    if (x->dim[1] == x->dim[2] && x->dim[3] == 1) return OK;
    return FAIL(e, ERR_ARG, "%s is [%lld, %lld, %lld, %lld], not [N, T, T]", what,
                (long long)x->dim[0], (long long)x->dim[1], (long long)x->dim[2],
                (long long)x->dim[3]);
}

/* How a kernel takes the rows: with vectors of 8 or single elements, `depth` of them a thread. The
 * fewer registers, the more blocks run beside each other. */
struct softmax_plan { int64_t rows, length; bool vectors; int depth; };

static enum status plan(struct softmax_plan *out, const struct tensor *x, bool aligned,
                        const char *what, struct err *e) {
    int64_t length = x->dim[2], rows = x->dim[0] * length;
    bool vectors = aligned && length % 8 == 0;
    int64_t each = SOFTMAX_THREADS * (vectors ? 8 : 1);
    *out = { rows, length, vectors, length <= each ? 1 : length <= 4 * each ? 4 : 16 };
    if (length > SOFTMAX_DEPTH_MAX * each)
        return FAIL(e, ERR_UNSUPPORTED, "%s: rows of %lld keys; a block holds %lld", what,
                    (long long)length, (long long)(SOFTMAX_DEPTH_MAX * each));
    if (rows < 1ll << 31) return OK;
    return FAIL(e, ERR_UNSUPPORTED, "%s: %lld rows; a grid has %lld", what, (long long)rows,
                (1ll << 31) - 1);
}

/* The kernel for a plan. */
#define SOFTMAX_KERNEL(kernel, p, ...)                                                  \
    ((p).vectors ? (p).depth == 1   ? kernel<8, 1 __VA_ARGS__>                          \
                   : (p).depth == 4 ? kernel<8, 4 __VA_ARGS__>                          \
                                    : kernel<8, 16 __VA_ARGS__>                         \
     : (p).depth == 1 ? kernel<1, 1 __VA_ARGS__>                                        \
     : (p).depth == 4 ? kernel<1, 4 __VA_ARGS__>                                        \
                      : kernel<1, 16 __VA_ARGS__>)
#define COMMA ,

static bool aligned(const struct tensor *x) { return ((uintptr_t)x->data & 15) == 0; }

enum status cuda_softmax_fwd(struct backend *b, int lane, const struct tensor *p,
                             const struct tensor *s, float factor, struct err *e) {
    struct softmax_plan how;
    TRY(check(s, "softmax_fwd: s", NULL, e));
    TRY(check(p, "softmax_fwd: p", s, e));
    TRY(plan(&how, s, aligned(p) && aligned(s), "softmax_fwd", e));
    if (how.rows == 0) return OK;
    auto kernel = cuda_of(b)->exact ? SOFTMAX_KERNEL(softmax_fwd_kernel, how, COMMA true)
                                    : SOFTMAX_KERNEL(softmax_fwd_kernel, how, COMMA false);
    kernel<<<(unsigned)how.rows, SOFTMAX_THREADS, 0, cuda_lane(b, lane)>>>(
        (bf16_bits *)p->data, (const bf16_bits *)s->data, how.length, factor);
    return cuda_launched("softmax_fwd", e);
}

enum status cuda_softmax_bwd(struct backend *b, int lane, const struct tensor *ds,
                             const struct tensor *p, const struct tensor *dp, float factor,
                             struct err *e) {
    struct softmax_plan how;
    TRY(check(p, "softmax_bwd: p", NULL, e));
    TRY(check(dp, "softmax_bwd: dp", p, e));
    TRY(check(ds, "softmax_bwd: ds", p, e));
    TRY(plan(&how, p, aligned(p) && aligned(dp) && aligned(ds), "softmax_bwd", e));
    if (how.rows == 0) return OK;
    auto kernel = SOFTMAX_KERNEL(softmax_bwd_kernel, how);
    kernel<<<(unsigned)how.rows, SOFTMAX_THREADS, 0, cuda_lane(b, lane)>>>(
        (bf16_bits *)ds->data, (const bf16_bits *)p->data, (const bf16_bits *)dp->data,
        how.length, factor);
    return cuda_launched("softmax_bwd", e);
}
