#include <math.h>
#include <stdio.h>

#include "kernels/cpu/attention.h"

enum { HEAD_DIM_MAX = 512 };

/* Errors begin with "WHAT: ". */
static enum status check_first_key(const struct tensor *x, const char *what, int64_t batch,
                                   int64_t length, struct err *e) {
    char name[64];
    snprintf(name, sizeof name, "%s: first_key", what);
    TRY(cpu_check_packed(x, name, IS_I32, batch, length, e));
    const int32_t *first = x->data;
    for (int64_t i = 0; i < batch; i++)
        for (int64_t t = 0; t < length; t++) {
            int64_t least = t ? first[i * length + t - 1] : 0, now = first[i * length + t];
            if (now < least || now > t)
                return FAIL(e, ERR_ARG, "%s: %lld for query %lld of sequence %lld; it must be "
                            "between that of the query before, %lld, and the query itself", name,
                            (long long)now, (long long)t, (long long)i, (long long)least);
        }
    return OK;
}

/* The [B,T,H+2G,D] view of codes: rows may be padded, and nothing else. */
static enum status check_codes(const struct tensor *x, const char *name, struct err *e) {
    if (!x || !x->data || x->dtype != DTYPE_E4M3)
        return FAIL(e, ERR_ARG, "%s is %s, not codes of e4m3", name,
                    x && x->data ? dtype_name(x->dtype) : "missing");
    if (x->scale.kind != SCALE_TENSOR || !x->scale.data)
        return FAIL(e, ERR_ARG, "%s: its codes do not have one scale", name);
    int64_t row = x->dim[2] * x->dim[3];
    if (x->stride[3] != 1 || x->stride[2] != x->dim[3] || x->stride[1] < row ||
        x->stride[0] != x->dim[1] * x->stride[1])
        return FAIL(e, ERR_ARG, "%s: its rows of codes are not contiguous", name);
    return OK;
}

enum status attention_check_rows(const struct tensor *x, const char *what, int dtypes,
                                 int64_t rows, int64_t cols, float *factor, struct err *e) {
    TRY(cpu_check(x, what, dtypes, rows, cols, e));
    *factor = 1.0f;
    if (!dtype_is_fp8(x->dtype)) return cpu_check_packed(x, what, dtypes, rows, cols, e);
    if (x->scale.kind != SCALE_TENSOR || !x->scale.data || x->stride[0] < cols)
        return FAIL(e, ERR_ARG, "%s: its codes do not have one scale", what);
    *factor = *(const float *)x->scale.data;
    return OK;
}

enum status rounding_setup(struct rounding *r, const struct attention_cast *given,
                           const char *what, struct err *e) {
    *r = (struct rounding){ .multiplier = 1.0f, .factor = 1.0f };
    if (!given) return OK;
    if (given->code != DTYPE_E4M3 && given->code != DTYPE_E5M2)
        return FAIL(e, ERR_ARG, "%s: rounded to %s", what, dtype_name(given->code));
    TRY(cpu_check(given->multiplier, what, IS_F32, 1, 1, e));
    TRY(cpu_check(given->factor, what, IS_F32, 1, 1, e));
    TRY(cpu_check(given->amax, what, IS_U32, 1, 1, e));
    if (given->stats) TRY(cpu_check(given->stats, what, IS_U64, 2, 1, e));
    *r = (struct rounding){ .given = given, .code = given->code, .max = dtype_max(given->code),
                            .multiplier = *(const float *)given->multiplier->data,
                            .factor = *(const float *)given->factor->data };
    return OK;
}

void rounding_add(const struct rounding *r, const struct tally *t) {
    if (!r->given) return;
    uint32_t *amax = r->given->amax->data;
    *amax = t->amax > *amax ? t->amax : *amax;
    if (!r->given->stats) return;
    uint64_t *stats = r->given->stats->data;
    stats[0] += t->saturated;
    stats[1] += t->flushed;
}

