/* Our kernel on mma.sync (kernels/cuda/gemm_sync.cu) on the GPU at hand. Its FP8 form serves a
 * backend that assumes sm_121: on Hopper the instruction is assembled to unpacking and HMMA, slow,
 * with the same indices. Its BF16 form serves a backend whose choice table names it. Every output
 * is near the CPU's, and the same twice. Samples equal, to the bit, one of the ways in which a
 * tensor core may add the products of one instruction; the test prints which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/arithmetic.h"
#include "tests/gpu/pair.h"
#include "tests/gpu/letters.h"

static struct pair *p;
static struct backend_handle second; /* another backend on the GPU, which the kernel serves */

static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

#define OWN_SYNC "02000000" /* of a choice table */

struct sync_case {
    int64_t m, n, k;
    enum dtype a, b, out;
    enum scale_kind kind_a, kind_b;
    float beta;
    bool bias, residual;
};

/* Tiles are 128 x 128; sweeps have eight tiles of rows; a stage has 128 bytes of K. */
static const struct sync_case CODES[] = {
    { 128, 128, 128, E, E, F, B, W, 0, false, false },
    { 1, 1, 1, E, E, F, B, B, 0, false, false },
    { 130, 259, 300, E, E, H, B, W, 0, true, false },
    { 129, 127, 1000, E, E, F, B, B, 1, false, false },
    { 1000, 776, 720, E, E, H, B, W, 0, true, true },
    { 264, 328, 4752, G, E, F, B, B, 1, false, false },
    { 264, 33, 4752, E, G, H, B, B, 0, false, true },
    { 1290, 515, 384, E, E, H, R, R, 0, true, false },
    { 67, 1290, 640, E, E, F, R, T, 0, false, true },
    { 300, 200, 530, G, E, H, T, R, 1, false, false },
};
static const struct sync_case VALUES[] = {
    { 128, 128, 64, H, H, F, 0, 0, 0, false, false },
    { 1290, 515, 1000, H, H, F, 0, 0, 1, false, false },
    { 130, 259, 72, H, H, H, 0, 0, 0, true, false },
    { 1000, 776, 4096, H, H, H, 0, 0, 0, false, false },
    { 65, 1030, 200, H, H, F, 0, 0, 0, false, true },
};
enum { CODES_COUNT = sizeof CODES / sizeof *CODES, VALUES_COUNT = sizeof VALUES / sizeof *VALUES };

struct operands { struct twin a, b, out, bias, residual; };

static struct twin operand(enum dtype t, int64_t rows, int64_t k, enum scale_kind kind,
                           uint64_t seed) {
    struct twin x = dtype_is_fp8(t) ? pair_codes(p, t, rows, k, kind)
                                    : pair_tensor(p, t, rows, k, 1, 1);
    pair_fill(p, &x, seed, 2, 1);
    return x;
}

/* About the size of a product, so that the addends matter: codes reach 448. */
static float size_of(const struct sync_case *c) {
    return sqrtf((float)c->k) * (c->a == H ? 1 : 2000);
}

static struct operands make(const struct sync_case *c) {
    struct operands o = {
        .a = operand(c->a, c->m, c->k, c->kind_a, 1), .b = operand(c->b, c->n, c->k, c->kind_b, 2),
        .out = pair_tensor(p, c->out, c->m, c->n, 1, 1), .bias = pair_tensor(p, H, c->n, 1, 1, 1),
        .residual = pair_tensor(p, c->out, c->m, c->n, 1, 1),
    };
    pair_fill(p, &o.bias, 3, 2, size_of(c));
    pair_fill(p, &o.residual, 4, 2, size_of(c));
    return o;
}

static struct matmul_args args_of(const struct sync_case *c, struct operands *o, int s) {
    return (struct matmul_args){
        .out = S(o->out), .a = S(o->a), .b = S(o->b), .bias = c->bias ? S(o->bias) : NULL,
        .residual = c->residual ? S(o->residual) : NULL, .beta = c->beta, .name = "sync" };
}

