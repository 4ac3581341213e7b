/* The transformer's operators against the reference. Elementwise ones are equal to the bit; those
 * with sums in another order are within the stated NMSE.
 *
 * A sequential sum of n numbers has a relative error of about sqrt(n) 2^-24: 5.4e-6 for 8200, the
 * longest row except the loss's. F32_NEAR is three times the square of that.
 *
 * A BF16 output with a relative error d before rounding becomes its neighbour, at most 2^-7 away,
 * for a share d / 2^-7 of values. This is an NMSE of 2^-7 d, 4e-8. In a small tensor of twenty
 * values, one such value alone gives 2^-16 / 20: BF16_NEAR.
 *
 * The loss of 2^18 logits has a sum with an error of 2^-15 and is about 10: (2^-15 / 10)^2.
 * Gradients of logits have that error of 2^-15 before rounding: 2^-22. D_LOGITS_NEAR is eight times
 * as much, for tensors of few rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "tests/gpu/pair.h"

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

#define H DTYPE_BF16
#define F DTYPE_F32
static const struct quant_rule TE = { QUANT_TE, 0, false };

static const struct { int64_t rows, cols; } NORM[] = {
    { 1, 8 }, { 3, 7 }, { 67, 768 }, { 300, 1600 }, { 5, 4096 }, { 9, 8200 },
};
enum { NORMS = sizeof NORM / sizeof *NORM };
static const double BF16_NEAR = 1e-6, F32_NEAR = 1e-10, LOSS_NEAR = 1e-11, D_LOGITS_NEAR = 2e-6;

static struct twin filled(enum dtype t, int64_t rows, int64_t cols, uint64_t seed, float scale) {
    struct twin x = pair_tensor(p, t, rows, cols, 1, 1);
    pair_fill(p, &x, seed, 2, scale);
    return x;
}

static void test_rmsnorm(void **state) {
    for (int i = 0; i < 2 * NORMS; i++) {
        int64_t r = NORM[i / 2].rows, c = NORM[i / 2].cols;
        struct twin x = filled(H, r, c, 1, 1), dy = filled(H, r, c, 3, 1);
        struct twin gain = filled(H, c, 1, 2, 1);
        struct twin residual = filled(H, r, c, 4, 1), d_gain = filled(i % 2 ? F : H, c, 1, 5, 1);
        struct twin rstd = pair_tensor(p, F, r, 1, 1, 1);
        struct twin_sink y, dx;
        pair_sink(p, &y, r, c, DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE, TE, false);
        pair_sink(p, &dx, r, c, DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE, TE, false);
        ON_BOTH(p, ops->rmsnorm_fwd(b, LANE_COMPUTE, &(struct norm_fwd_args){
                .y = S(y), .rstd = S(rstd), .x = S(x), .gain = S(gain), .eps = 1e-5f }, e));
        pair_near(p, "rmsnorm_fwd y", &y.value, BF16_NEAR);
        pair_near(p, "rmsnorm_fwd rstd", &rstd, F32_NEAR);
        ON_BOTH(p, ops->rmsnorm_bwd(b, LANE_COMPUTE, &(struct norm_bwd_args){
                .dx = S(dx), .d_gain = S(d_gain), .dy = S(dy), .x = S(x), .gain = S(gain),
                .rstd = S(rstd), .residual = i % 2 ? S(residual) : NULL }, e));
        pair_near(p, "rmsnorm_bwd dx", &dx.value, BF16_NEAR);
        pair_near(p, "rmsnorm_bwd d_gain", &d_gain, i % 2 ? F32_NEAR : BF16_NEAR);
        pair_clear(p);
    }
}

static void test_layernorm(void **state) {
    for (int i = 0; i < 2 * NORMS; i++) {
        int64_t r = NORM[i / 2].rows, c = NORM[i / 2].cols;
        bool with = i % 2; /* bias and residual */
        struct twin x = filled(H, r, c, 1, 1), dy = filled(H, r, c, 3, 1);
        struct twin gain = filled(H, c, 1, 2, 1);
        struct twin residual = filled(H, r, c, 4, 1), d_gain = filled(with ? F : H, c, 1, 5, 1);
        struct twin bias = filled(H, c, 1, 6, 1), d_bias = filled(with ? F : H, c, 1, 7, 1);
        struct twin mean = pair_tensor(p, F, r, 1, 1, 1), rstd = pair_tensor(p, F, r, 1, 1, 1);
        struct twin_sink y, dx;
        pair_sink(p, &y, r, c, DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE, TE, false);
        pair_sink(p, &dx, r, c, DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE, TE, false);
        ON_BOTH(p, ops->layernorm_fwd(b, LANE_COMPUTE, &(struct norm_fwd_args){
                .y = S(y), .mean = S(mean), .rstd = S(rstd), .x = S(x), .gain = S(gain),
                .bias = with ? S(bias) : NULL, .eps = 1e-5f }, e));
        pair_near(p, "layernorm_fwd y", &y.value, BF16_NEAR);
        pair_near(p, "layernorm_fwd mean", &mean, F32_NEAR);
        pair_near(p, "layernorm_fwd rstd", &rstd, F32_NEAR);
        ON_BOTH(p, ops->layernorm_bwd(b, LANE_COMPUTE, &(struct norm_bwd_args){
                .dx = S(dx), .d_gain = S(d_gain), .d_bias = with ? S(d_bias) : NULL, .dy = S(dy),
                .x = S(x), .gain = S(gain), .mean = S(mean), .rstd = S(rstd),
                .residual = with ? S(residual) : NULL }, e));
        pair_near(p, "layernorm_bwd dx", &dx.value, BF16_NEAR);
        pair_near(p, "layernorm_bwd d_gain", &d_gain, with ? F32_NEAR : BF16_NEAR);
        pair_near(p, "layernorm_bwd d_bias", &d_bias, with ? F32_NEAR : BF16_NEAR);
        pair_clear(p);
    }
}

