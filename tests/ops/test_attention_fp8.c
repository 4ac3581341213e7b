/* FP8 attention against scalar loops that follow its contract to the bit, and against the same
 * numbers in f32; what it records of its roundings; the arguments that it refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "kernels/exactmath_f32.h"
#include "tests/support/must.h"
#include "tests/support/op_tensor.h"

struct sizes { int64_t batch, length, heads, kv_heads, dim; };
struct row {
    const char *name;
    struct sizes z;
    enum dtype gradient; /* of d_o and ds */
    bool o_codes;
    int64_t window;      /* 0: none */
    float p_multiplier, ds_multiplier;
    int nan_at;          /* token whose key has a NaN, or -1 */
};

static const struct row ROWS[] = {
    { "one key", { 1, 1, 1, 1, 4 }, DTYPE_E5M2, false, 0, 448, 64, -1 },
    { "groups, padded rows", { 2, 37, 4, 2, 13 }, DTYPE_E5M2, true, 0, 448, 256, -1 },
    { "a window, E4M3 gradients", { 1, 70, 2, 1, 16 }, DTYPE_E4M3, false, 9, 448, 16, -1 },
    { "first step: scales of 1", { 1, 50, 2, 2, 32 }, DTYPE_E5M2, true, 0, 1, 1, -1 },
    { "a NaN", { 1, 40, 2, 1, 16 }, DTYPE_E5M2, true, 0, 448, 64, 25 },
};

/* ---- the operands ---- */

struct cast { struct tensor *multiplier, *factor, *amax, *stats; struct attention_cast view; };
struct operands {
    struct tensor *codes, *o_codes, *d_o, *o, *d_qkv, *lse, *delta, *first_key;
    struct tensor qkv;
    struct cast p, ds;
};

static void set_scalar(struct tensor *x, float value) { op_set(x, 0, 0, value); }

static struct tensor *codes_of(enum dtype t, int64_t rows, int64_t cols, uint64_t seed,
                               float scale, float factor) {
    struct tensor *x = op_tensor(t, rows, cols, SCALE_TENSOR);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            uint64_t bits = rng_bits(rng_key(seed, RNG_ROUND, 0, 0), (uint64_t)(i * cols + j));
            op_set(x, i, j, (rng_uniform(bits) - 0.5f) * scale);
        }
    *(float *)x->scale.data = factor;
    return x;
}

static struct cast make_cast(enum dtype code, float multiplier) {
    struct cast c = { .multiplier = op_tensor(DTYPE_F32, 1, 1, SCALE_NONE),
                      .factor = op_tensor(DTYPE_F32, 1, 1, SCALE_NONE),
                      .amax = op_tensor(DTYPE_U32, 1, 1, SCALE_NONE),
                      .stats = op_tensor(DTYPE_U64, 2, 1, SCALE_NONE) };
    set_scalar(c.multiplier, multiplier);
    set_scalar(c.factor, 1.0f / multiplier);
    c.view = (struct attention_cast){ code, c.multiplier, c.factor, c.amax, c.stats };
    return c;
}

static struct operands make(const struct row *r) {
    const struct sizes *z = &r->z;
    int64_t rows = z->batch * z->length, heads = z->heads + 2 * z->kv_heads;
    struct operands x = {
        .codes = codes_of(DTYPE_E4M3, rows, heads * z->dim, 3, 600, 1.0f / 150),
        .o_codes = codes_of(DTYPE_E4M3, rows, z->heads * z->dim, 4, 500, 0.004f),
        .d_o = codes_of(r->gradient, rows, z->heads * z->dim, 5, 400, 0.003f),
        .o = op_tensor(DTYPE_BF16, rows, z->heads * z->dim, SCALE_NONE),
        .d_qkv = op_tensor(DTYPE_BF16, rows, heads * z->dim, SCALE_NONE),
        .lse = op_tensor(DTYPE_F32, z->batch, z->heads * z->length, SCALE_NONE),
        .delta = op_tensor(DTYPE_F32, z->batch, z->heads * z->length, SCALE_NONE),
        .first_key = op_tensor(DTYPE_I32, z->batch, z->length, SCALE_NONE),
        .p = make_cast(DTYPE_E4M3, r->p_multiplier),
        .ds = make_cast(r->gradient, r->ds_multiplier),
    };
    for (int64_t i = 0; i < rows; i++) {
        int64_t t = i % z->length, first = r->window ? t - r->window + 1 : 0;
        ((int32_t *)x.first_key->data)[i] = (int32_t)(first > 0 ? first : 0);
    }
    if (r->nan_at >= 0) op_set(x.codes, r->nan_at, z->heads * z->dim + 1, NAN);
    x.qkv = tensor_make(x.codes->data, DTYPE_E4M3, z->batch, z->length, heads, z->dim);
    x.qkv.stride[1] = x.codes->stride[0];
    x.qkv.stride[0] = z->length * x.codes->stride[0];
    x.qkv.scale = x.codes->scale;
    return x;
}

