#include "kernels/arithmetic.h"

#include <math.h>
#include <stdio.h>

#include "kernels/nvfp4.h"
/* Scales that our kernel on mma.sync serves if the library lacks them: cuda/gemm_sync.cu. */
enum { BY_SYNC = 1 << SCALE_TENSOR | 1 << SCALE_ROW | 1 << SCALE_1X128 | 1 << SCALE_128X128 };
/* What the library multiplies on Blackwell: one scale per tensor, MXFP8, NVFP4. */
enum { BLACKWELL = 1 << SCALE_TENSOR | 1 << SCALE_1X32 | 1 << SCALE_32X32 | 1 << SCALE_1X16 |
                   1 << SCALE_16X16 };

/* Ada adds 32 FP8 or 16 BF16 products as two instructions of half as many. */
static const struct arithmetic ARITHMETICS[] = {
    { .name = "reference", .about = "the fma chains that define matmul", .verified = true },
    { .name = "hopper", .about = "an H200's tensor cores", .verified = true, .wgmma = true,
      .by_shape = true,
      .fp8 = { 32, 13, 13 }, .bf16 = { 16, 25, 23 }, .promoted = 128,
      .native = 1 << SCALE_TENSOR | 1 << SCALE_ROW | 1 << SCALE_1X128 | 1 << SCALE_128X128,
      .follows = true },
    { .name = "ada", .about = "tensor cores of sm_89, from the literature",
      .fp8 = { 16, 13, 13 }, .bf16 = { 8, 24, 23 }, .promoted = 128, .native = 1 << SCALE_TENSOR,
      .by_sync = BY_SYNC },
    { .name = "sm_100", .about = "tensor cores of sm_100 and 103, from the literature",
      .fp8 = { 32, 25, 23 }, .bf16 = { 16, 25, 23 }, .fp4 = { 64, 35, 23 }, .native = BLACKWELL },
    { .name = "sm_120", .about = "tensor cores of sm_120, from the literature",
      .fp8 = { 32, 25, 23 }, .bf16 = { 16, 25, 23 }, .fp4 = { 64, 35, 23 }, .native = BLACKWELL,
      .by_sync = BY_SYNC },
};
enum { ARITHMETIC_COUNT = sizeof ARITHMETICS / sizeof *ARITHMETICS };

const struct arithmetic *arithmetic_at(int i) {
    return i >= 0 && i < ARITHMETIC_COUNT ? &ARITHMETICS[i] : NULL;
}

enum status arithmetic_find(const char *name, const struct arithmetic **out, struct err *e) {
    char names[256];
    size_t n = 0;
    for (int i = 0; i < ARITHMETIC_COUNT; i++) {
        *out = &ARITHMETICS[i];
        if (!strcmp(name, (*out)->name)) return OK;
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", (*out)->name);
    }
    *out = NULL;
    return FAIL(e, ERR_ARG, "unknown arithmetic '%s'; the arithmetics are %s", name, names);
}

/* ---- one instruction ---- */

static double pow2(int exponent) { return ldexp(1.0, exponent); }

/* The largest exponent that takes part. */
static int largest(int64_t n, struct mma_terms a, struct mma_terms b, float c) {
    int most = mma_exponent(c, MMA_LEAST);
    if (most < MMA_LEAST) most = MMA_LEAST;
    for (int64_t k = 0; k < n; k++) {
        int sum = a.exponent[k * a.stride] + b.exponent[k * b.stride];
        if (sum > most) most = sum;
    }
    return most;
}

