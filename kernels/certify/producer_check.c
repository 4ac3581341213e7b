#include "kernels/certify/producer_check.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/certify/cast_check.h"
#include "kernels/certify/device_lines.h"

enum { ROWS = 48, ROWS_BLOCK = 144, K_MAX = 4096, PERIOD = 13, HEAD = 64 };
/* WIDE [rows, 2K] bf16; A, B [rows, K] bf16; GAIN [K] bf16; F* [rows, K] f32; ONES f32. */
enum operand { WIDE = CAST_PARTS, A, B, GAIN, FA, FB, ROPE, MEAN, RSTD, D_GAIN, D_BIAS, FLAG, ONE,
               MEMORY };
enum { FETCHED = CAST_VALUE + 1 }; /* what a producer writes */

/* A sink on one backend, and operands for what fills it. */
struct producer {
    struct backend *b;
    const struct certify_way *way;
    int64_t rows, k;
    struct cast_views v;
    void *memory[MEMORY];
    int64_t bytes[MEMORY];
    unsigned char *got[FETCHED]; /* owned */
};

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for the certificate of a cast");
}

/* ---- the sink ---------------------------------------------------------------------------------*/

static void producer_close(struct producer *p) {
    for (int i = 0; i < MEMORY; i++)
        if (p->memory[i]) p->b->ops->memory_destroy(p->b, p->memory[i]);
    for (int i = 0; i < FETCHED; i++) free(p->got[i]);
}

/* The sizes in which the operators of a cast are tried. */
static int64_t rows_tried(const struct certify_way *way) {
    bool blocks = way->scale_b == SCALE_1X128 || way->scale_b == SCALE_128X128;
    int64_t most = blocks ? ROWS_BLOCK : ROWS;
    return way->m < most ? way->m : most;
}
static int64_t k_tried(const struct certify_way *way) { return way->k < K_MAX ? way->k : K_MAX; }

bool certify_producers_alike(const struct certify_way *x, const struct certify_way *y) {
    const struct quant_rule *r = &x->rule, *s = &y->rule;
    return rows_tried(x) == rows_tried(y) && k_tried(x) == k_tried(y) && x->a == y->a &&
           x->b == y->b && x->scale_b == y->scale_b && x->source == y->source &&
           r->constants == s->constants && r->amax_min == s->amax_min && r->pow2 == s->pow2 &&
           x->codes == y->codes && x->twin == y->twin &&
           x->untransposed == y->untransposed && x->own_amax == y->own_amax &&
           x->rotate == y->rotate && x->draws == y->draws;
}

/* operands: also memory for what fills the sink. */
static enum status producer_open(struct producer *p, struct backend *b,
                                 const struct certify_way *way, bool operands, struct err *e) {
    *p = (struct producer){ .b = b, .way = way, .rows = rows_tried(way), .k = k_tried(way) };
    cast_views_make(&p->v, way, p->rows, p->k, p->memory);
    int64_t n = p->rows * p->k;
    const int64_t bytes[MEMORY] = {
        [CAST_CODES] = tensor_fp8_bytes(p->rows, p->k),
        [CAST_FACTORS] = scale_bytes(&p->v.codes.scale),
        [CAST_TWIN] = tensor_code_bytes(&p->v.twin),
        [CAST_TWIN_FACTORS] = scale_bytes(&p->v.twin.scale), [CAST_AMAX] = 4, [CAST_VALUE] = 2 * n,
        [WIDE] = 4 * n, [A] = 2 * n, [B] = 2 * n, [GAIN] = 2 * p->k,
        [FA] = 4 * n, [FB] = 4 * n, [ROPE] = 4 * HEAD * p->rows, [MEAN] = 4 * p->rows,
        [RSTD] = 4 * p->rows, [D_GAIN] = 4 * p->k, [D_BIAS] = 4 * p->k, [CAST_MULTIPLIER] = 4,
        [CAST_STEP] = 4, [CAST_SEQUENCE] = 4, [FLAG] = 8, [ONE] = 4,
    };
    memcpy(p->bytes, bytes, sizeof bytes);
    for (int i = 0; i < MEMORY; i++) {
        if (!operands && i >= CAST_PARTS) continue;
        TRY(b->ops->memory_create(b, "certify: a producer", bytes[i], &p->memory[i], e));
        if (i < FETCHED && !(p->got[i] = calloc(1, (size_t)bytes[i] + 1))) return no_memory(e);
    }
    cast_views_make(&p->v, way, p->rows, p->k, p->memory);
    return OK;
}

