#include "kernels/cuda/gemm_class.cuh"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/class_noise.h"
#include "kernels/rng.h"

/* ---- the problem as matmul's arguments: the library's B is our a, its A our b ---- */

struct as_matmul {
    struct tensor a, b, out, bias, addend;
    struct matmul_args args;
};

static enum dtype dtype_of(cudaDataType_t type) {
    if (type == CUDA_R_32F) return DTYPE_F32;
    if (type == CUDA_R_16BF) return DTYPE_BF16;
    return type == CUDA_R_8F_E5M2 ? DTYPE_E5M2 : DTYPE_E4M3;
}

static enum scale_kind kind_of(const struct gemm_operand *x) {
    if (!x->scale) return SCALE_NONE;
    switch (x->scale_mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F: return SCALE_1X128;
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F: return SCALE_128X128;
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F: return SCALE_ROW;
    default: return SCALE_TENSOR;
    }
}

static bool is_described(const struct gemm_operand *x) {
    bool known = x->type == CUDA_R_16BF || x->type == CUDA_R_8F_E4M3 || x->type == CUDA_R_8F_E5M2;
    bool bytes = x->scale && (x->scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 ||
                              x->scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3);
    return known && !bytes;
}

static struct tensor operand_of(const struct gemm_operand *x, int64_t outer, int64_t k) {
    struct tensor t = tensor_2d(NULL, dtype_of(x->type), outer, k);
    if (x->scale) t.scale = scale_make(NULL, kind_of(x), outer, k);
    return t;
}

/* `rows` x `cols` of the problem's outputs, without data. */
static void describe_as(const struct gemm_problem *p, int64_t rows, int64_t cols, int64_t stride,
                        struct as_matmul *m) {
    memset(m, 0, sizeof *m);
    m->a = operand_of(&p->b, rows, p->k);
    m->b = operand_of(&p->a, cols, p->k);
    m->out = tensor_2d(NULL, dtype_of(p->type), rows, cols);
    m->out.stride[0] = stride;
    m->addend = m->out;
    m->bias = tensor_1d(NULL, dtype_of(p->bias_type), cols);
    m->args.out = &m->out;
    m->args.a = &m->a;
    m->args.b = &m->b;
    m->args.bias = p->bias ? &m->bias : NULL;
    m->args.fast_accumulate = p->fast_accumulate;
    if (p->beta != 0.0f && p->c != p->d) m->args.residual = &m->addend;
    else m->args.beta = p->beta;
}

bool gemm_class_of(const struct gemm_problem *p, struct mma_way *way) {
    const struct arithmetic *hopper;
    struct as_matmul m;
    struct err ignored = {};
    if (!is_described(&p->a) || !is_described(&p->b)) return false;
    describe_as(p, p->n, p->m, p->ld, &m);
    return arithmetic_find("hopper", &hopper, &ignored) == OK &&
           arithmetic_way_as(hopper, &m.args, true, way, &ignored) == OK;
}

int gemm_class_parts_of(const struct gemm_problem *p, const struct mma_way *way) {
    return way->order.part ? (int)ceil_div(p->k, way->order.part) : 1;
}

static bool is_aligned(const struct gemm_problem *p) {
    int64_t out = p->type == CUDA_R_32F ? 4 : 2, in = p->a.type == CUDA_R_16BF ? 2 : 1;
    return p->ld * out % 16 == 0 && p->a.ld * in % 16 == 0 && p->b.ld * in % 16 == 0;
}

static bool adds_in_place(const struct gemm_problem *p) {
    return p->beta != 0.0f && p->c == p->d && p->type == CUDA_R_16BF;
}

/* ---- what an algorithm says of itself ---- */

int gemm_class_parts(const cublasLtMatmulAlgo_t *algo) {
    int32_t parts = 0;
    uint32_t scheme = 0;
    size_t bytes;
    if (cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                             sizeof parts, &bytes) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                             sizeof scheme, &bytes) != CUBLAS_STATUS_SUCCESS)
        return 0;
    if (parts == 0 || parts == 1) return 1;
    return parts > 1 && scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ? parts : 0;
}

