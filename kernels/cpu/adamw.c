/* AdamW. Elements are independent, except that a block of 8-bit state shares a scale. So the unit
 * of work is a span of whole blocks. State is widened to f32, updated and rounded back.
 *
 * 8-bit state: each block of 128 has factor s and multiplier m, from quant_multiplier for
 * tensor-wide E4M3 without an amax floor. Stored codes are x*m rounded stochastically; value =
 * code*s. v is stored as sqrt(v), which halves its range in binary orders of magnitude. */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/cpu.h"
#include "kernels/fp8_inline.h"
#include "kernels/rng_round.h"

enum { STATE_BLOCK = 128, SPAN = 8 * STATE_BLOCK };

/* The scalars that change from step to step, read once, and the keys that follow from the step. */
struct adamw {
    const struct adamw_args *args;
    float lr, clip, bias1, bias2;
    uint64_t key;
    int64_t count;
};

/* ---- state ---- */

CLONES static void load_state(float *out, const struct tensor *x, int64_t at, int64_t n,
                              bool is_square) {
    if (x->dtype != DTYPE_E4M3) { load_span(out, x, at, n); return; }
    const uint8_t *code = (const uint8_t *)x->data + at;
    const float *scale = (const float *)x->scale.data + at / STATE_BLOCK;
    for (int64_t block = 0; block < n; block += STATE_BLOCK) {
        int64_t end = n < block + STATE_BLOCK ? n : block + STATE_BLOCK;
        float s = scale[block / STATE_BLOCK];
        for (int64_t i = block; i < end; i++) {
            float value = e4m3_decode_inline(code[i]) * s;
            out[i] = is_square ? value * value : value;
        }
    }
}

CLONES static void store_block(uint8_t *code, float *scale, const float *x,
                               const uint32_t *random, int64_t n, bool is_square) {
    static const struct quant_rule RULE = { QUANT_TE, 0.0f, false };
    uint32_t amax = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = f32_bits(x[i]) & 0x7FFFFFFFu;
        amax = bits > amax ? bits : amax;
    }
    float m = quant_multiplier(&RULE, DTYPE_E4M3, f32_from_bits(amax), scale);
    for (int64_t i = 0; i < n; i++) {
        uint32_t rounded = e4m3_round_stochastic(x[i] * m, random[i]);
        code[i] = (uint8_t)(is_square && rounded == 0 && x[i] > 0 ? 1u : rounded);
    }
}

CLONES static void store_bf16(uint16_t *out, const float *x, const uint32_t *random, int64_t n,
                              bool is_square) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t code = bf16_round_stochastic(x[i], random[i]);
        out[i] = is_square && code == 0 && x[i] > 0 ? (uint16_t)1 : code;
    }
}

/* x is overwritten. */
static void store_state(const struct tensor *out, int64_t at, float *x, const uint32_t *random,
                        int64_t n, bool is_square) {
    if (out->dtype == DTYPE_F32) { store_span(out, at, x, n); return; }
    if (out->dtype == DTYPE_BF16) {
        store_bf16((uint16_t *)out->data + at, x, random, n, is_square);
        return;
    }
    if (is_square)
        for (int64_t i = 0; i < n; i++) x[i] = sqrtf(x[i]);
    for (int64_t i = 0; i < n; i += STATE_BLOCK)
        store_block((uint8_t *)out->data + at + i,
                    (float *)out->scale.data + (at + i) / STATE_BLOCK,
                    x + i, random + i, n - i < STATE_BLOCK ? n - i : STATE_BLOCK, is_square);
}

/* The parts of a span's draws that its roundings use. */
struct randoms { uint32_t m[SPAN], v[SPAN], weight[SPAN]; };

CLONES static void draw(uint64_t key, int64_t element, int64_t n, struct randoms *r) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = rng_bits(key, (uint64_t)(element + i));
        r->m[i] = round_random(bits, ROUND_M);
        r->v[i] = round_random(bits, ROUND_V);
        r->weight[i] = round_random(bits, ROUND_WEIGHT);
    }
}

/* ---- the update ---- */

CLONES static void update(const struct adamw *u, float *w, float *m, float *v, const float *grad,
                          int64_t n) {
    const struct adamw_args *a = u->args;
    float c1 = 1.0f - a->beta1, c2 = 1.0f - a->beta2, eps = a->eps, decay = a->weight_decay;
    float lr = u->lr, clip = u->clip, bias1 = u->bias1, bias2 = u->bias2;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * clip;
        m[i] = m[i] + c1 * (g - m[i]);
        v[i] = v[i] + c2 * (g * g - v[i]);
        float step = (m[i] * bias1) / (sqrtf(v[i] * bias2) + eps);
        w[i] = w[i] - lr * (step + decay * w[i]);
    }
}

