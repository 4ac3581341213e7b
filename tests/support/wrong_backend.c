#include "tests/support/wrong_backend.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/arithmetic.h"
#include "kernels/cuda/native.h"
#include "kernels/device.h"
#include "kernels/nvfp4.h"

enum { FORBIDDEN = 16 };

/* Begins with the table that callers see; the real one is behind it. */
struct wrong {
    struct backend_ops ops;
    const struct backend_ops *real;
    enum wrong_kind kind;
    char architecture[32];
    char forbidden[FORBIDDEN][FORBIDDEN_WAY_CAP];
    int count;
};

static struct wrong *wrong_of(struct backend *b) { return (struct wrong *)(uintptr_t)b->ops; }

static bool is_forbidden(const struct wrong *w, const char *way) {
    for (int i = 0; i < w->count; i++)
        if (!strcmp(w->forbidden[i], way)) return true;
    return false;
}

static enum status wrong_forbid(struct backend *b, const char *section, const char *way,
                                struct err *e) {
    struct wrong *w = wrong_of(b);
    if (!strncmp(way, "bf16", 4) || w->count == FORBIDDEN)
        return FAIL(e, ERR_UNSUPPORTED, "%s %s: there is no other way", section, way);
    snprintf(w->forbidden[w->count++], FORBIDDEN_WAY_CAP, "%s", way);
    return OK;
}

static enum status wrong_info(struct backend *b, struct device_info *info, struct err *e) {
    struct wrong *w = wrong_of(b);
    TRY(w->real->info(b, info, e));
    snprintf(info->name, sizeof info->name, "a stand-in");
    snprintf(info->architecture, sizeof info->architecture, "%s", w->architecture);
    return OK;
}

static void wrong_close(struct backend *b) {
    if (!b) return;
    struct wrong *w = wrong_of(b);
    b->ops = w->real;
    w->real->close(b);
    free(w);
}

/* ---- GEMM ---- */

static bool is_fp8(const struct matmul_args *args) { return dtype_is_fp8(args->a->dtype); }
static bool is_fp8_twin(const struct tensor *x) {
    return dtype_is_fp8(x->dtype) && fp8_is_untransposed(x);
}

static int capability(const struct wrong *w) {
    return strncmp(w->architecture, "sm_", 3) ? 0 : atoi(w->architecture + 3);
}

static enum status wrong_assume(struct backend *b, const char *architecture, struct err *e) {
    struct wrong *w = wrong_of(b);
    snprintf(w->architecture, sizeof w->architecture, "%s", architecture);
    return OK;
}

static bool wrong_twins(struct backend *b, enum scale_kind kind) {
    return device_twins_untransposed(capability(wrong_of(b)), kind);
}

/* As the CUDA backend decides for this architecture. Another one multiplies all FP8 as it is. */
static bool is_native(const struct wrong *w, const struct matmul_args *args) {
    char way[FORBIDDEN_WAY_CAP];
    const struct gemm_kind kind = { .a = args->a->scale.kind, .b = args->b->scale.kind,
                                    .m = args->a->dim[0], .n = args->b->dim[0],
                                    .k = args->a->dim[1], .cc = capability(w),
                                    .untransposed_a = fp8_is_untransposed(args->a),
                                    .untransposed_b = fp8_is_untransposed(args->b) };
    gemm_way_name(args, way);
    return is_fp8(args) && !is_forbidden(w, way) &&
           (!kind.cc || gemm_by_of(&kind) != GEMM_EMULATED);
}

static enum status wrong_native(struct backend *b, const struct matmul_args *args, bool *native,
                                struct err *e) {
    *native = is_native(wrong_of(b), args);
    return OK;
}

