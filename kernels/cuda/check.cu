/* Argument checks shared by the operators: each names the operator and the operand. */
#include "kernels/cuda/cuda_common.cuh"
#include "kernels/transposed.h"

/* Whether dimensions first..3 are packed without gaps. */
static bool contiguous_from(const struct tensor *x, int first) {
    int64_t expect = 1;
    for (int d = 3; d >= first; d--) {
        if (x->dim[d] != 1 && x->stride[d] != expect) return false;
        expect *= x->dim[d];
    }
    return true;
}

enum status cuda_check(const struct tensor *x, const char *what, int dtypes, int64_t rows,
                       int64_t cols, struct err *e) {
    if (!x || !x->data) return FAIL(e, ERR_ARG, "%s is missing", what);
    bool known = (unsigned)x->dtype < DTYPE_COUNT;
    if (known && x->dtype == DTYPE_F32 && dtypes == IS_BF16)
        return FAIL(e, ERR_UNSUPPORTED, "%s is f32: the f32 recipe runs on the CPU backend", what);
    if (!known || !(1 << x->dtype & dtypes))
        return FAIL(e, ERR_ARG, "%s is %s", what, dtype_name(x->dtype));
    int64_t r = tensor_rows(x), c = tensor_cols(x);
    if ((rows >= 0 && r != rows) || (cols >= 0 && c != cols))
        return FAIL(e, ERR_ARG, "%s is [%lld, %lld], not [%lld, %lld]", what, (long long)r,
                    (long long)c, (long long)rows, (long long)cols);
    if (!contiguous_from(x, 1))
        return FAIL(e, ERR_ARG, "%s has rows that are not contiguous", what);
    return OK;
}

bool cuda_is_packed(const struct tensor *x) { return contiguous_from(x, 0); }

enum status cuda_check_packed(const struct tensor *x, const char *what, int dtypes, int64_t rows,
                              int64_t cols, struct err *e) {
    TRY(cuda_check(x, what, dtypes, rows, cols, e));
    if (!cuda_is_packed(x)) return FAIL(e, ERR_ARG, "%s is not packed", what);
    return OK;
}

enum status cuda_check_indices(const struct tensor *x, const char *what, int64_t count,
                               struct err *e) {
    TRY(cuda_check_packed(x, what, IS_I32, -1, -1, e));
    if (tensor_count(x) == count) return OK;
    return FAIL(e, ERR_ARG, "%s has %lld elements, not %lld", what, (long long)tensor_count(x),
                (long long)count);
}

enum status cuda_check_scale(const struct tensor *codes, const char *what, int64_t rows,
                             int64_t cols, struct err *e) {
    struct scale expect = scale_make(codes->scale.data, codes->scale.kind, rows, cols);
    if (scale_is_nvfp4(codes->scale.kind) != (codes->dtype == DTYPE_E2M1))
        return FAIL(e, ERR_ARG, "%s: %s codes do not have NVFP4's scales, or others have", what,
                    dtype_name(codes->dtype));
    if (!codes->scale.data || codes->scale.kind == SCALE_NONE)
        return FAIL(e, ERR_ARG, "%s has no scale", what);
    if (codes->scale.dtype != expect.dtype || codes->scale.dim[0] != expect.dim[0] ||
        codes->scale.dim[1] != expect.dim[1])
        return FAIL(e, ERR_ARG, "%s: the scale is %s [%lld, %lld], not %s [%lld, %lld]", what,
                    dtype_name(codes->scale.dtype), (long long)codes->scale.dim[0],
                    (long long)codes->scale.dim[1], dtype_name(expect.dtype),
                    (long long)expect.dim[0], (long long)expect.dim[1]);
    if ((uintptr_t)codes->data % 16 || fp8_line(codes) % FP8_ROW_ALIGN ||
        (uintptr_t)codes->scale.data % 16)
        return FAIL(e, ERR_ARG, "%s: rows of codes and scales must be 16-byte aligned", what);
    return OK;
}

enum status cuda_check_codes(const struct tensor *codes, const char *what, int64_t rows,
                             int64_t cols, struct err *e) {
    if (!codes || !codes->data || !fp8_is_untransposed(codes)) {
        TRY(cuda_check(codes, what, IS_FP8, rows, cols, e));
        return cuda_check_scale(codes, what, rows, cols, e);
    }
    struct tensor stored = tensor_transposed(codes); /* its rows are contiguous */
    TRY(cuda_check(&stored, what, IS_FP8, cols, rows, e));
    if (!scale_is_mxfp8(codes->scale.kind))
        return FAIL(e, ERR_ARG, "%s is FP8 and not contiguous along K: an untransposed twin has "
                    "MXFP8's scales", what);
    return cuda_check_scale(codes, what, rows, cols, e);
}