static void call(struct backend *b, const struct row *r, struct operands *x) {
    struct sink o = sink_value(x->o, NULL), d_qkv = sink_value(x->d_qkv, NULL);
    struct attention_fwd_args forward = {
        .o = &o, .lse = x->lse, .qkv = &x->qkv, .first_key = x->first_key, .heads = r->z.heads,
        .kv_heads = r->z.kv_heads, .p = &x->p.view };
    struct attention_bwd_args backward = {
        .d_qkv = &d_qkv, .delta = x->delta, .d_o = x->d_o, .o = r->o_codes ? x->o_codes : x->o,
        .qkv = &x->qkv, .lse = x->lse, .first_key = x->first_key, .heads = r->z.heads,
        .kv_heads = r->z.kv_heads, .p = &x->p.view, .ds = &x->ds.view };
    MUST(b->ops->attention_fwd(b, LANE_COMPUTE, &forward, E));
    MUST(b->ops->attention_bwd(b, LANE_COMPUTE, &backward, E));
}

/* ---- the contract, in loops ---- */

struct scalar {
    const struct row *r;
    const struct operands *x;
    float scale, f, g, h; /* 1/sqrt D; factors of qkv, d_o, o */
    float *o, *d_qkv, *lse; /* what is expected */
    uint32_t p_amax, ds_amax;
    uint64_t p_flushed, ds_saturated;
};

static float code_at(const struct scalar *s, int64_t i, int64_t t, int64_t head, int64_t d) {
    return op_stored(s->x->codes, i * s->r->z.length + t, head * s->r->z.dim + d);
}

static float rounded(enum dtype code, float x) {
    return code == DTYPE_E4M3 ? e4m3_decode(e4m3_encode(x)) : e5m2_decode(e5m2_encode(x));
}

/* The scores of a query, and their maximum and sum as attention.c adds it. */
static float scores(const struct scalar *s, int64_t i, int64_t h, int64_t t, float *out,
                    float *total) {
    const struct sizes *z = &s->r->z;
    int64_t group = h * z->kv_heads / z->heads;
    float max = -INFINITY, lane[16] = { 0 };
    int64_t first = ((const int32_t *)s->x->first_key->data)[i * z->length + t];
    for (int64_t j = first; j <= t; j++) {
        float sum = 0;
        for (int64_t d = 0; d < z->dim; d++)
            sum = fmaf(code_at(s, i, t, h, d), code_at(s, i, j, z->heads + group, d), sum);
        out[j] = sum * (s->scale * (s->f * s->f));
        max = out[j] > max ? out[j] : max;
    }
    for (int64_t j = first; j <= t; j++) lane[j % 16] += exact_expf(out[j] - max);
    *total = sum16_join(lane);
    return max;
}

static void raise(uint32_t *amax, float x) {
    uint32_t bits = f32_bits(x) & 0x7FFFFFFFu;
    *amax = bits > *amax ? bits : *amax;
}