static void update_span(const struct adamw *u, int64_t at, int64_t n) {
    const struct adamw_args *a = u->args;
    const struct tensor *value = a->weight->value, *held = a->master ? a->master : value;
    float w[SPAN], m[SPAN], v[SPAN], g[SPAN];
    struct randoms random;
    bool narrow = !a->master && value->dtype == DTYPE_BF16;
    load_span(w, held, at, n);
    load_span(g, a->grad, at, n);
    load_state(m, a->m, at, n, false);
    load_state(v, a->v, at, n, true);
    update(u, w, m, v, g, n);
    if (narrow || a->m->dtype != DTYPE_F32) draw(u->key, a->element_base + at, n, &random);
    store_state(a->m, at, m, random.m, n, false);
    store_state(a->v, at, v, random.v, n, true);
    if (narrow) {
        store_bf16((uint16_t *)value->data + at, w, random.weight, n, false);
        return;
    }
    if (a->master) store_span(a->master, at, w, n);
    store_span(value, at, w, n);
}

/* ---- arguments ---- */

static enum status check_state(const struct tensor *x, const char *what, int64_t n, struct err *e) {
    if (x && x->dtype != DTYPE_E4M3) {
        TRY(cpu_check_packed(x, what, IS_ACT, -1, -1, e));
    } else {
        TRY(cpu_check_packed(x, what, IS_E4M3, -1, -1, e));
        if (x->scale.kind != SCALE_1X128 || !x->scale.data || x->scale.dtype != DTYPE_F32 ||
            x->scale.dim[0] != 1 || x->scale.dim[1] != ceil_div(n, STATE_BLOCK))
            return FAIL(e, ERR_ARG, "%s is e4m3 without a 1x128 scale over [1, %lld]", what,
                        (long long)n);
    }
    if (tensor_count(x) != n)
        return FAIL(e, ERR_ARG, "%s has %lld elements, not %lld", what, (long long)tensor_count(x),
                    (long long)n);
    return OK;
}

static enum status check_args(const struct adamw_args *a, struct err *e) {
    const struct tensor *value = a->weight->value;
    TRY(cpu_check_packed(value, "adamw: weight", IS_ACT, -1, -1, e));
    int64_t n = tensor_count(value);
    TRY(cpu_check_sink(a->weight, "adamw: weight", tensor_rows(value), tensor_cols(value), e));
    TRY(check_state(a->m, "adamw: m", n, e));
    TRY(check_state(a->v, "adamw: v", n, e));
    if (a->m->dtype != a->v->dtype)
        return FAIL(e, ERR_ARG, "adamw: m in %s, v in %s", dtype_name(a->m->dtype),
                    dtype_name(a->v->dtype));
    TRY(cpu_check_packed(a->grad, "adamw: grad", IS_ACT, -1, -1, e));
    if (a->master) TRY(cpu_check_packed(a->master, "adamw: master", IS_F32, -1, -1, e));
    if (tensor_count(a->grad) != n || (a->master && tensor_count(a->master) != n))
        return FAIL(e, ERR_ARG, "adamw: grad or master does not have the weight's %lld elements",
                    (long long)n);
    TRY(cpu_check(a->lr, "adamw: lr", IS_F32, 1, 1, e));
    TRY(cpu_check(a->clip, "adamw: clip", IS_F32, 1, 1, e));
    TRY(cpu_check(a->bias1, "adamw: bias1", IS_F32, 1, 1, e));
    TRY(cpu_check(a->bias2, "adamw: bias2", IS_F32, 1, 1, e));
    TRY(cpu_check(a->step, "adamw: step", IS_I32, 1, 1, e));
    TRY(cpu_check(a->flag, "adamw: flag", IS_I32, 2, 1, e));
    if (a->element_base < 0)
        return FAIL(e, ERR_ARG, "adamw: element_base %lld", (long long)a->element_base);
    return OK;
}

static float scalar(const struct tensor *x) { return *(const float *)x->data; }

static void update_tensor(struct backend *b, const struct adamw_args *args) {
    if (*(const int32_t *)args->flag->data >= 0) return;
    uint64_t step = (uint64_t)*(const int32_t *)args->step->data;
    struct adamw u = {
        .args = args, .lr = scalar(args->lr), .clip = scalar(args->clip),
        .bias1 = scalar(args->bias1), .bias2 = scalar(args->bias2),
        .key = rng_key(args->seed, RNG_ROUND, step, args->tensor_id),
        .count = tensor_count(args->weight->value),
    };
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int64_t at = 0; at < u.count; at += SPAN)
        update_span(&u, at, u.count - at < SPAN ? u.count - at : SPAN);
    cpu_sink_emit(b, args->weight);
}

enum status cpu_adamw(struct backend *b, int lane, const struct adamw_args *args, int64_t n,
                      struct err *e) {
    for (int64_t i = 0; i < n; i++) TRY(check_args(&args[i], e));
    for (int64_t i = 0; i < n; i++) update_tensor(b, &args[i]);
    return OK;
}
