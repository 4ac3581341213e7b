/* Collectives: NCCL moves bytes, this file adds. Every rank receives the others' terms of its own
 * slice and adds them in rank order, as the reference does. So both backends give the same bits for
 * every topology, and BF16 is rounded once instead of at each hop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/comm_codes.h"
#include "kernels/cuda/comm_place.cuh"
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/nccl.cuh"

enum {
    THREADS = 256,
    SLICE_ALIGN = 16,      /* elements: slices start where 16-byte loads are possible */
    SMALL_BYTES = 1 << 16, /* up to this size every rank adds everything: one hop instead of two */
    STALLED = LANE_COUNT, CLOCKS /* a clock for each lane, and one for waiting */
};

struct cuda_group {
    struct links *links;
    struct nccl *nccl;
    struct comm_place *place;
    struct comm_note *note, own; /* the caller's, or own */
    int rank, world;
    struct event_slot last; /* the end of the last collective, with its lane */
    int last_lane;          /* -1: no collective yet */
    /* Device [CLOCKS]: when each lane's last collective began, and when LANE_COMPUTE last began to
     * wait; total ns of each. */
    uint64_t *began, *busy;
};

/* ---- time ---- */

__global__ static void begin_kernel(uint64_t *began) { *began = clock_ns(); }
__global__ static void end_kernel(const uint64_t *began, uint64_t *busy) {
    *busy += clock_ns() - *began;
}
__global__ static void busy_kernel(uint64_t *out, const uint64_t *busy) {
    uint64_t sum = 0;
    for (int lane = 0; lane < LANE_COUNT; lane++) sum += busy[lane];
    out[0] = sum;
    out[1] = busy[STALLED];
}

static enum status start_clock(struct cuda_backend *cb, int lane, int clock, struct err *e) {
    begin_kernel<<<1, 1, 0, cb->lane[lane]>>>(cb->group->began + clock);
    return cuda_launched("a collective's clock", e);
}
static enum status stop_clock(struct cuda_backend *cb, int lane, int clock, struct err *e) {
    const struct cuda_group *g = cb->group;
    end_kernel<<<1, 1, 0, cb->lane[lane]>>>(g->began + clock, g->busy + clock);
    return cuda_launched("a collective's clock", e);
}

enum status cuda_await_collective(struct cuda_backend *cb, cudaEvent_t event, struct err *e) {
    TRY(start_clock(cb, LANE_COMPUTE, STALLED, e));
    CUDA_TRY(e, cudaStreamWaitEvent(cb->lane[LANE_COMPUTE], event, 0));
    return stop_clock(cb, LANE_COMPUTE, STALLED, e);
}

/* Collectives run one at a time, in the order of the calls, on any lane. A communicator has one set
 * of buffers, and all ranks must use it in the same order. */
static enum status wait_for_communicator(struct cuda_backend *cb, int lane, struct err *e) {
    const struct cuda_group *g = cb->group;
    if (g->last_lane < 0 || g->last_lane == lane || g->last.capture != cb->capture) return OK;
    CUDA_TRY(e, cudaStreamWaitEvent(cb->lane[lane], g->last.event, 0));
    return OK;
}

static enum status begin(struct backend *b, int lane, const char *name, const struct tensor *x,
                         struct err *e) {
    struct cuda_backend *cb = cuda_of(b);
    struct cuda_group *g = cb->group;
    if (lane == LANE_COMPUTE) TRY(start_clock(cb, lane, STALLED, e));
    TRY(wait_for_communicator(cb, lane, e));
    return comm_place_arrive(g->place, name, x, g->began + lane, cb->lane[lane], e);
}
static enum status end(struct backend *b, int lane, struct err *e) {
    struct cuda_group *g = cuda_of(b)->group;
    TRY(stop_clock(cuda_of(b), lane, lane, e));
    if (lane == LANE_COMPUTE) TRY(stop_clock(cuda_of(b), lane, STALLED, e));
    CUDA_TRY(e, cudaEventRecord(g->last.event, cuda_lane(b, lane)));
    g->last.capture = cuda_of(b)->capture;
    g->last_lane = lane;
    return OK;
}