static void multiply(struct backend *b, const struct sync_case *c, struct operands *o, int s) {
    struct matmul_args args = args_of(c, o, s);
    if (b->ops->matmul(b, LANE_COMPUTE, &args, &p->e) != OK || b->ops->sync(b, &p->e) != OK)
        fail_msg("%lld x %lld x %lld: %s", (long long)c->m, (long long)c->n, (long long)c->k,
                 p->e.text);
}

static void fill_out(const struct sync_case *c, struct operands *o) {
    pair_fill(p, &o->out, 5, 2, size_of(c));
}

static struct backend *open_second(void) {
    if (backend_open("cuda", 0, 0, &second, &p->e) != OK) fail_msg("%s", p->e.text);
    return second.backend;
}

/* A backend that the kernel serves. BF16: the first backend makes the entry of the table. */
static struct backend *served(const struct sync_case *c, struct operands *o) {
    struct backend *b;
    char *table, *changed;
    if (c->a != H) {
        b = open_second();
        if (b->ops->assume_architecture(b, "sm_121", &p->e) != OK) fail_msg("%s", p->e.text);
        return b;
    }
    multiply(p->b[GPU], c, o, GPU);
    if (p->ops[GPU]->choices_save(p->b[GPU], &table, &p->e) != OK) fail_msg("%s", p->e.text);
    changed = choices_with("gemm", table, OWN_SYNC);
    b = open_second();
    if (b->ops->choices_load(b, changed, &p->e) != OK) fail_msg("%s", p->e.text);
    free(table);
    free(changed);
    return b;
}

static char *fetch(const struct tensor *x) {
    int64_t bytes = tensor_count(x) * dtype_bytes(x->dtype);
    char *host = test_malloc((size_t)bytes);
    if (p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, host, x->data, bytes, &p->e) != OK)
        fail_msg("%s", p->e.text);
    return host;
}

/* ---- how the instruction adds ---- */

/* Hopper has no instruction for codes. ptxas widens them to f16 and multiplies by two HMMA of 16
 * products: of each four neighbours the first two, then the last two (`pairs`). The first HMMA
 * starts from 0, and an f32 addition puts the sum of both into C (`apart`): kernels/cuda/LOG.md.
 * The rows after the first are what else a tensor core may do. */
static const struct { const char *about; struct mma mma; bool pairs, apart; } WAYS[] = {
    { "pairs, groups of 16, 25 bits, 32 products apart", { 16, 25, 23 }, true, true },
    { "groups of 16, 25 bits", { 16, 25, 23 }, false, false },
    { "groups of 16, 24 bits", { 16, 24, 23 }, false, false },
    { "groups of 8, 25 bits", { 8, 25, 23 }, false, false },
    { "groups of 8, 24 bits", { 8, 24, 23 }, false, false },
    { "pairs, groups of 16, 25 bits", { 16, 25, 23 }, true, false },
    { "groups of 32, 25 bits", { 32, 25, 23 }, false, false },
    { "groups of 32, 13 bits", { 32, 13, 13 }, false, false },
};
enum { WAY_COUNT = sizeof WAYS / sizeof *WAYS, STEP = 32, STAGE = 128, F16_LEAST = -14 };

/* A copy whose K is padded with zeros to whole instructions, of each 32 the first two of four
 * first. The caller frees its data. */
static struct tensor in_pairs(const struct tensor *x) {
    struct tensor y = tensor_fp8(NULL, x->dtype, x->dim[0], round_up(x->dim[1], STEP));
    uint8_t *to = test_calloc((size_t)(y.dim[0] * y.stride[0]), 1);
    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t k = 0; k < x->dim[1]; k++) {
            int64_t in = k % STEP, at = in / 4 * 2 + in % 2 + (in % 4 < 2 ? 0 : STEP / 2);
            to[i * y.stride[0] + k - in + at] = ((uint8_t *)x->data)[i * x->stride[0] + k];
        }
    y.data = to;
    y.scale = x->scale;
    return y;
}