static void forward_row(struct scalar *s, int64_t i, int64_t h, int64_t t, float *p) {
    const struct sizes *z = &s->r->z;
    int64_t v = z->heads + z->kv_heads + h * z->kv_heads / z->heads;
    int64_t first = ((const int32_t *)s->x->first_key->data)[i * z->length + t];
    float total, max = scores(s, i, h, t, p, &total);
    s->lse[(i * z->heads + h) * z->length + t] = f32_canonical(max + exact_logf(total));
    for (int64_t j = first; j <= t; j++) {
        float x = exact_expf(p[j] - max) * (1.0f / total);
        raise(&s->p_amax, x);
        p[j] = rounded(DTYPE_E4M3, x * s->r->p_multiplier);
        s->p_flushed += p[j] == 0 && x != 0;
    }
    for (int64_t d = 0; d < z->dim; d++) {
        float sum = 0;
        for (int64_t j = first; j <= t; j++) sum = fmaf(p[j], code_at(s, i, j, v, d), sum);
        s->o[((i * z->length + t) * z->heads + h) * z->dim + d] =
            sum * (1.0f / s->r->p_multiplier * s->f) + 0.0f;
    }
}

static float delta_of(const struct scalar *s, int64_t row, int64_t h) {
    const struct tensor *o = s->r->o_codes ? s->x->o_codes : s->x->o;
    float lane[16] = { 0 };
    for (int64_t d = 0; d < s->r->z.dim; d++)
        lane[d % 16] += op_stored(s->x->d_o, row, h * s->r->z.dim + d) *
                        op_stored(o, row, h * s->r->z.dim + d);
    return f32_canonical(sum16_join(lane) * (s->g * s->h));
}

/* Row t of P and dS as codes, in p and ds. */
static void gradient_row(struct scalar *s, int64_t i, int64_t h, int64_t t, float *p, float *ds) {
    const struct sizes *z = &s->r->z;
    int64_t v = z->heads + z->kv_heads + h * z->kv_heads / z->heads, row = i * z->length + t;
    int64_t first = ((const int32_t *)s->x->first_key->data)[row];
    float total, delta = delta_of(s, row, h);
    (void)scores(s, i, h, t, p, &total);
    for (int64_t j = first; j <= t; j++) {
        float sum = 0;
        for (int64_t d = 0; d < z->dim; d++)
            sum = fmaf(op_stored(s->x->d_o, row, h * z->dim + d), code_at(s, i, j, v, d), sum);
        float x = exact_expf(p[j] - s->lse[(i * z->heads + h) * z->length + t]);
        float y = (x * (sum * (s->g * s->f) - delta)) * s->scale;
        raise(&s->ds_amax, y);
        s->ds_saturated += fabsf(y * s->r->ds_multiplier) > dtype_max(s->r->gradient);
        p[j] = rounded(DTYPE_E4M3, x * s->r->p_multiplier);
        ds[j] = rounded(s->r->gradient, y * s->r->ds_multiplier);
    }
}

/* Adds a query's terms: dq is complete, dk and dv are chains over heads and queries. */
static void add_row(struct scalar *s, int64_t i, int64_t h, int64_t t, const float *p,
                    const float *ds) {
    const struct sizes *z = &s->r->z;
    int64_t group = h * z->kv_heads / z->heads, heads = z->heads + 2 * z->kv_heads;
    int64_t row = i * z->length + t, first = ((const int32_t *)s->x->first_key->data)[row];
    for (int64_t d = 0; d < z->dim; d++) {
        float sum = 0;
        for (int64_t j = first; j <= t; j++) {
            float *dk = s->d_qkv + ((i * z->length + j) * heads + z->heads + group) * z->dim + d;
            float *dv = dk + z->kv_heads * z->dim;
            sum = fmaf(ds[j], code_at(s, i, j, z->heads + group, d), sum);
            *dk = fmaf(ds[j], code_at(s, i, t, h, d), *dk);
            *dv = fmaf(p[j], op_stored(s->x->d_o, row, h * z->dim + d), *dv);
        }
        s->d_qkv[(row * heads + h) * z->dim + d] = sum;
    }
}