/* ---- life ---- */

void cuda_group_close(struct cuda_backend *cb) {
    struct cuda_group *g = cb->group;
    if (!g) return;
    nccl_close(g->nccl);
    links_destroy(g->links);
    comm_place_close(g->place);
    cudaFree(g->began);
    if (g->last.event) cudaEventDestroy(g->last.event);
    free(g);
    cb->group = NULL;
}

static enum status open_clocks(struct cuda_group *g, struct err *e) {
    size_t bytes = CLOCKS * sizeof *g->busy;
    g->last_lane = -1;
    CUDA_TRY(e, cudaEventCreateWithFlags(&g->last.event, cudaEventDisableTiming));
    CUDA_TRY(e, cudaMalloc((void **)&g->began, 2 * bytes));
    CUDA_TRY(e, cudaMemset(g->began, 0, 2 * bytes));
    CUDA_TRY(e, cudaDeviceSynchronize()); /* no lane waits for the stream of these writes */
    g->busy = g->began + CLOCKS;
    return OK;
}

static enum status comm_init(struct backend *b, const struct comm_group *group, struct err *e) {
    struct cuda_backend *cb = cuda_of(b);
    if (cb->group) return FAIL(e, ERR_STATE, "comm init: the group exists already");
    if (!group || group->world == 1) return OK;
    struct cuda_group *g = (struct cuda_group *)calloc(1, sizeof *g);
    if (!g) return FAIL(e, ERR_MEMORY, "no memory for a group of ranks");
    cb->group = g;
    g->rank = group->rank;
    g->world = group->world;
    g->note = group->note ? group->note : &g->own;
    enum status st = links_create(&g->links, group, e);
    if (st == OK) st = open_clocks(g, e);
    if (st == OK) st = comm_place_open(&g->place, e);
    if (st == OK) st = nccl_open(&g->nccl, g->links, g->rank, g->world, e);
    if (st != OK) cuda_group_close(cb);
    return st;
}

static const struct cuda_group *group_of(const struct backend *b) {
    return ((const struct cuda_backend *)b)->group;
}
static int comm_rank(const struct backend *b) { return group_of(b) ? group_of(b)->rank : 0; }
static int comm_world(const struct backend *b) { return group_of(b) ? group_of(b)->world : 1; }

static enum status comm_poll(struct backend *b, struct err *e) {
    struct cuda_group *g = cuda_of(b)->group;
    if (!g) return OK;
    comm_place_read(g->place, g->note);
    TRY(links_poll(g->links, e));
    return nccl_poll(g->nccl, e);
}

static void comm_abort(struct backend *b) {
    struct cuda_group *g = cuda_of(b)->group;
    if (!g) return;
    links_abort(g->links);
    nccl_abort(g->nccl);
}

enum status cuda_agree(struct cuda_backend *cb, const char *what, const int64_t about[4],
                       void *value, int64_t bytes, struct err *e) {
    struct cuda_group *g = cb->group;
    if (!g) return OK;
    const int first = 0;
    TRY(links_agree(g->links, g->rank ? &first : NULL, 1, what, about, e));
    for (int r = 1; r < g->world; r++) {
        struct link_transfer t = { g->rank ? 0 : r, g->rank ? NULL : value, g->rank ? value : NULL,
                                   g->rank ? 0 : bytes, g->rank ? bytes : 0, 0, 0 };
        TRY(links_exchange(g->links, &t, 1, what, e));
        if (g->rank) break;
    }
    return OK;
}

/* ---- adding ---- */

struct terms {
    const char *own;   /* this rank's */
    const char *other; /* [world][stride] terms of the other ranks */
    int64_t stride;    /* bytes */
    int rank, world;
};

