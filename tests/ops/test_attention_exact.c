/* Attention under a tensor core's arithmetic, to the bit: beside plain loops over one number at a
 * time, which follow the device's kernels (kernels/attention_order.h) and know no panels. Every
 * vector kernel and thread count must have their bits. The distance to the reference shows that
 * both compute attention. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/arithmetic.h"
#include "kernels/attention_order.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/exactmath_f32.h"
#include "tests/support/ops_support.h"

struct sizes { int64_t batch, length, heads, kv_heads, dim; };

/* qkv, dO, and what the loops compute from them, in f32 arrays. */
struct naive {
    struct sizes z;
    const struct arithmetic *m;
    bool wgmma;
    float scale, scale_log2;
    const uint16_t *qkv, *d_o;
    const int32_t *first_key; /* or NULL */
    uint16_t *o, *d_qkv;
    float *lse;
};

static const uint16_t *head_at(const struct naive *n, int64_t i, int64_t t, int64_t head) {
    const struct sizes *z = &n->z;
    return n->qkv + ((i * z->length + t) * (z->heads + 2 * z->kv_heads) + head) * z->dim;
}
static int64_t first_of(const struct naive *n, int64_t i, int64_t t) {
    return n->first_key && t < n->z.length ? n->first_key[i * n->z.length + t] : 0;
}
static bool sees(const struct naive *n, int64_t i, int64_t t, int64_t key) {
    return key <= t && key >= first_of(n, i, t);
}

/* c + the products a[k] * b[k * stride], as the tensor core adds them. */
static float chain(const struct naive *n, int64_t k, const float *a, const uint16_t *b,
                   int64_t stride, float c) {
    float x[16], y[16];
    int32_t ex[16], ey[16];
    for (int64_t at = 0; at < k; at += n->m->bf16.group) {
        int64_t terms = k - at < n->m->bf16.group ? k - at : n->m->bf16.group;
        for (int64_t j = 0; j < terms; j++) {
            x[j] = bf16_decode(bf16_encode(a[at + j]));
            y[j] = bf16_decode(b[(at + j) * stride]);
            ex[j] = mma_exponent(x[j], MMA_LEAST);
            ey[j] = mma_exponent(y[j], MMA_LEAST);
        }
        c = mma_add(&n->m->bf16, terms, (struct mma_terms){ x, ex, 1 },
                    (struct mma_terms){ y, ey, 1 }, c);
    }
    return c;
}

static float dot(const struct naive *n, const uint16_t *a, const uint16_t *b) {
    float row[128];
    for (int64_t d = 0; d < n->z.dim; d++) row[d] = bf16_decode(a[d]);
    return chain(n, n->z.dim, row, b, 1, 0.0f);
}

/* ---- forward ---- */

static void forward_row(struct naive *n, int64_t i, int64_t h, int64_t t) {
    const struct sizes *z = &n->z;
    int64_t tile = n->wgmma ? ATTENTION_WGMMA_KEYS : ATTENTION_MMA_KEYS, D = z->dim;
    int64_t key = z->heads + h * z->kv_heads / z->heads, block = t / ATTENTION_QUERIES;
    int64_t stride = (z->heads + 2 * z->kv_heads) * D;
    float max = -INFINITY, sum[4] = { 0 }, o[128] = { 0 }, p[ATTENTION_WGMMA_KEYS];
    int64_t begin = first_of(n, i, block * ATTENTION_QUERIES) / tile * tile;
    for (int64_t k0 = begin; k0 <= t; k0 += tile) {
        float top = max, add[4] = { 0 };
        int64_t there = z->length - k0 < tile ? z->length - k0 : tile;
        for (int64_t j = 0; j < tile; j++) {
            p[j] = -INFINITY;
            if (j < there && sees(n, i, t, k0 + j))
                p[j] = dot(n, head_at(n, i, t, h), head_at(n, i, k0 + j, key));
            top = p[j] > top ? p[j] : top;
        }
        float base = n->first_key && top == -INFINITY ? 0.0f : top, shift = base * n->scale_log2;
        float keep = exact_exp2f((max - base) * n->scale_log2);
        for (int64_t j = 0; j < tile; j++) {
            p[j] = exact_exp2f(fmaf(p[j], n->scale_log2, -shift));
            add[j % 8 / 2] += p[j];
        }
        for (int l = 0; l < 4; l++) sum[l] = fmaf(sum[l], keep, add[l]);
        max = top;
        for (int64_t d = 0; d < D; d++)
            o[d] = chain(n, there, p, head_at(n, i, k0, key + z->kv_heads) + d, stride,
                         o[d] * keep);
    }
    float total = (sum[0] + sum[1]) + (sum[2] + sum[3]), inverse = 1.0f / total;
    n->lse[(i * z->heads + h) * z->length + t] = max * n->scale + exact_logf(total);
    for (int64_t d = 0; d < D; d++)
        n->o[((i * z->length + t) * z->heads + h) * D + d] = bf16_encode(o[d] * inverse);
}

