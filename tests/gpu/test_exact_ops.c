/* Each operator but products and attention, exact, on a Hopper beside the CPU under the arithmetic
 * `hopper`: all outputs must be equal to the bit. Each row also prints the times of the exact form
 * and of the default form: the price. Other devices are skipped.
 *
 * With SHARES=1 in the environment the share of the default form's equal outputs is printed too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/gpu/pair.h"

enum { HEADS = 6, KV = 2, VOCAB = 1 };
#include "tests/gpu/operators.h"

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

#define H DTYPE_BF16
#define F DTYPE_F32

/* One call with its tensors. `outputs`: 1 << index of those that it writes. */
enum { TENSORS_MAX = 12, CALLS = 20 };
struct row {
    char about[64];
    operator_call call;
    struct twin t[TENSORS_MAX];
    int count;
    unsigned outputs;
};

static struct row row_of(const char *name, operator_call call, int64_t a, int64_t b) {
    struct row r = { .call = call };
    snprintf(r.about, sizeof r.about, "%s %lld x %lld", name, (long long)a, (long long)b);
    return r;
}

/* Large tensors are filled by the operator, which has the same bits on both sides. */
enum { LARGE = 1 << 20 };
static void fill_large(struct twin *x, uint64_t seed, float scale) {
    ON_BOTH(p, ops->fill_normal(b, LANE_COMPUTE, S(*x), scale, seed, 1, 0, e));
}

/* Adds a tensor of random values: outputs too, since some are added to. */
static struct twin *put(struct row *r, bool output, enum dtype t, int64_t rows, int64_t cols,
                        int spread, float scale) {
    assert_true(r->count < TENSORS_MAX);
    struct twin *x = &r->t[r->count];
    *x = pair_tensor(p, t, rows, cols, 1, 1);
    uint64_t seed = 100 + (uint64_t)r->count;
    if (rows * cols > LARGE) fill_large(x, seed, spread > 2 ? 4 * scale : scale);
    else pair_fill(p, x, seed, spread, scale);
    r->outputs |= (unsigned)output << r->count++;
    return x;
}

static void call_on(const struct row *r, int s) {
    struct tensor *t[TENSORS_MAX] = { NULL }, of[TENSORS_MAX];
    for (int i = 0; i < r->count; i++) {
        of[i] = r->t[i].side[s];
        if (of[i].data) t[i] = &of[i];
    }
    if (r->call(p->b[s], t, &p->e) != OK)
        fail_msg("%s on %s: %s", r->about, s == GPU ? "cuda" : "cpu", p->e.text);
}

/* A tensor that the call goes without. */
static void put_none(struct row *r) { r->t[r->count++] = (struct twin){ 0 }; }

static void set_exact(bool exact) {
    if (p->ops[GPU]->set_exact(p->b[GPU], exact, &p->e) != OK) fail_msg("%s", p->e.text);
}

static char *device_bytes(const struct tensor *x, int64_t *bytes) {
    *bytes = tensor_count(x) * dtype_bytes(x->dtype);
    char *there = test_malloc((size_t)*bytes + 1);
    if (p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, there, x->data, *bytes, &p->e) != OK)
        fail_msg("%s", p->e.text);
    return there;
}

/* The share of elements of output i that are equal; prints the first that is not. */
static double share_equal(const struct row *r, int i, bool say) {
    const struct tensor *x = &r->t[i].side[CPU];
    int64_t bytes, n = tensor_count(x), size = dtype_bytes(x->dtype), equal = 0, first = -1;
    char *there = device_bytes(&r->t[i].side[GPU], &bytes), *here = x->data;
    for (int64_t k = 0; k < n; k++) {
        bool same = !memcmp(there + k * size, here + k * size, (size_t)size);
        equal += same;
        if (!same && first < 0) first = k;
    }
    if (first >= 0 && say) {
        uint32_t a = 0, b = 0;
        memcpy(&a, here + first * size, (size_t)size);
        memcpy(&b, there + first * size, (size_t)size);
        printf("        tensor %d: %.4f %% equal; element %lld is %x, on the GPU %x\n", i,
               100.0 * (double)equal / (double)n, (long long)first, (unsigned)a, (unsigned)b);
    }
    test_free(there);
    return n ? (double)equal / (double)n : 1;
}

