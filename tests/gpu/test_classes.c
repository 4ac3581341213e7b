/* Timing changes no bit: backends that are made to choose different algorithms of each class have
 * the same outputs. A line of a choice table, `place N : -`, takes the Nth algorithm of a class
 * instead of the fastest. Prints each choice; where algorithms outside the class would be faster,
 * their time too ("free"). Other devices than Hopper are skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/arithmetic.h"
#include "kernels/rng.h"
#include "runner/plan/backends.h"
#include "tests/gpu/place.h"
#include "tests/gpu/letters.h"

enum extra { NOTHING, BIAS, RESIDUAL, IN_PLACE, BOTH /* a bias and a residual */ };

struct shape {
    const char *name;
    int64_t m, n, k;
    enum dtype a, b, out;
    enum scale_kind kind_a, kind_b;
    bool fast;
    enum extra extra;
};

static const struct shape SHAPES[] = {
    { "gpt2 qkv fprop", 32768, 2304, 768, H, H, H, 0, 0, false, BIAS },
    { "gpt2 attn_out fprop", 32768, 768, 768, H, H, H, 0, 0, false, RESIDUAL },
    { "gpt2 attn_out wgrad", 768, 768, 32768, H, H, F, 0, 0, false, IN_PLACE },
    { "gpt2 attn_out wgrad, bf16", 768, 768, 32768, H, H, H, 0, 0, false, IN_PLACE },
    { "gpt2 qkv wgrad", 2304, 768, 32768, H, H, F, 0, 0, false, IN_PLACE },
    { "gpt2 ffn wgrad", 3072, 768, 32768, H, H, F, 0, 0, false, IN_PLACE },
    { "gpt2 head dgrad", 1024, 768, 50304, H, H, H, 0, 0, false, NOTHING },
    { "gpt2 attn_out wgrad, e5m2", 768, 768, 32768, G, E, F, T, T, false, IN_PLACE },
    { "gpt2 ffn wgrad, e5m2", 3072, 768, 32768, G, E, F, T, T, false, IN_PLACE },
    { "gpt2 ffn fprop, e4m3", 32768, 3072, 768, E, E, H, T, T, true, BIAS },
    { "llama attn_out wgrad", 2048, 2048, 16384, H, H, F, 0, 0, false, IN_PLACE },
    { "llama kv wgrad", 3072, 2048, 16384, H, H, F, 0, 0, false, IN_PLACE },
    { "llama ffn wgrad", 11008, 2048, 16384, H, H, F, 0, 0, false, IN_PLACE },
    { "llama ffn fprop", 16384, 11008, 2048, H, H, H, 0, 0, false, NOTHING },
    { "llama ffn fprop, e4m3", 16384, 11008, 2048, E, E, H, T, T, true, NOTHING },
    { "llama ffn dgrad, e5m2", 16384, 2048, 11008, G, E, H, T, T, true, NOTHING },
    { "llama attn_out wgrad, e5m2", 2048, 2048, 16384, G, E, F, T, T, false, IN_PLACE },
    { "llama ffn fprop, rows", 16384, 11008, 2048, E, E, H, R, R, true, NOTHING },
    { "llama ffn fprop, blocks", 16384, 11008, 2048, E, E, H, B, W, false, NOTHING },
    { "llama ffn wgrad, blocks", 11008, 2048, 16384, E, E, F, B, B, false, IN_PLACE },
    { "llama attn_out wgrad, blocks", 2048, 2048, 16384, E, E, H, B, B, false, IN_PLACE },
    { "gpt2 ffn_out fprop", 32768, 768, 3072, H, H, H, 0, 0, false, BOTH },
    { "gpt2 ffn_out fprop, e4m3", 32768, 768, 3072, E, E, H, T, T, true, BOTH },
    { "gpt2 ffn_out fprop, blocks", 32768, 768, 3072, E, E, H, B, W, false, BOTH },
    { "gpt2 attn_out fprop, blocks", 32768, 768, 768, E, E, H, B, W, false, BOTH },
    { "few outputs", 96, 64, 40000, H, H, F, 0, 0, false, NOTHING },
    { "few outputs, e4m3", 96, 64, 40000, E, E, H, T, T, false, NOTHING },
    { "odd sizes", 133, 157, 999, H, H, F, 0, 0, false, NOTHING },
    { "odd sizes, in place", 133, 157, 999, H, H, H, 0, 0, false, IN_PLACE },
    { "odd columns, e4m3", 256, 157, 1024, E, E, H, T, T, false, NOTHING },
};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };
static const int PLACES[] = { 0, 1, 2, 3, 99 }; /* 0: the fastest; 99: the last */
enum { PLACE_COUNT = sizeof PLACES / sizeof *PLACES };

