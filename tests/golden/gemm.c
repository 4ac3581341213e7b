/* Hashes of matmul and of quantisation for every scale kind, and of matmul under each arithmetic,
 * compared with gemm.txt on every architecture and for any number of threads. If the losses differ,
 * these hashes show whether the GEMM is the cause. Links kernels only. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/arithmetic.h"
#include "kernels/cpu/cpu_backend.h"

enum { M = 150, N = 70, K = 300 }; /* tails of every tile, short last blocks */

static uint64_t hash_bytes(uint64_t h, const void *data, int64_t n) {
    const unsigned char *p = data;
    for (int64_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001B3u; /* FNV-1a */
    return h;
}

static void *zeroed(int64_t bytes) {
    void *p = calloc(1, (size_t)bytes + 1);
    if (!p) exit(1); /* a test program: no caller handles it */
    return p;
}

static void release(struct tensor *x) {
    free(x->data);
    free(x->scale.data);
}

static struct tensor random_bf16(int64_t rows, int64_t cols, uint64_t seed) {
    struct tensor x = tensor_2d(zeroed(rows * cols * 2), DTYPE_BF16, rows, cols);
    uint16_t *out = x.data;
    for (int64_t i = 0; i < rows * cols; i++) {
        uint64_t bits = rng_bits(rng_key(seed, RNG_INIT, 0, 0), (uint64_t)i);
        float scale = f32_from_bits((uint32_t)(120 + bits % 9) << 23); /* 2^-7 .. 2^1 */
        out[i] = bf16_encode((rng_uniform(bits) - 0.5f) * scale);
    }
    return x;
}

/* Codes, factors and twin of x, with their hash; *codes is what the GEMM reads. */
static enum status quantised(struct backend *b, const struct tensor *x, enum dtype t,
                             enum scale_kind kind, struct quant_rule rule, struct tensor *codes,
                             uint64_t *hash, struct err *e) {
    int64_t rows = x->dim[0], k = x->dim[1];
    struct tensor value = *x, twin = tensor_fp8(zeroed(tensor_fp8_bytes(k, rows)), t, k, rows);
    struct tensor amax = tensor_1d(zeroed(4), DTYPE_U32, 1);
    *codes = tensor_fp8(zeroed(tensor_fp8_bytes(rows, k)), t, rows, k);
    codes->scale = scale_make(NULL, kind, rows, k);
    twin.scale = scale_make(NULL, kind, k, rows);
    codes->scale.data = zeroed(scale_bytes(&codes->scale));
    twin.scale.data = zeroed(scale_bytes(&twin.scale));
    codes->transposed = &twin;
    struct sink s = { .value = &value, .codes = codes, .amax = &amax, .rule = rule,
                      .source = kind == SCALE_TENSOR ? SCALE_SOURCE_AMAX : SCALE_SOURCE_BLOCK };
    TRY(b->ops->quantise(b, LANE_COMPUTE, &s, x, e));
    TRY(b->ops->quantise_finish(b, LANE_COMPUTE, &s, e));
    *hash = hash_bytes(*hash, codes->data, tensor_fp8_bytes(rows, k));
    *hash = hash_bytes(*hash, codes->scale.data, scale_bytes(&codes->scale));
    *hash = hash_bytes(*hash, twin.data, tensor_fp8_bytes(k, rows));
    *hash = hash_bytes(*hash, twin.scale.data, scale_bytes(&twin.scale));
    codes->transposed = NULL;
    release(&twin);
    free(amax.data);
    return OK;
}

static enum status product(struct backend *b, const struct tensor *x, const struct tensor *y,
                           uint64_t *hash, struct err *e) {
    int64_t bytes = x->dim[0] * y->dim[0] * 4;
    struct tensor out = tensor_2d(zeroed(bytes), DTYPE_F32, x->dim[0], y->dim[0]);
    struct matmul_args args = { .out = &out, .a = x, .b = y };
    enum status st = b->ops->matmul(b, LANE_COMPUTE, &args, e);
    *hash = hash_bytes(*hash, out.data, bytes);
    free(out.data);
    return st;
}

/* The first rows of x. */
static struct tensor first_rows(const struct tensor *x, int64_t rows) {
    struct tensor y = *x;
    y.dim[0] = rows;
    if (x->scale.kind != SCALE_NONE)
        y.scale = scale_make(x->scale.data, x->scale.kind, rows, x->dim[1]);
    return y;
}

/* One line for the product under each arithmetic but the reference, and for one of multiples of 8
 * rows and columns: Hopper widens FP8 in blocks of other sizes. */
static enum status arithmetics(struct backend *b, const char *name, const struct tensor *x,
                               const struct tensor *y, struct err *e) {
    struct tensor xs = first_rows(x, M / 8 * 8), ys = first_rows(y, N / 8 * 8);
    printf("%s", name);
    for (int i = 1; arithmetic_at(i); i++) {
        uint64_t hash = 0;
        TRY(cpu_backend_calculate(b, arithmetic_at(i)->name, e));
        TRY(product(b, x, y, &hash, e));
        TRY(product(b, &xs, &ys, &hash, e));
        printf(" %s %016" PRIx64, arithmetic_at(i)->name, hash);
    }
    printf("\n");
    return cpu_backend_calculate(b, arithmetic_at(0)->name, e);
}

static const struct {
    const char *name;
    enum dtype a, b;
    enum scale_kind kind_a, kind_b;
    struct quant_rule rule;
} CASES[] = {
    { "tensor", DTYPE_E4M3, DTYPE_E4M3, SCALE_TENSOR, SCALE_TENSOR, { QUANT_TE, 0, false } },
    { "hybrid", DTYPE_E5M2, DTYPE_E4M3, SCALE_TENSOR, SCALE_TENSOR, { QUANT_TE, 0, false } },
    { "row", DTYPE_E4M3, DTYPE_E4M3, SCALE_ROW, SCALE_ROW, { QUANT_TORCHAO, 1e-12f, true } },
    { "block", DTYPE_E4M3, DTYPE_E4M3, SCALE_1X128, SCALE_128X128, { QUANT_TE, 0, true } },
    { "deepseek", DTYPE_E4M3, DTYPE_E4M3, SCALE_1X128, SCALE_1X128,
      { QUANT_DEEPSEEK, 1e-4f, false } },
    { "mx", DTYPE_E4M3, DTYPE_E4M3, SCALE_1X32, SCALE_32X32, { QUANT_MX, 0, false } },
};

static enum status run(struct backend *b, struct err *e) {
    struct tensor x = random_bf16(M, K, 1), y = random_bf16(N, K, 2);
    uint64_t hash = 0;
    TRY(product(b, &x, &y, &hash, e));
    printf("bf16 %016" PRIx64 "\n", hash);
    TRY(arithmetics(b, "bf16", &x, &y, e));
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct tensor a, c;
        uint64_t codes = 0, sums = 0;
        TRY(quantised(b, &x, CASES[i].a, CASES[i].kind_a, CASES[i].rule, &a, &codes, e));
        TRY(quantised(b, &y, CASES[i].b, CASES[i].kind_b, CASES[i].rule, &c, &codes, e));
        TRY(product(b, &a, &c, &sums, e));
        printf("%s codes %016" PRIx64 " product %016" PRIx64 "\n", CASES[i].name, codes, sums);
        TRY(arithmetics(b, CASES[i].name, &a, &c, e));
        release(&a);
        release(&c);
    }
    release(&x);
    release(&y);
    return OK;
}

int main(void) {
    struct backend *b;
    struct err e;
    enum status st = cpu_backend_open(&b, 0, &e);
    if (st == OK) {
        st = run(b, &e);
        b->ops->close(b);
    }
    if (st != OK) fprintf(stderr, "%s\n", e.text);
    return st == OK ? 0 : 1;
}