static enum status fill_codes(struct producer *p, enum cast_part part, const struct tensor *codes,
                              int garbage, struct err *e) {
    cast_fill(p->got[part], codes, garbage);
    return p->b->ops->upload(p->b, LANE_COMPUTE, p->memory[part], p->got[part], p->bytes[part], e);
}

static enum status put(struct producer *p, int at, const void *host, int64_t bytes, struct err *e) {
    return p->b->ops->upload(p->b, LANE_COMPUTE, p->memory[at], host, bytes, e);
}

static enum status clear_sink(struct producer *p, int garbage, struct err *e) {
    const float multiplier = 4.0f, factor = 0.25f;
    const int32_t step = 7, sequence = 5;
    const uint32_t zero = 0;
    TRY(fill_codes(p, CAST_CODES, &p->v.codes, garbage, e));
    TRY(fill_codes(p, CAST_TWIN, &p->v.twin, garbage, e));
    TRY(put(p, CAST_MULTIPLIER, &multiplier, 4, e));
    TRY(put(p, CAST_STEP, &step, 4, e));
    TRY(put(p, CAST_SEQUENCE, &sequence, 4, e));
    TRY(put(p, CAST_AMAX, &zero, 4, e));
    return p->way->source == SCALE_SOURCE_KNOWN ? put(p, CAST_FACTORS, &factor, 4, e) : OK;
}

static enum status fetch(struct producer *p, struct err *e) {
    TRY(p->b->ops->quantise_finish(p->b, LANE_COMPUTE, &p->v.sink, e));
    for (int i = 0; i < FETCHED; i++)
        TRY(p->b->ops->download(p->b, LANE_COMPUTE, p->got[i], p->memory[i], p->bytes[i], e));
    return OK;
}

/* ---- operands ---------------------------------------------------------------------------------*/

/* Noise in PERIOD lines, one of them zero and one with an outlier, again and again. */
static enum status fill_noise(struct producer *p, int at, enum dtype dtype, int64_t line,
                              float most, struct err *e) {
    const int stream = at == CAST_VALUE ? at : at - WIDE + CAST_VALUE + 1; /* of random numbers */
    int64_t each = dtype_bytes(dtype), n = PERIOD * line;
    unsigned char *host = malloc((size_t)(n * each));
    if (!host) return no_memory(e);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = rng_bits(2104 + (uint64_t)stream, (uint64_t)i);
        float x = ((float)(int64_t)(bits & 65535) / 32768.0f - 1.0f) * most;
        if (i / line == 4) x = 0.0f;
        if (i == 7 * line + line / 2) x *= 64.0f;
        uint16_t half = bf16_encode(x);
        memcpy(host + i * each, dtype == DTYPE_F32 ? (const void *)&x : &half, (size_t)each);
    }
    enum status st = device_lines(p->b, p->memory[at], host, n * each, p->bytes[at], e);
    free(host);
    return st;
}

static enum status fill_same(struct producer *p, int at, float x, struct err *e) {
    int64_t n = p->bytes[at] / 4;
    float *host = malloc((size_t)p->bytes[at]);
    if (!host) return no_memory(e);
    for (int64_t i = 0; i < n; i++) host[i] = x;
    enum status st = put(p, at, host, p->bytes[at], e);
    free(host);
    return st;
}

