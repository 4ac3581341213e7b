#include "kernels/certify/attention_trial.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/certify/device_lines.h"

enum { LINES = 61 };
/* With a mask the last query does not see the large key, and that token's values are large too: an
 * output to which it counts is wrong by more than the bound, however many keys there are. */
enum { LARGE = 24, LARGE_VALUE = 16384, LARGE_CODE = 448 };
/* Codes fill their range but for the large token; no scale is 1 or a power of two. */
enum { CODE_MAX = 225, D_OUT_MAX = 300 };
enum { SCALAR_BYTES = 16 }; /* alignment of a scale */

void attention_trial_free(struct attention_trial *t) {
    for (int i = 0; i < PARTS; i++)
        if (t->memory[i]) t->b->ops->memory_destroy(t->b, t->memory[i]);
    for (int i = 0; i < OPERANDS; i++) free(t->lines[i].bytes), free(t->lines[i].value);
    void *const owned[] = { t->o, t->d_qkv, t->lse, t->p, t->q, t->other };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    attention_mask_free(&t->mask);
}

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for the certificate of attention");
}

/* ---- the operands ---- */

const float *attention_qkv_at(const struct attention_trial *t, int64_t sequence, int64_t token,
                              int64_t head) {
    bool large = sequence == 0 && token == t->large;
    int64_t line = large ? LINES : (sequence * t->length + token) % LINES;
    return t->lines[OPERAND_QKV].value + line * t->width + head * t->dim;
}

const float *attention_line_at(const struct attention_trial *t, enum attention_operand of,
                               int64_t sequence, int64_t token, int64_t head) {
    int64_t line = (sequence * t->length + token) % LINES;
    return t->lines[of].value + line * t->out_width + head * t->dim;
}

/* One element as bytes; what they mean. */
static float encode(enum dtype dtype, float x, unsigned char out[2]) {
    if (dtype_is_fp8(dtype)) {
        out[0] = fp8_encode(dtype, x);
        return fp8_decode(dtype, out[0]);
    }
    uint16_t bits = bf16_encode(x);
    memcpy(out, &bits, sizeof bits);
    return bf16_decode(bits);
}

static int64_t line_bytes(const struct attention_lines *l) {
    return l->stride * dtype_bytes(l->dtype);
}

/* Numbers in +-max. */
static enum status open_lines(struct attention_lines *l, enum dtype dtype, int64_t cols,
                              uint64_t seed, float max, struct err *e) {
    int64_t each = dtype_bytes(dtype);
    l->dtype = dtype;
    l->cols = cols;
    l->stride = dtype_is_fp8(dtype) ? round_up(cols, FP8_ROW_ALIGN) : cols;
    l->bytes = calloc((size_t)LINES, (size_t)line_bytes(l));
    l->value = malloc((size_t)((LINES + 1) * cols) * sizeof *l->value);
    if (!l->bytes || !l->value) return no_memory(e);
    for (int64_t k = 0; k < LINES * cols; k++) {
        int64_t at = k / cols * l->stride + k % cols;
        float u = (float)(int64_t)(rng_bits(seed, (uint64_t)k) & 65535) / 32768.0f - 1.0f;
        unsigned char bytes[2];
        l->value[k] = encode(dtype, u * max, bytes);
        memcpy(l->bytes + at * each, bytes, (size_t)each);
    }
    return OK;
}

/* Writes one element of sequence 0. */
static enum status put(const struct attention_trial *t, int64_t token, int64_t head, float x,
                       struct err *e) {
    const struct attention_lines *l = &t->lines[OPERAND_QKV];
    unsigned char bytes[2];
    int64_t each = dtype_bytes(l->dtype), at = token * l->stride + head * t->dim;
    (void)encode(l->dtype, x, bytes);
    return t->b->ops->upload(t->b, LANE_COMPUTE, (char *)t->memory[PART_QKV] + each * at, bytes,
                             each, e);
}

enum status attention_trial_put_nan(struct attention_trial *t, int64_t token, struct err *e) {
    return put(t, token, t->heads + t->groups, f32_from_bits(0x7FC00000u), e);
}

