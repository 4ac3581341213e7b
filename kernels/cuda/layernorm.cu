/* LayerNorm. Forward, per row: mean = sum(x) / C, variance = sum of the centred squares / C,
 * y = ((x - mean) * rstd) * gain + bias. Backward, with xh = (x - mean) * rstd and g = dy * gain:
 *   dx = rstd * ((g - sum(g)/C) - xh * (sum(g*xh) / C)) + residual,
 *   d_gain += sum over rows of dy * xh,   d_bias += sum over rows of dy. */
#include "kernels/cuda/norm_bwd.cuh"
#include "kernels/cuda/norm_fwd.cuh"

enum status cuda_layernorm_fwd(struct backend *b, int lane, const struct sink *y,
                               const struct tensor *mean, const struct tensor *rstd,
                               const struct tensor *x, const struct tensor *gain,
                               const struct tensor *bias, float eps, struct err *e) {
    TRY(cuda_check(x, "layernorm_fwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    TRY(cuda_check(gain, "layernorm_fwd: gain", IS_BF16, cols, 1, e));
    if (bias) TRY(cuda_check(bias, "layernorm_fwd: bias", IS_BF16, cols, 1, e));
    TRY(cuda_check(mean, "layernorm_fwd: mean", IS_F32, rows, 1, e));
    TRY(cuda_check(rstd, "layernorm_fwd: rstd", IS_F32, rows, 1, e));
    TRY(cuda_check_sink(y, "layernorm_fwd: y", rows, cols, e));
    return norm_forward<true>(b, lane, y, mean, rstd, x, gain, bias, eps, "layernorm_fwd", e);
}

static enum status check_bwd(const struct sink *dx, const struct tensor *d_gain,
                             const struct tensor *d_bias, const struct tensor *dy,
                             const struct tensor *x, const struct tensor *gain,
                             const struct tensor *mean, const struct tensor *rstd,
                             const struct tensor *residual, struct err *e) {
    TRY(cuda_check(x, "layernorm_bwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    TRY(cuda_check(dy, "layernorm_bwd: dy", IS_BF16, rows, cols, e));
    TRY(cuda_check(gain, "layernorm_bwd: gain", IS_BF16, cols, 1, e));
    TRY(cuda_check(d_gain, "layernorm_bwd: d_gain", IS_GRAD, cols, 1, e));
    if (d_bias) TRY(cuda_check(d_bias, "layernorm_bwd: d_bias", IS_GRAD, cols, 1, e));
    TRY(cuda_check(mean, "layernorm_bwd: mean", IS_F32, rows, 1, e));
    TRY(cuda_check(rstd, "layernorm_bwd: rstd", IS_F32, rows, 1, e));
    if (residual) TRY(cuda_check(residual, "layernorm_bwd: residual", IS_BF16, rows, cols, e));
    return cuda_check_sink(dx, "layernorm_bwd: dx", rows, cols, e);
}

enum status cuda_layernorm_bwd(struct backend *b, int lane, const struct sink *dx,
                               const struct tensor *d_gain, const struct tensor *d_bias,
                               const struct tensor *dy, const struct tensor *x,
                               const struct tensor *gain, const struct tensor *mean,
                               const struct tensor *rstd, const struct tensor *residual,
                               struct err *e) {
    TRY(check_bwd(dx, d_gain, d_bias, dy, x, gain, mean, rstd, residual, e));
    return norm_backward<true>(b, lane, dx, d_gain, d_bias, dy, x, gain, mean, rstd, residual,
                               "layernorm_bwd", e);
}
