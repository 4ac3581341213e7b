/* FP8 attention against the reference, forward and backward: every head dimension, grouped heads,
 * windows, both gradient formats, with O as BF16 and as codes. The same call runs three times and
 * must give the same bits. Then attention_backend: what it fixes, and what it refuses; and cuDNN:
 * how many plans it lists, and whether the kernel that the rule chose has a certificate.
 *
 * CUDNN_CODES=1 in the environment: cuDNN's graphs with outputs as codes too, by plans that need
 * not be deterministic. No operator has such outputs, but sm_90 has no others.
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
#include <stdlib.h>
#include <string.h>

#include "kernels/certify/certify.h"
#include "tests/gpu/cudnn_codes.h"
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
                print_message("    cuDNN has no deterministic plan for FP8's forward\n");
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

/* ---- cuDNN ---- */

static struct codes_library *cudnn;

static int close_both(void **state) {
    if (cudnn) codes_close(cudnn);
    cudnn = NULL;
    return p ? close_pair(state) : 0;
}

/* Prints what cuDNN lists for each graph. With outputs as codes it knows each of them on sm_90, as
 * on a described device (tests/dist/cudnn_plans.sh). */
static void plans_are_counted(void **state) {
    char text[CODES_TEXT];
    if (!(cudnn = codes_open())) {
        print_message("    cuDNN was not found\n");
        skip();
    }
    print_message("    cuDNN %lld, sm_%d\n", (long long)codes_version(cudnn),
                  codes_capability(cudnn));
    for (int i = 0; i < 8; i++) {
        const struct codes_shape shape = { .batch = 2, .length = 512, .heads = 8, .kv_heads = 2,
                                           .dim = 128, .backward = i / 2 > 0,
                                           .gradient_e5m2 = i / 2 > 1, .o_codes = i / 2 > 2 };
        int listed, deterministic;
        codes_count(cudnn, &shape, i % 2, &listed, &deterministic, text);
        print_message("    %s%s%s, outputs in %s: %d plans, %d without a note of another order "
                      "%.120s\n", shape.backward ? "backward, gradients in " : "forward",
                      !shape.backward ? "" : shape.gradient_e5m2 ? "E5M2" : "E4M3",
                      !shape.backward ? "" : shape.o_codes ? ", o in E4M3" : ", o in BF16",
                      i % 2 ? "codes" : "BF16", listed, deterministic, text);
        assert_true(deterministic <= listed);
        if (i % 2 && codes_version(cudnn) >= 91900 && codes_capability(cudnn) == 90)
            assert_true(listed > 0);
    }
}

/* The kernels that the rule chooses for both directions pass a certificate, with the bounds of
 * kernels/certify/ATTENTION.md. */
static void the_chosen_kernels_pass(void **state) {
    static const struct certify_way WAYS[] = {
        { .section = WAY_ATTENTION, .a = DTYPE_E4M3, .b = DTYPE_E5M2, .out = DTYPE_E4M3,
          .batch = 2, .length = 512, .heads = 8, .kv_heads = 2, .head_dim = 128 },
        { .section = WAY_ATTENTION, .a = DTYPE_E4M3, .b = DTYPE_E4M3, .out = DTYPE_BF16,
          .batch = 1, .length = 1024, .heads = 4, .kv_heads = 4, .head_dim = 64 },
    };
    struct decision d;
    struct certificate c;
    p = pair_open();
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        if (certify(p->b[GPU], p->b[CPU], &WAYS[i], &c, &p->e) != OK) fail_msg("%s", p->e.text);
        if (c.outcome != CERTIFY_PASSED) fail_msg("%s: %s", c.fault, c.found);
    }
    for (int64_t i = 0; p->ops[GPU]->decision(p->b[GPU], i, &d); i++)
        if (!strcmp(d.section, "attention"))
            print_message("    %s %s: %s: %s\n", d.name, d.direction, d.way, d.detail);
}

/* ---- outputs as codes ---- */

static void *host_of(const struct twin *x, int64_t bytes) {
    void *host = test_malloc((size_t)bytes);
    download(host, x, CPU, bytes);
    return host;
}

static float decode(enum dtype t, uint8_t code) {
    return t == DTYPE_E4M3 ? e4m3_decode(code) : e5m2_decode(code);
}

/* The NMSE of a part [rows][cols] of codes `got`, whose rows are `stride` apart. */
static double nmse(const uint16_t *want, const uint8_t *got, enum dtype t, float multiplier,
                   int64_t rows, int64_t cols, int64_t stride) {
    double miss = 0, power = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double x = (double)bf16_decode(want[i * stride + j]);
            double y = (double)decode(t, got[i * stride + j]) / (double)multiplier;
            miss += (x - y) * (x - y);
            power += x * x;
        }
    return miss / power;
}

/* So that the largest code is half of the format's. */
static float multiplier_of(const uint16_t *x, enum dtype t, int64_t rows, int64_t cols,
                           int64_t stride) {
    float most = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            most = fmaxf(most, fabsf(bf16_decode(x[i * stride + j])));
    return dtype_max(t) / 2 / most;
}

