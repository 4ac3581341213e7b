/* Attention against double loops; its gradient against finite differences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/ops_support.h"

struct sizes { int64_t batch, length, heads, kv_heads, dim; };

/* Which keys a query sees: all up to itself; of its document, random ones of up to `most` tokens;
 * the last `window`; or both. 0: unlimited. */
struct sight { int64_t most, window; };

/* ---- the definition in double ---- */

struct reference {
    struct sizes z;
    double *qkv;  /* [B,T,H+2G,D] */
    double *d_o;  /* [B,T,H,D] */
    double *o, *lse;
    const int32_t *first_key; /* [B,T], or NULL */
};

static const double *head_at(const struct reference *r, int64_t b, int64_t t, int64_t h) {
    const struct sizes *z = &r->z;
    return r->qkv + ((b * z->length + t) * (z->heads + 2 * z->kv_heads) + h) * z->dim;
}

static void reference_row(struct reference *r, int64_t b, int64_t h, int64_t t, double *p) {
    const struct sizes *z = &r->z;
    int64_t group = h * z->kv_heads / z->heads;
    double total = 0, max = -INFINITY;
    int64_t first = r->first_key ? r->first_key[b * z->length + t] : 0;
    for (int64_t j = first; j <= t; j++) {
        const double *q = head_at(r, b, t, h), *k = head_at(r, b, j, z->heads + group);
        p[j] = 0;
        for (int64_t d = 0; d < z->dim; d++) p[j] += q[d] * k[d];
        p[j] /= sqrt((double)z->dim);
        if (p[j] > max) max = p[j];
    }
    for (int64_t j = first; j <= t; j++) total += p[j] = exp(p[j] - max);
    r->lse[(b * z->heads + h) * z->length + t] = max + log(total);
    double *o = r->o + ((b * z->length + t) * z->heads + h) * z->dim;
    for (int64_t d = 0; d < z->dim; d++) o[d] = 0;
    for (int64_t j = first; j <= t; j++) {
        const double *v = head_at(r, b, j, z->heads + z->kv_heads + group);
        for (int64_t d = 0; d < z->dim; d++) o[d] += p[j] / total * v[d];
    }
}

/* sum of o * d_o: the scalar whose gradient attention_bwd computes. */
static double reference_forward(void *context) {
    struct reference *r = context;
    const struct sizes *z = &r->z;
    double *p = malloc((size_t)z->length * sizeof *p), sum = 0;
    for (int64_t b = 0; b < z->batch; b++)
        for (int64_t h = 0; h < z->heads; h++)
            for (int64_t t = 0; t < z->length; t++) reference_row(r, b, h, t, p);
    free(p);
    int64_t count = z->batch * z->length * z->heads * z->dim;
    for (int64_t i = 0; i < count; i++) sum += r->o[i] * r->d_o[i];
    return sum;
}

/* ---- one case on the backend ---- */

struct run { struct tensor qkv, o, lse, d_o, d_qkv, delta, first_key; };

/* first_key [B,T]; its data is NULL if queries see all keys up to themselves. */
static struct tensor first_key_of(struct ops *ops, struct sizes z, struct sight s) {
    if (!s.most && !s.window) return (struct tensor){ 0 };
    struct tensor x = ops_tensor(ops, DTYPE_I32, z.batch, z.length, 1, 1);
    for (int64_t b = 0; b < z.batch; b++) {
        int64_t begin = 0, end = s.most ? 0 : z.length;
        for (int64_t t = 0; t < z.length; t++) {
            if (t == end) {
                begin = t;
                end += 1 + (t * 7919 + b * 104729 + 3) % s.most;
            }
            int64_t least = s.window ? t - s.window + 1 : 0;
            ops_set(&x, b * z.length + t, (double)(begin > least ? begin : least));
        }
    }
    return x;
}

static struct run make(struct ops *ops, struct sizes z, enum dtype t, double scale) {
    struct run r = { 0 };
    int64_t rows = z.batch * z.length, width = z.heads + 2 * z.kv_heads;
    r.qkv = ops_tensor(ops, t, z.batch, z.length, width, z.dim);
    r.d_qkv = ops_tensor(ops, t, z.batch, z.length, width, z.dim);
    r.o = ops_tensor(ops, t, rows, z.heads * z.dim, 1, 1);
    r.d_o = ops_tensor(ops, t, rows, z.heads * z.dim, 1, 1);
    r.lse = ops_tensor(ops, DTYPE_F32, z.batch, z.heads, z.length, 1);
    r.delta = ops_tensor(ops, DTYPE_F32, z.batch, z.heads, z.length, 1);
    ops_fill(&r.qkv, 11, scale);
    ops_fill(&r.d_o, 12, 1.0);
    return r;
}