/* The contents of the outputs on the GPU before a call, from the CPU's, which must be new. */
static void reset_gpu(const struct row *r, char *const before[TENSORS_MAX]) {
    for (int i = 0; i < r->count; i++) {
        const struct tensor *x = &r->t[i].side[GPU];
        if (!(r->outputs >> i & 1)) continue;
        if (p->ops[GPU]->upload(p->b[GPU], LANE_COMPUTE, x->data, before[i],
                                tensor_count(x) * dtype_bytes(x->dtype), &p->e) != OK)
            fail_msg("%s", p->e.text);
    }
}

static double time_us(const struct row *r) {
    struct backend *b = p->b[GPU];
    double us = 0;
    for (int i = 0; i < 3; i++) call_on(r, GPU);
    if (p->ops[GPU]->timer_mark(b, LANE_COMPUTE, 0, &p->e) != OK) fail_msg("%s", p->e.text);
    for (int i = 0; i < CALLS; i++) call_on(r, GPU);
    if (p->ops[GPU]->timer_mark(b, LANE_COMPUTE, 1, &p->e) != OK ||
        p->ops[GPU]->timer_read(b, 0, 1, &us, &p->e) != OK)
        fail_msg("%s", p->e.text);
    return us / CALLS;
}

/* Runs a row; returns whether an output differs. Frees its tensors. */
static bool differs(const struct row *r) {
    char *before[TENSORS_MAX] = { NULL };
    double least = 1, near = 1;
    for (int i = 0; i < r->count; i++) {
        int64_t bytes;
        if (r->outputs >> i & 1) before[i] = device_bytes(&r->t[i].side[GPU], &bytes);
    }
    set_exact(true);
    call_on(r, CPU);
    call_on(r, GPU);
    for (int i = 0; i < r->count; i++)
        if (r->outputs >> i & 1) least = fmin(least, share_equal(r, i, true));
    if (getenv("SHARES")) {
        set_exact(false);
        reset_gpu(r, before);
        call_on(r, GPU);
        for (int i = 0; i < r->count; i++)
            if (r->outputs >> i & 1) near = fmin(near, share_equal(r, i, false));
    }
    set_exact(true);
    double exact = time_us(r);
    set_exact(false);
    double plain = time_us(r);
    printf("    %-44s %s exact %9.2f us, default %9.2f us, %+.1f %%", r->about,
           least == 1 ? "equal" : "OTHER", exact, plain, 100 * (exact / plain - 1));
    if (getenv("SHARES")) printf(", default equal %.4f %%", 100 * near);
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < r->count; i++)
        if (before[i]) test_free(before[i]);
    pair_clear(p);
    return least < 1;
}

/* ---- norms ---- */

static enum status layernorm_bwd_sums(struct backend *b, struct tensor **t, struct err *e) {
    struct sink dx = { .value = t[0], .keep_value = true, .sums = t[9] };
    return b->ops->layernorm_bwd(b, 0, &(struct norm_bwd_args){
        .dx = &dx, .d_gain = t[1], .d_bias = t[2], .dy = t[3], .x = t[4], .gain = t[5],
        .mean = t[6], .rstd = t[7], .residual = t[8] }, e);
}