static struct backend_handle gpu[PLACE_COUNT];

static enum status open_all(struct err *e) {
    char head[PLACE_HEAD_CAP];
    for (int i = 0; i < PLACE_COUNT; i++) TRY(backend_open("cuda", 0, 0, &gpu[i], e));
    TRY(place_head(gpu[0].backend, head, e));
    for (int i = 1; i < PLACE_COUNT; i++) TRY(place_load(gpu[i].backend, head, PLACES[i], e));
    return OK;
}

static int setup(void **state) {
    struct err e;
    if (open_all(&e) == OK) return 0;
    fprintf(stderr, "%s\n", e.text);
    return -1;
}
static int teardown(void **state) {
    for (int i = 0; i < PLACE_COUNT; i++) backend_close(&gpu[i]);
    return 0;
}

/* ---- operands: in memory of the first backend, which the others of this process read too ---- */

static void *filled(int64_t bytes, uint32_t keep, uint32_t set, uint64_t seed) {
    struct backend *b = gpu[0].backend;
    struct err e;
    void *memory;
    uint32_t *host = test_malloc((size_t)bytes + 4);
    for (int64_t i = 0; i < bytes / 4 + 1; i++)
        host[i] = ((uint32_t)rng_bits(seed, (uint64_t)i) & keep) | set;
    if (b->ops->memory_create(b, "an operand", bytes, &memory, &e) != OK ||
        b->ops->upload(b, LANE_COMPUTE, memory, host, bytes, &e) != OK)
        fail_msg("%s", e.text);
    test_free(host);
    return memory;
}

/* Values of many sizes; factors that are no powers of two. */
static struct tensor operand(enum dtype t, int64_t rows, int64_t k, enum scale_kind kind,
                             uint64_t seed) {
    if (t == H) {
        struct tensor x = tensor_2d(NULL, t, rows, k);
        x.data = filled(rows * k * 2, 0x83FF83FFu, 0x3C003C00u, seed);
        return x;
    }
    struct tensor x = tensor_fp8(NULL, t, rows, k);
    x.data = filled(tensor_fp8_bytes(rows, k), 0xBFBFBFBFu, 0, seed);
    x.scale = scale_make(NULL, kind, rows, k);
    x.scale.data = filled(scale_bytes(&x.scale), 0x007FFFFFu, 0x3F800000u, seed + 1);
    return x;
}

static struct tensor addend(enum dtype t, int64_t rows, int64_t cols, uint64_t seed) {
    struct tensor x = tensor_2d(NULL, t, rows, cols);
    int64_t bytes = rows * cols * dtype_bytes(t);
    x.data = t == F ? filled(bytes, 0x83FFFFFFu, 0x40000000u, seed)
                    : filled(bytes, 0x83FF83FFu, 0x40004000u, seed);
    return x;
}

/* The whole output, as bytes. */
static char *product(struct backend *b, const struct matmul_args *args, const void *before) {
    struct err e;
    int64_t bytes = tensor_count(args->out) * dtype_bytes(args->out->dtype);
    char *host = test_malloc((size_t)bytes);
    if (b->ops->upload(b, LANE_COMPUTE, args->out->data, before, bytes, &e) != OK ||
        b->ops->sync(b, &e) != OK || b->ops->matmul(b, LANE_COMPUTE, args, &e) != OK ||
        b->ops->download(b, LANE_COMPUTE, host, args->out->data, bytes, &e) != OK)
        fail_msg("%s: %s", args->name, e.text);
    return host;
}