static void forward(struct ops *ops, struct run *r, struct sizes z) {
    struct sink o = sink_value(&r->o, NULL);
    OPS_OK(ops, ops->table->attention_fwd(ops->b, LANE_COMPUTE, &(struct attention_fwd_args){
            .o = &o, .lse = &r->lse, .qkv = &r->qkv,
            .first_key = r->first_key.data ? &r->first_key : NULL, .heads = z.heads,
            .kv_heads = z.kv_heads }, &ops->e));
}

static void backward(struct ops *ops, struct run *r, struct sizes z) {
    struct sink d_qkv = sink_value(&r->d_qkv, NULL);
    OPS_OK(ops, ops->table->attention_bwd(ops->b, LANE_COMPUTE, &(struct attention_bwd_args){
            .d_qkv = &d_qkv, .delta = &r->delta, .d_o = &r->d_o, .o = &r->o, .qkv = &r->qkv,
            .lse = &r->lse, .first_key = r->first_key.data ? &r->first_key : NULL,
            .heads = z.heads, .kv_heads = z.kv_heads }, &ops->e));
}

static struct reference reference_of(struct ops *ops, const struct run *r, struct sizes z) {
    struct reference ref = { .z = z, .qkv = ops_doubles(ops, &r->qkv),
                             .d_o = ops_doubles(ops, &r->d_o), .first_key = r->first_key.data };
    ref.o = ops_doubles(ops, &r->o);
    ref.lse = ops_doubles(ops, &r->lse);
    return ref;
}

static const struct {
    struct sizes z;
    enum dtype dtype;
    double scale;    /* of q, k, v */
    double nmse_max; /* o */
    struct sight sight;
} CASE[] = {
    { { 1, 1, 1, 1, 1 }, DTYPE_F32, 1, 1e-12, { 0, 0 } },    /* one key: o = v */
    /* one row beyond a tile of 32; grouped heads */
    { { 2, 33, 4, 2, 8 }, DTYPE_F32, 2, 1e-12, { 0, 0 } },
    { { 1, 65, 3, 1, 13 }, DTYPE_F32, 1, 1e-12, { 0, 0 } },  /* odd sizes; multi-query */
    { { 1, 300, 2, 2, 32 }, DTYPE_F32, 3, 1e-12, { 0, 0 } }, /* two chunks; sharp softmax */
    { { 2, 40, 4, 2, 16 }, DTYPE_BF16, 1, 4e-6, { 0, 0 } },  /* rounding of o alone: 2^-18 / 3 */
    { { 1, 70, 2, 1, 128 }, DTYPE_BF16, 1, 4e-6, { 0, 0 } },
    { { 2, 97, 4, 2, 8 }, DTYPE_F32, 2, 1e-12, { 20, 0 } },  /* several documents in a tile */
    { { 2, 97, 3, 1, 13 }, DTYPE_F32, 2, 1e-12, { 1, 0 } },  /* documents of one token: o = v */
    { { 1, 600, 2, 1, 16 }, DTYPE_F32, 2, 1e-12, { 300, 0 } }, /* longer than tiles and chunks */
    { { 1, 600, 2, 2, 16 }, DTYPE_F32, 2, 1e-12, { 0, 50 } },  /* a sliding window */
    { { 2, 130, 4, 2, 16 }, DTYPE_F32, 1, 1e-12, { 60, 7 } },  /* a window within documents */
    { { 2, 130, 4, 2, 16 }, DTYPE_BF16, 1, 4e-6, { 40, 0 } },
};
enum { CASES = sizeof CASE / sizeof CASE[0] };