static void test_qk(void **state) {
    static const struct { int64_t b, t, h, g, d; bool norm, rope; } QK[] = {
        { 1, 1, 1, 1, 16, false, true }, { 2, 33, 4, 2, 64, false, true },
        { 2, 50, 6, 2, 128, true, true }, { 1, 70, 3, 3, 32, true, false },
        { 3, 20, 12, 12, 64, true, true },
    };
    for (size_t twice = 0; twice < 2 * sizeof QK / sizeof *QK; twice++) {
        size_t i = twice / 2;
        bool norm = QK[i].norm, placed = twice % 2; /* positions that are not those of the rows */
        int64_t all = QK[i].h + 2 * QK[i].g, rows = QK[i].b * QK[i].t, d = QK[i].d;
        int32_t at[512];
        for (int64_t r = 0; r < rows; r++) at[r] = (int32_t)(r * r % 31 % QK[i].t);
        struct twin positions = pair_tensor(p, DTYPE_I32, QK[i].b, QK[i].t, 1, 1);
        pair_set(p, &positions, at, rows * 4);
        struct twin in = pair_tensor(p, H, QK[i].b, QK[i].t, all, d), out = in, d_out = in;
        out = pair_tensor(p, H, QK[i].b, QK[i].t, all, d);
        d_out = pair_tensor(p, H, QK[i].b, QK[i].t, all, d);
        pair_fill(p, &in, 1, 2, 1);
        pair_fill(p, &d_out, 2, 2, 1);
        struct twin gain_q = filled(H, d, 1, 3, 1), gain_k = filled(H, d, 1, 4, 1);
        struct twin d_q = filled(F, d, 1, 5, 1), d_k = filled(F, d, 1, 6, 1);
        struct twin rope = filled(F, QK[i].t, d, 7, 0.5f);
        struct twin rstd = pair_tensor(p, F, QK[i].b, QK[i].t, QK[i].h + QK[i].g, 1);
        struct twin_sink dx;
        pair_sink(p, &dx, rows, all * d, DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE, TE, false);
        ON_BOTH(p, ops->qk_fwd(b, LANE_COMPUTE, &(struct qk_fwd_args){
                .out = S(out), .rstd = S(rstd), .in = S(in), .gain_q = norm ? S(gain_q) : NULL,
                .gain_k = norm ? S(gain_k) : NULL, .rope = QK[i].rope ? S(rope) : NULL,
                .positions = placed ? S(positions) : NULL, .heads = QK[i].h, .kv_heads = QK[i].g,
                .eps = 1e-6f }, e));
        ON_BOTH(p, ops->qk_bwd(b, LANE_COMPUTE, &(struct qk_bwd_args){
                .dx = S(dx), .d_gain_q = S(d_q), .d_gain_k = S(d_k), .d_out = S(d_out), .in = S(in),
                .gain_q = norm ? S(gain_q) : NULL, .gain_k = norm ? S(gain_k) : NULL,
                .rstd = S(rstd), .rope = QK[i].rope ? S(rope) : NULL,
                .positions = placed ? S(positions) : NULL, .heads = QK[i].h,
                .kv_heads = QK[i].g }, e));
        if (!norm) {
            pair_same(p, "qk_fwd out", &out);
            pair_same(p, "qk_bwd dx", &dx.value);
            pair_same(p, "qk_bwd amax", &dx.amax);
        }
        pair_near(p, "qk_fwd out", &out, BF16_NEAR);
        pair_near(p, "qk_fwd rstd", &rstd, F32_NEAR);
        pair_near(p, "qk_bwd dx", &dx.value, BF16_NEAR);
        pair_near(p, "qk_bwd d_gain_q", &d_q, F32_NEAR);
        pair_near(p, "qk_bwd d_gain_k", &d_k, F32_NEAR);
        pair_clear(p);
    }
}