/* ---- backward ---- */

static float delta_of(const struct naive *n, const uint16_t *d_o, const uint16_t *o) {
    float lane[32] = { 0 };
    int lanes = n->wgmma ? (int)n->z.dim / 8 : 32;
    for (int64_t d = 0; d < n->z.dim; d += 2)
        lane[n->wgmma ? d / 8 : d / 2 % 32] +=
            bf16_decode(d_o[d]) * bf16_decode(o[d]) +
            bf16_decode(d_o[d + 1]) * bf16_decode(o[d + 1]);
    /* A butterfly of shuffles: each lane adds its partner's. */
    for (int at = 1; at < lanes; at *= 2) {
        int step = n->wgmma ? at : lanes / 2 / at;
        float before[32];
        memcpy(before, lane, sizeof before);
        for (int l = 0; l < lanes; l++) lane[l] = before[l] + before[l ^ step];
    }
    return lane[0];
}

/* p and ds [T][T] of one head: query t, key j. */
static void score_gradients(const struct naive *n, int64_t i, int64_t h, float *p, float *ds) {
    const struct sizes *z = &n->z;
    int64_t key = z->heads + h * z->kv_heads / z->heads, T = z->length;
    for (int64_t t = 0; t < T; t++) {
        int64_t at = ((i * T + t) * z->heads + h) * z->dim;
        float delta = delta_of(n, n->d_o + at, n->o + at);
        float lse = n->lse[(i * z->heads + h) * T + t] * ATTENTION_LOG2_E;
        for (int64_t j = 0; j < T; j++) {
            float x = 0.0f, d = 0.0f;
            if (sees(n, i, t, j)) {
                x = dot(n, head_at(n, i, t, h), head_at(n, i, j, key));
                x = exact_exp2f(fmaf(x, n->scale_log2, -lse));
                d = dot(n, n->d_o + at, head_at(n, i, j, key + z->kv_heads));
            }
            if (n->wgmma) x = bf16_decode(bf16_encode(x));
            p[t * T + j] = x;
            ds[t * T + j] = x * (d - delta);
        }
    }
}

/* The gradient of element d of query t: tiles of keys, each a chain; on wgmma they are added. */
static float d_query(const struct naive *n, int64_t i, int64_t h, int64_t t, int64_t d,
                     const float *ds) {
    const struct sizes *z = &n->z;
    int64_t tile = n->wgmma ? ATTENTION_KEYS : ATTENTION_MMA_TILE;
    int64_t begin = first_of(n, i, t / ATTENTION_STEP * ATTENTION_STEP) / tile;
    int64_t stride = (z->heads + 2 * z->kv_heads) * z->dim, end = t / tile;
    int64_t key = z->heads + h * z->kv_heads / z->heads;
    float sum = 0.0f;
    for (int64_t at = begin; at <= end; at++) {
        int64_t k0 = at * tile, there = z->length - k0 < tile ? z->length - k0 : tile;
        const float *row = ds + t * z->length + k0;
        const uint16_t *k = head_at(n, i, k0, key) + d;
        if (n->wgmma && at > begin) sum = sum + chain(n, there, row, k, stride, 0.0f);
        else sum = chain(n, there, row, k, stride, sum);
    }
    return sum;
}

