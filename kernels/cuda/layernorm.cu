/* LayerNorm. Forward, per row: mean = sum(x) / C, variance = sum of the centred squares / C,
 * y = ((x - mean) * rstd) * gain + bias. Backward, with xh = (x - mean) * rstd and g = dy * gain:
 *   dx = rstd * ((g - sum(g)/C) - xh * (sum(g*xh) / C)) + residual,
 *   d_gain += sum over rows of dy * xh,   d_bias += sum over rows of dy. */
#include "kernels/cuda/norm_bwd.cuh"
#include "kernels/cuda/norm_fwd.cuh"

enum status cuda_layernorm_fwd(struct backend *b, int lane, const struct norm_fwd_args *args,
                               struct err *e) {
    TRY(cuda_check(args->x, "layernorm_fwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(args->x), cols = tensor_cols(args->x);
    TRY(cuda_check(args->gain, "layernorm_fwd: gain", IS_BF16, cols, 1, e));
    if (args->bias) TRY(cuda_check(args->bias, "layernorm_fwd: bias", IS_BF16, cols, 1, e));
    TRY(cuda_check(args->mean, "layernorm_fwd: mean", IS_F32, rows, 1, e));
    TRY(cuda_check(args->rstd, "layernorm_fwd: rstd", IS_F32, rows, 1, e));
    TRY(cuda_check_sink(args->y, "layernorm_fwd: y", rows, cols, e));
    return norm_forward<true>(b, lane, args, "layernorm_fwd", e);
}

enum status cuda_layernorm_bwd(struct backend *b, int lane, const struct norm_bwd_args *args,
                               struct err *e) {
    TRY(cuda_check(args->x, "layernorm_bwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(args->x), cols = tensor_cols(args->x);
    TRY(cuda_check(args->dy, "layernorm_bwd: dy", IS_BF16, rows, cols, e));
    TRY(cuda_check(args->gain, "layernorm_bwd: gain", IS_BF16, cols, 1, e));
    TRY(cuda_check(args->d_gain, "layernorm_bwd: d_gain", IS_GRAD, cols, 1, e));
    if (args->d_bias) TRY(cuda_check(args->d_bias, "layernorm_bwd: d_bias", IS_GRAD, cols, 1, e));
    TRY(cuda_check(args->mean, "layernorm_bwd: mean", IS_F32, rows, 1, e));
    TRY(cuda_check(args->rstd, "layernorm_bwd: rstd", IS_F32, rows, 1, e));
    if (args->residual)
        TRY(cuda_check(args->residual, "layernorm_bwd: residual", IS_BF16, rows, cols, e));
    TRY(cuda_check_sink(args->dx, "layernorm_bwd: dx", rows, cols, e));
    return norm_backward<true>(b, lane, args, "layernorm_bwd", e);
}