bool gemm_class_split(cublasLtMatmulAlgo_t *algo, int parts) {
    const int32_t number = parts;
    const uint32_t scheme = parts > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                      : CUBLASLT_REDUCTION_SCHEME_NONE;
    return cublasLtMatmulAlgoConfigSetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &number,
                                                sizeof number) == CUBLAS_STATUS_SUCCESS &&
           cublasLtMatmulAlgoConfigSetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                &scheme, sizeof scheme) == CUBLAS_STATUS_SUCCESS;
}

bool gemm_class_by_attributes(const struct gemm_problem *p, const cublasLtMatmulAlgo_t *algo,
                              struct mma_way *way) {
    int parts = gemm_class_parts(algo);
    if (!parts || !is_aligned(p) || adds_in_place(p) || !gemm_class_of(p, way)) return false;
    int64_t step = p->a.type == CUDA_R_16BF ? 64 : 128;
    way->order.part = parts > 1 ? round_up(ceil_div(p->k, parts), step) : 0;
    return true;
}

/* ---- other ways ---- */

/* The i-th way to look for, the class first; false after the last. The others are for products that
 * no algorithm adds in the way of the class: without split-K, C added once or after a rounding, FP8
 * with the other accumulation, factors in other orders, and for BF16 rows that are not aligned the
 * rest of a tile first. Their order is fixed. */
static bool way_at(const struct gemm_problem *p, int i, struct mma_way *way) {
    static const int TILE[] = { 0, 32, 64, 128, 16 };
    struct mma_way first;
    if (!gemm_class_of(p, &first)) return false;
    bool in_place = adds_in_place(p);
    bool tiles = p->a.type == CUDA_R_16BF && !is_aligned(p);
    bool adds = p->beta != 0.0f && p->type == CUDA_R_16BF;
    bool chains = p->a.type != CUDA_R_16BF && !first.block && !first.order.part;
    int parts = first.order.part ? 2 : 1, roundings = adds ? 2 : 1, orders = p->a.scale ? 3 : 1;
    int groups = tiles ? 2 : 1, count = tiles ? (int)(sizeof TILE / sizeof *TILE) : 1;
    *way = first;
    if (i % parts) {
        way->order.part = 0;
        way->rounded = in_place;
    }
    i /= parts;
    if (i % roundings) way->rounded = !way->rounded;
    way->bias_last = p->bias && p->beta != 0.0f && !way->rounded;
    i /= roundings;
    if (chains && i % 2) way->order.chain = first.order.chain ? 0 : 128;
    i /= chains ? 2 : 1;
    way->factors = (enum factor_order)((first.factors + i % orders) % 3);
    i /= orders;
    if (i % groups) way->mma.group = 8;
    i /= groups;
    if (i >= count) return false;
    way->order.tile = TILE[i];
    return true;
}

/* ---- noise, on both sides ---- */

cudaError_t gemm_class_operand(const struct trial *t, const struct gemm_operand *x, int64_t bytes,
                               int64_t factor_bytes) {
    struct noise_pattern n = noise_operand(dtype_of(x->type)), f = noise_factors();
    cudaError_t status = trial_noise(t, (void *)x->data, bytes, n.keep, n.set);
    if (status != cudaSuccess || !factor_bytes) return status;
    return trial_noise(t, (void *)x->factors, factor_bytes, f.keep, f.set);
}

cudaError_t gemm_class_addend(const struct trial *t, void *data, int64_t bytes,
                              cudaDataType_t type) {
    struct noise_pattern n = noise_addend(dtype_of(type));
    return trial_noise(t, data, bytes, n.keep, n.set);
}

struct cancel {
    void *data;
    int64_t outer, k, ld;
    struct cancel_noise n;
    bool turned, transposed;
};