static void expect(struct scalar *s) {
    const struct sizes *z = &s->r->z;
    int64_t heads = z->heads + 2 * z->kv_heads, n = z->batch * z->length * heads * z->dim;
    float *p = calloc((size_t)z->length * 2, sizeof *p), *ds = p + z->length;
    for (int64_t i = 0; i < z->batch; i++)
        for (int64_t h = 0; h < z->heads; h++)
            for (int64_t t = 0; t < z->length; t++) {
                forward_row(s, i, h, t, p);
                gradient_row(s, i, h, t, p, ds);
                add_row(s, i, h, t, p, ds);
            }
    float ds_factor = 1.0f / s->r->ds_multiplier, p_factor = 1.0f / s->r->p_multiplier;
    for (int64_t at = 0; at < n; at++) {
        bool v = at / z->dim % heads >= z->heads + z->kv_heads;
        s->d_qkv[at] = s->d_qkv[at] * (v ? p_factor * s->g : ds_factor * s->f) + 0.0f;
    }
    free(p);
}

static void compare(const struct row *r, const char *what, const struct tensor *got,
                    const float *want, const char *isa) {
    int64_t cols = got->dim[1];
    for (int64_t i = 0; i < got->dim[0] * cols; i++) {
        float x = bf16_decode(bf16_encode(want[i])), y = op_stored(got, i / cols, i % cols);
        if (f32_bits(x) != f32_bits(y))
            fail_msg("%s, %s: %s[%lld] is %a, not %a", r->name, isa, what, (long long)i,
                     (double)y, (double)x);
    }
}

static void follows_its_contract(void **state) {
    static const char *const ISA[] = { "avx512", "avx2", "neon", "portable" };
    for (size_t k = 0; k < sizeof ROWS / sizeof *ROWS; k++)
        for (size_t i = 0; i < sizeof ISA / sizeof *ISA; i++) {
            const struct row *r = &ROWS[k];
            struct backend *b = op_backend(1 + (int)i % 3, ISA[i]);
            if (!b) continue;
            struct operands x = make(r);
            call(b, r, &x);
            int64_t o = tensor_count(x.o), n = tensor_count(x.d_qkv), rows = tensor_count(x.lse);
            struct scalar s = { .r = r, .x = &x, .scale = 1.0f / sqrtf((float)r->z.dim),
                                .f = *(float *)x.codes->scale.data,
                                .g = *(float *)x.d_o->scale.data,
                                .h = r->o_codes ? *(float *)x.o_codes->scale.data : 1.0f,
                                .o = calloc((size_t)o, 4), .d_qkv = calloc((size_t)n, 4),
                                .lse = calloc((size_t)rows, 4) };
            expect(&s);
            compare(r, "o", x.o, s.o, ISA[i]);
            assert_memory_equal(x.lse->data, s.lse, (size_t)rows * 4);
            compare(r, "d_qkv", x.d_qkv, s.d_qkv, ISA[i]);
            assert_int_equal(*(uint32_t *)x.p.amax->data, s.p_amax);
            assert_int_equal(*(uint32_t *)x.ds.amax->data, s.ds_amax);
            assert_int_equal(((uint64_t *)x.p.stats->data)[1], s.p_flushed);
            assert_int_equal(((uint64_t *)x.ds.stats->data)[0], s.ds_saturated);
            free(s.o), free(s.d_qkv), free(s.lse);
        }
    op_free();
}

/* ---- how far the roundings take it from f32 ---- */

/* The sum of squared differences over that of squares. */
static double distance(const struct tensor *got, const struct tensor *want) {
    double miss = 0, size = 0;
    for (int64_t i = 0; i < tensor_count(got); i++) {
        float x = op_stored(got, i / got->dim[1], i % got->dim[1]);
        float y = op_stored(want, i / got->dim[1], i % got->dim[1]);
        miss += (double)(x - y) * (x - y);
        size += (double)y * y;
    }
    return miss / size;
}

static struct tensor *widened(const struct tensor *codes) {
    struct tensor *x = op_tensor(DTYPE_F32, codes->dim[0], codes->dim[1], SCALE_NONE);
    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t j = 0; j < x->dim[1]; j++)
            op_set(x, i, j, op_stored(codes, i, j) * *(float *)codes->scale.data);
    return x;
}

/* E4M3 has a relative error of at most 2^-4, E5M2 2^-3: uniform in it, NMSEs of 1/3 2^-8 and 2^-6.
 * Sums of many roundings come to less. Scales of 1, which a first step has, lose small P. */
