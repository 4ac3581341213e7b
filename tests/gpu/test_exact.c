/* A Hopper's products beside the CPU's under the arithmetic `hopper`: the share of outputs that are
 * equal to the bit. Rows that kernels/EXACT.md calls equal must be equal in all outputs. Where
 * others differ, their order is searched among the classes of that page, and samples must be equal
 * in one of them. What the backend says of its own way must always hold. Other devices are
 * skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/arithmetic.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/gpu/pair.h"
#include "tests/gpu/letters.h"

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

/* What must hold: every output is equal to the CPU's; samples are, in some class. */
enum claim { EQUAL, CLASS };
enum extra { NOTHING, BIAS, RESIDUAL, IN_PLACE, BOTH /* a bias and a residual */ };

struct exact_case {
    const char *about;
    int64_t m, n, k;
    enum dtype a, b, out;
    enum scale_kind scale_a, scale_b;
    bool fast;
    enum claim claim;
    enum extra extra;
};

static const struct exact_case CASES[] = {
    { "bf16", 1024, 2048, 768, H, H, F, 0, 0, false, EQUAL, NOTHING },
    { "bf16, long", 2048, 2048, 14336, H, H, H, 0, 0, false, EQUAL, NOTHING },
    { "e4m3, fast", 1024, 2048, 1024, E, E, F, T, T, true, EQUAL, NOTHING },
    { "e4m3, split", 1024, 2048, 1024, E, E, F, T, T, false, EQUAL, NOTHING },
    { "e4m3, fast, long", 2048, 2048, 14336, E, E, H, T, T, true, EQUAL, NOTHING },
    { "e4m3, split, long", 2048, 2048, 14336, E, E, F, T, T, false, EQUAL, NOTHING },
    { "e5m2 with e4m3, split", 1024, 2048, 2048, G, E, F, T, T, false, EQUAL, NOTHING },
    { "row scales, fast", 1024, 2048, 2048, E, E, H, R, R, true, EQUAL, NOTHING },
    { "row scales, split", 1024, 2048, 2048, E, E, H, R, R, false, EQUAL, NOTHING },
    { "1x128 by 128x128", 1024, 2048, 2048, E, E, H, B, W, false, EQUAL, NOTHING },
    { "row scales into f32", 1024, 2048, 2048, E, E, F, R, R, false, EQUAL, NOTHING },
    { "row scales into f32 in place", 1024, 2048, 2048, E, E, F, R, R, true, EQUAL, IN_PLACE },
    { "row by tensor scales", 1024, 2048, 2048, E, E, F, R, T, true, EQUAL, NOTHING },
    { "1x128 by 1x128", 1024, 2048, 2048, E, E, F, B, B, false, EQUAL, NOTHING },
    { "128x128 by 1x128", 1024, 2048, 2048, E, E, H, W, B, false, EQUAL, NOTHING },
    { "1x128 by 1x128 in place", 1024, 2048, 2048, E, E, F, B, B, false, EQUAL, IN_PLACE },
    { "1x128 by 1x128, bf16 in place", 1024, 2048, 2048, E, E, H, B, B, false, EQUAL, IN_PLACE },
    { "e5m2 1x128 in place", 1024, 2048, 720, G, E, F, B, B, false, EQUAL, IN_PLACE },
    { "e5m2 1x128, bf16 in place", 1024, 2048, 720, G, E, H, B, B, false, EQUAL, IN_PLACE },
    /* one tile of our kernel a multiprocessor: it may be faster, and would round once */
    { "e5m2 1x128, bf16 in place, long", 4096, 768, 8192, G, E, H, B, B, false, EQUAL, IN_PLACE },
    { "1x32, widened to bf16", 1024, 2048, 1024, E, E, F, X, X, false, EQUAL, NOTHING },
    { "bf16 and a bias", 1024, 2048, 768, H, H, H, 0, 0, false, EQUAL, BIAS },
    { "bf16 and a residual", 1024, 2048, 768, H, H, H, 0, 0, false, EQUAL, RESIDUAL },
    { "bf16 into f32 in place", 1024, 2048, 768, H, H, F, 0, 0, false, EQUAL, IN_PLACE },
    { "bf16 in place", 1024, 2048, 768, H, H, H, 0, 0, false, EQUAL, IN_PLACE },
    { "e4m3, bf16 in place", 1024, 2048, 768, E, E, H, T, T, false, EQUAL, IN_PLACE },
    { "e5m2 with e4m3 into f32 in place", 1024, 2048, 768, G, E, F, T, T, false, EQUAL, IN_PLACE },
    { "e4m3, fast, small", 1024, 256, 128, E, E, H, T, T, true, EQUAL, NOTHING },
    { "e4m3, fast, small and wide", 1024, 768, 128, E, E, H, T, T, true, EQUAL, NOTHING },
    { "e4m3, fast, small, a residual", 1024, 128, 128, E, E, H, T, T, true, EQUAL, RESIDUAL },
    { "e4m3, fast, small, K of 384", 1024, 128, 384, E, E, H, T, T, true, EQUAL, RESIDUAL },
    { "e4m3, fast, a residual", 1024, 2048, 768, E, E, H, T, T, true, EQUAL, RESIDUAL },
    { "blocks and a residual", 1024, 2048, 768, E, E, H, B, W, false, EQUAL, RESIDUAL },
    { "bf16, a residual and a bias", 4096, 768, 3072, H, H, H, 0, 0, false, EQUAL, BOTH },
    { "e4m3, fast, both", 4096, 768, 3072, E, E, H, T, T, true, EQUAL, BOTH },
    { "blocks and both", 4096, 768, 3072, E, E, H, B, W, false, EQUAL, BOTH },
    { "blocks, both, K of 768", 4096, 768, 768, E, E, H, B, W, false, EQUAL, BOTH },
    { "bf16, few outputs", 96, 64, 40000, H, H, F, 0, 0, false, EQUAL, NOTHING },
    { "bf16 in place, few outputs", 768, 768, 32768, H, H, H, 0, 0, false, EQUAL, IN_PLACE },
    { "bf16 into f32, few outputs", 768, 768, 32768, H, H, F, 0, 0, false, EQUAL, IN_PLACE },
    { "e4m3, fast, few outputs", 768, 768, 32768, E, E, F, T, T, true, EQUAL, NOTHING },
    { "e5m2 with e4m3, few outputs", 96, 64, 40000, G, E, F, T, T, false, EQUAL, NOTHING },
    { "row scales, few outputs", 96, 64, 40000, E, E, F, R, R, false, EQUAL, NOTHING },
    { "bf16, odd sizes", 37, 53, 100, H, H, F, 0, 0, false, CLASS, NOTHING },
    { "bf16, odd sizes, longer", 133, 157, 999, H, H, F, 0, 0, false, CLASS, NOTHING },
    { "bf16, odd columns", 128, 157, 1024, H, H, H, 0, 0, false, CLASS, NOTHING },
    { "bf16, rows of 200 bytes", 40, 56, 100, H, H, F, 0, 0, false, CLASS, NOTHING },
    { "bf16, rows of 1998 bytes", 128, 256, 999, H, H, F, 0, 0, false, CLASS, NOTHING },
    { "bf16, odd sizes, in place", 133, 157, 999, H, H, H, 0, 0, false, CLASS, IN_PLACE },
    { "e4m3, 2040 columns", 1024, 2040, 512, E, E, H, T, T, false, CLASS, NOTHING },
    { "e4m3, 2036 columns", 1024, 2036, 512, E, E, H, T, T, false, CLASS, NOTHING },
    { "e4m3, 2036 columns into f32", 1024, 2036, 512, E, E, F, R, R, false, CLASS, NOTHING },
    { "e4m3, 2034 columns", 1024, 2034, 512, E, E, F, T, T, false, CLASS, NOTHING },
};

