#include "kernels/cuda/gemm_class.cuh"

#include <stdlib.h>
#include <string.h>

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
 * no algorithm adds in the way of the class: without split-K, C in place added once or after a
 * rounding, factors in other orders, and for BF16 rows that are not aligned the rest of a tile
 * first. Their order is fixed. */
static bool way_at(const struct gemm_problem *p, int i, struct mma_way *way) {
    static const int TILE[] = { 0, 32, 64, 128, 16 };
    struct mma_way first;
    if (!gemm_class_of(p, &first)) return false;
    bool in_place = adds_in_place(p);
    bool tiles = p->a.type == CUDA_R_16BF && !is_aligned(p);
    int parts = first.order.part ? 2 : 1, roundings = in_place ? 2 : 1, orders = p->a.scale ? 3 : 1;
    int groups = tiles ? 2 : 1, count = tiles ? (int)(sizeof TILE / sizeof *TILE) : 1;
    *way = first;
    if (i % parts) {
        way->order.part = 0;
        way->rounded = in_place;
    }
    i /= parts;
    if (i % roundings) way->rounded = !way->rounded;
    i /= roundings;
    way->factors = (enum factor_order)((first.factors + i % orders) % 3);
    i /= orders;
    if (i % groups) way->mma.group = 8;
    i /= groups;
    if (i >= count) return false;
    way->order.tile = TILE[i];
    return true;
}

/* ---- noise, on both sides ---- */

struct pattern { uint32_t keep, set; };
/* Values of either sign. BF16 from 2^-7 to 2; FP8 with a clear top bit of the exponent, subnormal
 * ones too; factors in [1, 2); addends from 2 to 2^9. */
static const struct pattern WIDE_BF16 = { 0x83FF83FFu, 0x3C003C00u }, WIDE_FP8 = { 0xBFBFBFBFu, 0 },
                            FACTORS = { 0x007FFFFFu, 0x3F800000u },
                            ADDEND_F32 = { 0x83FFFFFFu, 0x40000000u },
                            ADDEND_BF16 = { 0x83FF83FFu, 0x40004000u };

static struct pattern operand_pattern(const struct gemm_operand *x) {
    return x->type == CUDA_R_16BF ? WIDE_BF16 : WIDE_FP8;
}
static struct pattern addend_pattern(cudaDataType_t type) {
    return type == CUDA_R_32F ? ADDEND_F32 : ADDEND_BF16;
}

cudaError_t gemm_class_operand(const struct trial *t, const struct gemm_operand *x, int64_t bytes,
                               int64_t factor_bytes) {
    struct pattern n = operand_pattern(x);
    cudaError_t status = trial_noise(t, (void *)x->data, bytes, n.keep, n.set);
    if (status != cudaSuccess || !factor_bytes) return status;
    return trial_noise(t, (void *)x->factors, factor_bytes, FACTORS.keep, FACTORS.set);
}

cudaError_t gemm_class_addend(const struct trial *t, void *data, int64_t bytes,
                              cudaDataType_t type) {
    struct pattern n = addend_pattern(type);
    return trial_noise(t, data, bytes, n.keep, n.set);
}

/* Element i of `size` bytes, as trial_noise makes it. */
static uint32_t noise(struct pattern n, int64_t i, int size) {
    uint32_t word = ((uint32_t)rng_mix((uint64_t)(i * size / 4)) & n.keep) | n.set;
    int shift = (int)(i * size % 4) * 8;
    return size == 4 ? word : word >> shift & ((1u << 8 * size) - 1);
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

/* One row of an operand and its factors, as the trial has them. */
static void fill_row(const struct gemm_operand *x, int64_t outer, int64_t row, int64_t k,
                     struct tensor *t, void *codes, float *factors) {
    int size = x->type == CUDA_R_16BF ? 2 : 1;
    struct pattern n = operand_pattern(x);
    for (int64_t i = 0; i < k; i++)
        put(codes, i, noise(n, x->transposed ? row * x->ld + i : i * x->ld + row, size), size);
    t->data = codes;
    if (!x->scale) return;
    enum scale_kind kind = kind_of(x);
    int64_t blocks = ceil_div(k, 128), count = arithmetic_block(kind) ? blocks : 1;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        if (kind == SCALE_ROW) at = row;
        if (kind == SCALE_1X128) at = i * round_up(outer, 4) + row;
        if (kind == SCALE_128X128) at = row / 128 * round_up(blocks, 4) + i;
        factors[i] = f32_from_bits(noise(FACTORS, at, 4));
    }
    t->scale = scale_make(factors, kind, 1, k);
}