/* Backward in place, as in a model; without rotation only the amax is computed. */
static void test_qk_in_place(void **state) {
    for (int i = 0; i < 6; i++) {
        int64_t heads = i / 2 == 2 ? 5 : 4, kv = 2, d = i / 2 ? 64 : 128, all = heads + 2 * kv;
        struct twin grad = pair_tensor(p, H, 2, 37, all, d), rope = filled(F, 37, d, 7, 0.5f);
        struct twin in = pair_tensor(p, H, 2, 37, all, d);
        pair_fill(p, &grad, 2, 2, 1);
        struct twin_sink dx;
        pair_sink(p, &dx, 2 * 37, all * d, DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE, TE, false);
        for (int s = 0; s < SIDES; s++) dx.side[s].value = S(grad);
        ON_BOTH(p, ops->qk_bwd(b, LANE_COMPUTE, &(struct qk_bwd_args){
                .dx = S(dx), .d_out = S(grad), .in = S(in), .rope = i % 2 ? S(rope) : NULL,
                .heads = heads, .kv_heads = kv }, e));
        pair_same(p, "qk_bwd in place", &grad);
        pair_same(p, "qk_bwd amax", &dx.amax);
        ON_BOTH(p, ops->qk_fwd(b, LANE_COMPUTE, &(struct qk_fwd_args){
                .out = S(grad), .in = S(grad), .rope = i % 2 ? S(rope) : NULL, .heads = heads,
                .kv_heads = kv, .eps = 1e-6f }, e));
        pair_same(p, "qk_fwd in place", &grad);
        pair_clear(p);
    }
}