static struct twin operand(enum dtype t, int64_t rows, int64_t k, enum scale_kind kind,
                           uint64_t seed) {
    struct twin x = dtype_is_fp8(t) ? pair_codes(p, t, rows, k, kind)
                                    : pair_tensor(p, t, rows, k, 1, 1);
    pair_fill(p, &x, seed, 2, 1.0f);
    return x;
}

/* The GPU's bytes; the caller frees them. */
static char *outputs(const struct tensor *x) {
    int64_t bytes = tensor_count(x) * dtype_bytes(x->dtype);
    char *there = test_malloc((size_t)bytes);
    if (p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, there, x->data, bytes, &p->e) != OK)
        fail_msg("%s", p->e.text);
    return there;
}

static double share_equal(const struct tensor *x, const char *there) {
    int64_t n = tensor_count(x), size = dtype_bytes(x->dtype), equal = 0;
    for (int64_t i = 0; i < n; i++)
        equal += !memcmp(there + i * size, (char *)x->data + i * size, (size_t)size);
    return (double)equal / (double)n;
}

/* ---- the order along K, from samples ---- */

enum { SAMPLES = 64, PARTS_MAX = 64 };

/* Whether SAMPLES outputs spread over the product have this order's bits. */
static bool has_order(const struct matmul_args *args, const struct mma_way *way,
                      const char *there) {
    int64_t cols = args->out->dim[1], n = tensor_count(args->out);
    for (int64_t s = 0; s < SAMPLES; s++) {
        int64_t at = s * (n - 1) / (SAMPLES - 1);
        float x = f32_canonical(arithmetic_output(way, args, at / cols, at % cols));
        bool same = args->out->dtype == F
                        ? f32_bits(((const float *)there)[at]) == f32_bits(x)
                        : ((const uint16_t *)there)[at] == bf16_encode(x);
        if (!same) return false;
    }
    return true;
}