float mma_add(const struct mma *m, int64_t n, struct mma_terms a, struct mma_terms b, float c) {
    double plain = (double)c; /* f64: no product of two operands is too large or too small */
    for (int64_t k = 0; k < n; k++)
        plain += (double)a.value[k * a.stride] * (double)b.value[k * b.stride];
    if (!isfinite(plain)) return f32_canonical((float)plain);
    int most = largest(n, a, b, c);
    double up = pow2(m->fraction - most);
    int64_t sum = (int64_t)((double)c * up);
    for (int64_t k = 0; k < n; k++)
        sum += (int64_t)((double)a.value[k * a.stride] * (double)b.value[k * b.stride] * up);
    int64_t size = sum < 0 ? -sum : sum;
    int bits = 0;
    while (bits < 63 && size >> bits) bits++;
    int cut = bits - (m->mantissa + 1), step = MMA_LEAST - m->mantissa - (most - m->fraction);
    if (step > cut) cut = step;
    if (cut > 62) cut = 62;
    if (cut > 0) size = size >> cut << cut;
    double value = (double)size * pow2(most - m->fraction);
    return (float)(sum < 0 ? -value : value);
}

/* ---- one output ---- */

static float stored(const struct tensor *x, int64_t i, int64_t k) {
    int64_t at = i * x->stride[0] + k * x->stride[1];
    if (x->dtype == DTYPE_F32) return ((const float *)x->data)[at];
    if (x->dtype == DTYPE_BF16) return bf16_decode(((const uint16_t *)x->data)[at]);
    return fp8_decode(x->dtype, ((const uint8_t *)x->data)[at]);
}

static float factor_at(const struct tensor *x, int64_t i, int64_t k) {
    const struct scale *s = &x->scale;
    int64_t block = arithmetic_block(s->kind), row = i, at = 0;
    bool square = s->kind == SCALE_128X128 || s->kind == SCALE_32X32 || s->kind == SCALE_16X16;
    if (square) row = i / block;
    if (s->kind == SCALE_ROW) at = row;
    if (block) at = row * s->dim[1] + k / block;
    if (scale_is_nvfp4(s->kind)) return e4m3_decode(((const uint8_t *)s->data)[SCALE_HEADER + at]);
    return s->dtype == DTYPE_E8M0 ? e8m0_decode(((const uint8_t *)s->data)[at])
                                  : ((const float *)s->data)[at];
}

/* Element k of row i as the instruction gets it. */
static void load(const struct mma_way *way, const struct tensor *x, int least, int64_t i, int64_t k,
                 float *value, int32_t *exponent) {
    float v = stored(x, i, k);
    *exponent = mma_exponent(v, least);
    if (way->widened) {
        v = bf16_decode(bf16_encode(v * factor_at(x, i, k)));
        *exponent = mma_exponent(v, least);
    } else if (way->scaled) {
        float factor = factor_at(x, i, k);
        v = v * factor;
        *exponent = isfinite(v) ? *exponent + ilogbf(factor) : MMA_SPECIAL;
    }
    *value = v;
}

/* The block of NVFP4 from k on. Its sum times a's scale is exact in f32: 16 bits. */
static void load_term(const struct mma_way *way, const struct matmul_args *args, int64_t row,
                      int64_t col, int64_t k, int64_t end, float value[2], int32_t exponent[2]) {
    const float factor[2] = { factor_at(args->a, row, k), factor_at(args->b, col, k) };
    float sum = 0.0f;
    for (int64_t i = k; i < k + way->term && i < end; i++)
        sum += stored(args->a, row, i) * stored(args->b, col, i);
    value[0] = sum * factor[0];
    value[1] = factor[1];
    for (int i = 0; i < 2; i++) exponent[i] = mma_exponent(factor[i], MMA_LEAST_E4M3);
}

/* The same chain of NVFP4. k starts a block. */
static float chain_of_terms(const struct mma_way *way, const struct matmul_args *args, int64_t row,
                            int64_t col, int64_t k, int64_t end, float c) {
    float value[MMA_TERMS][2];
    int32_t exponent[MMA_TERMS][2];
    while (k < end) {
        int64_t n = 0;
        for (; n < way->mma.group / way->term && k < end; n++, k += way->term)
            load_term(way, args, row, col, k, end, value[n], exponent[n]);
        c = mma_add(&way->mma, n, (struct mma_terms){ &value[0][0], &exponent[0][0], 2 },
                    (struct mma_terms){ &value[0][1], &exponent[0][1], 2 }, c);
    }
    return c;
}