static void run_codes(struct codes_call *c, const char *what) {
    char text[CODES_TEXT];
    if (!codes_run(cudnn, c, text)) fail_msg("%s: %s", what, text);
    print_message("    %s: engine %d, %d calls have %s bits\n", what, c->engine, CODES_ROUNDS,
                  c->repeats ? "the same" : "other");
}

static void within(const char *what, double error, double bound) {
    print_message("    %s: %.2e, at most %.2e\n", what, error, bound);
    if (!(error <= bound)) fail_msg("%s: %.2e, at most %.2e", what, error, bound);
}

/* Bounds. A rounding to E4M3 has an NMSE of 2^-8/3 if all mantissas are 1, and of 7.1e-4 for
 * numbers like these; to E5M2 four times that. cuDNN may round P and dS elsewhere than the
 * reference, which is a rounding each, and it rounds the outputs: three.
 *
 * The log-sum-exp shows a score's error. A score is four instructions of 32 products. Each cuts its
 * products and the sum so far 13 bits below the largest of them (kernels/EXACT.md). The sum is at
 * most 10 here. Products are at most 300^2 FACTOR^2 / sqrt(128): the 128 cuts are less than that
 * times 2^-13 each, and differ in sign, so five standard deviations of their sum are taken. */
static const double OF_E4M3 = 7.1e-4, OF_E5M2 = 2.9e-3, OF_SUMS = 4 * 10 * 0x1p-13,
                    OF_CUTS = 5 * 6.53 * 0x1p-13; /* 6.53: sqrt(128 / 3) */

/* One problem: its operands and what the reference makes of them, on the host. */
struct problem {
    struct row row;
    int64_t rows, q, k, all; /* elements of queries and of keys in a token, and of all heads */
    uint8_t *qkv, *d_o, *o_codes, *out;
    uint16_t *o, *d_qkv;
    float *lse, amax[2]; /* of P and dS */
};
static const float FACTOR = 1.0f / 150, D_O_FACTOR = 0.003f, O_FACTOR = 0.004f;

static void open_problem(struct problem *x, int heads, int kv_heads, enum dtype gradient,
                         bool o_codes) {
    const struct row r = { 2, 512, heads, kv_heads, 128, 0, gradient, o_codes, 448, 64 };
    int64_t rows = r.batch * r.length, q = heads * r.dim, k = kv_heads * r.dim, all = q + 2 * k;
    struct twin codes = codes_of(DTYPE_E4M3, rows, all, 3, 300, FACTOR);
    struct twin from_o = codes_of(DTYPE_E4M3, rows, q, 4, 250, O_FACTOR);
    struct twin d_o = codes_of(gradient, rows, q, 5, 200, D_O_FACTOR);
    struct twin o = pair_tensor(p, DTYPE_BF16, rows, q, 1, 1);
    struct twin d_qkv = pair_tensor(p, DTYPE_BF16, rows, all, 1, 1);
    struct twin lse = pair_tensor(p, DTYPE_F32, r.batch, heads, r.length, 1);
    struct twin delta = pair_tensor(p, DTYPE_F32, r.batch, heads, r.length, 1);
    struct cast of_p = cast_of(r.p_multiplier), of_ds = cast_of(r.ds_multiplier);
    struct attention_cast p_view = view_of(&of_p, DTYPE_E4M3, CPU);
    struct attention_cast ds_view = view_of(&of_ds, gradient, CPU);
    struct sink to = sink_value(&o.side[CPU], NULL), into = sink_value(&d_qkv.side[CPU], NULL);
    struct tensor qkv = heads_of(&codes.side[CPU], &r);
    const struct attention_fwd_args forward = {
        .o = &to, .lse = &lse.side[CPU], .qkv = &qkv, .heads = heads, .kv_heads = kv_heads,
        .p = &p_view };
    const struct attention_bwd_args backward = {
        .d_qkv = &into, .delta = &delta.side[CPU], .d_o = &d_o.side[CPU],
        .o = o_codes ? &from_o.side[CPU] : &o.side[CPU], .qkv = &qkv, .lse = &lse.side[CPU],
        .heads = heads, .kv_heads = kv_heads, .p = &p_view, .ds = &ds_view };
    if (p->ops[CPU]->attention_fwd(p->b[CPU], LANE_COMPUTE, &forward, &p->e) != OK ||
        p->ops[CPU]->attention_bwd(p->b[CPU], LANE_COMPUTE, &backward, &p->e) != OK)
        fail_msg("%s", p->e.text);
    *x = (struct problem){ r, rows, q, k, all, host_of(&codes, rows * all),
                           host_of(&d_o, rows * q), host_of(&from_o, rows * q),
                           test_calloc((size_t)(rows * all), 1), host_of(&o, rows * q * 2),
                           host_of(&d_qkv, rows * all * 2), host_of(&lse, rows * heads * 4),
                           { 0, 0 } };
    download(&x->amax[0], &of_p.amax, CPU, 4);
    download(&x->amax[1], &of_ds.amax, CPU, 4);
}

