/* quantise, quantise_finish, dequantise: sink.c behind the table, and its inverse. */
#include <omp.h>

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

/* ---- dequantise ---- */

/* Element (i, j) of codes has its factor at [i / rows][j / cols] of the scale. */
static void block_of(const struct tensor *codes, int64_t *rows, int64_t *cols) {
    enum scale_kind k = codes->scale.kind;
    int64_t all = codes->dim[1] > 0 ? codes->dim[1] : 1;
    *rows = k == SCALE_TENSOR ? codes->dim[0] : 1;
    *cols = all;
    if (k == SCALE_1X128 || k == SCALE_128X128) *cols = 128;
    if (k == SCALE_1X32 || k == SCALE_32X32) *cols = 32;
    if (k == SCALE_128X128 || k == SCALE_32X32) *rows = *cols;
}

static void dequantise_row(const struct isa *isa, const struct tensor *out,
                           const struct tensor *codes, int64_t row, float *buffer) {
    const struct scale *s = &codes->scale;
    int64_t k = codes->dim[1], rows, cols;
    block_of(codes, &rows, &cols);
    isa->fp8_decode(codes->dtype, buffer, (const uint8_t *)codes->data + row * codes->stride[0], k);
    for (int64_t j = 0; j < k; j += cols) {
        int64_t at = row / rows * s->dim[1] + j / cols;
        float factor = s->dtype == DTYPE_E8M0 ? e8m0_decode(((const uint8_t *)s->data)[at])
                                              : ((const float *)s->data)[at];
        for (int64_t i = j; i < k && i < j + cols; i++) buffer[i] = buffer[i] * factor;
    }
    store_row(out, row, buffer);
}

enum status cpu_dequantise(struct backend *b, int lane, const struct tensor *out,
                           const struct tensor *codes, struct err *e) {
    TRY(cpu_check(codes, "dequantise: codes", IS_FP8, -1, -1, e));
    TRY(cpu_check(out, "dequantise: out", IS_ACT, codes->dim[0], codes->dim[1], e));
    TRY(cpu_check_scale(codes, "dequantise: codes", e));
    if (codes->dim[1] > SCRATCH_FLOATS)
        return FAIL(e, ERR_ARG, "dequantise: rows of %lld, at most %d", (long long)codes->dim[1],
                    SCRATCH_FLOATS);
    const struct cpu_backend *cpu = cpu_of(b);
#pragma omp parallel for num_threads(cpu->threads)
    for (int64_t r = 0; r < codes->dim[0]; r++)
        dequantise_row(cpu->isa, out, codes, r, cpu_scratch(b, omp_get_thread_num()));
    return OK;
}
