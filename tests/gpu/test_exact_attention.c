/* A Hopper's exact attention beside the CPU's under the arithmetic `hopper`: the share of outputs
 * that are equal to the bit. All must be. Where they are not, the first that differ are printed.
 *
 *   test_exact_attention [search] [price]
 *
 * search: also the shares under other models of the instruction (group along K, bits kept, pairs of
 * k that come together), for each of our kernels. price: also the time of the exact form beside the
 * default's. Other devices are skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/gpu/pair.h"

static struct pair *p;
static bool wants_search, wants_price;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

/* Which keys a query sees: as in test_attention.c. */
struct sight { int64_t most, window; };
struct shape { int64_t batch, length, heads, kv_heads, dim; };

struct exact_case {
    const char *about;
    struct shape z;
    struct sight sight;
    int spread;  /* of q, k and v: magnitudes 2^-spread .. 2^spread times scale */
    float scale;
};

static const struct exact_case CASES[] = {
    { "quick start, mma.sync", { 4, 128, 4, 2, 32 }, { 0, 0 }, 2, 0.5f },
    { "mma.sync, odd length", { 2, 301, 3, 1, 16 }, { 0, 0 }, 3, 1.0f },
    { "mma.sync, documents and a window", { 2, 220, 4, 2, 32 }, { 90, 37 }, 2, 1.0f },
    { "GPT-2, wgmma", { 2, 1024, 12, 12, 64 }, { 0, 0 }, 2, 0.5f },
    { "wgmma, odd length", { 1, 1001, 2, 2, 64 }, { 0, 0 }, 3, 1.0f },
    { "Llama, wgmma", { 1, 1156, 8, 2, 128 }, { 0, 0 }, 2, 0.5f },
    { "wgmma, documents and a window", { 1, 901, 6, 3, 128 }, { 300, 37 }, 2, 1.0f },
    { "wgmma, documents", { 2, 1541, 8, 2, 64 }, { 700, 0 }, 2, 1.0f },
    { "wgmma, long", { 1, 5000, 2, 1, 64 }, { 0, 0 }, 2, 0.5f },
    { "wgmma, one token", { 3, 1, 2, 1, 128 }, { 0, 0 }, 2, 1.0f },
};

struct tensors { struct twin qkv, o, lse, d_o, d_qkv, delta, first_key; bool ranged; };

/* first_key [n,t], by a hash of the position. */
static struct twin first_key_of(int64_t n, int64_t t, struct sight sight) {
    struct twin x = pair_tensor(p, DTYPE_I32, n, t, 1, 1);
    int32_t *first = test_malloc((size_t)(n * t) * 4);
    for (int64_t i = 0; i < n; i++)
        for (int64_t at = 0, begin = 0, end = sight.most ? 0 : t; at < t; at++) {
            if (at == end) {
                begin = at;
                end += 1 + (at * 7919 + i * 104729 + 3) % sight.most;
            }
            int64_t least = sight.window ? at - sight.window + 1 : 0;
            first[i * t + at] = (int32_t)(begin > least ? begin : least);
        }
    pair_set(p, &x, first, n * t * 4);
    test_free(first);
    return x;
}

static struct tensors make(const struct exact_case *c) {
    const struct shape *z = &c->z;
    int64_t rows = z->batch * z->length, all = z->heads + 2 * z->kv_heads;
    struct tensors t = { .ranged = c->sight.most || c->sight.window };
    t.qkv = pair_tensor(p, DTYPE_BF16, z->batch, z->length, all, z->dim);
    t.o = pair_tensor(p, DTYPE_BF16, rows, z->heads * z->dim, 1, 1);
    t.lse = pair_tensor(p, DTYPE_F32, z->batch, z->heads, z->length, 1);
    t.d_o = pair_tensor(p, DTYPE_BF16, rows, z->heads * z->dim, 1, 1);
    t.d_qkv = pair_tensor(p, DTYPE_BF16, rows, all * z->dim, 1, 1);
    t.delta = pair_tensor(p, DTYPE_F32, z->batch, z->heads, z->length, 1);
    if (t.ranged) t.first_key = first_key_of(z->batch, z->length, c->sight);
    pair_fill(p, &t.qkv, 71, c->spread, c->scale);
    pair_fill(p, &t.d_o, 72, 2, 0.5f);
    return t;
}