__device__ static inline const void *term(struct terms t, int r) {
    return r == t.rank ? t.own : t.other + r * t.stride;
}

/* out = the terms in rank order, N at a time if 16 bytes hold N; out may be own. */
template <typename T> struct wide; /* a 16-byte vector of T */
template <> struct wide<float> {
    enum { N = 4 };
    __device__ static void load(float *out, const void *x, int64_t i) {
        float4 v = ((const float4 *)x)[i];
        out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    }
    __device__ static void store(void *x, int64_t i, const float *in) {
        ((float4 *)x)[i] = make_float4(f32_canonical(in[0]), f32_canonical(in[1]),
                                       f32_canonical(in[2]), f32_canonical(in[3]));
    }
    __device__ static float one(const void *x, int64_t i) { return ((const float *)x)[i]; }
    __device__ static void put(void *x, int64_t i, float v) { ((float *)x)[i] = f32_canonical(v); }
};
template <> struct wide<bf16_bits> {
    enum { N = 8 };
    __device__ static void load(float *out, const void *x, int64_t i) {
        bf16x8_decode(*(float(*)[8])out, ((const uint4 *)x)[i]);
    }
    __device__ static void store(void *x, int64_t i, const float *in) {
        ((uint4 *)x)[i] = bf16x8_encode(*(const float(*)[8])in);
    }
    __device__ static float one(const void *x, int64_t i) {
        return bf16_decode(((const bf16_bits *)x)[i]);
    }
    __device__ static void put(void *x, int64_t i, float v) {
        ((bf16_bits *)x)[i] = bf16_encode(v);
    }
};

template <typename T>
__global__ static void add_kernel(void *out, struct terms t, int64_t n, bool aligned) {
    enum { N = wide<T>::N };
    int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * THREADS;
    int64_t vectors = aligned ? n / N : 0;
    for (int64_t i = first; i < vectors; i += step) {
        float sum[N], next[N];
        wide<T>::load(sum, term(t, 0), i);
        for (int r = 1; r < t.world; r++) {
            wide<T>::load(next, term(t, r), i);
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] = sum[j] + next[j];
        }
        wide<T>::store(out, i, sum);
    }
    for (int64_t i = vectors * N + first; i < n; i += step) {
        float sum = wide<T>::one(term(t, 0), i);
        for (int r = 1; r < t.world; r++) sum = sum + wide<T>::one(term(t, r), i);
        wide<T>::put(out, i, sum);
    }
}

static enum status add_terms(struct backend *b, int lane, void *out, struct terms t, int64_t n,
                             enum dtype dtype, struct err *e) {
    bool aligned = (((uintptr_t)out | (uintptr_t)t.own | (uintptr_t)t.other | (uintptr_t)t.stride) &
                    15) == 0;
    unsigned grid = grid_for(b, ceil_div(n, 4), THREADS);
    if (dtype == DTYPE_F32)
        add_kernel<float><<<grid, THREADS, 0, cuda_lane(b, lane)>>>(out, t, n, aligned);
    else add_kernel<bf16_bits><<<grid, THREADS, 0, cuda_lane(b, lane)>>>(out, t, n, aligned);
    return cuda_launched("adding the terms of a group", e);
}

/* Sends every rank's x to every rank; each adds all of them. */
static enum status reduce_small(struct backend *b, int lane, const struct tensor *x,
                                struct err *e) {
    struct cuda_group *g = cuda_of(b)->group;
    int64_t n = tensor_count(x), bytes = n * dtype_bytes(x->dtype), stride = round_up(bytes, 16);
    void *all;
    TRY(cuda_scratch(b, lane, SCRATCH_TERMS, (int64_t)g->world * stride, &all, e));
    char *mine = (char *)all + g->rank * stride;
    CUDA_TRY(e, cudaMemcpyAsync(mine, x->data, (size_t)bytes, cudaMemcpyDeviceToDevice,
                                cuda_lane(b, lane)));
    TRY(nccl_all_gather(g->nccl, all, mine, stride, cuda_lane(b, lane), e));
    struct terms t = { mine, (const char *)all, stride, g->rank, g->world };
    return add_terms(b, lane, x->data, t, n, x->dtype, e);
}