/* c + what queries t0 .. give to element d of key j: weights w [T][T] times x. */
static float d_key(const struct naive *n, int64_t j, int64_t t0, const float *w, const uint16_t *x,
                   int64_t stride, float c) {
    int64_t T = n->z.length, there = T - t0 < ATTENTION_STEP ? T - t0 : ATTENTION_STEP;
    float column[ATTENTION_STEP];
    for (int64_t t = 0; t < there; t++) column[t] = w[(t0 + t) * T + j];
    return chain(n, there, column, x + t0 * stride, stride, c);
}

/* The gradients of keys and values of group g: on wgmma over tiles of queries from the last, and of
 * each over its heads; on mma.sync head after head, tiles ascending. p, ds [share][T][T]. */
static void key_gradients(const struct naive *n, int64_t i, int64_t g, const float *p,
                          const float *ds) {
    const struct sizes *z = &n->z;
    int64_t T = z->length, D = z->dim, share = z->heads / z->kv_heads;
    int64_t all = z->heads + 2 * z->kv_heads;
    int64_t tile = n->wgmma ? ATTENTION_KEYS : ATTENTION_MMA_TILE;
    for (int64_t j = 0; j < T; j++)
        for (int64_t d = 0; d < D; d++) {
            int64_t from = j / tile * tile, steps = ceil_div(T - from, ATTENTION_STEP);
            float dk = 0.0f, dv = 0.0f;
            for (int64_t at = 0; at < steps * share; at++) {
                int64_t h = n->wgmma ? at % share : at / steps;
                int64_t step = n->wgmma ? steps - 1 - at / share : at % steps;
                int64_t t0 = from + step * ATTENTION_STEP, head = g * share + h;
                const uint16_t *d_o = n->d_o + (i * T * z->heads + head) * D + d;
                dk = d_key(n, j, t0, ds + h * T * T, head_at(n, i, 0, head) + d, all * D, dk);
                dv = d_key(n, j, t0, p + h * T * T, d_o, z->heads * D, dv);
            }
            uint16_t *to = n->d_qkv + ((i * T + j) * all + z->heads + g) * D + d;
            to[0] = bf16_encode(dk * n->scale);
            to[z->kv_heads * D] = bf16_encode(dv);
        }
}

static void backward(struct naive *n, int64_t i) {
    const struct sizes *z = &n->z;
    int64_t T = z->length, D = z->dim, share = z->heads / z->kv_heads;
    int64_t all = z->heads + 2 * z->kv_heads;
    float *p = malloc((size_t)(share * T * T) * 4), *ds = malloc((size_t)(share * T * T) * 4);
    assert_true(p && ds);
    for (int64_t h = 0; h < z->heads; h++) {
        float *own = ds + h % share * T * T;
        score_gradients(n, i, h, p + h % share * T * T, own);
        for (int64_t t = 0; t < T; t++)
            for (int64_t d = 0; d < D; d++)
                n->d_qkv[((i * T + t) * all + h) * D + d] =
                    bf16_encode(d_query(n, i, h, t, d, own) * n->scale);
        if (h % share == share - 1) key_gradients(n, i, h / share, p, ds);
    }
    free(p);
    free(ds);
}

/* ---- beside the operator ---- */

struct run { struct tensor qkv, o, lse, d_o, d_qkv, delta, first_key; };

/* Documents of up to 90 tokens, and a window of 70. */
static struct tensor first_key_of(struct ops *ops, struct sizes z) {
    struct tensor x = ops_tensor(ops, DTYPE_I32, z.batch, z.length, 1, 1);
    for (int64_t b = 0; b < z.batch; b++)
        for (int64_t t = 0, begin = 0, end = 0; t < z.length; t++) {
            if (t == end) {
                begin = t;
                end += 1 + (t * 7919 + b * 104729 + 60) % 90;
            }
            ops_set(&x, b * z.length + t, (double)(begin > t - 69 ? begin : t - 69));
        }
    return x;
}