static void close_problem(struct problem *x) {
    void *const owned[] = { x->qkv, x->d_o, x->o_codes, x->out, x->o, x->d_qkv, x->lse };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) test_free(owned[i]);
}

static struct codes_call call_of(const struct problem *x, bool backward) {
    const struct row *r = &x->row;
    return (struct codes_call){
        .shape = { r->batch, r->length, (int)r->heads, (int)r->kv_heads, (int)r->dim, backward,
                   r->gradient == DTYPE_E5M2, r->o_codes },
        .qkv = x->qkv, .d_o = x->d_o, .o = r->o_codes ? (const void *)x->o_codes : x->o,
        .factor = FACTOR, .d_o_factor = D_O_FACTOR, .o_factor = O_FACTOR,
        .p_multiplier = r->p_multiplier, .ds_multiplier = r->ds_multiplier, .lse = x->lse,
        .out = x->out };
}

static void compare_forward(const struct problem *x) {
    struct codes_call c = call_of(x, false);
    int64_t scores = x->rows * x->row.heads;
    double worst = 0;
    c.lse = test_malloc((size_t)(scores * 4));
    c.multiplier[0] = multiplier_of(x->o, DTYPE_E4M3, x->rows, x->q, x->q);
    run_codes(&c, "forward");
    within("o, NMSE", nmse(x->o, x->out, DTYPE_E4M3, c.multiplier[0], x->rows, x->q, x->q),
           3 * OF_E4M3);
    for (int64_t i = 0; i < scores; i++)
        worst = fmax(worst, fabs((double)c.lse[i] - (double)x->lse[i]));
    double product = pow(300.0 * (double)FACTOR, 2) / sqrt(128);
    within("log-sum-exp, absolute", worst, OF_SUMS + OF_CUTS * product);
    within("amax of P, relative", fabs((double)c.amax / (double)x->amax[0] - 1), 1e-3);
    test_free(c.lse);
}

static void compare_backward(const struct problem *x) {
    const struct { const char *name; int64_t at, cols; } PART[] = {
        { "d_q, NMSE", 0, x->q }, { "d_k, NMSE", x->q, x->k },
        { "d_v, NMSE", x->q + x->k, x->k } };
    struct codes_call c = call_of(x, true);
    enum dtype code = x->row.gradient;
    double each = code == DTYPE_E5M2 ? OF_E5M2 : OF_E4M3;
    for (int i = 0; i < 3; i++)
        c.multiplier[i] = multiplier_of(x->d_qkv + PART[i].at, code, x->rows, PART[i].cols,
                                        x->all);
    run_codes(&c, "backward");
    within("amax of dS, relative", fabs((double)c.amax / (double)x->amax[1] - 1), 0x1p-8);
    for (int i = 0; i < 3; i++)
        within(PART[i].name, nmse(x->d_qkv + PART[i].at, x->out + PART[i].at, code,
                                  c.multiplier[i], x->rows, PART[i].cols, x->all), 3 * each);
}

static void compare_codes(int heads, int kv_heads, enum dtype gradient, bool o_codes) {
    struct problem x;
    open_problem(&x, heads, kv_heads, gradient, o_codes);
    compare_forward(&x);
    compare_backward(&x);
    close_problem(&x);
}

static void open_codes(void) {
    if (!getenv("CUDNN_CODES")) {
        print_message("    CUDNN_CODES=1 runs this\n");
        skip();
    }
    if (!(cudnn = codes_open())) fail_msg("cuDNN was not found");
    p = pair_open();
}
static void codes_of_as_many_heads(void **state) {
    open_codes();
    compare_codes(4, 4, DTYPE_E5M2, true);
}
static void codes_of_o_in_bf16(void **state) {
    open_codes();
    compare_codes(4, 4, DTYPE_E5M2, false);
}
static void codes_in_e4m3(void **state) {
    open_codes();
    compare_codes(4, 4, DTYPE_E4M3, true);
}
/* cudnn-frontend leaves such tests out on sm_90: "FP8 backward GQA numerical accuracy issues"
 * (test/python/sdpa/blocked.py). */
static void codes_of_grouped_heads(void **state) {
    open_codes();
    compare_codes(8, 2, DTYPE_E5M2, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(near_the_reference, close_pair),
        cmocka_unit_test_teardown(on_any_device, close_pair),
        cmocka_unit_test_teardown(a_nan_is_kept, close_pair),
        cmocka_unit_test_teardown(the_kernel_is_fixed, close_pair),
        cmocka_unit_test_teardown(by_cudnn, close_pair),
        cmocka_unit_test_teardown(plans_are_counted, close_both),
        cmocka_unit_test_teardown(the_chosen_kernels_pass, close_both),
        cmocka_unit_test_teardown(codes_of_as_many_heads, close_both),
        cmocka_unit_test_teardown(codes_of_o_in_bf16, close_both),
        cmocka_unit_test_teardown(codes_in_e4m3, close_both),
        cmocka_unit_test_teardown(codes_of_grouped_heads, close_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