__global__ static void cancel_kernel(struct cancel c) {
    int64_t step = (int64_t)gridDim.x * blockDim.x, inner = c.transposed ? c.k : c.outer;
    for (int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; at < c.outer * c.k;
         at += step) {
        int64_t line = at / inner, place = at % inner;
        uint32_t bits = cancel_noise_at(c.n, c.turned, c.transposed ? line : place,
                                        c.transposed ? place : line);
        if (c.n.size == 2) ((uint16_t *)c.data)[line * c.ld + place] = (uint16_t)bits;
        else ((uint8_t *)c.data)[line * c.ld + place] = (uint8_t)bits;
    }
}

static cudaError_t fill_cancelling(const struct trial *t, const struct gemm_problem *p,
                                   const struct gemm_operand *x, int64_t outer, bool turned) {
    struct cancel c = { (void *)x->data, outer, p->k, x->ld,
                        cancel_noise(dtype_of(x->type), p->k, p->fast_accumulate), turned,
                        x->transposed };
    cancel_kernel<<<1024, 256, 0, t->stream>>>(c);
    return cudaGetLastError();
}

static void put(void *to, int64_t i, uint32_t bits, int size) {
    memcpy((char *)to + i * size, &bits, (size_t)size); /* little-endian, as all devices here */
}

/* ---- samples ---- */

/* Places of sampled outputs, and their bits as read from the device or wanted. */
enum { SAMPLES_MAX = 32 };
struct samples {
    int count;
    int64_t row[SAMPLES_MAX], col[SAMPLES_MAX]; /* of n, of m */
};
struct bits { uint32_t of[SAMPLES_MAX]; };

static void choose_places(const struct gemm_problem *p, struct samples *out) {
    const int64_t products = (int64_t)1 << 18, least = 8; /* some ms of the host's time */
    int64_t count = products / max_i64(p->k, 1);
    if (count < least) count = least;
    out->count = count < SAMPLES_MAX ? (int)count : SAMPLES_MAX;
    for (int i = 0; i < out->count; i++) {
        out->row[i] = i ? (int64_t)(rng_mix(1000 + (uint64_t)i) >> 1) % p->n : p->n - 1;
        out->col[i] = i ? (int64_t)(rng_mix(2000 + (uint64_t)i) >> 1) % p->m : p->m - 1;
    }
}

__global__ static void gather_kernel(const void *d, int64_t ld, bool bf16, struct samples s,
                                     uint32_t *out) {
    int i = (int)threadIdx.x;
    if (i >= s.count) return;
    int64_t at = s.row[i] * ld + s.col[i];
    out[i] = bf16 ? ((const uint16_t *)d)[at] : ((const uint32_t *)d)[at];
}

/* Which noise the operands have. CANCELLING comes without addends. */
enum fill { WIDE, CANCELLING };

/* One row of an operand and its factors, as the trial has them. `turned`: the library's A. */
static void fill_row(const struct gemm_problem *p, const struct gemm_operand *x, enum fill fill,
                     bool turned, int64_t outer, int64_t row, struct tensor *t, void *codes,
                     float *factors) {
    int64_t k = p->k;
    struct cancel_noise n = cancel_noise(dtype_of(x->type), k, p->fast_accumulate);
    for (int64_t i = 0; i < k; i++) {
        int64_t at = x->transposed ? row * x->ld + i : i * x->ld + row;
        uint32_t bits = fill == WIDE ? noise_at(n.n, at, n.size)
                                     : cancel_noise_at(n, turned, row, i);
        put(codes, i, bits, n.size);
    }
    t->data = codes;
    if (!x->scale) return;
    enum scale_kind kind = kind_of(x);
    int64_t blocks = ceil_div(k, 128), count = arithmetic_block(kind) ? blocks : 1;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        if (kind == SCALE_ROW) at = row;
        if (kind == SCALE_1X128) at = i * round_up(outer, 4) + row;
        if (kind == SCALE_128X128) at = row / 128 * round_up(blocks, 4) + i;
        factors[i] = f32_from_bits(noise_at(noise_factors(), at, 4));
    }
    t->scale = scale_make(factors, kind, 1, k);
}

