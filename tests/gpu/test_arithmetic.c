/* The arithmetic of the device's tensor cores is the one that kernels/arithmetic.h describes:
 * sampled outputs of every GEMM kind, computed again on the host from the same operands, are equal
 * to the bit. The order along K is searched among the classes below, so this also says to which
 * class the served algorithm belongs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "kernels/arithmetic.h"
#include "kernels/rng.h"
#include "tests/gpu/pair.h"

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

#define E DTYPE_E4M3
#define G DTYPE_E5M2
#define H DTYPE_BF16
#define F DTYPE_F32

enum { SAMPLES = 256, PARTS_MAX = 32 };

struct product {
    int64_t m, n, k;
    enum dtype a, b, out;
    enum scale_kind scale_a, scale_b;
    float beta;
    bool bias, residual, fast;
};

static const struct product PRODUCTS[] = {
    { 256, 384, 512, H, H, H, 0, 0, 0, false, false, false },
    { 256, 384, 512, H, H, F, 0, 0, 1, false, false, false },
    { 1024, 768, 2048, H, H, H, 0, 0, 0, true, false, false },
    { 1024, 768, 2048, H, H, H, 0, 0, 0, false, true, false },
    { 512, 512, 16384, H, H, F, 0, 0, 0, false, false, false },
    { 64, 96, 40000, H, H, H, 0, 0, 0, false, false, false },
    { 37, 53, 100, H, H, F, 0, 0, 0, false, false, false },
    { 256, 384, 512, E, E, H, SCALE_TENSOR, SCALE_TENSOR, 0, false, false, true },
    { 256, 384, 512, E, E, H, SCALE_TENSOR, SCALE_TENSOR, 0, false, false, false },
    { 1024, 768, 2048, E, E, H, SCALE_TENSOR, SCALE_TENSOR, 0, true, false, true },
    { 1024, 768, 2048, E, E, H, SCALE_TENSOR, SCALE_TENSOR, 0, false, true, true },
    { 512, 768, 4096, E, G, F, SCALE_TENSOR, SCALE_TENSOR, 1, false, false, false },
    { 512, 768, 4096, G, E, F, SCALE_TENSOR, SCALE_TENSOR, 0, false, false, true },
    { 96, 64, 40000, G, E, F, SCALE_TENSOR, SCALE_TENSOR, 0, false, false, false },
    { 512, 512, 16384, E, E, F, SCALE_TENSOR, SCALE_TENSOR, 0, false, false, true },
    { 256, 384, 512, E, E, H, SCALE_ROW, SCALE_ROW, 0, false, false, true },
    { 256, 384, 512, E, E, F, SCALE_ROW, SCALE_ROW, 1, false, false, false },
    { 256, 384, 512, E, E, H, SCALE_1X128, SCALE_128X128, 0, false, false, false },
    { 2048, 2048, 2048, E, E, H, SCALE_1X128, SCALE_128X128, 0, false, false, false },
    { 256, 384, 640, E, E, H, SCALE_1X128, SCALE_128X128, 0, true, true, false },
    { 256, 384, 720, E, E, F, SCALE_1X128, SCALE_1X128, 1, false, false, false },
    { 768, 1024, 8192, E, E, F, SCALE_1X128, SCALE_1X128, 1, false, false, false },
    { 256, 384, 512, E, E, H, SCALE_1X32, SCALE_1X32, 0, false, false, false },
    { 37, 53, 100, E, E, H, SCALE_TENSOR, SCALE_TENSOR, 0, false, false, false },
};

static struct twin operand(enum dtype t, int64_t rows, int64_t k, enum scale_kind kind,
                           uint64_t seed) {
    struct twin x = dtype_is_fp8(t) ? pair_codes(p, t, rows, k, kind)
                                    : pair_tensor(p, t, rows, k, 1, 1);
    pair_fill(p, &x, seed, 4, 1.0f);
    return x;
}

/* The bits of an output as it is stored. */
static uint32_t stored_bits(enum dtype t, float x) {
    return t == F ? f32_bits(f32_canonical(x)) : bf16_encode(x);
}
static uint32_t bits_at(enum dtype t, const void *data, int64_t i) {
    return t == F ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
}