/* out [each] <- this rank's slice of the sum of x [world][each]; out may be that slice. */
static enum status scatter(struct backend *b, int lane, char *out, char *x, int64_t each,
                           enum dtype dtype, struct err *e) {
    struct cuda_group *g = cuda_of(b)->group;
    int64_t size = dtype_bytes(dtype), piece = collective_piece(each, g->world, size);
    int64_t stride = collective_stride(each, g->world, size);
    void *other;
    TRY(cuda_scratch(b, lane, SCRATCH_TERMS, (int64_t)g->world * stride, &other, e));
    for (int64_t at = 0; at < each; at += piece) {
        int64_t n = min_i64(each - at, piece);
        TRY(nccl_swap(g->nccl, other, stride, x + at * size, each * size, n * size,
                      cuda_lane(b, lane), e));
        struct terms t = { x + (g->rank * each + at) * size, (const char *)other, stride, g->rank,
                           g->world };
        TRY(add_terms(b, lane, out + at * size, t, n, dtype, e));
    }
    return OK;
}

/* Equal slices, then the remainder. */
static enum status reduce_large(struct backend *b, int lane, const struct tensor *x,
                                struct err *e) {
    struct cuda_group *g = cuda_of(b)->group;
    int64_t n = tensor_count(x), size = dtype_bytes(x->dtype);
    int64_t each = n / g->world / SLICE_ALIGN * SLICE_ALIGN, shared = each * g->world;
    char *data = (char *)x->data, *mine = data + g->rank * each * size;
    TRY(scatter(b, lane, mine, data, each, x->dtype, e));
    TRY(nccl_all_gather(g->nccl, data, mine, each * size, cuda_lane(b, lane), e));
    if (shared == n) return OK;
    struct tensor rest = tensor_1d(data + shared * size, x->dtype, n - shared);
    return reduce_small(b, lane, &rest, e);
}

/* ---- terms of 8 bits (comm_codes.h) ---- */

/* A piece of n elements of each rank's slice: of x [world][each], `at` elements into the slice. */
struct coded {
    struct grad_view x, out; /* out: of this rank's slice */
    uint8_t *codes, *other;  /* [world][stride]: to send, one of them this rank's; received */
    int64_t each, at, n, stride;
    int rank, world;
};

/* A warp makes one block of each lap. */
__global__ static void encode_terms_kernel(struct coded c) {
    enum { EACH = COMM_BLOCK / WARP };
    int64_t across = (c.n + COMM_BLOCK - 1) / COMM_BLOCK, blocks = across * c.world;
    int64_t warp = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / WARP;
    int lane = threadIdx.x % WARP;
    for (int64_t i = warp; i < blocks; i += (int64_t)gridDim.x * THREADS / WARP) {
        int64_t rank = i / across, block = i % across, first = block * COMM_BLOCK + lane;
        uint8_t *codes = c.codes + rank * c.stride;
        float x[EACH];
        uint32_t top = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int64_t k = first + j * WARP;
            x[j] = k < c.n ? grad_load(c.x, rank * c.each + c.at + k) : 0.0f;
            top = max(top, f32_bits(x[j]) & 0x7FFFFFFFu);
        }
        uint8_t scale = comm_block_scale(warp_max(top));
        float m = e8m0_decode_inverse_inline(scale);
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (first + j * WARP < c.n) codes[first + j * WARP] = e4m3_encode_inline(x[j] * m);
        if (lane == 0) codes[comm_scales_at(c.n) + block] = scale;
    }
}