static void test_embedding(void **state) {
    static const struct { int64_t batch, length, cols, vocab; } EMBED[] = {
        { 1, 1, 8, 1 }, { 3, 50, 64, 300 }, { 2, 700, 100, 40 }, { 4, 33, 1032, 128256 },
    };
    for (size_t i = 0; i < 3 * sizeof EMBED / sizeof *EMBED; i++) {
        int64_t batch = EMBED[i / 3].batch, length = EMBED[i / 3].length, cols = EMBED[i / 3].cols;
        int64_t rows = batch * length, vocab = EMBED[i / 3].vocab;
        bool learned = i % 3 > 0, placed = i % 3 == 2; /* positions; not those of the rows */
        int32_t token[2048], at[2048];
        for (int64_t r = 0; r < rows; r++)
            token[r] = (int32_t)rng_below(rng_bits(9, (uint64_t)r),
                                          (uint32_t)(r % 3 ? vocab : 1 + vocab / 9));
        for (int64_t r = 0; r < rows; r++) at[r] = (int32_t)(r * r % 31 % length);
        struct twin tokens = pair_tensor(p, DTYPE_I32, rows, 1, 1, 1);
        struct twin positions = pair_tensor(p, DTYPE_I32, batch, length, 1, 1);
        pair_set(p, &tokens, token, rows * 4);
        pair_set(p, &positions, at, rows * 4);
        struct twin table = filled(H, vocab, cols, 1, 1), position = filled(H, length, cols, 2, 1);
        struct twin x = pair_tensor(p, H, rows, cols, 1, 1), dx = filled(H, rows, cols, 3, 1);
        struct twin d_table = filled(learned ? F : H, vocab, cols, 4, 1);
        struct twin d_position = filled(learned ? F : H, length, cols, 5, 1);
        ON_BOTH(p, ops->embedding_fwd(b, LANE_COMPUTE, S(x), S(tokens), S(table),
                                      learned ? S(position) : NULL,
                                      placed ? S(positions) : NULL, e));
        pair_same(p, "embedding_fwd", &x);
        ON_BOTH(p, ops->embedding_bwd(b, LANE_COMPUTE, S(d_table), learned ? S(d_position) : NULL,
                                      S(dx), S(tokens), placed ? S(positions) : NULL, e));
        pair_same(p, "embedding_bwd d_table", &d_table); /* rows ascending on both sides */
        if (placed) pair_same(p, "embedding_bwd by positions", &d_position);
        /* at most four terms and the old value, each sum off by 2^-24: twice that squared */
        pair_near(p, "embedding_bwd d_position", &d_position, 1e-13);
        pair_clear(p);
    }
}

/* Rows whose loss is not finite: with NaN, with only -infinity, with +infinity. */
static void test_cross_entropy_not_finite(void **state) {
    static const int64_t WIDTH[] = { 30, 5000, 70000 };
    for (int i = 0; i < 3; i++) {
        int64_t rows = 4, n = WIDTH[i];
        int32_t target[4] = { 0, 1, 2, 3 };
        uint16_t *host = calloc((size_t)(rows * n), 2);
        assert_non_null(host);
        for (int64_t j = 0; j < n; j++) host[n + j] = 0xFF80;
        host[n - 3] = 0x7FC0;
        host[2 * n + 7] = 0x7F80;
        host[3 * n + 9] = 0xFF80; /* one -infinity is a probability of 0 */
        struct twin targets = pair_tensor(p, DTYPE_I32, rows, 1, 1, 1);
        struct twin logits = pair_tensor(p, H, rows, n, 1, 1);
        struct twin loss = pair_tensor(p, F, rows, 1, 1, 1);
        struct twin scale = pair_f32(p, 0.25f), right = pair_tensor(p, F, rows, 1, 1, 1);
        struct twin_sink d;
        pair_set(p, &targets, target, sizeof target);
        pair_set(p, &logits, host, rows * n * 2);
        pair_sink(p, &d, rows, n, DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE, TE, false);
        ON_BOTH(p, ops->cross_entropy(b, LANE_COMPUTE, &(struct cross_entropy_args){
                .loss = S(loss), .d_logits = S(d), .logits = S(logits), .targets = S(targets),
                .vocab = n, .grad_scale = S(scale), .right = S(right) }, e));
        pair_near(p, "cross_entropy loss", &loss, LOSS_NEAR);
        pair_near(p, "cross_entropy d_logits", &d.value, D_LOGITS_NEAR);
        pair_same(p, "cross_entropy right", &right);
        free(host);
        pair_clear(p);
    }
}