static uint32_t want_one(const struct gemm_problem *p, const struct mma_way *way, enum fill fill,
                         struct as_matmul *m, int64_t row, int64_t col) {
    uint32_t addend = 0, bias = 0;
    int size = p->type == CUDA_R_32F ? 4 : 2, bias_size = p->bias_type == CUDA_R_32F ? 4 : 2;
    if (fill == WIDE) {
        put(&addend, 0, noise_at(noise_addend(m->out.dtype), row * p->ld + col, size), size);
        put(&bias, 0, noise_at(noise_addend(m->bias.dtype), col, bias_size), bias_size);
    }
    m->out.data = m->addend.data = &addend;
    m->bias.data = &bias;
    float x = f32_canonical(arithmetic_output(way, &m->args, 0, 0));
    return p->type == CUDA_R_32F ? f32_bits(x) : bf16_encode(x);
}

/* Samples that threads of the host take in turn. */
struct sampling {
    const struct gemm_problem *p;
    const struct mma_way *way;
    enum fill fill;
    const struct samples *s;
    struct bits *out;
    int next;    /* atomic */
    bool failed; /* atomic: a thread had no memory */
};

static void *compute_some(void *sampling) {
    struct sampling *w = (struct sampling *)sampling;
    const struct gemm_problem *p = w->p;
    int64_t row_bytes = round_up(p->k * 2, 16), blocks = ceil_div(p->k, 128);
    char *memory = (char *)malloc((size_t)(2 * (row_bytes + blocks * 4)));
    char *a = memory, *b = a + row_bytes;
    float *factors_a = (float *)(b + row_bytes), *factors_b = factors_a + blocks;
    if (!memory) __atomic_store_n(&w->failed, true, __ATOMIC_RELAXED);
    for (int i; memory && (i = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED)) < w->s->count;) {
        struct as_matmul m;
        describe_as(p, 1, 1, 1, &m);
        fill_row(p, &p->b, w->fill, false, p->n, w->s->row[i], &m.a, a, factors_a);
        fill_row(p, &p->a, w->fill, true, p->m, w->s->col[i], &m.b, b, factors_b);
        w->out->of[i] = want_one(p, w->way, w->fill, &m, w->s->row[i], w->s->col[i]);
    }
    free(memory);
    return NULL;
}

/* What `way` gives for the noise. Several threads compute it, unless it takes less than a
 * millisecond. A thread that does not start leaves its part to the others. */
static enum status compute_outputs(const struct gemm_problem *p, const struct mma_way *way,
                                   enum fill fill, const struct samples *s, struct bits *out,
                                   struct err *e) {
    enum { OTHERS = 7 };
    const int64_t short_products = 1 << 16;
    struct sampling w = { p, way, fill, s, out, 0, false };
    pthread_t thread[OTHERS];
    int started = 0, most = s->count * p->k < short_products ? 0 : OTHERS;
    memset(out, 0, sizeof *out);
    while (started < most && !pthread_create(&thread[started], NULL, compute_some, &w)) started++;
    (void)compute_some(&w);
    while (started > 0) pthread_join(thread[--started], NULL);
    return w.failed ? FAIL(e, ERR_MEMORY, "no memory to test the algorithms of a GEMM") : OK;
}

/* ---- whole outputs ---- */

/* A word for each tile of a candidate's output: equal bits have equal words. */
enum { TILES_MAX = 4096, TILE_LEAST_BITS = 6 };
struct tiles {
    int bits;             /* of a tile's edge */
    int64_t across, down; /* tiles of m, of n */
};

static struct tiles tiles_of(const struct gemm_problem *p) {
    struct tiles t = { TILE_LEAST_BITS, 0, 0 };
    for (;; t.bits++) {
        t.across = ceil_div(p->m, (int64_t)1 << t.bits);
        t.down = ceil_div(p->n, (int64_t)1 << t.bits);
        if (t.across * t.down <= TILES_MAX) return t;
    }
}

/* Grid: one block of threads a tile. A thread mixes 64 bits of neighbouring outputs at once. Sums
 * of hashes do not depend on their order. Reads each output once; bound by memory. */