/* One row of x from element k on, without factors. */
static struct tensor part_of_row(const struct tensor *x, int64_t row, int64_t k, int64_t n) {
    struct tensor y = *x;
    y.data = (uint8_t *)x->data + row * x->stride[0] + k;
    y.dim[0] = 1;
    y.dim[1] = n;
    return y;
}

static float factor_of(const struct tensor *x, int64_t row, int64_t k) {
    const struct scale *s = &x->scale;
    int64_t line = s->kind == W ? row / STAGE : s->kind == T ? 0 : row;
    return ((const float *)s->data)[line * s->dim[1] + k / STAGE];
}

/* An output as sync_body has it, each STEP products apart. */
static float output_apart(const struct mma_way *like, const struct matmul_args *args, int64_t row,
                          int64_t col) {
    const struct mma_way way = { .mma = like->mma, .order.chain = STEP, .least_a = like->least_a,
                                 .least_b = like->least_b };
    bool blocks = args->a->scale.kind == B;
    int64_t K = args->a->dim[1], at = row * args->out->dim[1] + col;
    float x = 0;
    for (int64_t k = 0; k < K; k += STAGE) {
        int64_t n = K - k < STAGE ? K - k : STAGE;
        struct tensor a = part_of_row(args->a, row, k, n), b = part_of_row(args->b, col, k, n);
        float sum = arithmetic_output(&way, &(struct matmul_args){ .a = &a, .b = &b }, 0, 0);
        x = blocks ? fmaf(sum, factor_of(args->a, row, k) * factor_of(args->b, col, k), x)
                   : x + sum;
    }
    if (!blocks) x = x * (factor_of(args->a, row, 0) * factor_of(args->b, col, 0));
    if (args->bias) x = x + bf16_decode(((const uint16_t *)args->bias->data)[col]);
    const struct tensor *addend = args->residual       ? args->residual
                                  : args->beta != 0.0f ? args->out
                                                       : NULL;
    if (!addend) return x;
    return x + (addend->dtype == H ? bf16_decode(((const uint16_t *)addend->data)[at])
                                   : ((const float *)addend->data)[at]);
}

/* Whether samples of the product have the bits of this way. */
static bool has_way(const struct matmul_args *args, const struct mma_way *way, bool apart,
                    const char *there) {
    enum { SAMPLES = 200 };
    int64_t cols = args->out->dim[1], n = tensor_count(args->out);
    for (int64_t s = 0; s < SAMPLES; s++) {
        int64_t at = s * (n - 1) / (SAMPLES - 1);
        float x = f32_canonical(apart ? output_apart(way, args, at / cols, at % cols)
                                      : arithmetic_output(way, args, at / cols, at % cols));
        bool same = args->out->dtype == F
                        ? f32_bits(((const float *)(const void *)there)[at]) == f32_bits(x)
                        : ((const uint16_t *)(const void *)there)[at] == bf16_encode(x);
        if (!same) return false;
    }
    return true;
}

/* The first of WAYS that explains the samples; -1: none does. args: host tensors, out before. */
static int find_way(const struct matmul_args *args, const char *there) {
    const struct arithmetic *m;
    struct mma_way usual;
    bool codes = args->a->dtype != H;
    int found = -1;
    if (arithmetic_find("sm_120", &m, &p->e) != OK || arithmetic_way(m, args, &usual, &p->e) != OK)
        fail_msg("%s", p->e.text);
    struct tensor a = codes ? in_pairs(args->a) : *args->a;
    struct tensor b = codes ? in_pairs(args->b) : *args->b;
    for (int i = 0; i < WAY_COUNT && found < 0; i++) {
        struct matmul_args one = *args;
        struct mma_way way = usual;
        if (WAYS[i].pairs && !codes) continue;
        if (WAYS[i].pairs) one.a = &a, one.b = &b;
        way.mma = WAYS[i].mma;
        if (codes && way.mma.group < STEP) way.least_a = way.least_b = F16_LEAST;
        if (has_way(&one, &way, WAYS[i].apart, there)) found = i;
    }
    if (codes) test_free(a.data);
    if (codes) test_free(b.data);
    return found;
}