/* The large token: its first key, and under a mask its values. */
static enum status put_large(struct attention_trial *t, struct err *e) {
    bool fp8 = attention_is_fp8(t->way);
    float *line = t->lines[OPERAND_QKV].value, key = fp8 ? LARGE_CODE : LARGE;
    float value = fp8 ? LARGE_CODE : LARGE_VALUE, *large = line + LINES * t->width;
    memcpy(large, line + t->large % LINES * t->width, (size_t)t->width * sizeof *large);
    large[t->heads * t->dim] = key;
    TRY(put(t, t->large, t->heads, key, e));
    for (int64_t g = 0; g < t->groups && attention_is_masked(t); g++) {
        large[(t->heads + t->groups + g) * t->dim] = value;
        TRY(put(t, t->large, t->heads + t->groups + g, value, e));
    }
    return OK;
}

/* ---- opening ---- */

static enum status open_all_lines(struct attention_trial *t, struct err *e) {
    const struct certify_way *w = t->way;
    bool fp8 = attention_is_fp8(w);
    float max = fp8 ? CODE_MAX : 1.0f, d_max = fp8 ? D_OUT_MAX : 1.0f;
    TRY(open_lines(&t->lines[OPERAND_QKV], w->a, t->width, 77, max, e));
    TRY(open_lines(&t->lines[OPERAND_D_OUT], fp8 ? w->b : w->a, t->out_width, 78, d_max, e));
    if (!fp8 || !dtype_is_fp8(w->out)) return OK;
    return open_lines(&t->lines[OPERAND_O], w->out, t->out_width, 79, max, e);
}

/* Memory whose pages are there already. The kernel makes them while a download waits, otherwise, by
 * one thread. */
static void *touched(int64_t bytes) {
    enum { PIECE = 1 << 20 };
    char *p = malloc((size_t)bytes);
#pragma omp parallel for schedule(static) if (bytes > PIECE)
    for (int64_t at = 0; at < (p ? bytes : 0); at += PIECE)
        memset(p + at, 0, (size_t)(bytes - at < PIECE ? bytes - at : PIECE));
    return p;
}

static enum status open_results(struct attention_trial *t, struct err *e) {
    t->o = touched(2 * t->length * t->out_width);
    t->d_qkv = touched(2 * t->length * t->width);
    t->lse = malloc((size_t)(4 * t->length * t->heads));
    t->p = malloc((size_t)t->length * sizeof *t->p);
    t->q = malloc((size_t)t->length * sizeof *t->q);
    t->other = malloc((size_t)t->length * sizeof *t->other);
    return t->o && t->d_qkv && t->lse && t->p && t->q && t->other ? OK : no_memory(e);
}

static enum status open_mask(struct attention_trial *t, struct err *e) {
    TRY(attention_mask_open(&t->mask, t->batch, t->length, t->way->window, t->way->documents, e));
    int64_t low = attention_low(t, 0, t->length - 1);
    t->large = low > 0 ? low - 1 : t->length / 3;
    return OK;
}

static enum status open_memory(struct attention_trial *t, struct err *e) {
    static const enum attention_part OF[OPERANDS] = { PART_QKV, PART_D_OUT, PART_O_CODES };
    struct backend *b = t->b;
    int64_t tokens = t->batch * t->length;
    int64_t bytes[PARTS] = {
        [PART_OUT] = 2 * tokens * t->out_width, [PART_LSE] = 4 * tokens * t->heads,
        [PART_D_QKV] = 2 * tokens * t->width, [PART_DELTA] = 4 * tokens * t->heads,
        [PART_FIRST_KEY] = attention_is_masked(t) ? 4 * tokens : 0,
        [PART_SCALARS] = (ATTENTION_SCALES + ATTENTION_AMAXES) * SCALAR_BYTES,
    };
    for (int i = 0; i < OPERANDS; i++) bytes[OF[i]] = tokens * line_bytes(&t->lines[i]);
    for (int i = 0; i < PARTS; i++)
        if (bytes[i])
            TRY(b->ops->memory_create(b, "certify: attention", bytes[i], &t->memory[i], e));
    if (attention_is_masked(t)) TRY(attention_mask_upload(&t->mask, b, t->memory[PART_FIRST_KEY],
                                                          e));
    for (int i = 0; i < OPERANDS; i++)
        if (bytes[OF[i]])
            TRY(device_lines(b, t->memory[OF[i]], t->lines[i].bytes,
                             LINES * line_bytes(&t->lines[i]), bytes[OF[i]], e));
    return OK;
}