static enum status fill_operands(struct producer *p, struct err *e) {
    const int32_t no_flag[2] = { -1, -1 };
    TRY(fill_noise(p, WIDE, DTYPE_BF16, 2 * p->k, 4.0f, e));
    TRY(fill_noise(p, A, DTYPE_BF16, p->k, 4.0f, e));
    TRY(fill_noise(p, B, DTYPE_BF16, p->k, 2.0f, e));
    TRY(fill_noise(p, CAST_VALUE, DTYPE_BF16, p->k, 1.0f, e)); /* weights, if no other is first */
    TRY(fill_noise(p, FA, DTYPE_F32, p->k, 0.5f, e));
    TRY(fill_same(p, FB, 0.25f, e));
    TRY(fill_noise(p, GAIN, DTYPE_BF16, (p->k + PERIOD - 1) / PERIOD, 1.5f, e));
    TRY(fill_same(p, ROPE, 0.75f, e));
    TRY(fill_same(p, MEAN, 0.125f, e));
    TRY(fill_same(p, RSTD, 0.5f, e));
    TRY(fill_same(p, D_GAIN, 0.0f, e));
    TRY(fill_same(p, D_BIAS, 0.0f, e));
    TRY(fill_same(p, ONE, 1.0f, e));
    return put(p, FLAG, no_flag, 8, e);
}

static struct tensor bf16(const struct producer *p, int at, int64_t cols) {
    return tensor_2d(p->memory[at], DTYPE_BF16, p->rows, cols);
}

static struct tensor f32(const struct producer *p, int at, int64_t n) {
    return tensor_1d(p->memory[at], DTYPE_F32, n);
}

/* ---- the producers ----------------------------------------------------------------------------*/

enum role { ROLE_VALUE = 1, ROLE_GRADIENT = 2, ROLE_WEIGHT = 4 };

static enum status run_norm(struct producer *p, bool layer, struct err *e) {
    const struct backend_ops *ops = p->b->ops;
    struct tensor x = bf16(p, A, p->k), gain = tensor_1d(p->memory[GAIN], DTYPE_BF16, p->k);
    struct tensor mean = f32(p, MEAN, p->rows), rstd = f32(p, RSTD, p->rows);
    const struct norm_fwd_args args = { .y = &p->v.sink, .mean = layer ? &mean : NULL,
                                        .rstd = &rstd, .x = &x, .gain = &gain,
                                        .bias = layer ? &gain : NULL, .eps = 1e-5f };
    return (layer ? ops->layernorm_fwd : ops->rmsnorm_fwd)(p->b, LANE_COMPUTE, &args, e);
}
static enum status run_rmsnorm(struct producer *p, struct err *e) { return run_norm(p, false, e); }
static enum status run_layernorm(struct producer *p, struct err *e) { return run_norm(p, true, e); }

static enum status run_norm_bwd(struct producer *p, bool layer, struct err *e) {
    const struct backend_ops *ops = p->b->ops;
    struct tensor x = bf16(p, A, p->k), dy = bf16(p, B, p->k), add = bf16(p, WIDE, p->k);
    struct tensor gain = tensor_1d(p->memory[GAIN], DTYPE_BF16, p->k);
    struct tensor d_gain = f32(p, D_GAIN, p->k), d_bias = f32(p, D_BIAS, p->k);
    struct tensor mean = f32(p, MEAN, p->rows), rstd = f32(p, RSTD, p->rows);
    const struct norm_bwd_args args = { .dx = &p->v.sink, .d_gain = &d_gain,
                                        .d_bias = layer ? &d_bias : NULL, .dy = &dy, .x = &x,
                                        .gain = &gain, .mean = layer ? &mean : NULL,
                                        .rstd = &rstd, .residual = &add };
    return (layer ? ops->layernorm_bwd : ops->rmsnorm_bwd)(p->b, LANE_COMPUTE, &args, e);
}
static enum status run_rmsnorm_bwd(struct producer *p, struct err *e) {
    return run_norm_bwd(p, false, e);
}
static enum status run_layernorm_bwd(struct producer *p, struct err *e) {
    return run_norm_bwd(p, true, e);
}

static enum status run_swiglu(struct producer *p, struct err *e) {
    struct tensor gate_up = bf16(p, WIDE, 2 * p->k);
    return p->b->ops->swiglu_fwd(p->b, LANE_COMPUTE, &p->v.sink, &gate_up, e);
}

