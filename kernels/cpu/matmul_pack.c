#include "kernels/cpu/matmul_pack.h"

typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));

static const void *element(const struct tensor *x, int64_t row, int64_t k) {
    return (const char *)x->data + (row * x->stride[0] + k * x->stride[1]) * dtype_bytes(x->dtype);
}

/* n contiguous elements, widened. */
static void decode(const struct isa *isa, enum dtype t, float *out, const void *in, int64_t n) {
    if (t == DTYPE_F32) memcpy(out, in, (size_t)n * sizeof(float));
    else if (t == DTYPE_BF16) isa->bf16_decode(out, in, n);
    else isa->fp8_decode(t, out, in, n);
}

/* out[k][width] = in[row][k] for four rows at a time; in has PACK_K floats a row. */
static void interleave(float *out, const float *in, int64_t kn, int width) {
    int r = 0;
    for (; r + 4 <= width; r += 4) {
        const float *from = in + (int64_t)r * PACK_K;
        int64_t k = 0;
        for (; k + 4 <= kn; k += 4) {
            float4 a = *(const float4 *)(from + k), b = *(const float4 *)(from + PACK_K + k);
            float4 c = *(const float4 *)(from + 2 * PACK_K + k);
            float4 d = *(const float4 *)(from + 3 * PACK_K + k);
            float4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
            float4 ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            float4 cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
            float4 cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            float *to = out + k * width + r;
            *(float4 *)to = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
            *(float4 *)(to + width) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
            *(float4 *)(to + 2 * width) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
            *(float4 *)(to + 3 * width) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
        }
        for (; k < kn; k++)
            for (int i = 0; i < 4; i++) out[k * width + r + i] = from[i * PACK_K + k];
    }
    for (; r < width; r++)
        for (int64_t k = 0; k < kn; k++) out[k * width + r] = in[r * PACK_K + k];
}

/* Rows are contiguous along K: decode PACK_K of each row of a panel, then interleave them. */
static void pack_rows(const struct isa *isa, const struct operand *o, int64_t row, int64_t k0,
                      int64_t kn, float *out, float *scratch) {
    int64_t valid = o->rows - row < o->width ? o->rows - row : o->width;
    memset(scratch + valid * PACK_K, 0, (size_t)((o->width - valid) * PACK_K) * sizeof(float));
    for (int64_t k = 0; k < kn; k += PACK_K) {
        int64_t n = kn - k < PACK_K ? kn - k : PACK_K;
        for (int64_t r = 0; r < valid; r++)
            decode(isa, o->x->dtype, scratch + r * PACK_K, element(o->x, row + r, k0 + k), n);
        interleave(out + k * o->width, scratch, n, o->width);
    }
}

/* A transposed view or an untransposed twin, contiguous along rows: decodes all rows of one k, then
 * scatters them. */
static void pack_columns(const struct isa *isa, const struct operand *o, int64_t row,
                         int64_t panels, int64_t k0, int64_t kn, float *out, int64_t panel_stride,
                         float *scratch) {
    int64_t wanted = panels * o->width;
    int64_t valid = o->rows - row < wanted ? o->rows - row : wanted;
    memset(scratch + valid, 0, (size_t)(wanted - valid) * sizeof(float));
    for (int64_t k = 0; k < kn; k++) {
        decode(isa, o->x->dtype, scratch, element(o->x, row, k0 + k), valid);
        for (int64_t p = 0; p < panels; p++)
            memcpy(out + p * panel_stride + k * o->width, scratch + p * o->width,
                   (size_t)o->width * sizeof(float));
    }
}

void pack_panels(const struct isa *isa, const struct operand *o, int64_t row, int64_t panels,
                 int64_t k0, int64_t kn, float *out, int64_t panel_stride, float *scratch) {
    if (o->x->stride[1] != 1) {
        pack_columns(isa, o, row, panels, k0, kn, out, panel_stride, scratch);
        return;
    }
    for (int64_t p = 0; p < panels; p++)
        pack_rows(isa, o, row + p * o->width, k0, kn, out + p * panel_stride, scratch);
}

static float scale_at(const struct scale *s, int64_t i, int64_t j) {
    int64_t at = i * s->dim[1] + j;
    if (s->dtype == DTYPE_E4M3) return e4m3_decode(((const uint8_t *)s->data)[SCALE_HEADER + at]);
    return s->dtype == DTYPE_E8M0 ? e8m0_decode(((const uint8_t *)s->data)[at])
                                  : ((const float *)s->data)[at];
}

void pack_scales(const struct operand *o, int64_t row, int64_t k0, int64_t kn, float *out) {
    const struct scale *s = &o->x->scale;
    bool square = s->kind == SCALE_128X128 || s->kind == SCALE_32X32 ||
                  s->kind == SCALE_16X16;
    for (int64_t j = 0; j < ceil_div(kn, o->block); j++)
        for (int64_t r = 0; r < o->width; r++) {
            int64_t i = square ? (row + r) / o->block : row + r;
            out[j * o->width + r] = row + r < o->rows ? scale_at(s, i, k0 / o->block + j) : 0.0f;
        }
}

float operand_row_scale(const struct operand *o, int64_t row) {
    const struct scale *s = &o->x->scale;
    if (s->kind == SCALE_NONE) return 1.0f;
    return scale_at(s, s->kind == SCALE_ROW ? row : 0, 0);
}