static bool rmsnorm(int64_t rows, int64_t cols) {
    struct row f = row_of("rmsnorm_fwd", rmsnorm_fwd, rows, cols);
    put(&f, true, H, rows, cols, 0, 1);
    put(&f, true, F, rows, 1, 0, 1);
    put(&f, false, H, rows, cols, 3, 2);
    put(&f, false, H, cols, 1, 1, 1);
    bool other = differs(&f);
    struct row b = row_of("rmsnorm_bwd", rmsnorm_bwd, rows, cols);
    put(&b, true, H, rows, cols, 0, 1);
    put(&b, true, F, cols, 1, 1, 1);
    put(&b, false, H, rows, cols, 3, 2);
    put(&b, false, H, rows, cols, 3, 2);
    put(&b, false, H, cols, 1, 1, 1);
    put(&b, false, F, rows, 1, 1, 1);
    put(&b, false, H, rows, cols, 3, 2);
    return differs(&b) || other;
}

static bool layernorm(int64_t rows, int64_t cols, bool sums) {
    struct row f = row_of("layernorm_fwd", layernorm_fwd, rows, cols);
    put(&f, true, H, rows, cols, 0, 1);
    put(&f, true, F, rows, 1, 0, 1);
    put(&f, true, F, rows, 1, 0, 1);
    put(&f, false, H, rows, cols, 3, 2);
    put(&f, false, H, cols, 1, 1, 1);
    put(&f, false, H, cols, 1, 1, 1);
    bool other = differs(&f);
    struct row b = row_of(sums ? "layernorm_bwd, sums" : "layernorm_bwd",
                          sums ? layernorm_bwd_sums : layernorm_bwd, rows, cols);
    put(&b, true, H, rows, cols, 0, 1);
    put(&b, true, F, cols, 1, 1, 1);
    put(&b, true, F, cols, 1, 1, 1);
    put(&b, false, H, rows, cols, 3, 2);
    put(&b, false, H, rows, cols, 3, 2);
    put(&b, false, H, cols, 1, 1, 1);
    put(&b, false, F, rows, 1, 1, 1);
    put(&b, false, F, rows, 1, 1, 1);
    put(&b, false, H, rows, cols, 3, 2);
    if (sums) put(&b, true, H, cols, 1, 1, 1);
    return differs(&b) || other;
}

/* Columns at and beyond each change of the kernels: held by one warp, two, four; longer; unaligned.
 * Rows: fewer and more than run at once. */
static int norms(void) {
    static const int64_t COLS[] = { 8, 256, 264, 768, 776, 1024, 1032, 2048, 2056, 4096, 4104,
                                    9000, 100, 4097 };
    int other = 0;
    for (size_t i = 0; i < sizeof COLS / sizeof *COLS; i++) {
        other += rmsnorm(1111, COLS[i]);
        other += layernorm(1111, COLS[i], i % 2 == 0);
    }
    other += rmsnorm(16384, 2048) + rmsnorm(5, 768);
    return other + layernorm(32768, 768, true) + layernorm(3, 768, true);
}

/* ---- column sums ---- */

static enum status column_sums(struct backend *b, struct tensor **t, struct err *e) {
    struct sink s = { .value = t[1], .keep_value = true, .sums = t[0] };
    return b->ops->quantise(b, 0, &s, t[1], e);
}
static enum status gelu_bwd_sums(struct backend *b, struct tensor **t, struct err *e) {
    struct sink s = { .value = t[0], .keep_value = true, .sums = t[3] };
    return b->ops->gelu_bwd(b, 0, &s, t[1], t[2], e);
}

static int columns(void) {
    static const int64_t SIZE[][2] = { { 1, 8 }, { 255, 768 }, { 257, 100 }, { 32768, 2304 },
                                       { 10000, 3072 } };
    int other = 0;
    for (size_t i = 0; i < sizeof SIZE / sizeof *SIZE; i++) {
        int64_t rows = SIZE[i][0], cols = SIZE[i][1];
        struct row r = row_of("column sums", column_sums, rows, cols);
        put(&r, true, i % 2 ? F : H, cols, 1, 1, 1);
        put(&r, false, H, rows, cols, 4, 1);
        other += differs(&r);
        struct row g = row_of("gelu_bwd, sums", gelu_bwd_sums, rows, cols);
        put(&g, true, H, rows, cols, 0, 1);
        put(&g, false, H, rows, cols, 3, 1);
        put(&g, false, H, rows, cols, 4, 1);
        put(&g, true, F, cols, 1, 1, 1);
        other += differs(&g);
    }
    return other;
}

