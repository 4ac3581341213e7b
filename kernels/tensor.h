/* A view of numbers in a backend's memory: dtype, shape, strides, FP8 scale, transposed FP8 twin.
 *
 * A view owns nothing. `data` may be a device address: code outside a backend never dereferences
 * it. Names used in every header:
 *   B batch   T time   R = B*T rows   C width   H query heads   G key/value heads   D head dim
 *   F ffn width   V vocabulary   L layers   dX is the gradient of X */
#ifndef FP8LAB_KERNELS_TENSOR_H
#define FP8LAB_KERNELS_TENSOR_H

#include "kernels/base.h"
#include "kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which elements of an FP8 tensor [rows, K] share one scale. Logical shapes; a library's own layout
 * and padding stay inside a backend. The last block of a row or column may be short. */
enum scale_kind {
    SCALE_NONE,    /* not FP8 */
    SCALE_TENSOR,  /* one            dim { 1, 1 }                             f32 */
    SCALE_ROW,     /* one a row      dim { rows, 1 }                          f32 */
    SCALE_1X128,   /* 128 along K    dim { rows, ceil(K/128) }                f32 */
    SCALE_128X128, /* square blocks  dim { ceil(rows/128), ceil(K/128) }      f32 */
    SCALE_1X32,    /* 32 along K     dim { rows, ceil(K/32) }                 e8m0 (MXFP8) */
    SCALE_32X32,   /* square blocks  dim { ceil(rows/32), ceil(K/32) }        e8m0 (weights) */
    SCALE_1X16,    /* 16 along K     dim { rows, ceil(K/16) }                 e4m3 (NVFP4) */
    SCALE_16X16,   /* square blocks  dim { ceil(rows/16), ceil(K/16) }        e4m3 (its weights) */
    SCALE_KIND_COUNT
};

/* "1x128"; "" for SCALE_NONE. */
static inline const char *scale_kind_name(enum scale_kind kind) {
    static const char *const NAME[] = { "", "tensor", "row", "1x128", "128x128", "1x32", "32x32",
                                        "1x16", "16x16" };
    return NAME[kind];
}

/* value = stored * scale: the *dequantisation* factor, as the GEMM wants it. Row-major.
 * NVFP4 has two levels: a header of SCALE_HEADER bytes, which begins with the tensor's amax (f32),
 * then the blocks' scales. kernels/nvfp4.h makes the factor of both. */
enum { SCALE_HEADER = 16 };
struct scale {
    void *data; /* borrowed, 16-byte aligned (cuBLASLt 13.1 fails at +4 and +8 bytes) */
    enum scale_kind kind;
    enum dtype dtype; /* DTYPE_F32, DTYPE_E8M0 or DTYPE_E4M3 */
    int64_t dim[2];
};

struct tensor {
    void *data;                /* borrowed; memory of the backend that allocated it */
    struct scale scale;        /* SCALE_NONE unless FP8 */
    struct tensor *transposed; /* the FP8 twin [K, rows], for products along the rows, or NULL */
    int64_t dim[4], stride[4]; /* outermost first, in elements; unused trailing dims are 1 */
    enum dtype dtype;
};

/* A packed row-major view; d1..d3 of 1 for fewer dimensions. */
static inline struct tensor tensor_make(void *data, enum dtype t, int64_t d0, int64_t d1,
                                        int64_t d2, int64_t d3) {
    struct tensor x;
    memset(&x, 0, sizeof x);
    x.data = data;
    x.dtype = t;
    x.dim[0] = d0; x.dim[1] = d1; x.dim[2] = d2; x.dim[3] = d3;
    x.stride[3] = 1; x.stride[2] = d3; x.stride[1] = d3 * d2; x.stride[0] = d3 * d2 * d1;
    return x;
}
static inline struct tensor tensor_1d(void *data, enum dtype t, int64_t n) {
    return tensor_make(data, t, n, 1, 1, 1);
}
static inline struct tensor tensor_2d(void *data, enum dtype t, int64_t rows, int64_t cols) {
    return tensor_make(data, t, rows, cols, 1, 1);
}
static inline int64_t tensor_count(const struct tensor *x) {
    return x->dim[0] * x->dim[1] * x->dim[2] * x->dim[3];
}
/* The matrix [dim[0], product of the others]: the view of row operators. */
static inline int64_t tensor_rows(const struct tensor *x) { return x->dim[0]; }
static inline int64_t tensor_cols(const struct tensor *x) {
    return x->dim[1] * x->dim[2] * x->dim[3];
}