/* ---- the cases ---- */

static void assert_served(struct backend *b, const struct sync_case *c) {
    struct decision d;
    for (int64_t i = 0; c->a != H && b->ops->decision(b, i, &d); i++)
        if (!strcmp(d.way, "native") && strstr(d.detail, ", mma.sync")) return;
    if (c->a != H) fail_msg("the kernel on mma.sync did not serve the product");
}

/* Returns whether no way explains the samples. */
static bool check_case(const struct sync_case *c) {
    double s = (double)(c->k + 8) * 0x1p-23; /* as nmse_bound in tests/gpu/test_matmul.c */
    struct operands o = make(c);
    struct backend *b = served(c, &o);
    fill_out(c, &o);
    struct twin before = o.out;
    before.side[CPU] = pair_tensor(p, c->out, c->m, c->n, 1, 1).side[CPU];
    memcpy(before.side[CPU].data, o.out.side[CPU].data,
           (size_t)(tensor_count(&before.side[CPU]) * dtype_bytes(c->out)));
    multiply(b, c, &o, GPU);
    char *first = fetch(&o.out.side[GPU]);
    fill_out(c, &o);
    multiply(b, c, &o, GPU);
    char *again = fetch(&o.out.side[GPU]);
    assert_memory_equal(first, again,
                        (size_t)(tensor_count(&o.out.side[GPU]) * dtype_bytes(c->out)));
    multiply(p->b[CPU], c, &o, CPU);
    pair_near(p, "the kernel on mma.sync", &o.out, c->out == F ? s * s : s * s + 0x1p-7 * 0.64 * s);
    assert_served(b, c);
    struct matmul_args args = args_of(c, &o, CPU);
    args.out = &before.side[CPU];
    int way = find_way(&args, first);
    printf("    %s x %s, %lld x %lld x %lld: %s\n", dtype_name(c->a), dtype_name(c->b),
           (long long)c->m, (long long)c->n, (long long)c->k,
           way < 0 ? "no known way of adding" : WAYS[way].about);
    test_free(first);
    test_free(again);
    backend_close(&second);
    pair_clear(p);
    return way < 0;
}

static void check_all(const struct sync_case *list, int count) {
    int unknown = 0;
    for (int i = 0; i < count; i++) unknown += check_case(&list[i]);
    if (unknown) fail_msg("%d products are added in no way of this list", unknown);
}

static void test_bf16(void **state) { check_all(VALUES, VALUES_COUNT); }
static void test_codes(void **state) { check_all(CODES, CODES_COUNT); }

/* A table that names the kernel for codes is rejected where the device multiplies them slowly. */
static void test_slow_devices_reject_it(void **state) {
    static const struct sync_case c = { 128, 128, 256, E, E, F, B, W, 0, false, false };
    struct operands o = make(&c);
    struct matmul_args args = args_of(&c, &o, GPU);
    struct device_info info;
    char *table, *changed;
    if (p->ops[GPU]->info(p->b[GPU], &info, &p->e) != OK) fail_msg("%s", p->e.text);
    if (strcmp(info.architecture, "sm_90") != 0) skip();
    multiply(p->b[GPU], &c, &o, GPU);
    if (p->ops[GPU]->choices_save(p->b[GPU], &table, &p->e) != OK) fail_msg("%s", p->e.text);
    changed = choices_with("gemm", table, OWN_SYNC);
    struct backend *b = open_second();
    if (b->ops->choices_load(b, changed, &p->e) != OK) fail_msg("%s", p->e.text);
    assert_int_equal(b->ops->matmul(b, LANE_COMPUTE, &args, &p->e), ERR_CONFIG);
    assert_non_null(strstr(p->e.text, "our own kernel for a GEMM [128, 128, 256]"));
    free(table);
    free(changed);
    backend_close(&second);
    pair_clear(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_slow_devices_reject_it),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