static enum status run_swiglu_bwd(struct producer *p, struct err *e) {
    struct tensor gate_up = bf16(p, A, p->k), dh = bf16(p, B, p->k / 2);
    if (p->k % 2) return FAIL(e, ERR_UNSUPPORTED, "swiglu_bwd: an odd width");
    return p->b->ops->swiglu_bwd(p->b, LANE_COMPUTE, &p->v.sink, &dh, &gate_up, e);
}

static enum status run_gelu(struct producer *p, struct err *e) {
    struct tensor x = bf16(p, A, p->k);
    return p->b->ops->gelu_fwd(p->b, LANE_COMPUTE, &p->v.sink, &x, e);
}

static enum status run_gelu_bwd(struct producer *p, struct err *e) {
    struct tensor x = bf16(p, A, p->k), dh = bf16(p, B, p->k);
    return p->b->ops->gelu_bwd(p->b, LANE_COMPUTE, &p->v.sink, &dh, &x, e);
}

/* The gradient of a rotation, one key and one value head. */
static enum status run_qk_bwd(struct producer *p, struct err *e) {
    int64_t heads = p->k / HEAD - 2;
    if (p->k % HEAD || heads < 1)
        return FAIL(e, ERR_UNSUPPORTED, "qk_bwd: %lld elements are no heads", (long long)p->k);
    struct tensor d_out = tensor_make(p->memory[A], DTYPE_BF16, 1, p->rows, heads + 2, HEAD);
    struct tensor in = d_out, value = d_out, rope = tensor_2d(p->memory[ROPE], DTYPE_F32, p->rows,
                                                              HEAD);
    struct sink sink = p->v.sink;
    in.data = p->memory[B];
    value.data = p->memory[CAST_VALUE];
    sink.value = &value;
    const struct qk_bwd_args args = { .dx = &sink, .d_out = &d_out, .in = &in, .rope = &rope,
                                      .heads = heads, .kv_heads = 1 };
    return p->b->ops->qk_bwd(p->b, LANE_COMPUTE, &args, e);
}

static enum status run_adamw(struct producer *p, struct err *e) {
    int64_t n = p->rows * p->k;
    struct tensor m = f32(p, FA, n), v = f32(p, FB, n), one = f32(p, ONE, 1);
    struct tensor grad = tensor_2d(p->memory[B], DTYPE_BF16, p->rows, p->k);
    struct tensor flag = tensor_1d(p->memory[FLAG], DTYPE_I32, 2);
    struct adamw_args args = { .weight = &p->v.sink, .m = &m, .v = &v, .grad = &grad, .lr = &one,
                               .clip = &one, .bias1 = &one, .bias2 = &one, .step = &p->v.step,
                               .flag = &flag, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
                               .weight_decay = 0.1f, .seed = 2104, .tensor_id = 3 };
    return p->b->ops->adamw(p->b, LANE_COMPUTE, &args, 1, e);
}

static const struct {
    const char *name;
    enum role role;
    enum status (*run)(struct producer *p, struct err *e);
} PRODUCERS[] = {
    { "rmsnorm_fwd", ROLE_VALUE, run_rmsnorm },
    { "layernorm_fwd", ROLE_VALUE, run_layernorm },
    { "swiglu_fwd", ROLE_VALUE, run_swiglu },         { "gelu_fwd", ROLE_VALUE, run_gelu },
    { "rmsnorm_bwd", ROLE_GRADIENT, run_rmsnorm_bwd },
    { "layernorm_bwd", ROLE_GRADIENT, run_layernorm_bwd },
    { "swiglu_bwd", ROLE_GRADIENT, run_swiglu_bwd },  { "gelu_bwd", ROLE_GRADIENT, run_gelu_bwd },
    { "qk_bwd", ROLE_GRADIENT, run_qk_bwd },          { "adamw", ROLE_WEIGHT, run_adamw },
};
enum { COUNT = sizeof PRODUCERS / sizeof *PRODUCERS };