__device__ static inline float term_of(const struct coded &c, int r, int64_t i) {
    const uint8_t *codes = (r == c.rank ? c.codes : c.other) + r * c.stride;
    return e4m3_decode_inline(codes[i]) *
           e8m0_decode_inline(codes[comm_scales_at(c.n) + i / COMM_BLOCK]);
}

__global__ static void add_codes_kernel(struct coded c) {
    int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < c.n; i += step) {
        float sum = term_of(c, 0, i);
        for (int r = 1; r < c.world; r++) sum = sum + term_of(c, r, i);
        grad_store(c.out, c.at + i, sum);
    }
}

/* scatter() with such terms. */
static enum status scatter_codes(struct backend *b, int lane, const struct tensor *out,
                                 const struct tensor *x, struct err *e) {
    struct cuda_group *g = cuda_of(b)->group;
    int64_t each = tensor_count(out), piece = collective_codes_piece(each, g->world);
    int64_t stride = collective_codes_stride(each, g->world);
    void *codes;
    TRY(cuda_scratch(b, lane, SCRATCH_TERMS, 2 * g->world * stride, &codes, e));
    uint8_t *other = (uint8_t *)codes + g->world * stride;
    for (int64_t at = 0; at < each; at += piece) {
        int64_t n = min_i64(each - at, piece);
        const struct coded c = { grad_of(x), grad_of(out), (uint8_t *)codes, other, each, at, n,
                                 stride, g->rank, g->world };
        unsigned grid = grid_for(b, g->world * ceil_div(n, COMM_BLOCK), THREADS / WARP);
        encode_terms_kernel<<<grid, THREADS, 0, cuda_lane(b, lane)>>>(c);
        TRY(cuda_launched("codes of a group's terms", e));
        TRY(nccl_swap(g->nccl, other, stride, codes, stride, comm_codes_bytes(n),
                      cuda_lane(b, lane), e));
        add_codes_kernel<<<grid_for(b, n, THREADS), THREADS, 0, cuda_lane(b, lane)>>>(c);
        TRY(cuda_launched("adding the codes of a group", e));
    }
    return OK;
}

/* ---- the collectives ---- */

static enum status comm_all_reduce(struct backend *b, int lane, const struct tensor *x,
                                   enum reduce_op op, struct err *e) {
    struct cuda_group *g = cuda_of(b)->group;
    bool sum = op == REDUCE_SUM;
    TRY(cuda_check_packed(x, sum ? "all_reduce sum: x" : "all_reduce max: x",
                          sum ? IS_GRAD : IS_U32, -1, -1, e));
    if (!g) return OK;
    TRY(begin(b, lane, sum ? "all_reduce sum" : "all_reduce max", x, e));
    int64_t n = tensor_count(x);
    if (!sum) TRY(nccl_max_u32(g->nccl, (uint32_t *)x->data, n, cuda_lane(b, lane), e));
    else if (n * dtype_bytes(x->dtype) <= SMALL_BYTES) TRY(reduce_small(b, lane, x, e));
    else TRY(reduce_large(b, lane, x, e));
    return end(b, lane, e);
}

/* The shapes of a scattered and a gathered tensor: large has `world` times the elements. */
static enum status check_pair(struct backend *b, const char *what, const struct tensor *small,
                              const struct tensor *large, int dtypes, struct err *e) {
    int64_t world = comm_world(b);
    TRY(cuda_check_packed(small, what, dtypes, -1, -1, e));
    TRY(cuda_check_packed(large, what, dtypes, -1, -1, e));
    if (small->dtype == large->dtype && tensor_count(small) * world == tensor_count(large))
        return OK;
    return FAIL(e, ERR_ARG, "%s: %lld %s and %lld %s, with %lld ranks", what,
                (long long)tensor_count(small), dtype_name(small->dtype),
                (long long)tensor_count(large), dtype_name(large->dtype), (long long)world);
}