static void is_near_f32(void **state) {
    struct row r = { "near", { 1, 96, 4, 2, 32 }, DTYPE_E5M2, false, 0, 448, 2048, -1 };
    struct backend *b = op_backend(2, NULL);
    struct operands x = make(&r);
    call(b, &r, &x);
    struct tensor *qkv = widened(x.codes), *d_o = widened(x.d_o);
    struct tensor *o = op_tensor(DTYPE_F32, x.o->dim[0], x.o->dim[1], SCALE_NONE);
    struct tensor *d_qkv = op_tensor(DTYPE_F32, x.d_qkv->dim[0], x.d_qkv->dim[1], SCALE_NONE);
    struct tensor heads = tensor_make(qkv->data, DTYPE_F32, 1, 96, 8, 32);
    struct sink to = sink_value(o, NULL), d_to = sink_value(d_qkv, NULL);
    MUST(b->ops->attention_fwd(b, 0, &(struct attention_fwd_args){
            .o = &to, .lse = x.lse, .qkv = &heads, .heads = 4, .kv_heads = 2 }, E));
    MUST(b->ops->attention_bwd(b, 0, &(struct attention_bwd_args){
            .d_qkv = &d_to, .delta = x.delta, .d_o = d_o, .o = o, .qkv = &heads, .lse = x.lse,
            .heads = 4, .kv_heads = 2 }, E));
    print_message("o %.2e, d_qkv %.2e\n", distance(x.o, o), distance(x.d_qkv, d_qkv));
    assert_true(distance(x.o, o) < 1.0 / 3 / 256);
    assert_true(distance(x.d_qkv, d_qkv) < 1.0 / 3 / 64);
    op_free();
}

static void arguments_are_checked(void **state) {
    struct row r = ROWS[1];
    struct backend *b = op_backend(1, NULL);
    struct operands x = make(&r);
    struct sink o = sink_value(x.o, NULL), d_qkv = sink_value(x.d_qkv, NULL);
    struct attention_fwd_args forward = { .o = &o, .lse = x.lse, .qkv = &x.qkv, .heads = 4,
                                          .kv_heads = 2, .p = &x.p.view };
    struct attention_bwd_args backward = {
        .d_qkv = &d_qkv, .delta = x.delta, .d_o = x.d_o, .o = x.o, .qkv = &x.qkv, .lse = x.lse,
        .heads = 4, .kv_heads = 2, .p = &x.p.view };
    struct err e = { 0 };
    assert_int_equal(b->ops->attention_bwd(b, 0, &backward, &e), ERR_ARG);
    assert_non_null(strstr(e.text, "FP8 needs the casts of p and of ds"));
    backward.ds = &x.ds.view;
    backward.d_o = x.o;
    assert_int_equal(b->ops->attention_bwd(b, 0, &backward, &e), ERR_ARG);
    assert_non_null(strstr(e.text, "attention_bwd: d_o is bf16"));
    x.p.view.amax = NULL;
    assert_int_equal(b->ops->attention_fwd(b, 0, &forward, &e), ERR_ARG);
    assert_non_null(strstr(e.text, "attention_fwd: p is missing"));
    struct tensor bf16 = tensor_make(x.o->data, DTYPE_BF16, 1, 1, 8, 13);
    forward.qkv = &bf16;
    assert_int_equal(b->ops->attention_fwd(b, 0, &forward, &e), ERR_ARG);
    assert_non_null(strstr(e.text, "qkv is bf16, not codes of e4m3"));
    x.qkv.scale.kind = SCALE_ROW;
    forward.qkv = &x.qkv;
    assert_int_equal(b->ops->attention_fwd(b, 0, &forward, &e), ERR_ARG);
    assert_non_null(strstr(e.text, "do not have one scale"));
    forward.p = NULL;
    assert_int_equal(b->ops->attention_fwd(b, 0, &forward, &e), ERR_ARG);
    assert_non_null(strstr(e.text, "qkv is e4m3"));
    assert_int_equal(b->ops->attention_backend(b, ATTENTION_OWN, &e), OK);
    assert_int_equal(b->ops->attention_backend(b, ATTENTION_CUDNN, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "the cpu backend has one way"));
    op_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_its_contract),
        cmocka_unit_test(is_near_f32),
        cmocka_unit_test(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