/* a's scale with the mistake, in *memory. */
static struct scale wrong_scale(enum wrong_kind kind, const struct scale *s, void **memory) {
    struct scale out = *s;
    int64_t each = dtype_bytes(s->dtype), n = s->dim[0] * s->dim[1];
    int64_t header = scale_bytes(s) - n * each;
    unsigned char *to = *memory = malloc((size_t)scale_bytes(s));
    const unsigned char *from = s->data;
    out.data = to;
    memcpy(to, from, (size_t)scale_bytes(s));
    for (int64_t i = 0; i < n; i++) {
        int64_t row = i / s->dim[1], col = i % s->dim[1], at = i;
        if (kind == WRONG_SWAPPED && (col ^ 1) < s->dim[1]) at = row * s->dim[1] + (col ^ 1);
        if (kind == WRONG_TRANSPOSED) at = col * s->dim[0] + row;
        memcpy(to + header + i * each, from + header + at * each, (size_t)each);
        const float one = 1.0f;
        if (kind == WRONG_MANTISSA && (to[header + i] & 0x7F) != 0x7F) to[header + i] &= 0xF8;
        if (kind != WRONG_IGNORED) continue;
        if (s->dtype == DTYPE_F32) memcpy(to + i * each, &one, sizeof one);
        else to[header + i] = s->dtype == DTYPE_E8M0 ? 127 : e4m3_encode(1.0f);
    }
    return out;
}

/* The amax of a tensor whose factor is 1. */
static const float AMAX_OF_ONE = 2688.0f;

/* The product of NVFP4 with factors of 1 for the two tensors. */
static enum status without_factor(struct backend *b, int lane, const struct matmul_args *args,
                                  struct err *e) {
    struct matmul_args changed = *args;
    struct tensor side[2] = { *args->a, *args->b };
    void *memory[2];
    for (int i = 0; i < 2; i++) {
        side[i].scale = wrong_scale(WRONG_NOTHING, &side[i].scale, &memory[i]);
        memcpy(memory[i], &AMAX_OF_ONE, sizeof AMAX_OF_ONE);
    }
    changed.a = &side[0];
    changed.b = &side[1];
    enum status st = wrong_of(b)->real->matmul(b, lane, &changed, e);
    for (int i = 0; i < 2; i++) free(memory[i]);
    return st;
}

static float load(const struct tensor *x, int64_t at) {
    return x->dtype == DTYPE_F32 ? ((const float *)x->data)[at]
                                 : bf16_decode(((const uint16_t *)x->data)[at]);
}

static void store(const struct tensor *x, int64_t at, float value) {
    if (x->dtype == DTYPE_F32) ((float *)x->data)[at] = value;
    else ((uint16_t *)x->data)[at] = bf16_encode(value);
}

/* NVFP4 in place in f32: C is added in one rounding. */
static enum status fused(struct backend *b, int lane, const struct matmul_args *args,
                         struct err *e) {
    struct matmul_args alone = *args;
    struct tensor sums = *args->out;
    int64_t n = tensor_count(&sums);
    float factor = nvfp4_product_factor(*(const float *)args->a->scale.data,
                                        *(const float *)args->b->scale.data);
    alone.out = &sums;
    alone.beta = 0.0f;
    sums.data = malloc((size_t)n * sizeof(float));
    enum status st = without_factor(b, lane, &alone, e);
    for (int64_t i = 0; i < n && st == OK; i++)
        store(args->out, i, f32_canonical(fmaf(load(&sums, i), factor, load(args->out, i))));
    free(sums.data);
    return st;
}

static void no_nan(const struct tensor *x) {
    for (int64_t i = 0; i < tensor_count(x); i++)
        if (isnan(load(x, i))) store(x, i, 0.0f);
}

/* NaN as a GPU has it: all bits of the fraction. */
static void other_nan(const struct tensor *x) {
    for (int64_t i = 0; i < tensor_count(x); i++) {
        if (!isnan(load(x, i))) continue;
        if (x->dtype == DTYPE_F32) ((float *)x->data)[i] = f32_from_bits(0x7FFFFFFFu);
        else ((uint16_t *)x->data)[i] = 0x7FFF;
    }
}

