/* FP8 attention against the reference, forward and backward: every head dimension, grouped heads,
 * windows, both gradient formats, with O as BF16 and as codes. The same call runs three times and
 * must give the same bits. Then attention_backend: what it fixes, and what it refuses.
 *
 * Bounds (NMSE). Products of codes are exact, so the sides differ by the order of f32 sums and the
 * exponential, some 1e-6 of a score: about one P or dS in 10^4 is on the other side of the middle
 * of two codes, an error of at most 2^-3 of it (E5M2: 2^-2). O and gradients are rounded to BF16 on
 * both sides. 1e-5 for o, 1e-4 for gradients, where dP - delta cancels. amax is a maximum of such
 * numbers: 1e-3. Counts: one in a thousand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/pair.h"

enum { ROUNDS = 3 };

static struct pair *p;

static int close_pair(void **state) {
    pair_close(p);
    p = NULL;
    return 0;
}

static const struct row {
    int64_t batch, length, heads, kv_heads, dim, window;
    enum dtype gradient; /* of d_o and dS */
    bool o_codes;
    float p_multiplier, ds_multiplier;
} ROWS[] = {
    { 1, 1, 1, 1, 16, 0, DTYPE_E5M2, true, 448, 64 },
    { 2, 64, 2, 2, 32, 0, DTYPE_E4M3, true, 448, 16 },
    { 1, 65, 4, 1, 64, 0, DTYPE_E5M2, true, 448, 256 },
    { 2, 127, 6, 2, 128, 0, DTYPE_E5M2, false, 448, 256 },
    { 1, 300, 4, 2, 64, 0, DTYPE_E5M2, true, 1, 1 },
    { 2, 210, 4, 2, 16, 100, DTYPE_E5M2, true, 448, 64 },
    { 1, 1000, 4, 4, 128, 0, DTYPE_E5M2, true, 448, 1024 },
    { 1, 513, 8, 2, 64, 64, DTYPE_E4M3, false, 448, 32 },
};
enum { ROW_COUNT = sizeof ROWS / sizeof *ROWS };

/* ---- operands ---- */

/* Codes of uniform numbers in +-max, with one factor. */
static struct twin codes_of(enum dtype t, int64_t rows, int64_t cols, uint64_t seed, float max,
                            float factor) {
    struct twin x = pair_codes(p, t, rows, cols, SCALE_TENSOR);
    int64_t stride = x.side[CPU].stride[0];
    uint8_t *host = test_calloc((size_t)(rows * stride), 1);
    for (int64_t i = 0; i < rows * cols; i++) {
        float u = rng_uniform(rng_bits(rng_key(seed, RNG_ROUND, 0, 0), (uint64_t)i));
        float value = (2 * u - 1) * max;
        host[i / cols * stride + i % cols] = t == DTYPE_E4M3 ? e4m3_encode(value)
                                                             : e5m2_encode(value);
    }
    pair_set(p, &x, host, rows * stride);
    test_free(host);
    for (int s = 0; s < SIDES; s++)
        assert_int_equal(p->ops[s]->upload(p->b[s], LANE_COMPUTE, x.side[s].scale.data, &factor, 4,
                                           &p->e), OK);
    return x;
}

struct cast { struct twin multiplier, factor, amax, stats; };

static struct cast cast_of(float multiplier) {
    struct cast c = { pair_f32(p, multiplier), pair_f32(p, 1.0f / multiplier),
                      pair_tensor(p, DTYPE_U32, 1, 1, 1, 1),
                      pair_tensor(p, DTYPE_U64, 2, 1, 1, 1) };
    return c;
}

static struct attention_cast view_of(struct cast *c, enum dtype code, int s) {
    return (struct attention_cast){ code, S(c->multiplier), S(c->factor), S(c->amax),
                                    S(c->stats) };
}

static struct twin window_of(const struct row *r) {
    struct twin x = pair_tensor(p, DTYPE_I32, r->batch, r->length, 1, 1);
    int32_t *first = test_calloc((size_t)(r->batch * r->length), 4);
    for (int64_t i = 0; i < r->batch * r->length; i++) {
        int64_t least = i % r->length - r->window + 1;
        first[i] = (int32_t)(least > 0 ? least : 0);
    }
    pair_set(p, &x, first, r->batch * r->length * 4);
    test_free(first);
    return x;
}