/* ---- activations: values to where sigmoids end, and special ones ---- */

static void put_specials(struct row *r) {
    static const uint16_t SPECIAL[] = { 0x0000, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x0001, 0x8001,
                                        0x7F7F, 0xFF7F, 0x42B0, 0xC2B0, 0x42AE, 0xC2AF };
    for (int i = 0; i < r->count; i++) {
        struct tensor *x = &r->t[i].side[CPU];
        if (r->outputs >> i & 1) continue;
        int64_t bytes = tensor_count(x) * 2;
        uint16_t *host = test_malloc((size_t)bytes);
        memcpy(host, x->data, (size_t)bytes);
        for (int64_t k = 0; k < tensor_count(x); k += 37 + i)
            host[k] = SPECIAL[k / 37 % (int64_t)(sizeof SPECIAL / sizeof *SPECIAL)];
        pair_set(p, &r->t[i], host, bytes);
        test_free(host);
    }
}

static bool activation(const char *name, operator_call call, int64_t rows, int64_t out,
                       int64_t inputs[2], bool specials) {
    struct row r = row_of(name, call, rows, out);
    put(&r, true, H, rows, out, 0, 1);
    for (int i = 0; i < 2; i++)
        if (inputs[i]) put(&r, false, H, rows, inputs[i], 7, 1);
    if (specials) put_specials(&r);
    return differs(&r);
}

static int activations(void) {
    static const int64_t SIZE[][2] = { { 1, 8 }, { 777, 100 }, { 333, 2048 }, { 8192, 5504 },
                                       { 16384, 3072 } };
    int other = 0;
    for (size_t i = 0; i < sizeof SIZE / sizeof *SIZE; i++) {
        int64_t n = SIZE[i][0], w = SIZE[i][1];
        bool special = i < 3;
        other += activation("swiglu_fwd", swiglu_fwd, n, w, (int64_t[]){ 2 * w, 0 }, special);
        other += activation("swiglu_bwd", swiglu_bwd, n, 2 * w, (int64_t[]){ w, 2 * w }, special);
        other += activation("gelu_fwd", gelu_fwd, n, w, (int64_t[]){ w, 0 }, special);
        other += activation("gelu_bwd", gelu_bwd, n, w, (int64_t[]){ w, w }, special);
    }
    return other;
}

/* ---- QK-norm and rotation ---- */

static void shape(struct twin *x, int64_t a, int64_t b, int64_t c, int64_t d) {
    for (int s = 0; s < SIDES; s++)
        x->side[s] = tensor_make(x->side[s].data, x->side[s].dtype, a, b, c, d);
}

