/* RMSNorm. Forward, per row: rstd = 1 / sqrt(sum(x*x) / C + eps), y = (x * rstd) * gain.
 * Backward, with xh = x * rstd and g = dy * gain:
 *   dx = rstd * (g - xh * (sum(g*xh) / C)) + residual,   d_gain += sum over rows of dy * xh. */
#include "kernels/cuda/norm_bwd.cuh"
#include "kernels/cuda/norm_fwd.cuh"

enum status cuda_rmsnorm_fwd(struct backend *b, int lane, const struct norm_fwd_args *args,
                             struct err *e) {
    if (args->mean || args->bias)
        return FAIL(e, ERR_ARG, "rmsnorm_fwd: has neither mean nor bias");
    TRY(cuda_check(args->x, "rmsnorm_fwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(args->x), cols = tensor_cols(args->x);
    TRY(cuda_check(args->gain, "rmsnorm_fwd: gain", IS_BF16, cols, 1, e));
    TRY(cuda_check(args->rstd, "rmsnorm_fwd: rstd", IS_F32, rows, 1, e));
    TRY(cuda_check_sink(args->y, "rmsnorm_fwd: y", rows, cols, e));
    return norm_forward<false>(b, lane, args, "rmsnorm_fwd", e);
}

enum status cuda_rmsnorm_bwd(struct backend *b, int lane, const struct norm_bwd_args *args,
                             struct err *e) {
    if (args->mean || args->d_bias)
        return FAIL(e, ERR_ARG, "rmsnorm_bwd: has neither mean nor d_bias");
    TRY(cuda_check(args->x, "rmsnorm_bwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(args->x), cols = tensor_cols(args->x);
    TRY(cuda_check(args->dy, "rmsnorm_bwd: dy", IS_BF16, rows, cols, e));
    TRY(cuda_check(args->gain, "rmsnorm_bwd: gain", IS_BF16, cols, 1, e));
    TRY(cuda_check(args->d_gain, "rmsnorm_bwd: d_gain", IS_GRAD, cols, 1, e));
    TRY(cuda_check(args->rstd, "rmsnorm_bwd: rstd", IS_F32, rows, 1, e));
    if (args->residual)
        TRY(cuda_check(args->residual, "rmsnorm_bwd: residual", IS_BF16, rows, cols, e));
    TRY(cuda_check_sink(args->dx, "rmsnorm_bwd: dx", rows, cols, e));
    return norm_backward<false>(b, lane, args, "rmsnorm_bwd", e);
}