/* What only NVFP4 has, and what it must have. */
static enum status check_nvfp4(const struct sink *s, const char *what, enum scale_kind kind,
                               struct err *e) {
    bool nvfp4 = scale_is_nvfp4(kind);
    if (nvfp4 != (s->rule.constants == QUANT_NVFP4) ||
        (nvfp4 && s->source != SCALE_SOURCE_AMAX))
        return FAIL(e, ERR_ARG, "%s: NVFP4's scales, its rule and an amax must be used together",
                    what);
    if ((s->rotate || s->draws) && kind != SCALE_1X16)
        return FAIL(e, ERR_ARG, "%s: rotation and stochastic rounding are for 1x16 scales", what);
    if (!s->draws) return OK;
    TRY(cuda_check(s->draws->step, "sink: step", IS_I32, 1, 1, e));
    return cuda_check(s->draws->sequence, "sink: sequence", IS_I32, 1, 1, e);
}

enum status cuda_check_sink(const struct sink *s, const char *what, int64_t rows, int64_t cols,
                            struct err *e) {
    if (!s) return FAIL(e, ERR_ARG, "%s is missing", what);
    TRY(cuda_check_packed(s->value, what, IS_BF16, -1, -1, e));
    if (tensor_count(s->value) != rows * cols)
        return FAIL(e, ERR_ARG, "%s: value has %lld elements, not %lld x %lld", what,
                    (long long)tensor_count(s->value), (long long)rows, (long long)cols);
    if (s->amax) TRY(cuda_check(s->amax, "a sink's amax", IS_U32, 1, 1, e));
    if (s->stats) TRY(cuda_check(s->stats, "a sink's stats", IS_U64, 2, 1, e));
    if (s->sums) TRY(cuda_check(s->sums, "a sink's sums", IS_GRAD, cols, 1, e));
    if (s->source == SCALE_SOURCE_NONE) {
        if (s->codes) return FAIL(e, ERR_ARG, "%s has codes without a scale source", what);
        return OK;
    }
    if (!s->codes) return FAIL(e, ERR_ARG, "%s has a scale source without codes", what);
    if (!s->codes->data && !s->codes->transposed)
        return FAIL(e, ERR_ARG, "%s has neither codes nor transposed codes", what);
    if (s->codes->data) {
        TRY(cuda_check(s->codes, what, IS_FP8, rows, cols, e));
        TRY(cuda_check_scale(s->codes, what, rows, cols, e));
    }
    const struct tensor *twin = s->codes->transposed;
    if (twin) TRY(cuda_check_codes(twin, what, cols, rows, e));
    if (twin && twin->data == s->codes->data && !sink_shares_codes(s))
        return FAIL(e, ERR_ARG, "%s: transposed codes share the memory of the codes, which only "
                    "untransposed 32x32 blocks can", what);
    if (s->codes->data && twin && fp8_is_untransposed(twin) && fp8_line(twin) != fp8_line(s->codes))
        return FAIL(e, ERR_ARG, "%s: codes have lines of %lld bytes, untransposed ones of %lld",
                    what, (long long)fp8_line(s->codes), (long long)fp8_line(twin));
    if (s->source == SCALE_SOURCE_KNOWN)
        TRY(cuda_check(s->multiplier, "a sink's multiplier", IS_F32, 1, 1, e));
    if (s->source == SCALE_SOURCE_AMAX && !s->amax)
        return FAIL(e, ERR_ARG, "%s: current scaling needs an amax slot", what);
    bool block = s->source == SCALE_SOURCE_BLOCK;
    const struct tensor *side[2] = { s->codes->data ? s->codes : NULL, s->codes->transposed };
    for (int i = 0; i < 2; i++)
        if (side[i] && !scale_is_nvfp4(side[i]->scale.kind) &&
            block != (side[i]->scale.kind != SCALE_TENSOR))
            return FAIL(e, ERR_ARG, "%s: the scale kind does not fit the scale source", what);
    return check_nvfp4(s, what, (side[0] ? side[0] : side[1])->scale.kind, e);
}