template <typename T>
__global__ static void tiles_kernel(const T *d, int64_t m, int64_t n, int64_t ld, struct tiles t,
                                    unsigned long long *out) {
    constexpr int EACH = 8 / sizeof(T), EACH_BITS = EACH == 4 ? 2 : 1;
    int64_t row0 = (blockIdx.x / t.across) << t.bits, col0 = (blockIdx.x % t.across) << t.bits;
    int line_bits = t.bits - EACH_BITS; /* a line of a tile has that many words */
    int64_t words = (int64_t)1 << (t.bits + line_bits), line = ((int64_t)1 << line_bits) - 1;
    uint64_t sum = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < words; i += blockDim.x) {
        int64_t row = row0 + (i >> line_bits), col = col0 + ((i & line) << EACH_BITS);
        if (row >= n || col >= m) continue;
        const T *at = d + row * ld + col;
        uint64_t word = 0;
        for (int k = 0; k < EACH; k++)
            if (col + k < m) word |= (uint64_t)at[k] << k * 8 * sizeof(T);
        sum += rng_mix(rng_mix(word) + (uint64_t)i);
    }
    atomicAdd(&out[blockIdx.x], (unsigned long long)sum);
}

static void queue_tiles(const struct gemm_problem *p, unsigned long long *out,
                        cudaStream_t stream) {
    struct tiles t = tiles_of(p);
    unsigned grid = (unsigned)(t.across * t.down);
    if (p->type == CUDA_R_16BF)
        tiles_kernel<<<grid, 256, 0, stream>>>((const uint16_t *)p->d, p->m, p->n, p->ld, t, out);
    else tiles_kernel<<<grid, 256, 0, stream>>>((const uint32_t *)p->d, p->m, p->n, p->ld, t, out);
}

/* ---- the test ---- */

/* What a candidate's run gave: samples, and a word for each tile. */
struct row {
    struct bits got;
    unsigned long long words[TILES_MAX];
};

struct results {
    bool queued[GEMM_CANDIDATES]; /* and not read yet */
    bool asked[GEMM_CANDIDATES], ran[GEMM_CANDIDATES];
    struct row *row, *there; /* [GEMM_CANDIDATES]; there: of the device */
};

/* The bytes of a row that this problem uses. */
static size_t row_bytes_of(const struct gemm_problem *p) {
    struct tiles t = tiles_of(p);
    return offsetof(struct row, words) + (size_t)(t.across * t.down) * sizeof(unsigned long long);
}

/* What the test uses of the device. */
struct place {
    struct row *rows; /* owned: [2][GEMM_CANDIDATES], of each noise */
    cudaEvent_t mark[2][GEMM_CANDIDATES]; /* owned: before and after each run */
};

static cudaError_t fill_addends(const struct class_trial *c, enum fill fill) {
    const struct gemm_problem *p = c->p;
    cudaStream_t stream = c->trial->stream;
    if (fill == WIDE) return gemm_class_addend(c->trial, p->d, c->out_bytes, p->type);
    cudaError_t status = cudaMemsetAsync(p->d, 0, (size_t)c->out_bytes, stream);
    if (p->bias && status == cudaSuccess)
        status = cudaMemsetAsync((void *)p->bias, 0, (size_t)p->m * 4, stream);
    if (p->c != p->d && status == cudaSuccess)
        status = cudaMemsetAsync((void *)p->c, 0, (size_t)c->out_bytes, stream);
    return status;
}

/* Queues the candidates that `wanted` names, unless they have run already, and the gathering of
 * their samples and tiles. */
