/* Argument checks shared by the operators: each names the operator and the operand. */
#include "kernels/cpu/lanes.h"

/* Whether dimensions first..3 are packed without gaps. */
static bool contiguous_from(const struct tensor *x, int first) {
    int64_t expect = 1;
    for (int d = 3; d >= first; d--) {
        if (x->dim[d] != 1 && x->stride[d] != expect) return false;
        expect *= x->dim[d];
    }
    return true;
}

bool cpu_is_packed(const struct tensor *x) { return contiguous_from(x, 0); }

enum status cpu_check(const struct tensor *x, const char *what, int dtypes, int64_t rows,
                      int64_t cols, struct err *e) {
    if (!x || !x->data) return FAIL(e, ERR_ARG, "%s is missing", what);
    if ((unsigned)x->dtype >= DTYPE_COUNT || !(1 << x->dtype & dtypes))
        return FAIL(e, ERR_ARG, "%s is %s", what, dtype_name(x->dtype));
    int64_t r = tensor_rows(x), c = tensor_cols(x);
    if ((rows >= 0 && r != rows) || (cols >= 0 && c != cols))
        return FAIL(e, ERR_ARG, "%s is [%lld, %lld], not [%lld, %lld]", what, (long long)r,
                    (long long)c, (long long)rows, (long long)cols);
    if (!contiguous_from(x, 1))
        return FAIL(e, ERR_ARG, "%s has rows that are not contiguous", what);
    return OK;
}

enum status cpu_check_scale(const struct tensor *x, const char *what, struct err *e) {
    const struct scale *s = &x->scale;
    if (s->kind <= SCALE_NONE || s->kind >= SCALE_KIND_COUNT || !s->data)
        return FAIL(e, ERR_ARG, "%s: %s without a scale", what, dtype_name(x->dtype));
    if (scale_is_nvfp4(s->kind) != (x->dtype == DTYPE_E2M1))
        return FAIL(e, ERR_ARG, "%s: %s codes do not have NVFP4's scales, or others have", what,
                    dtype_name(x->dtype));
    struct scale expect = scale_make(s->data, s->kind, x->dim[0], x->dim[1]);
    if (s->dtype != expect.dtype || s->dim[0] != expect.dim[0] || s->dim[1] != expect.dim[1])
        return FAIL(e, ERR_ARG, "%s: the scale is %s [%lld, %lld], not %s [%lld, %lld]", what,
                    dtype_name(s->dtype), (long long)s->dim[0], (long long)s->dim[1],
                    dtype_name(expect.dtype), (long long)expect.dim[0], (long long)expect.dim[1]);
    return OK;
}

/* The codes of a sink, or their twin: [rows, k] FP8, contiguous along k, with a scale. */
static enum status check_codes(const struct tensor *x, const char *what, const char *which,
                               int64_t rows, int64_t k, struct err *e) {
    if (!dtype_is_fp8(x->dtype))
        return FAIL(e, ERR_ARG, "%s: %s are %s", what, which, dtype_name(x->dtype));
    if (x->dim[0] != rows || tensor_cols(x) != k || x->dim[1] != k)
        return FAIL(e, ERR_ARG, "%s: %s are [%lld, %lld], not [%lld, %lld]", what, which,
                    (long long)x->dim[0], (long long)tensor_cols(x), (long long)rows, (long long)k);
    if (!x->data) return OK;
    if (x->stride[1] != 1 || x->stride[0] < k)
        return FAIL(e, ERR_ARG, "%s: %s are not contiguous along K", what, which);
    return cpu_check_scale(x, what, e);
}

enum status cpu_check_untransposed(const struct tensor *x, const char *what, struct err *e) {
    if (x->stride[0] != 1 || x->stride[1] < x->dim[0] || !scale_is_mxfp8(x->scale.kind))
        return FAIL(e, ERR_ARG, "%s is FP8 and not contiguous along K: an untransposed twin has "
                    "MXFP8's scales and rows of stride 1", what);
    return cpu_check_scale(x, what, e);
}

/* The twin [cols, rows] of codes [rows, cols]. */
static enum status check_twin(const struct tensor *x, const char *what, int64_t rows, int64_t cols,
                              struct err *e) {
    if (!fp8_is_untransposed(x) || x->dim[0] != cols || x->dim[1] != rows ||
        !dtype_is_fp8(x->dtype))
        return check_codes(x, what, "transposed codes", cols, rows, e);
    return cpu_check_untransposed(x, what, e);
}