static void print_way(const struct mma_way *way) {
    static const char *const FACTORS[] = { "together", "a's first", "b's first" };
    printf("        chains of %lld (0: one), parts of %lld (0: one), the rest of a tile of %lld "
           "first, groups of %d, factors %s%s%s\n",
           (long long)way->order.chain, (long long)way->order.part, (long long)way->order.tile,
           way->mma.group, FACTORS[way->factors], way->rounded ? ", rounded before C" : "",
           way->bias_last ? ", the bias last" : "");
}

/* What the backend says of this product. Samples must have the bits of a way that it knows. */
static bool keeps_its_word(const struct matmul_args *there, const struct matmul_args *here,
                           const char *bytes) {
    struct mma_way way;
    bool known = false;
    if (p->ops[GPU]->product_way(p->b[GPU], there, &way, &known, &p->e) != OK)
        fail_msg("%s", p->e.text);
    if (!known) {
        printf("        the backend does not know its way\n");
        return true;
    }
    bool held = has_order(here, &way, bytes);
    printf("        the backend's word %s:\n", held ? "holds" : "DOES NOT HOLD");
    print_way(&way);
    return held;
}

static int try_way(const struct matmul_args *args, const struct mma_way *way, const char *there) {
    if (!has_order(args, way, there)) return 0;
    print_way(way);
    return 1;
}

/* Split-K: parts of some units, in both ways of FP8's chains. */
static int find_parts(const struct matmul_args *args, struct mma_way way, const char *there) {
    static const int64_t UNITS[] = { 128, 64, 32 };
    int64_t k = args->a->dim[1];
    int found = 0;
    for (int64_t parts = 1; !found && parts <= PARTS_MAX; parts++)
        for (size_t u = 0; !found && u < sizeof UNITS / sizeof *UNITS; u++)
            for (int chains = 0; chains < (way.block ? 1 : 2); chains++) {
                int64_t part = round_up(ceil_div(k, parts), UNITS[u]);
                if (!way.block) way.order.chain = chains ? 128 : 0;
                if (way.order.chain && part % way.order.chain) continue;
                way.order.part = parts > 1 ? part : 0;
                found += try_way(args, &way, there);
            }
    return found;
}

/* Rows that are not aligned: the tile whose rest comes first, and the group. All that fit are
 * printed, since a short K has several. */
static int find_tile(const struct matmul_args *args, struct mma_way way, const char *there) {
    int found = 0;
    for (int group = 4; group <= 32; group *= 2)
        for (int64_t tile = 8; tile <= 256; tile *= 2) {
            way.mma.group = group;
            way.order.tile = tile;
            way.order.part = way.order.chain = 0;
            found += try_way(args, &way, there);
        }
    return found;
}

static int find_factors(const struct matmul_args *args, struct mma_way way, const char *there) {
    int found = 0;
    for (int f = 0; f < 3; f++) {
        way.factors = (enum factor_order)f;
        found += try_way(args, &way, there);
    }
    return found;
}