static enum status queue_runs(const struct class_trial *c, const struct samples *s, enum fill fill,
                              const bool *wanted, const struct place *there, struct results *r,
                              struct err *e) {
    cudaStream_t stream = c->trial->stream;
    const struct gemm_problem *p = c->p;
    bool bf16 = p->type == CUDA_R_16BF;
    for (int i = 0; i < c->count; i++) {
        if (!wanted[i] || r->asked[i]) continue;
        r->asked[i] = true;
        CUDA_TRY(e, cudaMemsetAsync(&r->there[i], 0, row_bytes_of(p), stream));
        CUDA_TRY(e, fill_addends(c, fill));
        CUDA_TRY(e, cudaEventRecord(there->mark[0][i], stream));
        r->ran[i] = r->queued[i] = c->queue(c->context, i, stream);
        if (!r->ran[i]) continue;
        CUDA_TRY(e, cudaEventRecord(there->mark[1][i], stream));
        gather_kernel<<<1, SAMPLES_MAX, 0, stream>>>(p->d, p->ld, bf16, *s, r->there[i].got.of);
        queue_tiles(p, r->there[i].words, stream);
        CUDA_TRY(e, cudaGetLastError());
    }
    return OK;
}

/* Waits for what is queued and reads it, all rows in one copy. us: the time of each run. */
static enum status read_runs(const struct class_trial *c, const struct place *there,
                             struct results *r, float *us, struct err *e) {
    cudaStream_t stream = c->trial->stream;
    CUDA_TRY(e, cudaMemcpy2DAsync(r->row, sizeof *r->row, r->there, sizeof *r->row,
                                  row_bytes_of(c->p), (size_t)c->count, cudaMemcpyDeviceToHost,
                                  stream));
    CUDA_TRY(e, cudaStreamSynchronize(stream));
    for (int i = 0; i < c->count; i++) {
        if (!r->queued[i]) continue;
        r->queued[i] = false;
        CUDA_TRY(e, cudaEventElapsedTime(&us[i], there->mark[0][i], there->mark[1][i]));
        us[i] *= 1000.0f;
    }
    return OK;
}

/* Drops candidates whose samples are not the wanted ones; whether one is left. */
static bool keep_right(const struct class_trial *c, const struct bits *want,
                       const struct results *r, bool *in_class) {
    bool left = false;
    for (int i = 0; i < c->count; i++) {
        in_class[i] = in_class[i] && r->ran[i] && memcmp(&r->row[i].got, want, sizeof *want) == 0;
        left = left || in_class[i];
    }
    return left;
}

/* Places in tiles where candidates of the class differ from the first of them; how many. */
static int choose_differing(const struct class_trial *c, const struct results *r,
                            const bool *in_class, struct samples *out) {
    const int each = 4;
    struct tiles t = tiles_of(c->p);
    int first = 0;
    out->count = 0;
    while (first < c->count && !in_class[first]) first++;
    for (int64_t tile = 0; tile < t.across * t.down; tile++) {
        bool differs = false;
        for (int i = first; i < c->count; i++)
            differs = differs || (in_class[i] && r->row[i].words[tile] !=
                                                     r->row[first].words[tile]);
        for (int k = 0; differs && k < each && out->count < SAMPLES_MAX; k++) {
            uint64_t at = rng_mix((uint64_t)(tile * each + k));
            int64_t edge = (int64_t)1 << t.bits;
            int64_t row = tile / t.across * edge + (int64_t)(at >> 32) % edge;
            int64_t col = tile % t.across * edge + (int64_t)(at & 0x7FFFFFFFu) % edge;
            out->row[out->count] = min_i64(row, c->p->n - 1);
            out->col[out->count++] = min_i64(col, c->p->m - 1);
        }
    }
    return out->count;
}

/* Keeps those with the outputs of the first. */
static void keep_equal(const struct class_trial *c, const struct results *r, bool *in_class) {
    size_t bytes = row_bytes_of(c->p) - offsetof(struct row, words);
    int first = 0;
    while (first < c->count && !in_class[first]) first++;
    for (int i = first + 1; i < c->count; i++)
        in_class[i] = in_class[i] && memcmp(r->row[i].words, r->row[first].words, bytes) == 0;
}