static int qk(int64_t batch, int64_t length, int64_t d, bool gains, bool rope) {
    int64_t all = HEADS + 2 * KV, rows = batch * length;
    struct row f = row_of(gains ? "qk_fwd, gains" : "qk_fwd", qk_fwd, rows, d);
    shape(put(&f, true, H, rows, all * d, 0, 1), batch, length, all, d);
    if (gains) shape(put(&f, true, F, rows, HEADS + KV, 0, 1), batch, length, HEADS + KV, 1);
    else put_none(&f);
    shape(put(&f, false, H, rows, all * d, 3, 1), batch, length, all, d);
    for (int i = 0; i < 2; i++)
        if (gains) put(&f, false, H, d, 1, 1, 1);
        else put_none(&f);
    if (rope) put(&f, false, F, length, d, 0, 1);
    else put_none(&f);
    put_none(&f);
    int other = differs(&f);
    struct row b = row_of(gains ? "qk_bwd, gains" : "qk_bwd", qk_bwd, rows, d);
    shape(put(&b, true, H, rows, all * d, 0, 1), batch, length, all, d);
    for (int i = 0; i < 2; i++)
        if (gains) put(&b, true, F, d, 1, 1, 1);
        else put_none(&b);
    shape(put(&b, false, H, rows, all * d, 3, 1), batch, length, all, d);
    shape(put(&b, false, H, rows, all * d, 3, 1), batch, length, all, d);
    for (int i = 0; i < 2; i++)
        if (gains) put(&b, false, H, d, 1, 1, 1);
        else put_none(&b);
    if (gains) shape(put(&b, false, F, rows, HEADS + KV, 1, 1), batch, length, HEADS + KV, 1);
    else put_none(&b);
    if (rope) put(&b, false, F, length, d, 0, 1);
    else put_none(&b);
    put_none(&b);
    return other + differs(&b);
}

static int qks(void) {
    static const int64_t DIM[] = { 16, 32, 64, 128 };
    int other = 0;
    for (int i = 0; i < 4; i++) {
        other += qk(2, 37, DIM[i], true, true);
        other += qk(3, 1000, DIM[i], true, i % 2);
        other += qk(1, 100, DIM[i], false, true);
    }
    return other + qk(8, 2048, 128, true, true) + qk(32, 1024, 64, true, true);
}

/* ---- cross-entropy ---- */

static enum status entropy(struct backend *b, struct tensor **t, struct err *e) {
    return b->ops->cross_entropy(b, 0, &(struct cross_entropy_args){
        .loss = t[0], .d_logits = SINK(1), .right = t[2], .logits = t[3], .targets = t[4],
        .grad_scale = t[5], .vocab = (int64_t)tensor_count(t[6]) }, e);
}

static int cross_entropies(void) {
    static const int64_t SIZE[][3] = { /* rows, vocabulary, width */
        { 33, 257, 264 }, { 64, 1000, 1024 }, { 100, 4096, 4096 }, { 17, 32000, 32768 },
        { 17, 32769, 32776 }, { 1024, 50257, 50304 }, { 256, 128256, 128256 },
        { 9, 262000, 262144 } };
    int other = 0;
    for (size_t i = 0; i < sizeof SIZE / sizeof *SIZE; i++) {
        int64_t rows = SIZE[i][0], vocab = SIZE[i][1], width = SIZE[i][2];
        struct row r = row_of("cross_entropy", entropy, rows, width);
        put(&r, true, F, rows, 1, 0, 1);
        put(&r, true, H, rows, width, 0, 1);
        put(&r, true, F, rows, 1, 0, 1);
        put(&r, false, H, rows, width, 3, 2);
        int32_t *target = test_malloc((size_t)rows * 4);
        for (int64_t k = 0; k < rows; k++)
            target[k] = k % 7 == 3 ? -1 : (int32_t)((k * 7919 + 3) % vocab);
        struct twin *t = &r.t[r.count++];
        *t = pair_tensor(p, DTYPE_I32, rows, 1, 1, 1);
        pair_set(p, t, target, rows * 4);
        test_free(target);
        r.t[r.count++] = pair_f32(p, 1.0f / 3);
        put(&r, false, H, vocab, 1, 0, 1); /* its size is the vocabulary */
        other += differs(&r);
    }
    return other;
}

/* ---- whole tensors ---- */