/* Gives some rows the target with their largest logit, found on the CPU's side. */
static void right_for_some(const struct twin *logits, int32_t *target, int64_t rows, int64_t width,
                           int64_t vocab) {
    const uint16_t *host = logits->side[CPU].data;
    for (int64_t r = 0; r < rows; r += 2) {
        if (target[r] < 0) continue;
        for (int64_t i = 0; i < vocab; i++)
            if (bf16_decode(host[r * width + i]) > bf16_decode(host[r * width + target[r]]))
                target[r] = (int32_t)i;
    }
}

static void test_cross_entropy(void **state) {
    static const struct { int64_t rows, width, vocab; } LOSS[] = {
        { 1, 1, 1 }, { 5, 37, 30 }, { 40, 256, 256 }, { 9, 50304, 50257 }, { 7, 32776, 32770 },
        { 5, 128256, 128256 }, { 3, 262144, 262144 }, { 2, 262152, 262145 }, /* no cluster fits */
    };
    for (size_t i = 0; i < sizeof LOSS / sizeof *LOSS; i++) {
        int64_t rows = LOSS[i].rows, width = LOSS[i].width;
        int32_t target[64];
        for (int64_t r = 0; r < rows; r++)
            target[r] = r % 7 == 6 ? -1 : (int32_t)(r * 31 % LOSS[i].vocab);
        struct twin targets = pair_tensor(p, DTYPE_I32, rows, 1, 1, 1);
        struct twin logits = filled(H, rows, width, 1, 1), loss = pair_tensor(p, F, rows, 1, 1, 1);
        struct twin right = pair_tensor(p, F, rows, 1, 1, 1);
        right_for_some(&logits, target, rows, width, LOSS[i].vocab);
        pair_set(p, &targets, target, rows * 4);
        struct twin scale = pair_f32(p, 0.037f), eval = pair_tensor(p, F, rows, 1, 1, 1);
        struct twin_sink d;
        pair_sink(p, &d, rows, width, DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE, TE, false);
        ON_BOTH(p, ops->cross_entropy(b, LANE_COMPUTE, &(struct cross_entropy_args){
                .loss = S(eval), .right = S(right), .logits = S(logits), .targets = S(targets),
                .vocab = LOSS[i].vocab }, e));
        pair_same(p, "cross_entropy right", &right);
        ON_BOTH(p, ops->cross_entropy(b, LANE_COMPUTE, &(struct cross_entropy_args){
                .loss = S(loss), .d_logits = S(d), .logits = S(logits), .targets = S(targets),
                .vocab = LOSS[i].vocab, .grad_scale = S(scale) }, e));
        pair_near(p, "cross_entropy loss", &loss, LOSS_NEAR);
        pair_near(p, "cross_entropy loss in evaluation", &eval, LOSS_NEAR);
        pair_near(p, "cross_entropy d_logits", &d.value, D_LOGITS_NEAR);
        pair_clear(p);
    }
}

/* Rows of one vector or one element a thread, and of more vectors than that. */
static void test_softmax(void **state) {
    static const int64_t LENGTH[] = { 1, 37, 64, 700, 2056, 4095, 8200 };
    for (size_t i = 0; i < sizeof LENGTH / sizeof *LENGTH; i++) {
        int64_t t = LENGTH[i], n = t > 1000 ? 1 : 3;
        struct twin scores = pair_tensor(p, H, n, t, t, 1);
        struct twin prob = pair_tensor(p, H, n, t, t, 1);
        struct twin weight = pair_tensor(p, H, n, t, t, 1), dp = pair_tensor(p, H, n, t, t, 1);
        pair_fill(p, &scores, 1, 2, 4);
        pair_fill(p, &weight, 2, 2, 1.0f / 64);
        pair_fill(p, &dp, 3, 2, 1);
        ON_BOTH(p, ops->softmax_fwd(b, LANE_COMPUTE, S(prob), S(scores), 0.125f, e));
        pair_near(p, "softmax_fwd", &prob, BF16_NEAR);
        ON_BOTH(p, ops->softmax_fwd(b, LANE_COMPUTE, S(scores), S(scores), 0.125f, e));
        pair_near(p, "softmax_fwd in place", &scores, BF16_NEAR);
        ON_BOTH(p, ops->softmax_bwd(b, LANE_COMPUTE, S(dp), S(weight), S(dp), 0.125f, e));
        pair_near(p, "softmax_bwd in place", &dp, BF16_NEAR);
        pair_clear(p);
    }
}