/* Exact sums of the two halves of K, with factors, the second half first. */
static enum status other_order(struct backend *b, int lane, const struct matmul_args *args,
                               struct err *e) {
    int64_t half = args->a->dim[1] / 2 / 128 * 128, k = args->a->dim[1];
    enum scale_kind kind = args->a->scale.kind;
    const struct wrong *w = wrong_of(b);
    struct tensor out = *args->out, a[2] = { *args->a, *args->a }, x[2] = { *args->b, *args->b };
    if (!half || args->bias || args->residual || out.dtype != DTYPE_F32 || args->beta != 0.0f ||
        (kind != SCALE_NONE && kind != SCALE_TENSOR && kind != SCALE_ROW))
        return w->real->matmul(b, lane, args, e);
    for (int i = 0; i < 2; i++) {
        struct tensor *side[2] = { &a[i], &x[i] };
        for (int s = 0; s < 2; s++) {
            side[s]->dim[1] = i ? half : k - half;
            int64_t skip = (i ? 0 : half) * side[s]->stride[1] * dtype_bytes(side[s]->dtype);
            side[s]->data = (char *)side[s]->data + skip;
        }
        struct matmul_args part = *args;
        part.a = &a[i];
        part.b = &x[i];
        part.beta = i ? 1.0f : 0.0f;
        TRY(w->real->matmul(b, lane, &part, e));
    }
    return OK;
}

/* The product, but for its last row and column, which keep what they had. */
static enum status without_tail(struct backend *b, int lane, const struct matmul_args *args,
                                struct err *e) {
    const struct tensor *out = args->out;
    int64_t rows = out->dim[0], cols = out->dim[1], bytes = rows * cols * dtype_bytes(out->dtype);
    struct tensor before = *out;
    before.data = malloc((size_t)bytes);
    memcpy(before.data, out->data, (size_t)bytes);
    enum status st = wrong_of(b)->real->matmul(b, lane, args, e);
    int64_t each = dtype_bytes(out->dtype);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i == rows - 1 ? 0 : cols - 1; j < cols; j++)
            memcpy((char *)out->data + (i * cols + j) * each,
                   (char *)before.data + (i * cols + j) * each, (size_t)each);
    free(before.data);
    return st;
}

/* A copy of FP8 codes, zero beyond the last 32 along K that are whole. */
static void *without_end(const struct tensor *x) {
    int64_t ld = x->stride[0], end = x->dim[1] / 32 * 32;
    unsigned char *copy = malloc((size_t)(x->dim[0] * ld));
    memcpy(copy, x->data, (size_t)(x->dim[0] * ld));
    for (int64_t row = 0; row < x->dim[0]; row++)
        memset(copy + row * ld + end, 0, (size_t)(ld - end));
    return copy;
}

/* An untransposed twin, read as if it were a transposed one: its codes, or its scales alone. */
static struct tensor wrong_twin(enum wrong_kind kind, const struct tensor *x, void **memory) {
    struct tensor out = *x;
    *memory = NULL;
    if (!is_fp8_twin(x)) return out;
    if (kind == WRONG_TWIN_SCALES) {
        out.scale = wrong_scale(WRONG_TRANSPOSED, &x->scale, memory);
        return out;
    }
    int64_t have = tensor_code_bytes(x), bytes = tensor_fp8_bytes(x->dim[0], x->dim[1]);
    out = tensor_fp8(*memory = calloc(1, (size_t)bytes), x->dtype, x->dim[0], x->dim[1]);
    out.scale = x->scale;
    memcpy(out.data, x->data, (size_t)(have < bytes ? have : bytes));
    return out;
}

static enum status wrong_twins_product(struct backend *b, int lane, const struct matmul_args *args,
                                       struct err *e) {
    struct wrong *w = wrong_of(b);
    struct matmul_args changed = *args;
    void *memory[2];
    struct tensor side[2] = { wrong_twin(w->kind, args->a, &memory[0]),
                              wrong_twin(w->kind, args->b, &memory[1]) };
    changed.a = &side[0];
    changed.b = &side[1];
    enum status st = w->real->matmul(b, lane, &changed, e);
    for (int i = 0; i < 2; i++) free(memory[i]);
    return st;
}