/* Whose cast this may be: squares are of weights, E5M2 and stochastic rounding of gradients. */
static unsigned roles_of(const struct certify_way *w) {
    bool square = w->scale_b == SCALE_128X128 || w->scale_b == SCALE_32X32 ||
                  w->scale_b == SCALE_16X16;
    if (square) return ROLE_WEIGHT;
    if (w->b == DTYPE_E5M2 || w->draws) return ROLE_GRADIENT;
    return w->rotate ? ROLE_VALUE | ROLE_GRADIENT : ROLE_VALUE | ROLE_GRADIENT | ROLE_WEIGHT;
}

/* ---- comparison -------------------------------------------------------------------------------*/

/* `than`: what the bytes differ from. */
static bool compare(const struct producer *p, unsigned char *const wanted[FETCHED],
                    const char *name, const char *than, struct certificate *out) {
    for (int i = 0; i < CAST_VALUE; i++) {
        int64_t wrong = 0;
        if (!cast_writes(p->way, i)) continue;
        out->outputs += p->bytes[i];
        for (int64_t k = 0; k < p->bytes[i]; k++) wrong += p->got[i][k] != wanted[i][k];
        if (!wrong) continue;
        certify_fail(out, i == CAST_CODES || i == CAST_TWIN ? "wrong codes" : "wrong scale",
                     "%s: %s: %lld of %lld bytes differ from %s", name, CAST_PART_NAMES[i],
                     (long long)wrong, (long long)p->bytes[i], than);
        return false;
    }
    return true;
}

/* The reference's cast of the value that the device stored. */
static enum status cast_value(struct producer *good, const struct producer *bad, struct err *e) {
    TRY(clear_sink(good, 0x33, e));
    TRY(put(good, CAST_VALUE, bad->got[CAST_VALUE], good->bytes[CAST_VALUE], e));
    TRY(good->b->ops->quantise(good->b, LANE_COMPUTE, &good->v.sink, &good->v.value, e));
    return fetch(good, e);
}

static enum status produce(struct producer *p, int i, bool keep, int garbage, struct err *e) {
    p->v.sink.keep_value = keep;
    TRY(clear_sink(p, garbage, e));
    TRY(PRODUCERS[i].run(p, e));
    return fetch(p, e);
}

/* *tried: the backend has this producer for the sink. */
static enum status try_producer(struct producer *good, struct producer *bad, int i, bool *tried,
                                struct certificate *out, struct err *e) {
    const char *name = PRODUCERS[i].name;
    enum status st = produce(bad, i, true, 0x11, e);
    *tried = st == OK;
    if (st == ERR_UNSUPPORTED || st == ERR_ARG) return OK;
    TRY(st);
    TRY(cast_value(good, bad, e));
    if (!compare(bad, good->got, name, "the reference's cast of the value that it stored", out))
        return OK;
    if (PRODUCERS[i].role == ROLE_WEIGHT) return OK; /* a weight is kept */
    TRY(produce(bad, i, false, 0x22, e));
    (void)compare(bad, good->got, name, "those that it makes if it keeps the value", out);
    return OK;
}

static enum status try_all(struct producer *good, struct producer *bad, struct certificate *out,
                           struct err *e) {
    size_t used = strlen(out->found), room = sizeof out->found;
    unsigned roles = roles_of(bad->way);
    TRY(fill_operands(bad, e));
    for (int i = 0; i < COUNT && out->outcome == CERTIFY_PASSED; i++) {
        bool tried;
        if (!(roles & PRODUCERS[i].role)) continue;
        TRY(try_producer(good, bad, i, &tried, out, e));
        if (!tried || out->outcome != CERTIFY_PASSED || used > room - 24) continue;
        used += (size_t)snprintf(out->found + used, room - used, "%s %s",
                                 strstr(out->found, "; cast by ") ? "," : "; cast by",
                                 PRODUCERS[i].name);
    }
    return OK;
}

enum status certify_producers(struct backend *b, struct backend *reference,
                              const struct certify_way *way, struct certificate *out,
                              struct err *e) {
    struct producer good, bad = { .b = b };
    enum status st = producer_open(&good, reference, way, false, e);
    if (st == OK) st = producer_open(&bad, b, way, true, e);
    if (st == OK) st = try_all(&good, &bad, out, e);
    producer_close(&bad);
    producer_close(&good);
    return st;
}