/* The 4-D view of the codes of qkv. */
static struct tensor heads_of(const struct tensor *codes, const struct row *r) {
    int64_t heads = r->heads + 2 * r->kv_heads;
    struct tensor x = tensor_make(codes->data, DTYPE_E4M3, r->batch, r->length, heads, r->dim);
    x.stride[1] = codes->stride[0];
    x.stride[0] = r->length * codes->stride[0];
    x.scale = codes->scale;
    return x;
}

/* ---- comparing ---- */

static void download(void *host, const struct twin *x, int s, int64_t bytes) {
    assert_int_equal(p->ops[s]->download(p->b[s], LANE_COMPUTE, host, x->side[s].data, bytes,
                                         &p->e), OK);
}

static void near_amax(const char *what, const struct cast *c) {
    float amax[SIDES];
    for (int s = 0; s < SIDES; s++) download(&amax[s], &c->amax, s, 4);
    if (!(fabsf(amax[GPU] - amax[CPU]) <= 1e-3f * amax[CPU]))
        fail_msg("%s: amax %g, not %g", what, (double)amax[GPU], (double)amax[CPU]);
}

static void near_counts(const char *what, const struct cast *c, int64_t pairs) {
    uint64_t stats[SIDES][2];
    for (int s = 0; s < SIDES; s++) download(stats[s], &c->stats, s, 16);
    for (int k = 0; k < 2; k++) {
        double miss = fabs((double)stats[GPU][k] - (double)stats[CPU][k]);
        if (!(miss <= 2 + 1e-3 * (double)pairs))
            fail_msg("%s: %s %llu, not %llu, of %lld", what, k ? "flushed" : "saturated",
                     (unsigned long long)stats[GPU][k], (unsigned long long)stats[CPU][k],
                     (long long)pairs);
    }
}

static void same_bits(const char *what, struct twin *x, struct twin *again) {
    int64_t bytes = tensor_count(&x->side[GPU]) * 2;
    void *host[2] = { test_malloc((size_t)bytes), test_malloc((size_t)bytes) };
    download(host[0], x, GPU, bytes);
    download(host[1], again, GPU, bytes);
    if (memcmp(host[0], host[1], (size_t)bytes) != 0) fail_msg("%s: other bits", what);
    test_free(host[0]);
    test_free(host[1]);
}

/* ---- one row ---- */

static void one_row(const struct row *r) {
    int64_t rows = r->batch * r->length, heads = r->heads + 2 * r->kv_heads, d = r->dim;
    int64_t pairs = r->batch * r->heads * r->length * (r->length + 1) / 2;
    struct twin codes = codes_of(DTYPE_E4M3, rows, heads * d, 3, 300, 1.0f / 150);
    struct twin o_codes = codes_of(DTYPE_E4M3, rows, r->heads * d, 4, 250, 0.004f);
    struct twin d_o = codes_of(r->gradient, rows, r->heads * d, 5, 200, 0.003f);
    struct twin lse = pair_tensor(p, DTYPE_F32, r->batch, r->heads, r->length, 1);
    struct twin delta = pair_tensor(p, DTYPE_F32, r->batch, r->heads, r->length, 1);
    struct twin first = window_of(r), o[ROUNDS], d_qkv[ROUNDS];
    struct cast cast[ROUNDS][2];
    char what[64];
    for (int k = 0; k < ROUNDS; k++) {
        o[k] = pair_tensor(p, DTYPE_BF16, rows, r->heads * d, 1, 1);
        d_qkv[k] = pair_tensor(p, DTYPE_BF16, rows, heads * d, 1, 1);
        cast[k][0] = cast_of(r->p_multiplier);
        cast[k][1] = cast_of(r->ds_multiplier);
        for (int s = k ? GPU : CPU; s < SIDES; s++) {
            struct sink to = sink_value(S(o[k]), NULL), into = sink_value(S(d_qkv[k]), NULL);
            struct tensor qkv = heads_of(S(codes), r);
            struct attention_cast of_p = view_of(&cast[k][0], DTYPE_E4M3, s);
            struct attention_cast of_ds = view_of(&cast[k][1], r->gradient, s);
            const struct tensor *from = r->window ? S(first) : NULL;
            struct attention_fwd_args forward = {
                .o = &to, .lse = S(lse), .qkv = &qkv, .first_key = from, .heads = r->heads,
                .kv_heads = r->kv_heads, .p = &of_p };
            struct attention_bwd_args backward = {
                .d_qkv = &into, .delta = S(delta), .d_o = S(d_o),
                .o = r->o_codes ? S(o_codes) : S(o[k]), .qkv = &qkv, .lse = S(lse),
                .first_key = from, .heads = r->heads, .kv_heads = r->kv_heads, .p = &of_p,
                .ds = &of_ds };
            if (p->ops[s]->attention_fwd(p->b[s], LANE_COMPUTE, &forward, &p->e) != OK ||
                p->ops[s]->attention_bwd(p->b[s], LANE_COMPUTE, &backward, &p->e) != OK ||
                p->ops[s]->sync(p->b[s], &p->e) != OK)
                fail_msg("%lld x %lld, side %d: %s", (long long)r->batch, (long long)r->length, s,
                         p->e.text);
        }
    }
    snprintf(what, sizeof what, "%lldx%lld, heads %lld/%lld of %lld", (long long)r->batch,
             (long long)r->length, (long long)r->heads, (long long)r->kv_heads, (long long)d);
    pair_near(p, what, &o[0], 1e-5);
    pair_near(p, what, &lse, 1e-9);
    pair_near(p, what, &d_qkv[0], 1e-4);
    for (int k = 0; k < 2; k++) {
        near_amax(what, &cast[0][k]);
        near_counts(what, &cast[0][k], pairs);
    }
    for (int k = 1; k < ROUNDS; k++) {
        same_bits(what, &o[0], &o[k]);
        same_bits(what, &d_qkv[0], &d_qkv[k]);
    }
    pair_clear(p);
}