static enum status wrong_matmul(struct backend *b, int lane, const struct matmul_args *args,
                                struct err *e) {
    struct wrong *w = wrong_of(b);
    struct matmul_args changed = *args;
    struct tensor a = *args->a;
    void *memory = NULL;
    if (!is_native(w, args) && w->kind != WRONG_ORDER)
        return w->real->matmul(b, lane, args, e);
    switch (w->kind) {
    case WRONG_STALE: return OK;
    case WRONG_CRASH:
        if (a.dtype == DTYPE_E4M3 && a.scale.kind == SCALE_TENSOR) (void)raise(SIGKILL);
        break;
    case WRONG_TAIL: return without_tail(b, lane, args, e);
    case WRONG_ODD:
        if (args->out->dim[1] % 2 == 0) break;
        return without_tail(b, lane, args, e);
    case WRONG_TWIN_CODES: case WRONG_TWIN_SCALES: return wrong_twins_product(b, lane, args, e);
    case WRONG_ORDER:
        TRY(other_order(b, lane, args, e));
        other_nan(args->out);
        return OK;
    case WRONG_FUSED:
        if (a.dtype != DTYPE_E2M1 || args->beta == 0.0f || args->out->dtype != DTYPE_F32) break;
        return fused(b, lane, args, e);
    case WRONG_TENSOR_FACTOR:
        if (a.dtype != DTYPE_E2M1) break;
        return without_factor(b, lane, args, e);
    case WRONG_IGNORED: case WRONG_SWAPPED: case WRONG_TRANSPOSED: case WRONG_LARGE:
    case WRONG_MANTISSA:
        if (w->kind == WRONG_LARGE && a.dim[0] < 256) break;
        if (w->kind == WRONG_MANTISSA && a.dtype != DTYPE_E2M1) break;
        a.scale = wrong_scale(w->kind == WRONG_LARGE ? WRONG_IGNORED : w->kind, &args->a->scale,
                              &memory);
        changed.a = &a;
        break;
    case WRONG_K_TAIL:
        if (args->a->dim[1] % 32 == 0) break;
        a.data = memory = without_end(&a);
        changed.a = &a;
        break;
    default: break;
    }
    enum status st = w->real->matmul(b, lane, &changed, e);
    if (w->kind == WRONG_NAN) no_nan(args->out);
    free(memory);
    return st;
}

/* Two parts along K instead of one, or chains of 64. */
static enum status wrong_product_way(struct backend *b, const struct matmul_args *args,
                                     struct mma_way *way, bool *known, struct err *e) {
    struct wrong *w = wrong_of(b);
    TRY(w->real->product_way(b, args, way, known, e));
    if (w->kind != WRONG_TOLD || !*known || way->block) return OK;
    if (way->order.chain) way->order.chain /= 2;
    else way->order.part = round_up(args->a->dim[1] / 2, 128);
    return OK;
}

/* ---- casts ---- */

static enum status wrong_quantise(struct backend *b, int lane, const struct sink *out,
                                  const struct tensor *x, struct err *e) {
    struct wrong *w = wrong_of(b);
    if (w->kind == WRONG_CAST_STALE) return OK;
    if (w->kind == WRONG_CAST_NAN) no_nan(x);
    TRY(w->real->quantise(b, lane, out, x, e));
    const struct tensor *codes = out->codes, *twin = codes ? codes->transposed : NULL;
    if (w->kind == WRONG_TWIN_CAST && twin && is_fp8_twin(twin) && codes->data &&
        codes->data != twin->data)
        memcpy(twin->data, codes->data, (size_t)tensor_code_bytes(codes));
    return OK;
}

/* Stochastic rounding that gives zeros. */
static enum status wrong_finish(struct backend *b, int lane, const struct sink *out,
                                struct err *e) {
    struct wrong *w = wrong_of(b);
    TRY(w->real->quantise_finish(b, lane, out, e));
    if (w->kind != WRONG_ROUNDING || !out->draws) return OK;
    struct tensor *t = out->codes->data ? out->codes : out->codes->transposed;
    memset(t->data, 0, (size_t)tensor_fp8_bytes(t->dim[0], t->dim[1]));
    return OK;
}