static void test_forward(void **state) {
    for (int i = 0; i < CASES; i++) {
        struct ops *ops = ops_open(2);
        struct run r = make(ops, CASE[i].z, CASE[i].dtype, CASE[i].scale);
        r.first_key = first_key_of(ops, CASE[i].z, CASE[i].sight);
        forward(ops, &r, CASE[i].z);
        struct reference ref = reference_of(ops, &r, CASE[i].z);
        reference_forward(&ref);
        OPS_BELOW(ops_nmse(&r.o, ref.o), CASE[i].nmse_max, "o");
        OPS_BELOW(ops_nmse(&r.lse, ref.lse), 1e-12, "lse");
        ops_close(ops);
    }
}

/* f32: within 3e-5 of the largest derivative, the error of f32 sums and of a step of 1e-4. */
static void test_gradient(void **state) {
    for (int i = 0; i < CASES; i++) {
        if (CASE[i].dtype != DTYPE_F32) continue;
        struct ops *ops = ops_open(2);
        struct run r = make(ops, CASE[i].z, DTYPE_F32, CASE[i].scale);
        r.first_key = first_key_of(ops, CASE[i].z, CASE[i].sight);
        forward(ops, &r, CASE[i].z);
        backward(ops, &r, CASE[i].z);
        struct reference ref = reference_of(ops, &r, CASE[i].z);
        double size = 0, miss = 0;
        for (uint64_t seed = 100; seed < 105; seed++) {
            double want = ops_difference(reference_forward, &ref, ref.qkv, tensor_count(&r.qkv),
                                         seed, 1e-4);
            miss = fmax(miss, fabs(ops_along(&r.d_qkv, seed) - want));
            size = fmax(size, fabs(want));
        }
        OPS_BELOW(miss, 3e-5 * size, "directional derivative");
        ops_close(ops);
    }
}

/* bf16: against the same call in f32 with the same numbers. o is rounded before delta uses it. */
static void test_gradient_bf16(void **state) {
    for (int i = 0; i < CASES; i++) {
        if (CASE[i].dtype != DTYPE_BF16) continue;
        struct ops *ops = ops_open(2);
        struct run r = make(ops, CASE[i].z, DTYPE_BF16, CASE[i].scale);
        r.first_key = first_key_of(ops, CASE[i].z, CASE[i].sight);
        struct run f = r;
        f.qkv = ops_copy(ops, &r.qkv, DTYPE_F32);
        f.d_o = ops_copy(ops, &r.d_o, DTYPE_F32);
        f.o = ops_copy(ops, &r.o, DTYPE_F32);
        f.d_qkv = ops_copy(ops, &r.d_qkv, DTYPE_F32);
        forward(ops, &r, CASE[i].z);
        backward(ops, &r, CASE[i].z);
        forward(ops, &f, CASE[i].z);
        backward(ops, &f, CASE[i].z);
        OPS_BELOW(ops_nmse(&r.d_qkv, ops_doubles(ops, &f.d_qkv)), 1e-5, "d_qkv");
        ops_close(ops);
    }
}

/* The bits are the same for any thread count and vector kernels. Only a new definition changes
 * them. */
static void test_bits(void **state) {
    struct sizes z = { 2, 150, 4, 2, 24 };
    static const char *const ISA[] = { "avx512", "avx2", "neon", "portable" };
    static const struct { struct sight sight; uint64_t hash; } OF[] = {
        { { 0, 0 }, 0xAF30A17121054229u },
        { { 0, 150 }, 0xAF30A17121054229u }, /* first_key 0 everywhere: the bits without it */
        { { 40, 30 }, 0xDE924FFE8C65B5E8u },
    };
    for (int threads = 1; threads <= 3; threads++)
        for (size_t i = 0; i < sizeof ISA / sizeof *ISA * (sizeof OF / sizeof *OF); i++) {
            struct ops *ops = ops_open(threads);
            const char *isa = ISA[i / (sizeof OF / sizeof *OF)];
            size_t of = i % (sizeof OF / sizeof *OF);
            if (cpu_backend_use(ops->b, isa, &ops->e) == OK) {
                struct run r = make(ops, z, DTYPE_BF16, 2);
                r.first_key = first_key_of(ops, z, OF[of].sight);
                forward(ops, &r, z);
                backward(ops, &r, z);
                uint64_t hash = ops_hash(&r.o) ^ ops_hash(&r.lse) * 3 ^ ops_hash(&r.d_qkv) * 5;
                if (hash != OF[of].hash)
                    fail_msg("%s, %d threads, sight %zu: hash 0x%016llX", isa, threads, of,
                             (unsigned long long)hash);
            }
            ops_close(ops);
        }
}