/* Where candidates of the class differ, outputs are computed again. *known: one is right there. */
static enum status sort_differing(const struct class_trial *c, const struct place *there,
                                  struct results *r, const struct mma_way *way, bool *in_class,
                                  bool *known, struct err *e) {
    struct samples odd;
    struct bits want;
    *known = true;
    if (!choose_differing(c, r, in_class, &odd)) return OK;
    memset(r->asked, 0, sizeof r->asked);
    TRY(queue_runs(c, &odd, CANCELLING, in_class, there, r, e));
    TRY(compute_outputs(c->p, way, CANCELLING, &odd, &want, e));
    TRY(read_runs(c, there, r, c->us, e));
    *known = keep_right(c, &want, r, in_class);
    keep_equal(c, r, in_class);
    return OK;
}

/* The tests of both fills. Only candidates that are right on the first run on the second. The host
 * computes what is wanted while the device runs. */
static enum status sort_in(const struct class_trial *c, const struct place *there,
                           struct results r[2], bool *in_class, struct mma_way *way, bool *known,
                           struct err *e) {
    struct samples s;
    struct bits want[2];
    float ignored[GEMM_CANDIDATES];
    choose_places(c->p, &s);
    for (int i = 0; i < c->count; i++) in_class[i] = true, c->us[i] = -1.0f;
    TRY(queue_runs(c, &s, WIDE, in_class, there, &r[WIDE], e));
    CUDA_TRY(e, fill_cancelling(c->trial, c->p, &c->p->a, c->p->m, true));
    CUDA_TRY(e, fill_cancelling(c->trial, c->p, &c->p->b, c->p->n, false));
    *known = false;
    for (int w = 0; (w == 0 || !c->class_only) && way_at(c->p, w, way); w++) {
        TRY(compute_outputs(c->p, way, WIDE, &s, &want[WIDE], e));
        TRY(compute_outputs(c->p, way, CANCELLING, &s, &want[CANCELLING], e));
        TRY(read_runs(c, there, &r[WIDE], ignored, e));
        for (int i = 0; i < c->count; i++) in_class[i] = true;
        if (!keep_right(c, &want[WIDE], &r[WIDE], in_class)) continue;
        TRY(queue_runs(c, &s, CANCELLING, in_class, there, &r[CANCELLING], e));
        TRY(read_runs(c, there, &r[CANCELLING], c->us, e));
        if (keep_right(c, &want[CANCELLING], &r[CANCELLING], in_class))
            return sort_differing(c, there, &r[CANCELLING], way, in_class, known, e);
    }
    return OK;
}

static enum status open_place(const struct class_trial *c, struct place *there, struct err *e) {
    size_t bytes = 2 * GEMM_CANDIDATES * sizeof *there->rows;
    if (cudaMalloc(&there->rows, bytes) != cudaSuccess)
        return FAIL(e, ERR_MEMORY, "no memory of the device to test the algorithms of a GEMM");
    CUDA_TRY(e, cudaMemsetAsync(there->rows, 0, bytes, c->trial->stream));
    for (int i = 0; i < 2 * GEMM_CANDIDATES; i++)
        CUDA_TRY(e, cudaEventCreate(&there->mark[i % 2][i / 2]));
    return OK;
}

static void close_place(struct place *there) {
    for (int i = 0; i < 2 * GEMM_CANDIDATES; i++)
        if (there->mark[i % 2][i / 2]) cudaEventDestroy(there->mark[i % 2][i / 2]);
    cudaFree(there->rows);
}

enum status gemm_class_sort(const struct class_trial *c, bool *in_class, struct mma_way *way,
                            bool *known, struct err *e) {
    struct results *r = (struct results *)calloc(2, sizeof *r);
    struct row *rows = (struct row *)malloc(2 * GEMM_CANDIDATES * sizeof *rows);
    struct place there = {};
    enum status st = OK;
    if (!r || !rows) st = FAIL(e, ERR_MEMORY, "no memory to test the algorithms of a GEMM");
    if (st == OK) st = open_place(c, &there, e);
    if (st == OK) {
        r[WIDE].row = rows;
        r[WIDE].there = there.rows;
        r[CANCELLING].row = rows + GEMM_CANDIDATES;
        r[CANCELLING].there = there.rows + GEMM_CANDIDATES;
        st = sort_in(c, &there, r, in_class, way, known, e);
    }
    close_place(&there);
    free(rows);
    free(r);
    return st;
}