static char *scalar_at(const struct attention_trial *t, int i) {
    return (char *)t->memory[PART_SCALARS] + i * SCALAR_BYTES;
}

static enum status open_scales(struct attention_trial *t, struct err *e) {
    bool wide = t->way->b == DTYPE_E5M2;
    t->scale[FACTOR_QKV] = 1.0f / 150;
    t->scale[FACTOR_D_OUT] = 0.003f;
    t->scale[FACTOR_O] = 0.007f;
    t->scale[MULTIPLIER_P] = 400;
    t->scale[FACTOR_P] = 1.0f / 400;
    t->scale[MULTIPLIER_DS] = wide ? 900 : 50;
    t->scale[FACTOR_DS] = 1.0f / t->scale[MULTIPLIER_DS];
    for (int i = 0; i < ATTENTION_SCALES; i++)
        TRY(t->b->ops->upload(t->b, LANE_COMPUTE, scalar_at(t, i), &t->scale[i], 4, e));
    return OK;
}

enum status attention_trial_open(struct attention_trial *t, struct backend *b,
                                 const struct certify_way *way, int64_t batch, int64_t length,
                                 struct err *e) {
    *t = (struct attention_trial){ .b = b, .way = way, .batch = batch, .length = length,
                                   .heads = way->heads, .groups = way->kv_heads,
                                   .dim = way->head_dim };
    t->width = (t->heads + 2 * t->groups) * t->dim;
    t->out_width = t->heads * t->dim;
    TRY(open_mask(t, e));
    TRY(open_all_lines(t, e));
    TRY(open_results(t, e));
    TRY(open_memory(t, e));
    TRY(open_scales(t, e));
    return put_large(t, e);
}

/* ---- running it ---- */

static struct tensor operand_view(const struct attention_trial *t, enum attention_operand i,
                                  enum attention_part part, int scale) {
    const struct attention_lines *l = &t->lines[i];
    int64_t tokens = t->batch * t->length;
    if (!dtype_is_fp8(l->dtype)) return tensor_2d(t->memory[part], l->dtype, tokens, l->cols);
    struct tensor x = tensor_fp8(t->memory[part], l->dtype, tokens, l->cols);
    x.scale = scale_make(scalar_at(t, scale), SCALE_TENSOR, tokens, l->cols);
    return x;
}

static struct tensor heads_view(const struct attention_trial *t) {
    struct tensor rows = operand_view(t, OPERAND_QKV, PART_QKV, FACTOR_QKV);
    struct tensor x = tensor_make(rows.data, rows.dtype, t->batch, t->length,
                                  t->heads + 2 * t->groups, t->dim);
    x.stride[1] = rows.stride[0];
    x.stride[0] = t->length * rows.stride[0];
    x.scale = rows.scale;
    return x;
}

struct cast_view { struct tensor multiplier, factor, amax; struct attention_cast cast; };
static void open_cast(const struct attention_trial *t, enum dtype code, int multiplier, int factor,
                      int amax, struct cast_view *c) {
    c->multiplier = tensor_1d(scalar_at(t, multiplier), DTYPE_F32, 1);
    c->factor = tensor_1d(scalar_at(t, factor), DTYPE_F32, 1);
    c->amax = tensor_1d(scalar_at(t, ATTENTION_SCALES + amax), DTYPE_U32, 1);
    c->cast = (struct attention_cast){ code, &c->multiplier, &c->factor, &c->amax, NULL };
}