/* ---- attention ---- */

static bool is_of_attention(enum wrong_kind kind) {
    return (kind >= WRONG_ATTENTION && kind <= WRONG_ATTENTION_NAN_LONG) ||
           (kind >= WRONG_FIRST_KEY && kind <= WRONG_FIRST_BEFORE);
}

static bool has_wrong_first_key(enum wrong_kind kind) {
    return kind >= WRONG_FIRST_KEY && kind <= WRONG_FIRST_BEFORE;
}

/* first_key with the mistake, in *memory. In a window of more than one key only the first token of
 * a document sees itself alone. */
static struct tensor wrong_first_key(enum wrong_kind kind, const struct tensor *x,
                                     int32_t **memory) {
    const int32_t *from = x->data;
    int64_t n = tensor_count(x), length = x->dim[1];
    int32_t *to = *memory = malloc((size_t)n * sizeof *to), start = 0;
    for (int64_t i = 0; i < n; i++) {
        if (from[i] == i % length) start = from[i];
        to[i] = kind == WRONG_WINDOW ? start
                : kind == WRONG_FIRST_TILE ? from[i] / 64 * 64
                : kind == WRONG_FIRST_BEFORE ? from[i] - (from[i] > 0) : 0;
    }
    struct tensor out = *x;
    out.data = to;
    return out;
}

/* The forward of codes with the mistake. */
static enum status wrong_fp8(struct backend *b, int lane, const struct attention_fwd_args *args,
                             struct err *e) {
    struct wrong *w = wrong_of(b);
    struct attention_fwd_args changed = *args;
    struct attention_cast p = *args->p;
    uint32_t *amax = p.amax->data, before = *amax;
    float one = 1.0f, without_v = *(const float *)p.factor->data /
                                  *(const float *)args->qkv->scale.data;
    struct tensor ones = tensor_1d(&one, DTYPE_F32, 1);
    struct tensor factor = tensor_1d(&without_v, DTYPE_F32, 1);
    if (w->kind == WRONG_FP8_STALE) return OK;
    if (w->kind == WRONG_FP8_P) p.multiplier = p.factor = &ones;
    if (w->kind == WRONG_FP8_VALUES) p.factor = &factor;
    if (w->kind == WRONG_FP8_NEW_AMAX) *amax = 0;
    changed.p = &p;
    TRY(w->real->attention_fwd(b, lane, &changed, e));
    if (w->kind == WRONG_FP8_NAN) no_nan(args->o->value);
    if (w->kind == WRONG_FP8_NO_AMAX) *amax = before;
    return OK;
}

static enum status wrong_fp8_bwd(struct backend *b, int lane,
                                 const struct attention_bwd_args *args, struct err *e) {
    struct wrong *w = wrong_of(b);
    struct attention_bwd_args changed = *args;
    struct attention_cast ds = *args->ds;
    float one = 1.0f;
    struct tensor ones = tensor_1d(&one, DTYPE_F32, 1), *to = args->d_qkv->value;
    if (w->kind == WRONG_FP8_STALE_BACKWARD) return OK;
    if (w->kind == WRONG_FP8_DS) ds.factor = &ones;
    changed.ds = &ds;
    TRY(w->real->attention_bwd(b, lane, &changed, e));
    if (w->kind == WRONG_FP8_ZERO) memset(to->data, 0, (size_t)(2 * tensor_count(to)));
    return OK;
}