static int sums(void) {
    static const int64_t N[] = { 1, 7, 2048, 65536, 65537, 3 * 65536 + 1001, 50304 * 768,
                                 600 * 65536 + 5 };
    int other = 0;
    for (size_t i = 0; i < sizeof N / sizeof *N; i++) {
        struct row s = row_of("sum", sum, N[i], 1), c = row_of("clip_factor", clip_factor, N[i], 1);
        put(&s, true, F, 1, 1, 0, 1);
        put(&s, false, F, N[i], 1, 4, 1);
        other += differs(&s);
        put(&c, true, F, 1, 1, 0, 1);
        put(&c, true, F, 1, 1, 0, 1);
        put(&c, false, F, N[i], 1, 0, 1);
        float *host = test_malloc((size_t)N[i] * 4);
        const float *any = c.t[2].side[CPU].data;
        for (int64_t k = 0; k < N[i]; k++) host[k] = fabsf(any[k]); /* as squares are */
        pair_set(p, &c.t[2], host, N[i] * 4);
        test_free(host);
        other += differs(&c);
        for (int k = 0; k < 2; k++) {
            struct row q = row_of(k ? "sum_squares bf16" : "sum_squares f32", sum_squares, N[i], 1);
            put(&q, true, F, 1, 1, 0, 1);
            put(&q, false, k ? H : F, N[i], 1, 4, 1);
            other += differs(&q);
        }
    }
    return other;
}

/* ---- embedding, softmax ---- */

static int embeddings(void) {
    static const int64_t SIZE[][3] = { { 3, 64, 100 }, { 5, 33, 768 }, { 32, 1024, 768 } };
    int other = 0;
    for (size_t i = 0; i < sizeof SIZE / sizeof *SIZE; i++) {
        int64_t batch = SIZE[i][0], length = SIZE[i][1], cols = SIZE[i][2], rows = batch * length;
        struct row r = row_of("embedding_bwd", embedding_bwd, rows, cols);
        put(&r, true, F, 512, cols, 1, 1);
        put(&r, true, i % 2 ? F : H, length, cols, 1, 1);
        put(&r, false, H, rows, cols, 3, 1);
        int32_t *token = test_malloc((size_t)rows * 4);
        for (int64_t k = 0; k < rows; k++) token[k] = (int32_t)(k * k % 509);
        struct twin *t = &r.t[r.count++];
        *t = pair_tensor(p, DTYPE_I32, rows, 1, 1, 1);
        pair_set(p, t, token, rows * 4);
        test_free(token);
        put_none(&r);
        other += differs(&r);
    }
    return other;
}

static int softmaxes(void) {
    static const int64_t T[] = { 8, 100, 128, 1000, 1024, 2056, 4096 };
    int other = 0;
    for (size_t i = 0; i < sizeof T / sizeof *T; i++) {
        struct row f = row_of("softmax_fwd", softmax_fwd, 2, T[i]);
        struct row b = row_of("softmax_bwd", softmax_bwd, 2, T[i]);
        shape(put(&f, true, H, 2, T[i] * T[i], 0, 1), 2, T[i], T[i], 1);
        shape(put(&f, false, H, 2, T[i] * T[i], 4, 1), 2, T[i], T[i], 1);
        other += differs(&f);
        for (int k = 0; k < 3; k++)
            shape(put(&b, k == 0, H, 2, T[i] * T[i], 2, 1), 2, T[i], T[i], 1);
        other += differs(&b);
    }
    return other;
}

static void test_hopper(void **state) {
    static int (*const GROUPS[])(void) = { cross_entropies, qks,     sums,        embeddings,
                                           softmaxes,       columns, activations, norms };
    struct device_info info;
    int other = 0;
    if (p->ops[GPU]->info(p->b[GPU], &info, &p->e) != OK) fail_msg("%s", p->e.text);
    if (strcmp(info.architecture, "sm_90") != 0) skip();
    if (cpu_backend_calculate(p->b[CPU], "hopper", &p->e) != OK) fail_msg("%s", p->e.text);
    for (size_t i = 0; i < sizeof GROUPS / sizeof *GROUPS; i++) other += GROUPS[i]();
    if (other) fail_msg("%d rows have other bits than kernels/EXACT.md says", other);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_hopper) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