/* Row t never reads rows after it, so a NaN there has no effect. A NaN reaches every row that reads
 * it. */
static void test_nan_is_causal_and_kept(void **state) {
    struct sizes z = { 1, 80, 2, 1, 16 };
    enum { BAD = 50 };
    for (int64_t head = 0; head < 4; head++) { /* q0 q1 k v */
        struct ops *ops = ops_open(2);
        struct run clean = make(ops, z, DTYPE_F32, 1), r = make(ops, z, DTYPE_F32, 1);
        forward(ops, &clean, z);
        ops_set(&r.qkv, (BAD * 4 + head) * z.dim + 3, NAN);
        forward(ops, &r, z);
        backward(ops, &r, z);
        const float *o = r.o.data, *d = r.d_qkv.data;
        int64_t row = z.heads * z.dim;
        assert_memory_equal(o, clean.o.data, (size_t)(BAD * row) * sizeof(float));
        for (int64_t t = BAD; t < z.length; t++)
            for (int64_t h = 0; h < 2; h++) {
                bool reads = head < 2 ? head == h && t == BAD : true;
                assert_int_equal(isnan(o[t * row + h * z.dim + 3]) != 0, reads);
            }
        /* dk of keys after the bad query, dq of queries before the bad key: untouched. */
        if (head < 2) assert_false(isnan(d[((BAD + 1) * 4 + 2) * z.dim]));
        else assert_false(isnan(d[((BAD - 1) * 4) * z.dim]));
        assert_true(isnan(d[(BAD * 4 + 2) * z.dim]));
        ops_close(ops);
    }
}

/* NaN and infinity in a document change no bit of another document, forward or backward. */
static void test_documents_are_apart(void **state) {
    struct sizes z = { 1, 90, 2, 1, 16 };
    enum { BEGIN = 37, END = 61 }; /* the middle document; no multiple of a tile */
    for (int64_t head = 0; head < 4; head++) { /* q0 q1 k v */
        struct ops *ops = ops_open(2);
        struct run r[2];
        for (int bad = 0; bad < 2; bad++) {
            r[bad] = make(ops, z, DTYPE_F32, 1);
            r[bad].first_key = ops_tensor(ops, DTYPE_I32, 1, z.length, 1, 1);
            for (int64_t t = 0; t < z.length; t++)
                ops_set(&r[bad].first_key, t, t < BEGIN ? 0 : t < END ? BEGIN : END);
            if (bad)
                for (int64_t t = BEGIN; t < END; t++)
                    ops_set(&r[bad].qkv, (t * 4 + head) * z.dim + 3, t % 2 ? NAN : INFINITY);
            forward(ops, &r[bad], z);
            backward(ops, &r[bad], z);
        }
        const float *o[2] = { r[0].o.data, r[1].o.data };
        const float *d[2] = { r[0].d_qkv.data, r[1].d_qkv.data };
        for (int64_t t = 0; t < z.length; t++) {
            size_t o_bytes = (size_t)(z.heads * z.dim) * 4, d_bytes = (size_t)(4 * z.dim) * 4;
            if (t >= BEGIN && t < END) continue;
            assert_memory_equal(o[0] + t * z.heads * z.dim, o[1] + t * z.heads * z.dim, o_bytes);
            assert_memory_equal(d[0] + t * 4 * z.dim, d[1] + t * 4 * z.dim, d_bytes);
        }
        assert_true(isnan(d[1][(BEGIN * 4 + 2) * z.dim]));
        ops_close(ops);
    }
}