/* How many of the samples differ, at most `enough`. */
static int64_t differing(const struct mma_way *way, const struct matmul_args *args,
                         const void *device, int64_t enough) {
    int64_t rows = args->out->dim[0], cols = args->out->dim[1], wrong = 0;
    for (int64_t i = 0; i < SAMPLES && wrong < enough; i++) {
        uint64_t at = rng_bits(rng_key(7, RNG_INIT, 0, 0), (uint64_t)i);
        int64_t row = (int64_t)(at % (uint64_t)rows), col = (int64_t)(at >> 32) % cols;
        float value = arithmetic_output(way, args, row, col);
        wrong += stored_bits(args->out->dtype, value) !=
                 bits_at(args->out->dtype, device, row * cols + col);
    }
    return wrong;
}

/* Looks for a K order with which all samples are equal; says it in `text`. */
static bool find_order(struct mma_way way, const struct matmul_args *args, const void *device,
                       char text[64]) {
    static const int64_t STEPS[] = { 128, 64, 32 };
    int64_t k = args->a->dim[1];
    for (int chained = 0; chained < 2; chained++) {
        struct mma_way other = way;
        if (chained && (way.block || dtype_is_fp8(args->a->dtype) == false)) break;
        if (chained) other.order.chain = way.order.chain ? 0 : 128;
        other.order.part = 0;
        snprintf(text, 64, "chain %lld, one part", (long long)other.order.chain);
        if (differing(&other, args, device, 1) == 0) return true;
        for (int64_t n = 2; n <= PARTS_MAX; n++)
            for (size_t s = 0; s < sizeof STEPS / sizeof *STEPS; s++) {
                int64_t part = round_up(ceil_div(k, n), STEPS[s]);
                if (other.order.chain && part % other.order.chain) continue;
                other.order.part = part;
                snprintf(text, 64, "chain %lld, %lld parts of %lld", (long long)other.order.chain,
                         (long long)n, (long long)part);
                if (differing(&other, args, device, 1) == 0) return true;
            }
    }
    snprintf(text, 64, "%lld of %d differ in its own order",
             (long long)differing(&way, args, device, SAMPLES), SAMPLES);
    return false;
}

static void test_products_are_the_models(void **state) {
    const struct arithmetic *hopper;
    int64_t unknown = 0;
    assert_int_equal(arithmetic_find("hopper", &hopper, &p->e), OK);
    for (size_t i = 0; i < sizeof PRODUCTS / sizeof *PRODUCTS; i++) {
        const struct product *c = &PRODUCTS[i];
        struct twin a = operand(c->a, c->m, c->k, c->scale_a, 41);
        struct twin w = operand(c->b, c->n, c->k, c->scale_b, 42);
        struct twin out = pair_tensor(p, c->out, c->m, c->n, 1, 1);
        struct twin residual = operand(c->out, c->m, c->n, 0, 43);
        struct twin bias = operand(H, c->n, 1, 0, 44);
        char name[64], text[64];
        snprintf(name, sizeof name, "product %zu", i);
        pair_fill(p, &out, 45, 4, 1.0f);
        ON_GPU(p, ops->matmul(b, LANE_COMPUTE, &(struct matmul_args){
            .out = S(out), .a = S(a), .b = S(w), .bias = c->bias ? S(bias) : NULL,
            .residual = c->residual ? S(residual) : NULL, .beta = c->beta,
            .fast_accumulate = c->fast, .name = name }, e));
        int64_t bytes = tensor_count(&out.side[GPU]) * dtype_bytes(c->out);
        void *device = test_malloc((size_t)bytes);
        assert_int_equal(p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, device, out.side[GPU].data,
                                               bytes, &p->e), OK);
        assert_int_equal(p->ops[GPU]->sync(p->b[GPU], &p->e), OK);
        struct matmul_args args = {
            .out = &out.side[CPU], .a = &a.side[CPU], .b = &w.side[CPU],
            .bias = c->bias ? &bias.side[CPU] : NULL,
            .residual = c->residual ? &residual.side[CPU] : NULL, .beta = c->beta,
            .fast_accumulate = c->fast };
        struct mma_way way;
        assert_int_equal(arithmetic_way(hopper, &args, &way, &p->e), OK);
        bool found = find_order(way, &args, device, text);
        unknown += !found;
        printf("%-10s %5lld x %5lld x %5lld %s %s %s%s%s%s: %s\n", name, (long long)c->m,
               (long long)c->n, (long long)c->k, dtype_name(c->a), dtype_name(c->b),
               dtype_name(c->out), c->beta != 0 ? " beta" : "", c->bias ? " bias" : "",
               c->residual ? " residual" : "", text);
        test_free(device);
        pair_clear(p);
    }
    assert_int_equal(unknown, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_products_are_the_models) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