static uint32_t want_one(const struct gemm_problem *p, const struct mma_way *way,
                         struct as_matmul *m, int64_t row, int64_t col) {
    uint32_t addend = 0, bias = 0;
    int size = p->type == CUDA_R_32F ? 4 : 2, bias_size = p->bias_type == CUDA_R_32F ? 4 : 2;
    put(&addend, 0, noise(addend_pattern(p->type), row * p->ld + col, size), size);
    put(&bias, 0, noise(addend_pattern(p->bias_type), col, bias_size), bias_size);
    m->out.data = m->addend.data = &addend;
    m->bias.data = &bias;
    float x = f32_canonical(arithmetic_output(way, &m->args, 0, 0));
    return p->type == CUDA_R_32F ? f32_bits(x) : bf16_encode(x);
}

/* What `way` gives for the noise. */
static enum status compute_outputs(const struct gemm_problem *p, const struct mma_way *way,
                                   const struct samples *s, struct bits *out, struct err *e) {
    int64_t row_bytes = round_up(p->k * 2, 16), blocks = ceil_div(p->k, 128);
    char *memory = (char *)malloc((size_t)(2 * (row_bytes + blocks * 4)));
    if (!memory) return FAIL(e, ERR_MEMORY, "no memory to test the algorithms of a GEMM");
    char *a = memory, *b = a + row_bytes;
    float *factors_a = (float *)(b + row_bytes), *factors_b = factors_a + blocks;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < s->count; i++) {
        struct as_matmul m;
        describe_as(p, 1, 1, 1, &m);
        fill_row(&p->b, p->n, s->row[i], p->k, &m.a, a, factors_a);
        fill_row(&p->a, p->m, s->col[i], p->k, &m.b, b, factors_b);
        out->of[i] = want_one(p, way, &m, s->row[i], s->col[i]);
    }
    free(memory);
    return OK;
}

/* ---- the test ---- */

/* Queues each candidate and the reading of its samples; got and ran [count]. Waits at the end. */
static enum status run_all(const struct class_trial *c, const struct samples *s, struct bits *there,
                           struct bits *got, bool *ran, struct err *e) {
    cudaStream_t stream = c->trial->stream;
    size_t bytes = (size_t)c->count * sizeof *got;
    CUDA_TRY(e, cudaMemsetAsync(there, 0, bytes, stream));
    for (int i = 0; i < c->count; i++) {
        CUDA_TRY(e, gemm_class_addend(c->trial, c->p->d, c->out_bytes, c->p->type));
        ran[i] = c->queue(c->context, i, stream);
        if (!ran[i]) continue;
        gather_kernel<<<1, SAMPLES_MAX, 0, stream>>>(c->p->d, c->p->ld, c->p->type == CUDA_R_16BF,
                                                     *s, there[i].of);
        CUDA_TRY(e, cudaGetLastError());
    }
    CUDA_TRY(e, cudaMemcpyAsync(got, there, bytes, cudaMemcpyDeviceToHost, stream));
    CUDA_TRY(e, cudaStreamSynchronize(stream));
    return OK;
}

enum status gemm_class_sort(const struct class_trial *c, bool *in_class, struct mma_way *way,
                            bool *known, struct err *e) {
    struct samples s;
    struct bits got[GEMM_CANDIDATES], want;
    bool ran[GEMM_CANDIDATES] = {};
    memset(got, 0, sizeof got);
    choose_places(c->p, &s);
    struct bits *there = NULL;
    CUDA_TRY(e, cudaMalloc(&there, sizeof got));
    enum status st = run_all(c, &s, there, got, ran, e);
    cudaFree(there);
    TRY(st);
    *known = false;
    for (int w = 0; !*known && (w == 0 || !c->class_only) && way_at(c->p, w, way); w++) {
        TRY(compute_outputs(c->p, way, &s, &want, e));
        for (int i = 0; i < c->count; i++) {
            in_class[i] = ran[i] && memcmp(&got[i], &want, sizeof want) == 0;
            *known = *known || in_class[i];
        }
    }
    return OK;
}