static enum status wrong_attention(struct backend *b, int lane,
                                   const struct attention_fwd_args *args, struct err *e) {
    struct wrong *w = wrong_of(b);
    struct attention_fwd_args changed = *args;
    struct tensor *o = args->o->value, first;
    int32_t *memory = NULL;
    bool used = !is_forbidden(w, "wgmma");
    if (w->kind == WRONG_ATTENTION_STALE && used) return OK;
    if (args->p && w->kind >= WRONG_FP8_VALUES) return wrong_fp8(b, lane, args, e);
    if (has_wrong_first_key(w->kind) && w->kind != WRONG_FIRST_KEY_BACKWARD && used &&
        args->first_key) {
        first = wrong_first_key(w->kind, args->first_key, &memory);
        changed.first_key = &first;
    }
    enum status st = w->real->attention_fwd(b, lane, &changed, e);
    free(memory);
    TRY(st);
    bool nan_lost = w->kind == WRONG_ATTENTION_NAN ||
                    (w->kind == WRONG_ATTENTION_NAN_LONG && args->qkv->dim[1] >= 256);
    if (nan_lost && used) no_nan(o);
    for (int64_t i = 0; w->kind == WRONG_ATTENTION && used && i < tensor_count(o); i++)
        store(o, i, load(o, i) * 1.125f);
    return OK;
}

static enum status wrong_attention_bwd(struct backend *b, int lane,
                                       const struct attention_bwd_args *args, struct err *e) {
    struct wrong *w = wrong_of(b);
    struct attention_bwd_args changed = *args;
    struct tensor first;
    int32_t *memory = NULL;
    if (args->p && w->kind >= WRONG_FP8_VALUES) return wrong_fp8_bwd(b, lane, args, e);
    if (has_wrong_first_key(w->kind) && !is_forbidden(w, "wgmma") && args->first_key) {
        first = wrong_first_key(w->kind, args->first_key, &memory);
        changed.first_key = &first;
    }
    enum status st = w->real->attention_bwd(b, lane, &changed, e);
    free(memory);
    return st;
}

/* Names the kernel of attention, as a device does. */
static bool wrong_decision(struct backend *b, int64_t i, struct decision *out) {
    const struct wrong *w = wrong_of(b);
    if (i > 1 || !is_of_attention(w->kind)) return false;
    *out = (struct decision){ .section = "attention", .name = "any", .calls = 1 };
    snprintf(out->direction, sizeof out->direction, "%s", i ? "backward" : "forward");
    snprintf(out->way, sizeof out->way, "%s", is_forbidden(w, "wgmma") ? "mma" : "wgmma");
    return true;
}

/* A forward of FP8 that is cuDNN's, where it is asked for. */
static bool cudnn_decision(struct backend *b, int64_t i, struct decision *out) {
    if (i > 1) return false;
    *out = (struct decision){ .section = "attention", .name = "any", .calls = 1 };
    snprintf(out->direction, sizeof out->direction, "%s", i ? "backward" : "forward");
    snprintf(out->way, sizeof out->way, "%s", i ? "emulated" : "cudnn");
    return true;
}

static enum status wrong_attention_backend(struct backend *b, enum attention_backend which,
                                           struct err *e) {
    struct wrong *w = wrong_of(b);
    if (which == ATTENTION_CUDNN) w->ops.decision = cudnn_decision;
    return OK;
}

enum status wrong_backend_open(struct backend *b, enum wrong_kind kind, const char *architecture,
                               const char *name, struct err *e) {
    struct wrong *w = calloc(1, sizeof *w);
    if (!w) return FAIL(e, ERR_MEMORY, "no memory for a stand-in");
    w->ops = *b->ops;
    w->real = b->ops;
    w->kind = kind;
    snprintf(w->architecture, sizeof w->architecture, "%s", architecture);
    if (name) w->ops.name = name;
    w->ops.info = wrong_info;
    w->ops.close = wrong_close;
    w->ops.forbid = wrong_forbid;
    w->ops.assume_architecture = wrong_assume;
    w->ops.twins_untransposed = wrong_twins;
    w->ops.matmul = wrong_matmul;
    w->ops.matmul_native = wrong_native;
    w->ops.product_way = wrong_product_way;
    w->ops.quantise = wrong_quantise;
    w->ops.quantise_finish = wrong_finish;
    w->ops.attention_fwd = wrong_attention;
    w->ops.attention_bwd = wrong_attention_bwd;
    w->ops.decision = wrong_decision;
    w->ops.attention_backend = wrong_attention_backend;
    b->ops = &w->ops;
    return OK;
}