/* Whether the samples have the bits of some class; prints all that it finds. */
static bool find_class(const struct matmul_args *args, const char *there) {
    const struct arithmetic *hopper;
    struct mma_way way;
    int found = 0;
    if (arithmetic_find("hopper", &hopper, &p->e) != OK ||
        arithmetic_way(hopper, args, &way, &p->e) != OK)
        fail_msg("%s", p->e.text);
    for (int rounded = 0; !found && rounded <= (args->beta != 0); rounded++)
        for (int widened = 0; !found && widened < 2; widened++) {
            if (arithmetic_way_as(hopper, args, !widened, &way, &p->e) != OK)
                fail_msg("%s", p->e.text);
            way.rounded = rounded;
            for (int last = 0; !found && last <= (args->bias && args->residual); last++) {
                way.bias_last = last;
                found += find_factors(args, way, there);
                if (!found) found += find_parts(args, way, there);
                if (!found && way.mma.group == 16) found += find_tile(args, way, there);
            }
        }
    return found > 0;
}

/* Returns whether the row's claim does not hold. */
static bool check(const struct exact_case *c) {
    bool adds_bias = c->extra == BIAS || c->extra == BOTH;
    bool adds_residual = c->extra == RESIDUAL || c->extra == BOTH;
    struct twin a = operand(c->a, c->m, c->k, c->scale_a, 31);
    struct twin w = operand(c->b, c->n, c->k, c->scale_b, 32);
    struct twin out = pair_tensor(p, c->out, c->m, c->n, 1, 1), before = out;
    struct twin residual = pair_tensor(p, c->out, c->m, c->n, 1, 1);
    struct twin bias = pair_tensor(p, H, c->n, 1, 1, 1);
    before.side[CPU] = pair_tensor(p, c->out, c->m, c->n, 1, 1).side[CPU];
    pair_fill(p, &before, 33, 2, 20.0f);
    pair_fill(p, &out, 33, 2, 20.0f);
    pair_fill(p, &residual, 34, 2, 20.0f);
    pair_fill(p, &bias, 35, 2, 20.0f);
    ON_BOTH(p, ops->matmul(b, LANE_COMPUTE, &(struct matmul_args){
        .out = S(out), .a = S(a), .b = S(w), .bias = adds_bias ? S(bias) : NULL,
        .residual = adds_residual ? S(residual) : NULL,
        .beta = c->extra == IN_PLACE ? 1.0f : 0.0f, .fast_accumulate = c->fast,
        .name = c->about }, e));
    char *there = outputs(&out.side[GPU]);
    double share = share_equal(&out.side[CPU], there);
    printf("    %-34s %lld x %lld x %lld: %.4f %% of outputs equal\n", c->about, (long long)c->m,
           (long long)c->n, (long long)c->k, 100 * share);
    const struct matmul_args args = {
        .out = &before.side[CPU], .a = &a.side[CPU], .b = &w.side[CPU],
        .bias = adds_bias ? &bias.side[CPU] : NULL,
        .residual = adds_residual ? &residual.side[CPU] : NULL,
        .beta = c->extra == IN_PLACE ? 1.0f : 0.0f, .fast_accumulate = c->fast };
    bool found = share == 1 || find_class(&args, there);
    if (!found) printf("        none of the classes\n");
    const struct matmul_args device = {
        .out = &out.side[GPU], .a = &a.side[GPU], .b = &w.side[GPU],
        .bias = adds_bias ? &bias.side[GPU] : NULL,
        .residual = adds_residual ? &residual.side[GPU] : NULL,
        .beta = c->extra == IN_PLACE ? 1.0f : 0.0f, .fast_accumulate = c->fast };
    bool kept = keeps_its_word(&device, &args, there);
    test_free(there);
    pair_clear(p);
    return !kept || (c->claim == EQUAL ? share < 1 : c->claim == CLASS && !found);
}

static void test_hopper(void **state) {
    struct device_info info;
    if (p->ops[GPU]->info(p->b[GPU], &info, &p->e) != OK) fail_msg("%s", p->e.text);
    if (strcmp(info.architecture, "sm_90") != 0) skip();
    if (cpu_backend_calculate(p->b[CPU], "hopper", &p->e) != OK) fail_msg("%s", p->e.text);
    int unequal = 0;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) unequal += check(&CASES[i]);
    if (unequal) fail_msg("%d rows have other bits than kernels/EXACT.md says", unequal);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_hopper) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