/* The line of the table that the last call made. */
static void last_choice(struct backend *b, char *out, size_t size) {
    struct err e;
    char *table;
    if (b->ops->choices_save(b, &table, &e) != OK) fail_msg("%s", e.text);
    char *last = strrchr(table, ':');
    snprintf(out, size, "%s", last ? last : "");
    free(table);
}

static const char *detail_of(struct backend *b, const char *name) {
    static struct decision d;
    const char *found = "";
    for (int64_t i = 0; b->ops->decision(b, i, &d); i++)
        if (!strcmp(d.name, name)) found = d.detail;
    return found;
}

/* Whether two backends had other bits. */
static bool differs(const struct shape *s) {
    struct tensor a = operand(s->a, s->m, s->k, s->kind_a, 1);
    struct tensor w = operand(s->b, s->n, s->k, s->kind_b, 3);
    struct tensor out = addend(s->out, s->m, s->n, 5), bias = addend(F, s->n, 1, 6);
    struct tensor residual = addend(s->out, s->m, s->n, 7);
    struct matmul_args args = {
        .out = &out, .a = &a, .b = &w,
        .bias = s->extra == BIAS || s->extra == BOTH ? &bias : NULL,
        .residual = s->extra == RESIDUAL || s->extra == BOTH ? &residual : NULL, .name = s->name,
        .beta = s->extra == IN_PLACE ? 1.0f : 0.0f, .fast_accumulate = s->fast };
    struct err e;
    struct mma_way way;
    int64_t bytes = tensor_count(&out) * dtype_bytes(s->out);
    char *before = test_malloc((size_t)bytes), *first = NULL, line[PLACE_COUNT][256];
    bool differ = false, known = false;
    int different = 0;
    struct backend *b = gpu[0].backend;
    if (b->ops->download(b, LANE_COMPUTE, before, out.data, bytes, &e) != OK)
        fail_msg("%s", e.text);
    for (int i = 0; i < PLACE_COUNT; i++) {
        char *got = product(gpu[i].backend, &args, before);
        last_choice(gpu[i].backend, line[i], sizeof line[i]);
        bool fresh = true;
        for (int j = 0; j < i; j++) fresh = fresh && strcmp(line[i], line[j]) != 0;
        different += fresh;
        if (i) differ = differ || memcmp(first, got, (size_t)bytes) != 0;
        if (i) test_free(got);
        else first = got;
    }
    if (b->ops->product_way(b, &args, &way, &known, &e) != OK) fail_msg("%s", e.text);
    printf("    %-30s %5lld x %5lld x %5lld: %d algorithms, %s; parts of %lld%s; %s\n", s->name,
           (long long)s->m, (long long)s->n, (long long)s->k, different,
           differ ? "OTHER BITS" : "the same bits", known ? (long long)way.order.part : -1,
           known ? "" : " (its way is not known)", detail_of(b, s->name));
    test_free(before);
    test_free(first);
    void *const memory[] = { a.data, w.data, out.data, bias.data, residual.data, a.scale.data,
                             w.scale.data };
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        b->ops->memory_destroy(b, memory[i]);
    return differ;
}

static void other_algorithms_have_the_same_bits(void **state) {
    struct device_info info;
    struct err e;
    int differ = 0;
    if (gpu[0].backend->ops->info(gpu[0].backend, &info, &e) != OK) fail_msg("%s", e.text);
    if (strcmp(info.architecture, "sm_90") != 0) skip();
    for (int i = 0; i < SHAPE_COUNT; i++) differ += differs(&SHAPES[i]);
    if (differ) fail_msg("%d shapes have other bits with another algorithm", differ);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(other_algorithms_have_the_same_bits) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