static void *downloaded(const struct tensor *x) {
    int64_t bytes = tensor_count(x) * dtype_bytes(x->dtype);
    void *host = malloc((size_t)bytes);
    assert_non_null(host);
    assert_int_equal(p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, host, x->data, bytes, &p->e),
                     OK);
    return host;
}

/* On the GPU, `rows` rows a call; amax is raised to the gradient's maximum. */
static void loss_by_pieces(const struct tensor *loss, const struct tensor *d,
                           struct tensor *amax, const struct tensor *logits,
                           const struct tensor *targets, int64_t vocab,
                           const struct tensor *scale, int64_t rows) {
    int64_t width = tensor_cols(logits);
    for (int64_t at = 0, n; at < tensor_rows(logits); at += n) {
        n = tensor_rows(logits) - at < rows ? tensor_rows(logits) - at : rows;
        struct tensor l = tensor_1d((float *)loss->data + at, F, n);
        struct tensor t = tensor_1d((int32_t *)targets->data + at, DTYPE_I32, n);
        struct tensor x = tensor_2d((uint16_t *)logits->data + at * width, H, n, width);
        struct tensor value = tensor_2d((uint16_t *)d->data + at * width, H, n, width);
        struct sink to = sink_value(&value, amax);
        if (p->ops[GPU]->cross_entropy(p->b[GPU], LANE_COMPUTE, &(struct cross_entropy_args){
                .loss = &l, .d_logits = &to, .logits = &x, .targets = &t, .vocab = vocab,
                .grad_scale = scale }, &p->e) != OK)
            fail_msg("%s", p->e.text);
    }
}

/* More rows than clusters of one, two, four and eight blocks can run at once, so that each takes
 * several. The bits must be those of few rows a call, out of place and in place. */
static void test_cross_entropy_many_rows(void **state) {
    static const struct { int64_t rows, width, vocab; } MANY[] = {
        { 1201, 1000, 990 }, { 301, 32776, 32770 }, { 151, 65560, 65560 }, { 83, 131080, 131077 },
    };
    for (size_t i = 0; i < sizeof MANY / sizeof *MANY; i++) {
        int64_t rows = MANY[i].rows, width = MANY[i].width, vocab = MANY[i].vocab;
        int32_t target[1201];
        for (int64_t r = 0; r < rows; r++)
            target[r] = r % 7 == 6 ? -1 : (int32_t)(r * 7919 % vocab);
        struct twin targets = pair_tensor(p, DTYPE_I32, rows, 1, 1, 1);
        pair_set(p, &targets, target, rows * 4);
        struct twin logits = filled(H, rows, width, 1, 1), loss = pair_tensor(p, F, rows, 1, 1, 1);
        struct twin scale = pair_f32(p, 0.037f), eval = pair_tensor(p, F, rows, 1, 1, 1);
        struct twin d = pair_tensor(p, H, rows, width, 1, 1), amax[3];
        for (int j = 0; j < 3; j++) amax[j] = pair_tensor(p, DTYPE_U32, 1, 1, 1, 1);
        const struct tensor *x = &logits.side[GPU], *to[3] = { &d.side[GPU], &d.side[GPU], x };
        ON_BOTH(p, ops->cross_entropy(b, LANE_COMPUTE, &(struct cross_entropy_args){
                .loss = S(eval), .logits = S(logits), .targets = S(targets), .vocab = vocab }, e));
        pair_near(p, "cross_entropy loss of many rows", &eval, LOSS_NEAR);
        float *want = downloaded(&eval.side[GPU]);
        uint16_t *bits[3];
        for (int j = 0; j < 3; j++) { /* few a call, all in one call, all in place */
            loss_by_pieces(&loss.side[GPU], to[j], &amax[j].side[GPU], x, &targets.side[GPU], vocab,
                           &scale.side[GPU], j ? rows : 20);
            float *got = downloaded(&loss.side[GPU]);
            assert_memory_equal(got, want, (size_t)rows * 4);
            free(got);
            bits[j] = downloaded(to[j]);
            uint32_t *top = downloaded(&amax[j].side[GPU]), stored = 0;
            for (int64_t k = 0; k < rows * width; k++)
                if ((bits[j][k] & 0x7FFFu) > stored) stored = bits[j][k] & 0x7FFFu;
            assert_int_equal(*top, stored << 16);
            free(top);
            assert_int_equal(memcmp(bits[j], bits[0], (size_t)(rows * width) * 2), 0);
        }
        for (int j = 0; j < 3; j++) free(bits[j]);
        free(want);
        pair_clear(p);
    }
}