/* With one rank a slice is the whole. */
static enum status copy_alone(struct backend *b, int lane, const struct tensor *out,
                              const struct tensor *x, struct err *e) {
    int64_t bytes = tensor_count(x) * dtype_bytes(x->dtype);
    if (out->data == x->data) return OK;
    CUDA_TRY(e, cudaMemcpyAsync(out->data, x->data, (size_t)bytes, cudaMemcpyDeviceToDevice,
                                cuda_lane(b, lane)));
    return OK;
}

static enum status comm_reduce_scatter(struct backend *b, int lane, const struct tensor *out,
                                       const struct tensor *x, struct err *e) {
    TRY(check_pair(b, "reduce_scatter", out, x, IS_GRAD, e));
    if (!cuda_of(b)->group) return copy_alone(b, lane, out, x, e);
    TRY(begin(b, lane, "reduce_scatter", x, e));
    TRY(scatter(b, lane, (char *)out->data, (char *)x->data, tensor_count(out), x->dtype, e));
    return end(b, lane, e);
}

static enum status comm_reduce_scatter_codes(struct backend *b, int lane,
                                             const struct tensor *out, const struct tensor *x,
                                             struct err *e) {
    TRY(check_pair(b, "reduce_scatter_codes", out, x, IS_GRAD, e));
    if (!cuda_of(b)->group) return copy_alone(b, lane, out, x, e);
    TRY(begin(b, lane, "reduce_scatter_codes", x, e));
    TRY(scatter_codes(b, lane, out, x, e));
    return end(b, lane, e);
}

static enum status comm_all_gather(struct backend *b, int lane, const struct tensor *out,
                                   const struct tensor *x, struct err *e) {
    struct cuda_group *g = cuda_of(b)->group;
    TRY(check_pair(b, "all_gather", x, out, -1, e));
    if (!g) return copy_alone(b, lane, out, x, e);
    TRY(begin(b, lane, "all_gather", x, e));
    TRY(nccl_all_gather(g->nccl, out->data, x->data, tensor_count(x) * dtype_bytes(x->dtype),
                        cuda_lane(b, lane), e));
    return end(b, lane, e);
}

static enum status comm_broadcast(struct backend *b, int lane, const struct tensor *x, int root,
                                  struct err *e) {
    struct cuda_group *g = cuda_of(b)->group;
    TRY(cuda_check_packed(x, "broadcast: x", -1, -1, -1, e));
    if (root < 0 || root >= comm_world(b))
        return FAIL(e, ERR_ARG, "broadcast: root %d of %d ranks", root, comm_world(b));
    if (!g) return OK;
    TRY(begin(b, lane, "broadcast", x, e));
    TRY(nccl_broadcast(g->nccl, x->data, tensor_count(x) * dtype_bytes(x->dtype), root,
                       cuda_lane(b, lane), e));
    return end(b, lane, e);
}

static enum status comm_busy(struct backend *b, int lane, const struct tensor *out,
                             struct err *e) {
    struct cuda_group *g = cuda_of(b)->group;
    TRY(cuda_check(out, "busy: out", IS_U64, 2, 1, e));
    if (g) busy_kernel<<<1, 1, 0, cuda_lane(b, lane)>>>((uint64_t *)out->data, g->busy);
    else CUDA_TRY(e, cudaMemsetAsync(out->data, 0, 16, cuda_lane(b, lane)));
    return cuda_launched("busy", e);
}

void cuda_fill_comm(struct comm_ops *comm) {
    comm->init = comm_init;
    comm->rank = comm_rank;
    comm->world = comm_world;
    comm->all_reduce = comm_all_reduce;
    comm->reduce_scatter = comm_reduce_scatter;
    comm->reduce_scatter_codes = comm_reduce_scatter_codes;
    comm->all_gather = comm_all_gather;
    comm->broadcast = comm_broadcast;
    comm->busy = comm_busy;
    comm->poll = comm_poll;
    comm->abort = comm_abort;
}