static void near_the_reference(void **state) {
    p = pair_open();
    for (int i = 0; i < ROW_COUNT; i++) one_row(&ROWS[i]);
}

/* With no more than the features of sm_80. */
static void on_any_device(void **state) {
    p = pair_open();
    if (p->ops[GPU]->assume_architecture(p->b[GPU], "sm_80", &p->e) != OK)
        fail_msg("%s", p->e.text);
    one_row(&ROWS[4]);
    struct decision d;
    bool found = false;
    for (int64_t i = 0; p->ops[GPU]->decision(p->b[GPU], i, &d); i++)
        if (!strcmp(d.section, "attention")) {
            assert_string_equal(d.way, "emulated");
            found = true;
        }
    assert_true(found);
}

/* A NaN in a key reaches the queries that see it, and no others. */
static void a_nan_is_kept(void **state) {
    const struct row r = { 1, 130, 2, 1, 64, 0, DTYPE_E5M2, false, 448, 64 };
    enum { BAD = 77 };
    p = pair_open();
    struct twin codes = codes_of(DTYPE_E4M3, r.length, 4 * 64, 3, 300, 1.0f / 150);
    struct twin o = pair_tensor(p, DTYPE_BF16, r.length, 2 * 64, 1, 1);
    struct twin lse = pair_tensor(p, DTYPE_F32, 1, 2, r.length, 1);
    struct cast of = cast_of(448);
    const uint8_t nan = 0x7F;
    uint16_t got[130 * 128];
    for (int s = 0; s < SIDES; s++)
        assert_int_equal(p->ops[s]->upload(p->b[s], LANE_COMPUTE, (char *)S(codes)->data +
                                           BAD * S(codes)->stride[0] + 2 * 64 + 5, &nan, 1,
                                           &p->e), OK);
    for (int s = 0; s < SIDES; s++) {
        struct sink to = sink_value(S(o), NULL);
        struct tensor qkv = heads_of(S(codes), &r);
        struct attention_cast view = view_of(&of, DTYPE_E4M3, s);
        if (p->ops[s]->attention_fwd(p->b[s], LANE_COMPUTE, &(struct attention_fwd_args){
                .o = &to, .lse = S(lse), .qkv = &qkv, .heads = 2, .kv_heads = 1, .p = &view },
                &p->e) != OK)
            fail_msg("%s", p->e.text);
    }
    for (int s = 0; s < SIDES; s++) {
        uint32_t amax;
        download(got, &o, s, sizeof got);
        download(&amax, &of.amax, s, 4);
        assert_int_equal(amax, 0x7FC00000);
        for (int64_t t = 0; t < r.length; t++)
            assert_int_equal(isnan(bf16_decode(got[t * 128 + 70])) != 0, t >= BAD);
    }
}

/* ---- attention_backend ---- */

