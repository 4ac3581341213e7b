/* RMSNorm. Forward, per row: rstd = 1 / sqrt(sum(x*x) / C + eps), y = (x * rstd) * gain.
 * Backward, with xh = x * rstd and g = dy * gain:
 *   dx = rstd * (g - xh * (sum(g*xh) / C)) + residual,   d_gain += sum over rows of dy * xh. */
#include "kernels/cuda/norm_bwd.cuh"
#include "kernels/cuda/norm_fwd.cuh"

enum status cuda_rmsnorm_fwd(struct backend *b, int lane, const struct sink *y,
                             const struct tensor *rstd, const struct tensor *x,
                             const struct tensor *gain, float eps, struct err *e) {
    TRY(cuda_check(x, "rmsnorm_fwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    TRY(cuda_check(gain, "rmsnorm_fwd: gain", IS_BF16, cols, 1, e));
    TRY(cuda_check(rstd, "rmsnorm_fwd: rstd", IS_F32, rows, 1, e));
    TRY(cuda_check_sink(y, "rmsnorm_fwd: y", rows, cols, e));
    return norm_forward<false>(b, lane, y, NULL, rstd, x, gain, NULL, eps, "rmsnorm_fwd", e);
}

enum status cuda_rmsnorm_bwd(struct backend *b, int lane, const struct sink *dx,
                             const struct tensor *d_gain, const struct tensor *dy,
                             const struct tensor *x, const struct tensor *gain,
                             const struct tensor *rstd, const struct tensor *residual,
                             struct err *e) {
    TRY(cuda_check(x, "rmsnorm_bwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    TRY(cuda_check(dy, "rmsnorm_bwd: dy", IS_BF16, rows, cols, e));
    TRY(cuda_check(gain, "rmsnorm_bwd: gain", IS_BF16, cols, 1, e));
    TRY(cuda_check(d_gain, "rmsnorm_bwd: d_gain", IS_GRAD, cols, 1, e));
    TRY(cuda_check(rstd, "rmsnorm_bwd: rstd", IS_F32, rows, 1, e));
    if (residual) TRY(cuda_check(residual, "rmsnorm_bwd: residual", IS_BF16, rows, cols, e));
    TRY(cuda_check_sink(dx, "rmsnorm_bwd: dx", rows, cols, e));
    return norm_backward<false>(b, lane, dx, d_gain, NULL, dy, x, gain, NULL, rstd, residual,
                                "rmsnorm_bwd", e);
}