/* A chain over [k, end) from c. */
static float chain(const struct mma_way *way, const struct matmul_args *args, int64_t row,
                   int64_t col, int64_t k, int64_t end, float c) {
    enum { GROUP_MAX = 32 };
    if (way->term) return chain_of_terms(way, args, row, col, k, end, c);
    float a[GROUP_MAX], b[GROUP_MAX];
    int32_t ea[GROUP_MAX], eb[GROUP_MAX];
    for (; !way->mma.group && k < end; k++) /* the reference */
        c = fmaf(stored(args->a, row, k), stored(args->b, col, k), c);
    while (k < end) {
        int64_t n = 0;
        for (; n < way->mma.group && k < end; n++, k++) {
            load(way, args->a, way->least_a, row, k, &a[n], &ea[n]);
            load(way, args->b, way->least_b, col, k, &b[n], &eb[n]);
        }
        c = mma_add(&way->mma, n, (struct mma_terms){ a, ea, 1 }, (struct mma_terms){ b, eb, 1 },
                    c);
    }
    return c;
}

/* total + x * s_a * s_b, with the last multiplication fused. */
static float add_scaled(const struct mma_way *way, float x, float a, float b, float total) {
    if (way->factors == FACTOR_A_FIRST) return fmaf(x * a, b, total);
    return way->factors == FACTOR_B_FIRST ? fmaf(x * b, a, total) : fmaf(x, a * b, total);
}

/* One part: its chains, added up. */
static float part_sum(const struct mma_way *way, const struct matmul_args *args, int64_t row,
                      int64_t col, int64_t k, int64_t end) {
    int64_t length = way->order.chain, tile = way->order.tile;
    int64_t first = tile ? (end - k) % tile : 0;
    float total = 0.0f;
    if (!length) {
        total = chain(way, args, row, col, k, k + first, total);
        return chain(way, args, row, col, k + first, end, total);
    }
    for (; k < end; k += length) {
        float c = chain(way, args, row, col, k, k + length < end ? k + length : end, 0.0f);
        total = way->block ? add_scaled(way, c, factor_at(args->a, row, k),
                                        factor_at(args->b, col, k), total)
                           : total + c;
    }
    return total;
}

float arithmetic_output(const struct mma_way *way, const struct matmul_args *args, int64_t row,
                        int64_t col) {
    int64_t K = args->a->dim[1], part = way->order.part ? way->order.part : K;
    float x = 0.0f;
    for (int64_t k = 0; k < K; k += part) {
        float sum = part_sum(way, args, row, col, k, k + part < K ? k + part : K);
        x = k ? x + sum : sum;
    }
    bool nvfp4 = scale_is_nvfp4(args->a->scale.kind);
    float of_tensors = nvfp4 ? nvfp4_product_factor(*(const float *)args->a->scale.data,
                                                    *(const float *)args->b->scale.data) : 1.0f;
    if (way->fused) {
        float factor = nvfp4 ? of_tensors
                             : factor_at(args->a, row, 0) * factor_at(args->b, col, 0);
        x = fmaf(x, factor, stored(args->residual ? args->residual : args->out, row, col));
        return args->bias ? x + stored(args->bias, col, 0) : x;
    }
    if (way->last_factor) {
        float a = factor_at(args->a, row, 0), b = factor_at(args->b, col, 0);
        if (way->factors == FACTOR_A_FIRST) x = x * a * b;
        else x = way->factors == FACTOR_B_FIRST ? x * b * a : x * (a * b);
    }
    if (nvfp4) x = x * of_tensors;
    float bias = args->bias ? stored(args->bias, col, 0) : 0;
    if (args->bias && !way->bias_last) x = x + bias;
    if (way->rounded) x = bf16_decode(bf16_encode(x));
    if (args->beta != 0.0f) x = x + stored(args->out, row, col);
    if (args->residual) x = x + stored(args->residual, row, col);
    return args->bias && way->bias_last ? x + bias : x;
}