static void need(enum status st) {
    if (st != OK) fail_msg("%s", p->e.text);
}

static void forward_on(int s, const struct tensors *t, const struct shape *z) {
    struct tensor value = t->o.side[s];
    struct sink o = { .value = &value, .keep_value = true };
    need(p->ops[s]->attention_fwd(p->b[s], LANE_COMPUTE, &(struct attention_fwd_args){
            .o = &o, .lse = &t->lse.side[s], .qkv = &t->qkv.side[s],
            .first_key = t->ranged ? &t->first_key.side[s] : NULL, .heads = z->heads,
            .kv_heads = z->kv_heads }, &p->e));
}
static void backward_on(int s, const struct tensors *t, const struct shape *z) {
    struct tensor value = t->d_qkv.side[s];
    struct sink d_qkv = { .value = &value, .keep_value = true };
    need(p->ops[s]->attention_bwd(p->b[s], LANE_COMPUTE, &(struct attention_bwd_args){
            .d_qkv = &d_qkv, .delta = &t->delta.side[s], .d_o = &t->d_o.side[s],
            .o = &t->o.side[s], .qkv = &t->qkv.side[s], .lse = &t->lse.side[s],
            .first_key = t->ranged ? &t->first_key.side[s] : NULL, .heads = z->heads,
            .kv_heads = z->kv_heads }, &p->e));
}

/* The GPU's bytes; the caller frees them. */
static char *fetch(const struct tensor *x) {
    int64_t bytes = tensor_count(x) * dtype_bytes(x->dtype);
    char *there = test_malloc((size_t)bytes);
    need(p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, there, x->data, bytes, &p->e));
    need(p->ops[GPU]->sync(p->b[GPU], &p->e));
    return there;
}

/* ---- shares of equal outputs ---- */

enum { O, LSE, DQ, DK, DV, PARTS };
static const char *const PART[PARTS] = { "o", "lse", "dq", "dk", "dv" };

/* What the GPU computed, from its own forward. */
struct there { char *o, *lse, *d_qkv; };

static struct there run_gpu(const struct tensors *t, const struct shape *z) {
    forward_on(GPU, t, z);
    backward_on(GPU, t, z);
    return (struct there){ fetch(&t->o.side[GPU]), fetch(&t->lse.side[GPU]),
                           fetch(&t->d_qkv.side[GPU]) };
}
static void free_there(struct there g) {
    test_free(g.o);
    test_free(g.lse);
    test_free(g.d_qkv);
}

/* Counts n equal values of `size` bytes from element `at` on; prints the first that differ. */
struct count { int64_t equal, all; int printed; };
static void compare(struct count *c, const char *part, const char *cpu, const char *gpu,
                    int64_t size, int64_t at, int64_t n, bool print) {
    for (int64_t i = at; i < at + n; i++) {
        c->all++;
        if (!memcmp(cpu + i * size, gpu + i * size, (size_t)size)) { c->equal++; continue; }
        if (!print || c->printed++ >= 3) continue;
        uint32_t x = 0, y = 0;
        memcpy(&x, cpu + i * size, (size_t)size);
        memcpy(&y, gpu + i * size, (size_t)size);
        printf("        %s: element %lld: cpu %0*x, gpu %0*x\n", part, (long long)i,
               (int)size * 2, x, (int)size * 2, y);
    }
}

/* share[PARTS]. The CPU's backward takes the GPU's o and lse, so that a difference of the forward
 * does not hide one of the backward. */
static void shares(const struct tensors *t, const struct shape *z, const struct there *g,
                   bool print, double share[PARTS]) {
    struct count c[PARTS] = { { 0, 0, 0 } };
    int64_t all = z->heads + 2 * z->kv_heads, rows = z->batch * z->length;
    int64_t outputs = tensor_count(&t->o.side[CPU]), sums = tensor_count(&t->lse.side[CPU]);
    forward_on(CPU, t, z);
    compare(&c[O], "o", t->o.side[CPU].data, g->o, 2, 0, outputs, print);
    compare(&c[LSE], "lse", t->lse.side[CPU].data, g->lse, 4, 0, sums, print);
    memcpy(t->o.side[CPU].data, g->o, (size_t)outputs * 2);
    memcpy(t->lse.side[CPU].data, g->lse, (size_t)sums * 4);
    backward_on(CPU, t, z);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t head = 0; head < all; head++) {
            int part = head < z->heads ? DQ : head < z->heads + z->kv_heads ? DK : DV;
            compare(&c[part], PART[part], t->d_qkv.side[CPU].data, g->d_qkv, 2,
                    (row * all + head) * z->dim, z->dim, print);
        }
    for (int i = 0; i < PARTS; i++) share[i] = 100.0 * (double)c[i].equal / (double)c[i].all;
}