enum status attention_trial_run(struct attention_trial *t, bool backward, int garbage, float amax,
                                struct err *e) {
    struct backend *b = t->b;
    int64_t tokens = t->batch * t->length;
    bool fp8 = attention_is_fp8(t->way);
    struct tensor qkv = heads_view(t);
    struct tensor o = tensor_2d(t->memory[PART_OUT], DTYPE_BF16, tokens, t->out_width);
    struct tensor d_o = operand_view(t, OPERAND_D_OUT, PART_D_OUT, FACTOR_D_OUT);
    struct tensor o_codes = operand_view(t, OPERAND_O, PART_O_CODES, FACTOR_O);
    struct tensor d_qkv = tensor_2d(t->memory[PART_D_QKV], DTYPE_BF16, tokens, t->width);
    struct tensor lse = tensor_make(t->memory[PART_LSE], DTYPE_F32, t->batch, t->heads, t->length,
                                    1);
    struct tensor delta = lse;
    delta.data = t->memory[PART_DELTA];
    struct tensor first = tensor_2d(t->memory[PART_FIRST_KEY], DTYPE_I32, t->batch, t->length);
    const struct tensor *first_key = attention_is_masked(t) ? &first : NULL;
    struct sink out = sink_value(&o, NULL), d_out = sink_value(&d_qkv, NULL);
    struct cast_view p, ds;
    open_cast(t, DTYPE_E4M3, MULTIPLIER_P, FACTOR_P, AMAX_P, &p);
    open_cast(t, t->way->b, MULTIPLIER_DS, FACTOR_DS, AMAX_DS, &ds);
    TRY(device_bytes(b, o.data, garbage, 2 * t->length * t->out_width, e));
    TRY(device_bytes(b, d_qkv.data, garbage, 2 * t->length * t->width, e));
    for (int i = 0; i < ATTENTION_AMAXES; i++)
        TRY(b->ops->upload(b, LANE_COMPUTE, scalar_at(t, ATTENTION_SCALES + i), &amax, 4, e));
    const struct attention_fwd_args fwd = { .o = &out, .lse = &lse, .qkv = &qkv,
                                            .first_key = first_key, .heads = t->heads,
                                            .kv_heads = t->groups, .p = fp8 ? &p.cast : NULL };
    TRY(b->ops->attention_fwd(b, LANE_COMPUTE, &fwd, e));
    if (!backward) return OK;
    const struct attention_bwd_args bwd = { .d_qkv = &d_out, .delta = &delta, .d_o = &d_o,
                                            .o = o_codes.data ? &o_codes : &o, .qkv = &qkv,
                                            .lse = &lse, .first_key = first_key,
                                            .heads = t->heads, .kv_heads = t->groups,
                                            .p = fp8 ? &p.cast : NULL,
                                            .ds = fp8 ? &ds.cast : NULL };
    return b->ops->attention_bwd(b, LANE_COMPUTE, &bwd, e);
}

enum status attention_trial_fetch_one(struct attention_trial *t, int64_t sequence,
                                      enum attention_part part, struct err *e) {
    int64_t bytes = part == PART_LSE ? 4 * t->length * t->heads
                                     : 2 * t->length * (part == PART_OUT ? t->out_width : t->width);
    void *host = part == PART_OUT ? (void *)t->o : part == PART_LSE ? (void *)t->lse
                                                                    : (void *)t->d_qkv;
    return t->b->ops->download(t->b, LANE_COMPUTE, host,
                               (const char *)t->memory[part] + sequence * bytes, bytes, e);
}

enum status attention_trial_fetch_amax(struct attention_trial *t, struct err *e) {
    for (int i = 0; i < ATTENTION_AMAXES; i++)
        TRY(t->b->ops->download(t->b, LANE_COMPUTE, &t->amax[i],
                                scalar_at(t, ATTENTION_SCALES + i), 4, e));
    return OK;
}

enum status attention_trial_fetch(struct attention_trial *t, int64_t sequence, bool backward,
                                  struct err *e) {
    TRY(attention_trial_fetch_one(t, sequence, PART_OUT, e));
    TRY(attention_trial_fetch_one(t, sequence, PART_LSE, e));
    TRY(attention_trial_fetch_amax(t, e));
    return backward ? attention_trial_fetch_one(t, sequence, PART_D_QKV, e) : OK;
}

bool attention_near(struct certificate *out, const char *what, int64_t token, int64_t head,
                    double got, double want, double bound) {
    double error = fabs(got - want);
    out->outputs++;
    if (out->bound == 0 || error / bound > out->error / out->bound) {
        out->error = error;
        out->bound = bound;
    }
    if (error <= bound) return true; /* NaN is not near */
    certify_fail(out, "beyond the bound", "%s of token %lld, head %lld is %.6g, and %.6g is exact; "
                 "the bound is %.3g", what, (long long)token, (long long)head, got, want, bound);
    return false;
}