static enum status check_source(const struct sink *s, const char *what, enum scale_kind kind,
                                struct err *e) {
    bool nvfp4 = scale_is_nvfp4(kind), tensor_wide = kind == SCALE_TENSOR || nvfp4;
    bool mx = kind == SCALE_1X32 || kind == SCALE_32X32;
    if (s->source == SCALE_SOURCE_NONE)
        return FAIL(e, ERR_ARG, "%s: codes without a source of scales", what);
    if (tensor_wide != (s->source != SCALE_SOURCE_BLOCK))
        return FAIL(e, ERR_ARG, "%s: a scale %s the source of scales given", what,
                    tensor_wide ? "for the whole tensor does not fit" : "per block does not fit");
    if (mx != (s->rule.constants == QUANT_MX))
        return FAIL(e, ERR_ARG, "%s: e8m0 scales and the mx rule must be used together", what);
    if (nvfp4 != (s->rule.constants == QUANT_NVFP4) ||
        (nvfp4 && s->source != SCALE_SOURCE_AMAX))
        return FAIL(e, ERR_ARG, "%s: NVFP4's scales, its rule and an amax must be used together",
                    what);
    if ((s->rotate || s->draws) && kind != SCALE_1X16)
        return FAIL(e, ERR_ARG, "%s: rotation and stochastic rounding are for 1x16 scales", what);
    if (s->draws) {
        TRY(cpu_check(s->draws->step, "sink: step", IS_I32, 1, 1, e));
        TRY(cpu_check(s->draws->sequence, "sink: sequence", IS_I32, 1, 1, e));
    }
    if (s->source == SCALE_SOURCE_KNOWN)
        TRY(cpu_check(s->multiplier, "sink: multiplier", IS_F32, 1, 1, e));
    if (s->source == SCALE_SOURCE_AMAX && !s->amax)
        return FAIL(e, ERR_ARG, "%s: current scaling needs an amax slot", what);
    return OK;
}

enum status cpu_check_sink(const struct sink *s, const char *what, int64_t rows, int64_t cols,
                           struct err *e) {
    if (!s || !s->value || !s->value->data) return FAIL(e, ERR_ARG, "%s: sink without value", what);
    if (!(1 << s->value->dtype & IS_ACT))
        return FAIL(e, ERR_ARG, "%s: value is %s", what, dtype_name(s->value->dtype));
    if (tensor_count(s->value) != rows * cols || !cpu_is_packed(s->value))
        return FAIL(e, ERR_ARG, "%s: value is not %lld x %lld packed elements", what,
                    (long long)rows, (long long)cols);
    if (s->amax) TRY(cpu_check(s->amax, "sink: amax", IS_U32, 1, 1, e));
    if (s->stats) TRY(cpu_check(s->stats, "sink: stats", IS_U64, 2, 1, e));
    if (s->sums) {
        TRY(cpu_check(s->sums, "sink: sums", IS_ACT, cols, 1, e));
        TRY(lanes_check(NULL, "sink: sums", cols, cols, e));
    }
    const struct tensor *codes = s->codes, *twin = codes ? codes->transposed : NULL;
    if (!codes) {
        if (s->source == SCALE_SOURCE_NONE) return OK;
        return FAIL(e, ERR_ARG, "%s: a source of scales without codes", what);
    }
    if (!codes->data && !(twin && twin->data)) return FAIL(e, ERR_ARG, "%s: codes are empty", what);
    TRY(check_codes(codes, what, "codes", rows, cols, e));
    if (twin) TRY(check_twin(twin, what, rows, cols, e));
    if (twin && !twin->data) return FAIL(e, ERR_ARG, "%s: transposed codes are empty", what);
    if (twin && codes->data &&
        (twin->scale.kind != codes->scale.kind || twin->dtype != codes->dtype))
        return FAIL(e, ERR_ARG, "%s: codes and transposed codes differ in dtype or scale", what);
    if (twin && twin->data == codes->data && !sink_shares_codes(s))
        return FAIL(e, ERR_ARG, "%s: transposed codes share the memory of the codes, which only "
                    "untransposed 32x32 blocks can", what);
    return check_source(s, what, codes->data ? codes->scale.kind : twin->scale.kind, e);
}

enum status cpu_check_packed(const struct tensor *x, const char *what, int dtypes, int64_t rows,
                             int64_t cols, struct err *e) {
    TRY(cpu_check(x, what, dtypes, rows, cols, e));
    if (!cpu_is_packed(x)) return FAIL(e, ERR_ARG, "%s is not packed", what);
    return OK;
}

enum status cpu_check_indices(const struct tensor *x, const char *what, int64_t count,
                              int64_t limit, struct err *e) {
    TRY(cpu_check_packed(x, what, IS_I32, -1, -1, e));
    if (tensor_count(x) != count)
        return FAIL(e, ERR_ARG, "%s has %lld elements, not %lld", what, (long long)tensor_count(x),
                    (long long)count);
    const int32_t *index = x->data;
    for (int64_t r = 0; r < count; r++)
        if (index[r] < 0 || index[r] >= limit)
            return FAIL(e, ERR_ARG, "%s: index %d at row %lld is not in [0, %lld)", what,
                        (int)index[r], (long long)r, (long long)limit);
    return OK;
}