static void print_shares(const char *about, const double share[PARTS]) {
    printf("    %-44s", about);
    for (int i = 0; i < PARTS; i++) printf("  %s %8.4f %%", PART[i], share[i]);
    printf("\n");
    fflush(stdout);
}

static bool is_hopper(void) {
    struct device_info info;
    need(p->ops[GPU]->info(p->b[GPU], &info, &p->e));
    return !strcmp(info.architecture, "sm_90");
}

static void test_hopper(void **state) {
    if (!is_hopper()) skip();
    int unequal = 0;
    need(cpu_backend_calculate(p->b[CPU], "hopper", &p->e));
    need(p->ops[GPU]->set_exact(p->b[GPU], true, &p->e));
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct tensors t = make(&CASES[i]);
        struct there g = run_gpu(&t, &CASES[i].z);
        double share[PARTS];
        shares(&t, &CASES[i].z, &g, true, share);
        print_shares(CASES[i].about, share);
        for (int part = 0; part < PARTS; part++) unequal += share[part] < 100;
        free_there(g);
        pair_clear(p);
    }
    need(p->ops[GPU]->set_exact(p->b[GPU], false, &p->e));
    if (unequal) fail_msg("%d outputs of attention are not the CPU's", unequal);
}

/* ---- other models of the instruction ---- */

/* Within each 16 of D, element i moves to place to[i]: a group of 8 or 4 then has other k. Scores
 * alone depend on it, so it is compared by lse. */
static const struct { const char *name; int8_t to[16]; } ORDERS[] = {
    { "k ascending", { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 } },
    { "2t, 2t+1, 2t+8, 2t+9 together", { 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15 } },
    { "even, then odd", { 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15 } },
    { "k descending", { 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0 } },
};

static void reorder(uint16_t *qkv, int64_t n, const int8_t to[16]) {
    for (int64_t at = 0; at < n; at += 16) {
        uint16_t x[16];
        for (int i = 0; i < 16; i++) x[to[i]] = qkv[at + i];
        memcpy(qkv + at, x, sizeof x);
    }
}

static void search(const struct exact_case *c) {
    static const struct mma MODELS[] = { { 16, 25, 23 }, { 8, 25, 23 },  { 4, 25, 23 },
                                         { 16, 24, 23 }, { 8, 24, 23 },  { 4, 24, 23 },
                                         { 16, 26, 23 }, { 8, 26, 23 },  { 8, 23, 23 },
                                         { 32, 25, 23 } };
    struct tensors t = make(c);
    struct there g = run_gpu(&t, &c->z);
    struct arithmetic model = *cpu_of(p->b[CPU])->arithmetic;
    const struct arithmetic *hopper = cpu_of(p->b[CPU])->arithmetic;
    int64_t n = tensor_count(&t.qkv.side[CPU]);
    uint16_t *kept = test_malloc((size_t)n * 2);
    memcpy(kept, t.qkv.side[CPU].data, (size_t)n * 2);
    printf("  %s\n", c->about);
    cpu_of(p->b[CPU])->arithmetic = &model;
    for (size_t m = 0; m < sizeof MODELS / sizeof *MODELS; m++)
        for (int wgmma = 0; wgmma < (c->z.dim < 64 ? 1 : 2); wgmma++)
            for (size_t o = 0; o < (MODELS[m].group < 16 ? sizeof ORDERS / sizeof *ORDERS : 1);
                 o++) {
                char about[96];
                double share[PARTS];
                model.bf16 = MODELS[m];
                model.wgmma = wgmma;
                snprintf(about, sizeof about, "%d of %d bits, %s%s", MODELS[m].group,
                         MODELS[m].fraction, o ? ORDERS[o].name : "k ascending",
                         c->z.dim < 64 ? "" : wgmma ? ", wgmma" : ", mma");
                reorder(t.qkv.side[CPU].data, n, ORDERS[o].to);
                shares(&t, &c->z, &g, false, share);
                memcpy(t.qkv.side[CPU].data, kept, (size_t)n * 2);
                print_shares(about, share);
            }
    cpu_of(p->b[CPU])->arithmetic = hopper;
    test_free(kept);
    free_there(g);
    pair_clear(p);
}

