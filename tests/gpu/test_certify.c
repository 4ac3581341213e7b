/* Certificates (kernels/certify) on a real device: each way of a Llama-3-8B layer and of its head
 * must pass there. Prints what each found, which published arithmetic agreed, and its time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <time.h>

#include "kernels/certify/certify.h"
#include "tests/gpu/pair.h"

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

#define GEMM(M, N, K, A, B, OUT, ...)                                                   \
    { .section = WAY_GEMM, .m = M, .n = N, .k = K, .a = DTYPE_##A, .b = DTYPE_##B,      \
      .out = DTYPE_##OUT, __VA_ARGS__ }
#define SCALES(A, B) .scale_a = SCALE_##A, .scale_b = SCALE_##B
#define CAST(CODE, KIND, SOURCE, ...)                                                     \
    { .section = WAY_CAST, .m = 8192, .k = 4096, .a = DTYPE_BF16, .b = DTYPE_##CODE,      \
      .scale_b = SCALE_##KIND, .source = SCALE_SOURCE_##SOURCE, .codes = true, __VA_ARGS__ }

static const struct certify_way WAYS[] = {
    GEMM(8192, 6144, 4096, BF16, BF16, BF16, .fast = false),
    GEMM(8192, 4096, 14336, BF16, BF16, BF16, .residual = true),
    GEMM(4096, 14336, 8192, BF16, BF16, F32, .transposed_a = true, .transposed_b = true,
         .beta = true),
    GEMM(8192, 128256, 4096, BF16, BF16, BF16, .fast = false),
    GEMM(8192, 6144, 4096, E4M3, E4M3, BF16, SCALES(TENSOR, TENSOR), .fast = true),
    GEMM(8192, 4096, 6144, E5M2, E4M3, BF16, SCALES(TENSOR, TENSOR), .fast = false),
    GEMM(6144, 4096, 8192, E5M2, E4M3, F32, SCALES(TENSOR, TENSOR), .beta = true),
    GEMM(8192, 6144, 4096, E4M3, E4M3, BF16, SCALES(ROW, ROW), .fast = true),
    GEMM(8192, 6144, 4096, E4M3, E4M3, BF16, SCALES(1X128, 128X128), .fast = false),
    GEMM(8192, 4096, 14336, E4M3, E4M3, BF16, SCALES(1X128, 128X128), .residual = true),
    GEMM(6144, 4096, 8192, E4M3, E4M3, F32, SCALES(1X128, 1X128), .beta = true),
    GEMM(8192, 6144, 4096, E4M3, E4M3, BF16, SCALES(1X32, 1X32), .fast = false),
    GEMM(8192, 6144, 4096, E2M1, E2M1, BF16, SCALES(1X16, 16X16), .fast = false),
    CAST(E4M3, TENSOR, KNOWN, .twin = true),
    CAST(E5M2, TENSOR, AMAX, .own_amax = true),
    CAST(E4M3, ROW, BLOCK, .twin = true, .rule = { QUANT_TORCHAO, 1e-12f, false }),
    CAST(E4M3, 1X128, BLOCK, .twin = true, .rule = { QUANT_TE_BLOCK, 0, true }),
    CAST(E4M3, 1X32, BLOCK, .twin = true, .rule = { QUANT_MX, 0, true }),
    CAST(E2M1, 1X16, AMAX, .twin = true, .rotate = true, .draws = true,
         .rule = { QUANT_NVFP4, 0, false }),
    { .section = WAY_ATTENTION, .a = DTYPE_BF16, .batch = 1, .length = 8192, .heads = 32,
      .kv_heads = 8, .head_dim = 128 },
    { .section = WAY_ATTENTION, .a = DTYPE_BF16, .batch = 8, .length = 1000, .heads = 12,
      .kv_heads = 12, .head_dim = 64 },
    { .section = WAY_ATTENTION, .a = DTYPE_BF16, .batch = 1, .length = 8192, .heads = 32,
      .kv_heads = 8, .head_dim = 128, .window = 1000 },
    { .section = WAY_ATTENTION, .a = DTYPE_BF16, .batch = 2, .length = 8192, .heads = 32,
      .kv_heads = 8, .head_dim = 128, .documents = true },
    { .section = WAY_ATTENTION, .a = DTYPE_BF16, .batch = 8, .length = 1000, .heads = 12,
      .kv_heads = 12, .head_dim = 64, .window = 200, .documents = true },
    { .section = WAY_ATTENTION, .a = DTYPE_E4M3, .b = DTYPE_E5M2, .out = DTYPE_E4M3, .batch = 1,
      .length = 8192, .heads = 32, .kv_heads = 8, .head_dim = 128 },
    { .section = WAY_ATTENTION, .a = DTYPE_E4M3, .b = DTYPE_E4M3, .out = DTYPE_BF16, .batch = 8,
      .length = 1000, .heads = 12, .kv_heads = 12, .head_dim = 64, .window = 200 },
};

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void print(const struct certificate *c, double took) {
    static const char *const OUTCOME[] = { "passed", "FAILED", "absent" };
    char text[WAY_TEXT_CAP];
    const struct arithmetic *m;
    certify_way_text(&c->way, text);
    printf("    %-6s %6.3f s  %s: %s; %s%s%s\n           agreed:", OUTCOME[c->outcome], took, text,
           c->how, c->fault, *c->fault ? ": " : "", c->found);
    for (int i = 0; (m = arithmetic_at(i)); i++)
        if (c->agreed >> i & 1) printf(" %s", m->name);
    printf("; %s; bound %.3g (%s)\n", c->order, c->bound, c->reason);
}

static void test_device(void **state) {
    int failed = 0;
    double begin = seconds();
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        struct certificate c;
        double before = seconds();
        if (certify(p->b[GPU], p->b[CPU], &WAYS[i], &c, &p->e) != OK) fail_msg("%s", p->e.text);
        print(&c, seconds() - before);
        failed += c.outcome == CERTIFY_FAILED;
    }
    printf("    %zu ways in %.2f s\n", sizeof WAYS / sizeof *WAYS, seconds() - begin);
    if (failed) fail_msg("%d ways failed on a device that is right", failed);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_device) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