static struct run make(struct ops *ops, struct sizes z, bool ranged, double scale) {
    struct run r = { 0 };
    int64_t rows = z.batch * z.length, width = z.heads + 2 * z.kv_heads;
    r.qkv = ops_tensor(ops, DTYPE_BF16, z.batch, z.length, width, z.dim);
    r.d_qkv = ops_tensor(ops, DTYPE_BF16, z.batch, z.length, width, z.dim);
    r.o = ops_tensor(ops, DTYPE_BF16, rows, z.heads * z.dim, 1, 1);
    r.d_o = ops_tensor(ops, DTYPE_BF16, rows, z.heads * z.dim, 1, 1);
    r.lse = ops_tensor(ops, DTYPE_F32, z.batch, z.heads, z.length, 1);
    r.delta = ops_tensor(ops, DTYPE_F32, z.batch, z.heads, z.length, 1);
    if (ranged) r.first_key = first_key_of(ops, z);
    ops_fill(&r.qkv, 11, scale);
    ops_fill(&r.d_o, 12, 1.0);
    return r;
}

static void run(struct ops *ops, struct run *r, struct sizes z) {
    struct sink o = sink_value(&r->o, NULL), d_qkv = sink_value(&r->d_qkv, NULL);
    const struct tensor *first = r->first_key.data ? &r->first_key : NULL;
    OPS_OK(ops, ops->table->attention_fwd(ops->b, LANE_COMPUTE, &(struct attention_fwd_args){
            .o = &o, .lse = &r->lse, .qkv = &r->qkv, .first_key = first, .heads = z.heads,
            .kv_heads = z.kv_heads }, &ops->e));
    OPS_OK(ops, ops->table->attention_bwd(ops->b, LANE_COMPUTE, &(struct attention_bwd_args){
            .d_qkv = &d_qkv, .delta = &r->delta, .d_o = &r->d_o, .o = &r->o, .qkv = &r->qkv,
            .lse = &r->lse, .first_key = first, .heads = z.heads, .kv_heads = z.kv_heads },
            &ops->e));
}

static struct naive follow(struct ops *ops, const struct run *r, struct sizes z,
                           const char *arithmetic) {
    struct naive n = { .z = z, .qkv = r->qkv.data, .d_o = r->d_o.data,
                       .first_key = r->first_key.data, .scale = 1.0f / sqrtf((float)z.dim) };
    OPS_OK(ops, arithmetic_find(arithmetic, &n.m, &ops->e));
    n.wgmma = !strcmp(arithmetic, "hopper") && z.dim >= 64;
    n.scale_log2 = n.scale * ATTENTION_LOG2_E;
    n.o = ops_memory(ops, tensor_count(&r->o) * 2);
    n.d_qkv = ops_memory(ops, tensor_count(&r->qkv) * 2);
    n.lse = ops_memory(ops, tensor_count(&r->lse) * 4);
    for (int64_t i = 0; i < z.batch; i++) {
        for (int64_t h = 0; h < z.heads; h++)
            for (int64_t t = 0; t < z.length; t++) forward_row(&n, i, h, t);
        backward(&n, i);
    }
    return n;
}

static void same(const char *what, const struct tensor *got, const void *want) {
    int64_t size = dtype_bytes(got->dtype), n = tensor_count(got);
    for (int64_t at = 0; at < n; at++)
        if (memcmp((const char *)got->data + at * size, (const char *)want + at * size,
                   (size_t)size))
            fail_msg("%s: element %lld of %lld differs", what, (long long)at, (long long)n);
}

static const struct {
    struct sizes z;
    bool ranged;
    double scale;
    const char *arithmetic;
} CASE[] = {
    { { 1, 1, 1, 1, 16 }, false, 1, "hopper" },   { { 2, 70, 2, 1, 16 }, false, 3, "hopper" },
    { { 1, 150, 2, 2, 32 }, true, 2, "hopper" },  { { 1, 130, 2, 1, 64 }, false, 2, "hopper" },
    { { 1, 70, 1, 1, 128 }, false, 1, "hopper" }, { { 1, 260, 1, 1, 64 }, true, 2, "hopper" },
    { { 1, 390, 1, 1, 64 }, false, 1, "hopper" }, /* four tiles of keys */
    { { 1, 80, 1, 1, 64 }, false, 2, "ada" },    /* the kernels on mma.sync */
};