/* More tensors than one launch takes, short and long, some not 16-byte aligned. */
static void test_many_squares(void **state) {
    enum { MANY = 300 };
    struct twin x = filled(H, 400000, 1, 3, 1), out = pair_tensor(p, F, MANY, 1, 1, 1);
    struct tensor many[SIDES][MANY];
    for (int s = 0; s < SIDES; s++)
        for (int64_t i = 0; i < MANY; i++)
            many[s][i] = tensor_1d((uint16_t *)x.side[s].data + i * 7, H,
                                   i == 17 ? 390000 : 1 + i * i);
    ON_BOTH(p, ops->sum_squares(b, LANE_COMPUTE, S(out), many[s], MANY, e));
    pair_near(p, "sum_squares of 300 tensors", &out, F32_NEAR);
    pair_clear(p);
}

static void test_reductions(void **state) {
    static const int64_t N[] = { 1, 1000, 65536, 300001 };
    for (int i = 0; i < 4; i++) {
        struct twin x = filled(F, N[i], 1, 1, 1), half = filled(H, N[i], 1, 2, 1);
        struct twin total = pair_f32(p, 3.0f), squares = pair_tensor(p, F, 2, 1, 1, 1);
        struct twin first = squares, second = squares, norm = pair_f32(p, 0), clip = pair_f32(p, 0);
        for (int s = 0; s < SIDES; s++) {
            first.side[s] = tensor_1d(squares.side[s].data, F, 1);
            second.side[s] = tensor_1d((float *)squares.side[s].data + 1, F, 1);
        }
        ON_BOTH(p, ops->sum_squares(b, LANE_COMPUTE, S(first), S(x), 1, e));
        ON_BOTH(p, ops->sum_squares(b, LANE_COMPUTE, S(second), S(half), 1, e));
        ON_BOTH(p, ops->sum(b, LANE_COMPUTE, S(total), S(squares), 0.25f, 1.0f, e));
        ON_BOTH(p, ops->clip_factor(b, LANE_COMPUTE, S(norm), S(clip), S(squares), 1.0f, e));
        pair_near(p, "sum_squares", &squares, F32_NEAR);
        pair_near(p, "sum", &total, F32_NEAR);
        pair_near(p, "clip_factor norm", &norm, F32_NEAR);
        pair_near(p, "clip_factor clip", &clip, F32_NEAR);
        ON_BOTH(p, ops->add(b, LANE_COMM, S(x), S(half), e));
        pair_same(p, "add", &x);
        ON_BOTH(p, ops->add(b, LANE_COMM, S(half), S(x), e));
        pair_same(p, "add to bf16", &half);
        pair_clear(p);
    }
    static const struct { int64_t rows, cols; } BIAS[] = {
        { 1, 1 }, { 700, 77 }, { 513, 2304 }, { 9001, 24 },
    };
    for (int i = 0; i < 8; i++) {
        struct twin dy = filled(H, BIAS[i / 2].rows, BIAS[i / 2].cols, 1, 1);
        struct twin d = filled(i % 2 ? F : H, BIAS[i / 2].cols, 1, 2, 1);
        struct sink sink[SIDES];
        for (int s = 0; s < SIDES; s++) {
            sink[s] = sink_value(&dy.side[s], NULL);
            sink[s].sums = &d.side[s];
        }
        ON_BOTH(p, ops->quantise(b, LANE_COMPUTE, &sink[s], S(dy), e));
        pair_near(p, "column sums", &d, i % 2 ? F32_NEAR : BF16_NEAR);
        pair_clear(p);
    }
}