/* The way that served a BF16 forward; "" and the error's text if it was refused. */
static const char *forward_way(int64_t length, int64_t dim, struct decision *d) {
    struct twin qkv = pair_tensor(p, DTYPE_BF16, 1, length, 6, dim);
    struct twin o = pair_tensor(p, DTYPE_BF16, length, 4 * dim, 1, 1);
    struct twin lse = pair_tensor(p, DTYPE_F32, 1, 4, length, 1);
    struct backend *b = p->b[GPU];
    struct sink to = sink_value(&o.side[GPU], NULL);
    pair_fill(p, &qkv, 7, 2, 0.5f);
    if (b->ops->attention_fwd(b, 0, &(struct attention_fwd_args){
            .o = &to, .lse = &lse.side[GPU], .qkv = &qkv.side[GPU], .heads = 4, .kv_heads = 1 },
            &p->e) != OK)
        return "";
    for (int64_t i = 0; b->ops->decision(b, i, d); i++) { }
    return d->way;
}

static void the_kernel_is_fixed(void **state) {
    struct decision d;
    struct backend *b;
    p = pair_open();
    b = p->b[GPU];
    assert_int_equal(b->ops->attention_backend(b, ATTENTION_OWN, &p->e), OK);
    assert_string_not_equal(forward_way(1024, 128, &d), "cudnn");
    assert_string_equal(d.detail, "attention.backend");
    close_pair(NULL);

    p = pair_open();
    b = p->b[GPU];
    enum status st = b->ops->attention_backend(b, ATTENTION_CUDNN, &p->e);
    if (st == ERR_UNSUPPORTED) assert_non_null(strstr(p->e.text, "cuDNN 9.11 or later"));
    if (st != OK) skip();
    assert_string_equal(forward_way(1024, 128, &d), "cudnn");
    assert_string_equal(d.detail, "attention.backend");
    assert_string_equal(forward_way(100, 128, &d), "");
    assert_non_null(strstr(p->e.text, "attention.backend = \"cudnn\" cannot serve 1 sequences of "
                                      "100 tokens"));
    assert_int_equal(b->ops->attention_backend(b, ATTENTION_OWN, &p->e), ERR_STATE);
}

/* cuDNN's plan of codes, if it has one. Its kernel may round probabilities before it divides them
 * by their sum, and counts nothing: o is within the noise of one rounding to E4M3; bits repeat. */
static void by_cudnn(void **state) {
    const struct row r = { 2, 512, 8, 2, 128, 0, DTYPE_E5M2, false, 448, 64 };
    p = pair_open();
    if (p->ops[GPU]->attention_backend(p->b[GPU], ATTENTION_CUDNN, &p->e) != OK) skip();
    struct twin codes = codes_of(DTYPE_E4M3, r.batch * r.length, 12 * 128, 3, 300, 1.0f / 150);
    struct twin o[ROUNDS], lse = pair_tensor(p, DTYPE_F32, r.batch, r.heads, r.length, 1);
    struct cast of = cast_of(r.p_multiplier);
    struct decision d;
    for (int k = 0; k < ROUNDS; k++) {
        o[k] = pair_tensor(p, DTYPE_BF16, r.batch * r.length, 8 * 128, 1, 1);
        for (int s = k ? GPU : CPU; s < SIDES; s++) {
            struct sink to = sink_value(S(o[k]), NULL);
            struct tensor qkv = heads_of(S(codes), &r);
            struct attention_cast view = view_of(&of, DTYPE_E4M3, s);
            enum status st = p->ops[s]->attention_fwd(
                p->b[s], LANE_COMPUTE, &(struct attention_fwd_args){
                    .o = &to, .lse = S(lse), .qkv = &qkv, .heads = 8, .kv_heads = 2,
                    .p = &view }, &p->e);
            if (st == ERR_UNSUPPORTED && strstr(p->e.text, "no deterministic plan")) {
                print_message("    cuDNN has no deterministic FP8 plan\n");
                skip();
            }
            if (st != OK) fail_msg("side %d: %s", s, p->e.text);
        }
    }
    assert_true(p->ops[GPU]->decision(p->b[GPU], 0, &d));
    assert_string_equal(d.way, "cudnn");
    pair_near(p, "o by cuDNN", &o[0], 1.3e-3);
    pair_near(p, "lse by cuDNN", &lse, 1e-9);
    near_amax("p by cuDNN", &of);
    for (int k = 1; k < ROUNDS; k++) same_bits("o by cuDNN", &o[0], &o[k]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(near_the_reference, close_pair),
        cmocka_unit_test_teardown(on_any_device, close_pair),
        cmocka_unit_test_teardown(a_nan_is_kept, close_pair),
        cmocka_unit_test_teardown(the_kernel_is_fixed, close_pair),
        cmocka_unit_test_teardown(by_cudnn, close_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