enum status attention_setup(struct attention *a, struct backend *b, const char *what,
                            const struct tensor *qkv, int64_t heads, int64_t kv_heads,
                            const struct tensor *first_key, bool fp8, struct err *e) {
    char name[64];
    snprintf(name, sizeof name, "%s: qkv", what);
    TRY(fp8 ? check_codes(qkv, name, e) : cpu_check_packed(qkv, name, IS_ACT, -1, -1, e));
    if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0)
        return FAIL(e, ERR_ARG, "%s: %lld heads over %lld key/value heads", name, (long long)heads,
                    (long long)kv_heads);
    if (qkv->dim[2] != heads + 2 * kv_heads)
        return FAIL(e, ERR_ARG, "%s: %lld heads in the tensor, %lld + 2*%lld in the call", name,
                    (long long)qkv->dim[2], (long long)heads, (long long)kv_heads);
    if (qkv->dim[3] < 1 || qkv->dim[3] > HEAD_DIM_MAX)
        return FAIL(e, ERR_ARG, "%s: head_dim %lld is not in 1..%d", name, (long long)qkv->dim[3],
                    HEAD_DIM_MAX);
    if (first_key) TRY(check_first_key(first_key, what, qkv->dim[0], qkv->dim[1], e));
    const struct isa *isa = cpu_of(b)->isa;
    float scale = 1.0f / sqrtf((float)qkv->dim[3]);
    float factor = fp8 ? *(const float *)qkv->scale.data : 1.0f;
    *a = (struct attention){
        .isa = isa, .qkv = qkv, .first_key = first_key ? first_key->data : NULL,
        .batch = qkv->dim[0], .length = qkv->dim[1], .heads = heads,
        .kv_heads = kv_heads, .head_dim = qkv->dim[3], .row = qkv->dim[2] * qkv->dim[3],
        .width = fp8 ? qkv->stride[1] : qkv->dim[2] * qkv->dim[3],
        .mr = isa->mr, .nr = isa->nr, .dim_padded = round_up(qkv->dim[3], isa->mr),
        .keys_padded = round_up(qkv->dim[1], isa->mr),
        .scale = scale, .factor = factor, .score_scale = scale * (factor * factor),
    };
    return OK;
}

void first_keys(const struct attention *a, int64_t i, int64_t t, int64_t n, int32_t *out) {
    for (int64_t c = 0; c < a->nr; c++) out[c] = c < n ? (int32_t)first_key_of(a, i, t + c) : 0;
}

/* The largest |x| bits decide: infinity and NaN are larger than every finite value. */
CLONES static bool all_finite(const float *x, int64_t n) {
    uint32_t max = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = f32_bits(x[i]) & 0x7FFFFFFFu;
        max = bits > max ? bits : max;
    }
    return max < 0x7F800000u;
}

/* out[d * stride + c] for the rows c, each of D floats. */
static bool pack_transposed(const struct attention *a, float *out, int64_t stride, struct rows r) {
    float row[HEAD_DIM_MAX];
    bool finite = true;
    for (int64_t c = 0; c < r.n; c++) {
        attention_load(row, r.x, r.offset + c * r.stride, a->head_dim);
        finite = all_finite(row, a->head_dim) && finite;
        for (int64_t d = 0; d < a->head_dim; d++) out[d * stride + c] = row[d];
    }
    for (int64_t c = r.n; c < stride; c++)
        for (int64_t d = 0; d < a->head_dim; d++) out[d * stride + c] = 0.0f;
    return finite;
}

bool pack_columns(const struct attention *a, float *out, int64_t panel, struct rows r) {
    return pack_transposed(a, out, panel, r);
}

bool pack_panels_of_rows(const struct attention *a, float *out, struct rows r) {
    bool finite = true;
    for (int64_t at = 0; at < r.n; at += a->mr) {
        int64_t n = r.n - at < a->mr ? r.n - at : a->mr;
        struct rows panel = { r.x, r.offset + at * r.stride, r.stride, n };
        finite = pack_transposed(a, out + at * a->head_dim, a->mr, panel) && finite;
    }
    return finite;
}

bool pack_across(const struct attention *a, float *out, struct rows r) {
    float row[HEAD_DIM_MAX + GEMM_MR_MAX];
    bool finite = true;
    memset(row + a->head_dim, 0, GEMM_MR_MAX * sizeof(float));
    for (int64_t c = 0; c < r.n; c++) {
        attention_load(row, r.x, r.offset + c * r.stride, a->head_dim);
        finite = all_finite(row, a->head_dim) && finite;
        for (int64_t d = 0; d < a->head_dim; d += a->mr)
            memcpy(out + d * r.n + c * a->mr, row + d, (size_t)a->mr * sizeof(float));
    }
    return finite;
}

void attention_multiply(const struct attention *a, float *out, const float *left,
                        int64_t left_stride, int64_t panels, const float *right, int64_t k) {
    memset(out, 0, (size_t)(panels * a->mr * a->nr) * sizeof(float));
    for (int64_t p = 0; p < panels; p++)
        a->isa->gemm(k, left + p * left_stride, right, out + p * a->mr * a->nr);
}

void unpack_columns(const struct attention *a, struct rows out, const float *in,
                    const float *factor) {
    float row[HEAD_DIM_MAX];
    for (int64_t c = 0; c < out.n; c++) {
        for (int64_t d = 0; d < a->head_dim; d++) row[d] = in[d * a->nr + c] * factor[c] + 0.0f;
        store_span(out.x, out.offset + c * out.stride, row, a->head_dim);
    }
}