/* FP8 code rows start on 16-byte boundaries: [rows, K] has row stride round_up(K, 16), and the
 * bytes between K and the stride are zero. */
enum { FP8_ROW_ALIGN = 16 };
static inline struct tensor tensor_fp8(void *data, enum dtype t, int64_t rows, int64_t k) {
    struct tensor x = tensor_2d(data, t, rows, k);
    x.stride[0] = round_up(k, FP8_ROW_ALIGN);
    x.stride[1] = 1;
    return x;
}
static inline int64_t tensor_fp8_bytes(int64_t rows, int64_t k) {
    return rows * round_up(k, FP8_ROW_ALIGN);
}

/* An untransposed twin: codes [rows, K] of which element (r, k) lies where a tensor [K, rows] has
 * (k, r). So its codes are in the order of the values that it is made of, and its scales are those
 * of any [rows, K]. Only MXFP8's scales have such twins (scale_is_mxfp8). */
static inline struct tensor tensor_fp8_untransposed(void *data, enum dtype t, int64_t rows,
                                                    int64_t k) {
    struct tensor x = tensor_2d(data, t, rows, k);
    x.stride[0] = 1;
    x.stride[1] = round_up(rows, FP8_ROW_ALIGN);
    return x;
}
static inline bool fp8_is_untransposed(const struct tensor *x) { return x->stride[1] != 1; }

/* Bytes from one line of codes to the next. */
static inline int64_t fp8_line(const struct tensor *x) {
    return fp8_is_untransposed(x) ? x->stride[1] : x->stride[0];
}

/* The bytes of its codes, padding included. */
static inline int64_t tensor_code_bytes(const struct tensor *x) {
    return fp8_is_untransposed(x) ? tensor_fp8_bytes(x->dim[1], x->dim[0])
                                  : tensor_fp8_bytes(x->dim[0], x->dim[1]);
}

/* Where the pieces of a gather begin (operators.inc). */
enum { GATHER_ALIGN = 16 };

static inline bool scale_is_mxfp8(enum scale_kind kind) {
    return kind == SCALE_1X32 || kind == SCALE_32X32;
}
static inline bool scale_is_nvfp4(enum scale_kind kind) {
    return kind == SCALE_1X16 || kind == SCALE_16X16;
}

/* The scale of `kind` over [rows, k], at `data`; and the bytes it takes. */
static inline struct scale scale_make(void *data, enum scale_kind kind, int64_t rows, int64_t k) {
    struct scale s;
    memset(&s, 0, sizeof s);
    s.data = data;
    s.kind = kind;
    s.dtype = kind == SCALE_1X32 || kind == SCALE_32X32 ? DTYPE_E8M0 : DTYPE_F32;
    if (scale_is_nvfp4(kind)) s.dtype = DTYPE_E4M3;
    s.dim[0] = s.dim[1] = 1;
    if (kind == SCALE_ROW) s.dim[0] = rows;
    if (kind == SCALE_1X128) { s.dim[0] = rows; s.dim[1] = ceil_div(k, 128); }
    if (kind == SCALE_128X128) { s.dim[0] = ceil_div(rows, 128); s.dim[1] = ceil_div(k, 128); }
    if (kind == SCALE_1X32) { s.dim[0] = rows; s.dim[1] = ceil_div(k, 32); }
    if (kind == SCALE_32X32) { s.dim[0] = ceil_div(rows, 32); s.dim[1] = ceil_div(k, 32); }
    if (kind == SCALE_1X16) { s.dim[0] = rows; s.dim[1] = ceil_div(k, 16); }
    if (kind == SCALE_16X16) { s.dim[0] = ceil_div(rows, 16); s.dim[1] = ceil_div(k, 16); }
    return s;
}
static inline int64_t scale_bytes(const struct scale *s) {
    if (s->kind == SCALE_NONE) return 0;
    int64_t header = scale_is_nvfp4(s->kind) ? SCALE_HEADER : 0;
    return header + s->dim[0] * s->dim[1] * dtype_bytes(s->dtype);
}

#ifdef __cplusplus
}
#endif
#endif