/* first_key that no document or window gives. */
static void test_first_key_is_checked(void **state) {
    struct sizes z = { 2, 8, 4, 2, 8 };
    struct ops *ops = ops_open(1);
    struct run r = make(ops, z, DTYPE_F32, 1);
    struct sink o = sink_value(&r.o, NULL), d_qkv = sink_value(&r.d_qkv, NULL);
    struct tensor first = ops_tensor(ops, DTYPE_I32, 2, 8, 1, 1), narrow = first;
    struct tensor f32 = ops_tensor(ops, DTYPE_F32, 2, 8, 1, 1);
    narrow.dim[1] = 7;
    struct attention_fwd_args args = { .o = &o, .lse = &r.lse, .qkv = &r.qkv, .heads = 4,
                                       .kv_heads = 2 };
    const struct { const struct tensor *x; int64_t at; double value; const char *text; } BAD[] = {
        { &f32, 0, 0, "first_key is f32" },
        { &narrow, 0, 0, "first_key is [2, 7]" },
        { &first, 3, 4, "first_key: 4 for query 3 of sequence 0; it must be between that of the "
                        "query before, 0, and the query itself" },
        { &first, 10, -1, "first_key: -1 for query 2 of sequence 1" },
        { &first, 12, 3, "first_key: 0 for query 5 of sequence 1; it must be between that of the "
                         "query before, 3," },
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        ops_set(&first, BAD[i].at, BAD[i].value);
        args.first_key = BAD[i].x;
        OPS_ERR(ops, ops->table->attention_fwd(ops->b, 0, &args, &ops->e), ERR_ARG, BAD[i].text);
        OPS_ERR(ops, ops->table->attention_bwd(ops->b, 0, &(struct attention_bwd_args){
                .d_qkv = &d_qkv, .delta = &r.delta, .d_o = &r.d_o, .o = &r.o, .qkv = &r.qkv,
                .lse = &r.lse, .first_key = BAD[i].x, .heads = 4, .kv_heads = 2 }, &ops->e),
                ERR_ARG, BAD[i].text);
        ops_set(&first, BAD[i].at, 0);
    }
    ops_close(ops);
}

static void test_arguments(void **state) {
    struct sizes z = { 1, 8, 4, 2, 8 };
    struct ops *ops = ops_open(1);
    struct run r = make(ops, z, DTYPE_F32, 1);
    struct sink o = sink_value(&r.o, NULL);
    struct tensor i32 = ops_tensor(ops, DTYPE_I32, 1, 8, 8, 8), small = r.lse;
    small.dim[2] = 7;
    const struct backend_ops *t = ops->table;
    struct err *e = &ops->e;
    OPS_ERR(ops, t->attention_fwd(ops->b, 0, &(struct attention_fwd_args){
            .o = &o, .lse = &r.lse, .qkv = &i32, .heads = 4,
            .kv_heads = 2 }, e), ERR_ARG, "qkv is i32");
    OPS_ERR(ops, t->attention_fwd(ops->b, 0, &(struct attention_fwd_args){
            .o = &o, .lse = &r.lse, .qkv = &r.qkv, .heads = 5, .kv_heads = 2 }, e), ERR_ARG,
            "5 heads over 2");
    OPS_ERR(ops, t->attention_fwd(ops->b, 0, &(struct attention_fwd_args){
            .o = &o, .lse = &r.lse, .qkv = &r.qkv, .heads = 6, .kv_heads = 2 }, e), ERR_ARG,
            "8 heads in the");
    OPS_ERR(ops, t->attention_fwd(ops->b, 0, &(struct attention_fwd_args){
            .o = &o, .lse = &small, .qkv = &r.qkv, .heads = 4, .kv_heads = 2 }, e), ERR_ARG, "lse");
    struct sink d_qkv = sink_value(&r.d_qkv, NULL), of_i32 = sink_value(&i32, NULL);
    OPS_ERR(ops, t->attention_bwd(ops->b, 0, &(struct attention_bwd_args){
            .d_qkv = &d_qkv, .delta = &r.delta, .d_o = &r.d_o, .o = &r.o, .qkv = &r.qkv,
            .lse = &small, .heads = 4, .kv_heads = 2 }, e),
            ERR_ARG, "lse");
    OPS_ERR(ops, t->attention_bwd(ops->b, 0, &(struct attention_bwd_args){
            .d_qkv = &of_i32, .delta = &r.delta, .d_o = &r.d_o, .o = &r.o, .qkv = &r.qkv,
            .lse = &r.lse, .heads = 4, .kv_heads = 2 }, e),
            ERR_ARG, "d_qkv: value is i32");
    ops_close(ops);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),       cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_gradient_bf16), cmocka_unit_test(test_bits),
        cmocka_unit_test(test_nan_is_causal_and_kept), cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_documents_are_apart), cmocka_unit_test(test_first_key_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