static void test_follows_the_kernels(void **state) {
    static const char *const ISAS[] = { "avx512", "avx2", "neon", "portable" };
    for (size_t c = 0; c < sizeof CASE / sizeof *CASE; c++) {
        struct sizes z = CASE[c].z;
        struct ops *ops = ops_open(2);
        struct run r = make(ops, z, CASE[c].ranged, CASE[c].scale), far = r;
        far.o = ops_tensor(ops, DTYPE_BF16, z.batch * z.length, z.heads * z.dim, 1, 1);
        far.d_qkv = ops_tensor(ops, DTYPE_BF16, z.batch, z.length, z.heads + 2 * z.kv_heads, z.dim);
        run(ops, &far, z); /* the reference */
        struct naive n = follow(ops, &r, z, CASE[c].arithmetic);
        OPS_OK(ops, cpu_backend_calculate(ops->b, CASE[c].arithmetic, &ops->e));
        for (size_t isa = 0; isa < sizeof ISAS / sizeof *ISAS; isa++) {
            if (cpu_backend_use(ops->b, ISAS[isa], &ops->e) != OK) continue;
            run(ops, &r, z);
            same("o", &r.o, n.o);
            same("lse", &r.lse, n.lse);
            same("d_qkv", &r.d_qkv, n.d_qkv);
        }
        OPS_BELOW(ops_nmse(&r.o, ops_doubles(ops, &far.o)), 1e-5, "o beside the reference's");
        OPS_BELOW(ops_nmse(&r.d_qkv, ops_doubles(ops, &far.d_qkv)), 1e-4,
                  "gradients beside the reference's");
        ops_close(ops);
    }
}

/* Infinite and NaN values do not disappear. A query reaches its own row, a key later rows. A value
 * reaches its whole tile: a tensor core multiplies it by the probability 0. */
static void test_values_that_are_not_finite(void **state) {
    enum { T = 70, D = 32, ALL = 3, AT = 40 };
    static const float BAD[] = { INFINITY, -INFINITY, NAN };
    static const int FROM[ALL] = { AT, AT, 0 }, TO[ALL] = { AT + 1, T, T };
    const struct sizes z = { 1, T, 1, 1, D };
    for (int head = 0; head < ALL; head++)
        for (int bad = 0; bad < 3; bad++) {
            struct ops *ops = ops_open(1);
            struct run r = make(ops, z, false, 1);
            int reached = 0;
            OPS_OK(ops, cpu_backend_calculate(ops->b, "hopper", &ops->e));
            ops_set(&r.qkv, (AT * ALL + head) * D + 3, BAD[bad]);
            run(ops, &r, z);
            for (int64_t t = 0; t < T; t++) {
                bool finite = isfinite(ops_get(&r.o, t * D + 3));
                reached += !finite;
                assert_true(finite || (t >= FROM[head] && t < TO[head]));
            }
            assert_true(head == 1 ? reached > 0 : reached == TO[head] - FROM[head]);
            ops_close(ops);
        }
}

/* Tensors that no GPU kernel takes stay the reference's. */
static void test_others_are_the_reference(void **state) {
    const struct sizes z = { 1, 40, 2, 1, 24 };
    struct ops *ops = ops_open(1);
    struct run r = make(ops, z, false, 1);
    run(ops, &r, z);
    uint64_t before = ops_hash(&r.o) ^ ops_hash(&r.d_qkv);
    OPS_OK(ops, cpu_backend_calculate(ops->b, "hopper", &ops->e));
    run(ops, &r, z);
    assert_true(before == (ops_hash(&r.o) ^ ops_hash(&r.d_qkv)));
    ops_close(ops);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_the_kernels),
        cmocka_unit_test(test_values_that_are_not_finite),
        cmocka_unit_test(test_others_are_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
