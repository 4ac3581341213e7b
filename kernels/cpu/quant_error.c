/* quant_error: what a cast to FP8 kept of a tensor, and what it lost.
 *
 * The order of the sums is part of the definition. A strip of rows adds its groups of elements to
 * its lanes in turn, and joins the lanes in a tree. Strips are added in the same way. So the bits
 * depend on the shape alone, and a GPU can have the same ones. */
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/nvfp4.h"
#include "kernels/transposed.h"

enum { STRIP = 8, GROUP = 8, LANES = 256, SPAN = 1024 };

/* Sums of squares: of the value, and of its difference from the decoded code. */
struct sums { double signal, noise; };

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static float factor_at(const struct scale *s, int64_t row, int64_t col) {
    bool mx = s->kind == SCALE_1X32 || s->kind == SCALE_32X32;
    bool nvfp4 = scale_is_nvfp4(s->kind);
    bool square = s->kind == SCALE_128X128 || s->kind == SCALE_32X32 || s->kind == SCALE_16X16;
    int64_t block = nvfp4 ? NVFP4_BLOCK : mx ? 32 : 128, at = 0;
    if (s->kind == SCALE_ROW) at = row;
    else if (s->kind != SCALE_TENSOR)
        at = (square ? row / block : row) * s->dim[1] + col / block;
    const uint8_t *bytes = s->data;
    if (nvfp4)
        return e4m3_decode(bytes[SCALE_HEADER + at]) * nvfp4_tensor_factor(*(const float *)s->data);
    return mx ? e8m0_decode(bytes[at]) : ((const float *)s->data)[at];
}

/* n elements of a row from column `col` on, of a matrix or of the transposed view of one. */
static void load_part(float *out, const struct tensor *x, int64_t row, int64_t col, int64_t n) {
    int64_t at = row * x->stride[0] + col * x->stride[1];
    if (x->stride[1] == 1) {
        load_span(out, x, at, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) load_span(out + i, x, at + i * x->stride[1], 1);
}

/* n codes of a row, of any order. */
static void decode_part(const struct isa *isa, float *out, const struct tensor *codes, int64_t row,
                        int64_t col, int64_t n) {
    uint8_t packed[SPAN];
    const uint8_t *from = (const uint8_t *)codes->data + row * codes->stride[0] +
                          col * codes->stride[1];
    for (int64_t i = 0; fp8_is_untransposed(codes) && i < n; i++)
        packed[i] = from[i * codes->stride[1]];
    isa->fp8_decode(codes->dtype, out, fp8_is_untransposed(codes) ? packed : from, n);
}

static void add_group(struct sums *lane, const float *x, const float *code, float factor,
                      int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float back = code[i] * factor; /* as a GEMM would read it, in f32 */
        double value = (double)x[i], lost = value - (double)back;
        lane->signal = lane->signal + value * value;
        lane->noise = lane->noise + lost * lost;
    }
}

static struct sums join(struct sums lane[LANES]) {
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) {
            lane[i].signal = lane[i].signal + lane[i + half].signal;
            lane[i].noise = lane[i].noise + lane[i + half].noise;
        }
    return lane[0];
}

static struct sums strip_sums(const struct isa *isa, const struct tensor *x,
                              const struct tensor *codes, int64_t strip) {
    struct sums lane[LANES] = { { 0, 0 } };
    float value[SPAN], code[SPAN];
    int64_t cols = x->dim[1], end = min64((strip + 1) * STRIP, x->dim[0]), group = 0;
    for (int64_t row = strip * STRIP; row < end; row++)
        for (int64_t col = 0; col < cols; col += SPAN) {
            int64_t n = min64(SPAN, cols - col);
            load_part(value, x, row, col, n);
            decode_part(isa, code, codes, row, col, n);
            for (int64_t i = 0; i < n; i += GROUP, group++)
                add_group(&lane[group % LANES], value + i, code + i,
                          factor_at(&codes->scale, row, col + i), min64(GROUP, n - i));
        }
    return join(lane);
}

static enum status check(const struct tensor *out, const struct tensor *x,
                         const struct tensor *codes, struct err *e) {
    TRY(cpu_check_packed(out, "quant_error: out", IS_F32, 2, 1, e));
    if (codes && codes->data && dtype_is_fp8(codes->dtype) && fp8_is_untransposed(codes)) {
        TRY(cpu_check_untransposed(codes, "quant_error: codes", e));
    } else {
        TRY(cpu_check(codes, "quant_error: codes", IS_FP8, -1, -1, e));
        TRY(cpu_check_scale(codes, "quant_error: codes", e));
    }
    if (!x || !x->data) return FAIL(e, ERR_ARG, "quant_error: x is missing");
    if (!is_transposed_view(x))
        return cpu_check_packed(x, "quant_error: x", IS_ACT, codes->dim[0], codes->dim[1], e);
    struct tensor stored = tensor_transposed(x); /* its rows are contiguous */
    return cpu_check_packed(&stored, "quant_error: x", IS_ACT, codes->dim[1], codes->dim[0], e);
}

enum status cpu_quant_error(struct backend *b, int lane, const struct tensor *out,
                            const struct tensor *x, const struct tensor *codes, struct err *e) {
    TRY(check(out, x, codes, e));
    int64_t strips = ceil_div(codes->dim[0], STRIP);
    if (strips > (int64_t)(SCRATCH_FLOATS * sizeof(float) / sizeof(struct sums)))
        return FAIL(e, ERR_ARG, "quant_error: %lld rows", (long long)codes->dim[0]);
    struct tensor view = *x; /* [rows, K], whatever the value's shape */
    view.dim[0] = codes->dim[0];
    view.dim[1] = codes->dim[1];
    struct sums *sums = (struct sums *)(void *)cpu_scratch(b, 0);
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads) if (strips > 1)
    for (int64_t i = 0; i < strips; i++) sums[i] = strip_sums(cpu_of(b)->isa, &view, codes, i);
    struct sums total[LANES] = { { 0, 0 } };
    for (int64_t i = 0; i < strips; i++) {
        total[i % LANES].signal = total[i % LANES].signal + sums[i].signal;
        total[i % LANES].noise = total[i % LANES].noise + sums[i].noise;
    }
    struct sums all = join(total);
    float *to = out->data;
    to[0] = f32_canonical(to[0] + (float)all.signal);
    to[1] = f32_canonical(to[1] + (float)all.noise);
    return OK;
}