static void test_search(void **state) {
    static const struct exact_case SEARCHED[] = {
        { "mma.sync, D 16: a score is one instruction", { 1, 64, 4, 4, 16 }, { 0, 0 }, 4, 1.0f },
        { "mma.sync, D 32", { 1, 128, 4, 2, 32 }, { 0, 0 }, 2, 0.5f },
        { "wgmma, D 64", { 1, 384, 2, 2, 64 }, { 0, 0 }, 2, 0.5f },
    };
    if (!wants_search || !is_hopper()) skip();
    need(cpu_backend_calculate(p->b[CPU], "hopper", &p->e));
    need(p->ops[GPU]->set_exact(p->b[GPU], true, &p->e));
    for (size_t i = 0; i < sizeof SEARCHED / sizeof *SEARCHED; i++) search(&SEARCHED[i]);
    need(p->ops[GPU]->set_exact(p->b[GPU], false, &p->e));
}

/* ---- the price ---- */

enum { SAMPLES = 9 };

static double now_us(void) {
    struct timespec s;
    clock_gettime(CLOCK_MONOTONIC, &s);
    return (double)s.tv_sec * 1e6 + (double)s.tv_nsec * 1e-3;
}
static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Microseconds of one call: the median of SAMPLES, each of several calls. */
static double measure(const struct tensors *t, const struct shape *z, bool backward) {
    double us[SAMPLES];
    int calls = 1;
    for (int i = -2; i < SAMPLES; i++) {
        need(p->ops[GPU]->sync(p->b[GPU], &p->e));
        double start = now_us();
        for (int n = 0; n < calls; n++)
            if (backward) backward_on(GPU, t, z);
            else forward_on(GPU, t, z);
        need(p->ops[GPU]->sync(p->b[GPU], &p->e));
        double each = (now_us() - start) / calls;
        if (i < 0) calls = each < 10e3 ? (int)(10e3 / each) + 1 : 1;
        else us[i] = each;
    }
    qsort(us, SAMPLES, sizeof *us, ascending);
    return us[SAMPLES / 2];
}

static void test_price(void **state) {
    static const struct exact_case SHAPES[] = {
        { "GPT-2 124M", { 32, 1024, 12, 12, 64 }, { 0, 0 }, 2, 0.5f },
        { "Llama small", { 8, 2048, 16, 4, 128 }, { 0, 0 }, 2, 0.5f },
        { "Llama-3-8B", { 1, 8192, 32, 8, 128 }, { 0, 0 }, 2, 0.5f },
        { "quick start", { 8, 128, 4, 2, 32 }, { 0, 0 }, 2, 0.5f },
    };
    if (!wants_price || !is_hopper()) skip();
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        struct tensors t = make(&SHAPES[i]);
        for (int backward = 0; backward < 2; backward++) {
            double us[2];
            for (int exact = 0; exact < 2; exact++) {
                need(p->ops[GPU]->set_exact(p->b[GPU], exact, &p->e));
                if (backward) forward_on(GPU, &t, &SHAPES[i].z);
                us[exact] = measure(&t, &SHAPES[i].z, backward);
            }
            printf("    %-12s %-8s  default %9.1f us, exact %9.1f us: %+.1f %%\n", SHAPES[i].about,
                   backward ? "backward" : "forward", us[0], us[1], 100 * (us[1] / us[0] - 1));
            fflush(stdout);
        }
        need(p->ops[GPU]->set_exact(p->b[GPU], false, &p->e));
        pair_clear(p);
    }
    struct decision d;
    for (int64_t i = 0; p->ops[GPU]->decision(p->b[GPU], i, &d); i++)
        printf("    %s %s: %s %s\n", d.name, d.direction, d.way, d.detail);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        wants_search = wants_search || !strcmp(argv[i], "search");
        wants_price = wants_price || !strcmp(argv[i], "price");
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hopper),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_price),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
