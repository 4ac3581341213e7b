/* The operators quantise and quantise_finish; sink.c does the work. */
#include "kernels/cpu/cpu.h"

enum status cpu_quantise(struct backend *b, int lane, const struct sink *out,
                         const struct tensor *x, struct err *e) {
    TRY(cpu_check(x, "quantise: x", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    TRY(cpu_check_sink(out, "quantise", rows, cols, e));
    if (out->value->dtype != x->dtype)
        return FAIL(e, ERR_ARG, "quantise: x is %s, value is %s", dtype_name(x->dtype),
                    dtype_name(out->value->dtype));
    if (out->value->data != x->data) {
        struct tensor from = tensor_2d(x->data, x->dtype, rows, cols);
        struct tensor to = tensor_2d(out->value->data, x->dtype, rows, cols);
        from.stride[0] = x->stride[0];
        TRY(b->ops->copy(b, lane, &to, &from, e));
    }
    cpu_sink_emit(b, out);
    return OK;
}

enum status cpu_quantise_finish(struct backend *b, int lane, const struct sink *out,
                                struct err *e) {
    if (!out || !sink_waits(out)) return OK;
    if (!out->codes) return FAIL(e, ERR_ARG, "quantise_finish: no codes");
    TRY(cpu_check_sink(out, "quantise_finish", out->codes->dim[0], out->codes->dim[1], e));
    cpu_sink_finish(b, out);
    return OK;
}