/* A norm above max_norm, exactly max_norm, below it, and no limit. */
static void test_clip(void **state) {
    static const float MAX[] = { 4.0f, 5.0f, 6.0f, 0.0f }, WANT[] = { 0.8f, 1.0f, 1.0f, 1.0f };
    const float nine_and_sixteen[2] = { 9.0f, 16.0f };
    struct twin squares = pair_tensor(p, F, 2, 1, 1, 1), norm = pair_f32(p, 0);
    struct twin clip = pair_f32(p, 7);
    pair_set(p, &squares, nine_and_sixteen, sizeof nine_and_sixteen);
    for (int i = 0; i < 4; i++) {
        ON_BOTH(p, ops->clip_factor(b, LANE_COMPUTE, S(norm), S(clip), S(squares), MAX[i], e));
        assert_true(*(float *)norm.side[CPU].data == 5.0f);
        assert_true(*(float *)clip.side[CPU].data == WANT[i]);
        pair_same(p, "clip_factor norm", &norm);
        pair_same(p, "clip_factor clip", &clip);
    }
    pair_clear(p);
}

static void test_flag(void **state) {
    float x[600] = { 0 };
    int32_t none[2] = { -1, -1 };
    struct twin flag = pair_tensor(p, DTYPE_I32, 2, 1, 1, 1), step = pair_i32(p, 41);
    struct twin values = pair_tensor(p, F, 600, 1, 1, 1);
    pair_set(p, &flag, none, sizeof none);
    for (int round = 0; round < 3; round++) {
        if (round) x[577] = INFINITY, x[300] = round == 2 ? NAN : 0.0f;
        pair_set(p, &values, x, sizeof x);
        ON_BOTH(p, ops->flag_nonfinite(b, LANE_COMPUTE, S(flag), S(step), S(values), 1000, e));
        pair_same(p, "flag_nonfinite", &flag); /* the first find stays */
    }
    pair_clear(p);
}

/* The device's clock: work between two marks takes time; a capture allows no mark. */
static void test_timer(void **state) {
    struct backend *b = p->b[GPU];
    const struct backend_ops *ops = p->ops[GPU];
    struct err *e = &p->e;
    struct twin x = pair_tensor(p, F, 1 << 24, 1, 1, 1);
    double us = -1;
    assert_int_equal(ops->timer_read(b, 0, 1, &us, e), ERR_STATE);
    assert_int_equal(ops->timer_mark(b, LANE_COMPUTE, 0, e), OK);
    assert_int_equal(ops->fill(b, LANE_COMPUTE, &x.side[GPU], 1.0f, e), OK);
    assert_int_equal(ops->timer_mark(b, LANE_COMPUTE, 1, e), OK);
    assert_int_equal(ops->timer_read(b, 0, 1, &us, e), OK);
    assert_true(us > 4 && us < 1e6); /* 64 MiB: 4 us would be 16 TB/s */
    for (int round = 0; round < 2; round++) { /* uncaptured, then captured */
        assert_int_equal(ops->graph_begin(b, GRAPH_EVAL, e), OK);
        assert_int_equal(ops->timer_mark(b, LANE_COMPUTE, 0, e), round ? ERR_STATE : OK);
        assert_int_equal(ops->graph_end(b, GRAPH_EVAL, e), OK);
    }
    ops->graph_drop(b);
    pair_clear(p);
}

/* test_ops [PATTERN]: runs the tests of that name. */
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm), cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_qk), cmocka_unit_test(test_qk_in_place),
        cmocka_unit_test(test_embedding), cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_cross_entropy_not_finite), cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_cross_entropy_many_rows),
        cmocka_unit_test(test_many_squares),
        cmocka_unit_test(test_reductions), cmocka_unit_test(test_clip),
        cmocka_unit_test(test_flag),
        cmocka_unit_test(test_timer),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
