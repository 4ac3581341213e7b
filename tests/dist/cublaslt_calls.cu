/* Native MXFP8 and NVFP4 without a GPU: what the backend hands to cuBLASLt, read as the library
 * documents it; and what it hands to our kernel on mma.sync (sync_problem.h). On Hopper: whether
 * our kernel for block scales may be chosen. The CUDA runtime is a stand-in whose device memory is
 * the host's; the kernels that lay operands out run by their inline parts. cuBLASLt is a stand-in
 * that multiplies in f64 from its descriptors alone: transposes, leading dimensions, types, packed
 * nibbles, swizzled scales, scalars on the device. The result must be the CPU backend's; operands
 * handed over in the other order must give another one. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Its kernels and their arguments are static. */
#include "kernels/cuda/byte_scales.cu"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/gemm_hopper.cuh"
#include "kernels/cuda/sync_problem.h"
#include "kernels/cuda/native.h"
#include "kernels/cuda/trial.cuh"

static int failures;
static void fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    printf("FAILED: ");
    vprintf(format, list);
    va_end(list);
    printf("\n");
    failures++;
}

static float number_at(cudaDataType_t type, const void *data, int64_t i) {
    return type == CUDA_R_32F ? ((const float *)data)[i] : bf16_decode(((uint16_t *)data)[i]);
}

/* The library, and how it was called. */
static struct {
    size_t version;
    int cc;
    bool thor;   /* a bias with FP4 is refused */
    int open;    /* structures made and not destroyed */
    int calls;   /* products */
    bool biased;
    const void *data[2]; /* the operands of the last product */
    char form[3];        /* "TN": its transposes */
} lt = { 130100, 100 };

/* ---- kernels, called by cudart_launch.c ---- */

static int epilogues;
static int syncs, hoppers; /* products of our kernels on mma.sync, on wgmma */

/* Its product in f64, from its arguments; kind and scales are in the kernel's name. */
static void multiply_sync(const char *name, const struct sync_product *g) {
    int kind, scales;
    if (sscanf(strstr(name, "kernelILi"), "kernelILi%dELi%dE", &kind, &scales) != 2)
        return fail("kernel %s", name);
    for (int64_t row = 0; row < g->rows; row++)
        for (int64_t col = 0; col < g->cols; col++) {
            const uint8_t *a = g->a + row * g->lda, *b = g->b + col * g->ldb;
            double sum = 0;
            for (int64_t k = 0; k < g->bytes; k++) {
                double x = (double)(kind == SYNC_E5M2_E4M3 ? e5m2_decode_inline(a[k])
                                                           : e4m3_decode_inline(a[k]));
                double y = (double)(kind == SYNC_E4M3_E5M2 ? e5m2_decode_inline(b[k])
                                                           : e4m3_decode_inline(b[k]));
                if (scales == SYNC_BLOCKS)
                    x *= (double)g->factor_a[(row >> g->shift_a) * g->blocks + k / 128] *
                         (double)g->factor_b[(col >> g->shift_b) * g->blocks + k / 128];
                sum += x * y;
            }
            if (scales == SYNC_LAST)
                sum *= (double)g->factor_a[row * g->step_a] * (double)g->factor_b[col * g->step_b];
            cudaDataType_t type = g->out_bf16 ? CUDA_R_16BF : CUDA_R_32F;
            int64_t at = row * g->ld + col;
            if (g->bias) sum += (double)number_at(g->bias_bf16 ? CUDA_R_16BF : CUDA_R_32F, g->bias,
                                                  col);
            if (g->addend) sum += (double)number_at(type, g->addend, at);
            if (g->out_bf16) ((uint16_t *)g->out)[at] = bf16_encode((float)sum);
            else ((float *)g->out)[at] = (float)sum;
        }
    syncs++;
}

extern "C" void stand_in_launch(const char *name, void **args) {
    if (lt.cc == 90) return; /* a trial's: no algorithm has the bits of a class here */
    if (strstr(name, "swizzle_kernel")) {
        for (const struct swizzle &s : ((struct swizzles *)args[0])->side)
            for (int64_t i = 0; i < swizzle_words(s.rows, s.blocks); i++)
                s.to[i] = swizzle_word(&s, i);
    } else if (strstr(name, "pack_kernel")) {
        for (const struct packing &p : ((struct packings *)args[0])->side)
            for (int64_t i = 0; i < p.rows * p.cols / 4; i++) {
                const uint8_t *from = p.codes + i * 4 / p.cols * p.ld + i * 4 % p.cols;
                uint32_t four;
                memcpy(&four, from, 4);
                ((uint16_t *)p.to)[i] = (uint16_t)nibbles_of(four);
            }
    } else if (strstr(name, "factors_kernel")) {
        float *out = *(float **)args[0];
        out[0] = nvfp4_product_factor(**(const float **)args[1], **(const float **)args[2]);
        out[1] = 0.0f;
        out[2] = 1.0f;
    } else if (strstr(name, "epilogue_kernel")) {
        epilogues++; /* from the library's f32 product */
    } else if (strstr(name, "gemm_sync_kernel")) {
        multiply_sync(name, (const struct sync_product *)args[0]);
    } else {
        fail("kernel %s", name);
    }
}

/* ---- cuBLASLt ---- */

struct attributes { int32_t i[64]; const void *p[64]; };
struct layout { cudaDataType_t type; int64_t rows, cols, ld; };
#define DESC(d) ((struct attributes *)(d))

extern "C" {
size_t cublasLtGetVersion(void) { return lt.version; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) {
    *h = (cublasLtHandle_t)&lt;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) fail("compute type");
    *out = (cublasLtMatmulDesc_t)calloc(1, sizeof *DESC(*out));
    DESC(*out)->i[CUBLASLT_MATMUL_DESC_EPILOGUE] = CUBLASLT_EPILOGUE_DEFAULT;
    lt.open++;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    free(d);
    lt.open--;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes) {
    if (bytes == sizeof(void *)) memcpy(&DESC(d)->p[name], value, bytes);
    else if (bytes == 1) DESC(d)->i[name] = *(const int8_t *)value;
    else memcpy(&DESC(d)->i[name], value, 4);
    if (name == CUBLASLT_MATMUL_DESC_FAST_ACCUM && DESC(d)->i[name]) fail("fast accumulation");
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
    struct layout *l = (struct layout *)calloc(1, sizeof *l);
    *l = { type, (int64_t)rows, (int64_t)cols, ld };
    *out = (cublasLtMatrixLayout_t)l;
    lt.open++;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    free(l);
    lt.open--;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    *out = (cublasLtMatmulPreference_t)calloc(1, 8);
    lt.open++;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    free(p);
    lt.open--;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void *, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
}

static int block_of(cublasLtMatmulDesc_t d) {
    int32_t mode = DESC(d)->i[CUBLASLT_MATMUL_DESC_A_SCALE_MODE];
    if (mode != DESC(d)->i[CUBLASLT_MATMUL_DESC_B_SCALE_MODE]) fail("two scale modes");
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0   ? 32
           : mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3 ? 16
                                                              : 0;
}

/* An operand op(x) as its layout and transpose say. Column-major: a column of the layout is
 * contiguous. along_k: it lies along K. */
struct side {
    const struct layout *l;
    bool along_k;
    int64_t outer, k;
};
static struct side side_of(cublasLtMatrixLayout_t layout, bool along_k) {
    const struct layout *l = (struct layout *)layout;
    if (along_k) return { l, true, l->cols, l->rows };
    return { l, false, l->rows, l->cols };
}
/* op(A) is [m, K], op(B) is [K, n]. */
static struct side side_a(cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t l) {
    return side_of(l, DESC(d)->i[CUBLASLT_MATMUL_DESC_TRANSA] == CUBLAS_OP_T);
}
static struct side side_b(cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t l) {
    return side_of(l, DESC(d)->i[CUBLASLT_MATMUL_DESC_TRANSB] == CUBLAS_OP_N);
}

/* What the library supports: as kernels/cuda/CHOICES.md says. */
static bool supported(cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t la,
                      cublasLtMatrixLayout_t lb) {
    if (lt.cc == 90) return true;
    struct side x = side_a(d, la), y = side_b(d, lb);
    const struct layout *a = x.l, *b = y.l;
    int block = block_of(d);
    bool fp4 = a->type == CUDA_R_4F_E2M1, tn = x.along_k && y.along_k;
    if (!tn && (fp4 || (lt.cc != 100 && lt.cc != 103))) fail("not TN");
    if ((!x.along_k && x.outer % 16) || (!y.along_k && y.outer % 16))
        fail("M %d, N %d", (int)x.outer, (int)y.outer);
    if (fp4 != (b->type == CUDA_R_4F_E2M1) || block != (fp4 ? 16 : 32)) fail("types and scales");
    if (a->type == CUDA_R_8F_E5M2 && b->type == CUDA_R_8F_E5M2) fail("E5M2 by E5M2");
    if (x.k != y.k || x.k % 32 || a->ld % (fp4 ? 32 : 16) || b->ld % (fp4 ? 32 : 16))
        fail("K %d, ld %d and %d", (int)x.k, (int)a->ld, (int)b->ld);
    if (a->ld < a->rows || b->ld < b->rows) fail("ld %d and %d", (int)a->ld, (int)b->ld);
    if (fp4 && lt.thor && DESC(d)->i[CUBLASLT_MATMUL_DESC_EPILOGUE] == CUBLASLT_EPILOGUE_BIAS)
        fail("Thor got a bias");
    if ((DESC(d)->i[CUBLASLT_MATMUL_DESC_POINTER_MODE] == CUBLASLT_POINTER_MODE_DEVICE) != fp4)
        fail("pointer mode %d", DESC(d)->i[CUBLASLT_MATMUL_DESC_POINTER_MODE]);
    return true;
}

extern "C" {
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *,
                                                    cublasLtMatmulAlgoConfigAttributes_t,
                                                    void *out, size_t bytes, size_t *written) {
    memset(out, 0, bytes); /* not split, no reduction */
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *,
                                                    cublasLtMatmulAlgoConfigAttributes_t,
                                                    const void *, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
    cublasLtMatmulHeuristicResult_t *out, int *found) {
    *found = supported(d, a, b);
    memset(out, 0, sizeof *out);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t *,
                                       cublasLtMatmulHeuristicResult_t *out) {
    memset(out, 0, sizeof *out);
    return CUBLAS_STATUS_SUCCESS;
}
}

/* Element k of row `outer` of an operand, with its scale, from the library's layouts. The transpose
 * moves the codes and not the scales, whose blocks lie along K in any case. */
static double element_of(const struct side &x, const void *data, const uint8_t *scale, int block,
                         int64_t outer, int64_t k) {
    const struct layout *l = x.l;
    const uint8_t *codes = (const uint8_t *)data;
    int64_t at = x.along_k ? outer * l->ld + k : k * l->ld + outer;
    int64_t j = k / block, along = (x.k / block + 3) / 4;
    int64_t tile = outer / 128 * along + j / 4;
    uint8_t s = scale[tile * 512 + outer % 32 * 16 + outer % 128 / 32 * 4 + j % 4];
    if (l->type == CUDA_R_4F_E2M1)
        return (double)e2m1_decode_inline(codes[at / 2] >> 4 * (at & 1) & 15) *
               (double)e4m3_decode_inline(s);
    float code = l->type == CUDA_R_8F_E5M2 ? e5m2_decode_inline(codes[at])
                                           : e4m3_decode_inline(codes[at]);
    return ldexp((double)code, (int)s - 127);
}

extern "C" cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
    cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
    const void *c, cublasLtMatrixLayout_t, void *out, cublasLtMatrixLayout_t ld,
    const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t) {
    if (lt.cc == 90) return CUBLAS_STATUS_SUCCESS;
    struct side x = side_a(d, la), y = side_b(d, lb);
    const struct layout *z = (struct layout *)ld;
    int block = block_of(d);
    const uint8_t *sx = (const uint8_t *)DESC(d)->p[CUBLASLT_MATMUL_DESC_A_SCALE_POINTER];
    const uint8_t *sy = (const uint8_t *)DESC(d)->p[CUBLASLT_MATMUL_DESC_B_SCALE_POINTER];
    const void *bias = DESC(d)->p[CUBLASLT_MATMUL_DESC_BIAS_POINTER];
    auto bias_type = (cudaDataType_t)DESC(d)->i[CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE];
    if (!supported(d, la, lb)) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int64_t col = 0; col < z->cols; col++)
        for (int64_t row = 0; row < z->rows; row++) {
            double sum = 0;
            for (int64_t k = 0; k < x.k; k++)
                sum += element_of(x, a, sx, block, row, k) * element_of(y, b, sy, block, col, k);
            int64_t at = col * z->ld + row;
            sum *= (double)*(const float *)alpha;
            if (bias) sum += (double)number_at(bias_type, bias, row);
            if (*(const float *)beta != 0.0f)
                sum += (double)*(const float *)beta * (double)number_at(z->type, c, at);
            if (z->type == CUDA_R_32F) ((float *)out)[at] = (float)sum;
            else ((uint16_t *)out)[at] = bf16_encode((float)sum);
        }
    lt.calls++;
    lt.biased = bias != NULL;
    lt.data[0] = a;
    lt.data[1] = b;
    snprintf(lt.form, sizeof lt.form, "%c%c", x.along_k ? 'T' : 'N', y.along_k ? 'N' : 'T');
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the rest of the backend ---- */

enum status trial_open(struct trial *, struct err *) { return OK; }
void trial_close(struct trial *) {}
void trial_run(const struct trial *, trial_queue queue, void *context, int count,
               const struct trial_hint *, float *us) {
    for (int i = 0; i < count; i++) us[i] = queue(context, i, NULL) ? 1.0f : -1.0f;
}
void trial_settled(const struct trial *, trial_queue, void *, int count, float *us) {
    for (int i = 0; i < count; i++) us[i] = 1.0f;
}
cudaError_t trial_noise(const struct trial *, void *data, int64_t bytes, uint32_t, uint32_t set) {
    for (int64_t i = 0; i < bytes / 4; i++) ((uint32_t *)data)[i] = set;
    return cudaSuccess;
}
bool gemm_hopper_serves(const struct cuda_backend *b, const struct gemm_problem *) {
    return b->cc == 90;
}
enum status gemm_hopper_run(const struct cuda_backend *, const struct gemm_problem *, cudaStream_t,
                            struct err *) {
    hoppers++;
    return OK;
}
enum status gemm_hopper_open(struct err *) { return OK; }
static const char *forbidden; /* or NULL */
bool cuda_is_forbidden(const struct cuda_backend *, const char *, const char *way) {
    return forbidden && !strcmp(forbidden, way);
}
enum status cuda_agree(struct cuda_backend *, const char *, const int64_t[4], void *, int64_t,
                       struct err *) {
    return OK;
}
enum status cuda_sync(struct backend *, struct err *) { return OK; }
static struct decision last;
enum status cuda_decided(struct cuda_backend *, const struct decision *d, struct err *) {
    last = *d;
    return OK;
}
enum status cuda_scratch(struct backend *b, int lane, enum scratch_use use, int64_t bytes,
                         void **out, struct err *) {
    struct scratch *s = &((struct cuda_backend *)b)->scratch[lane][use];
    if (bytes > s->bytes) {
        free(s->data);
        s->data = aligned_alloc(256, (size_t)round_up(bytes, 256));
        s->bytes = bytes;
    }
    *out = s->data;
    return OK;
}
enum status cuda_dequantise(struct backend *, int, const struct tensor *, const struct tensor *,
                            struct err *e) {
    return FAIL(e, ERR_STATE, "emulated"); /* which ends the product: the cases below want this */
}

/* ---- cases ---- */

static uint64_t state = 1;
static uint32_t draw(void) { return (uint32_t)(rng_mix(state++) >> 32); }

/* twin: untransposed. */
static struct tensor operand(enum dtype type, enum scale_kind kind, int64_t rows, int64_t k,
                             bool twin) {
    struct tensor x = twin ? tensor_fp8_untransposed(NULL, type, rows, k)
                           : tensor_fp8(NULL, type, rows, k);
    int64_t bytes = tensor_code_bytes(&x);
    uint8_t *codes = (uint8_t *)aligned_alloc(256, (size_t)round_up(bytes, 256));
    for (int64_t i = 0; i < bytes; i++)
        codes[i] = type == DTYPE_E2M1 ? draw() & 15 : (draw() & 0x80) | draw() % 0x70;
    x.data = codes;
    x.scale = scale_make(NULL, kind, rows, k);
    bytes = scale_bytes(&x.scale);
    uint8_t *scale = (uint8_t *)aligned_alloc(256, (size_t)round_up(bytes, 256));
    for (int64_t i = 0; x.scale.dtype == DTYPE_F32 && i < bytes / 4; i++)
        ((float *)(void *)scale)[i] = 0.5f + (float)(draw() % 1000) / 1000;
    for (int64_t i = 0; x.scale.dtype != DTYPE_F32 && i < bytes; i++)
        scale[i] = (uint8_t)(scale_is_nvfp4(kind) ? 0x28 + draw() % 0x20 : 120 + draw() % 12);
    float amax = (float)(500 + draw() % 1000);
    if (scale_is_nvfp4(kind)) memcpy(scale, &amax, 4);
    x.scale.data = scale;
    return x;
}

static struct tensor numbers(enum dtype type, int64_t rows, int64_t cols) {
    void *data = aligned_alloc(256, (size_t)round_up(rows * cols * 4, 256));
    for (int64_t i = 0; i < rows * cols; i++) {
        float v = (float)(int)(draw() % 64) - 32.0f;
        if (type == DTYPE_F32) ((float *)data)[i] = v;
        else ((uint16_t *)data)[i] = bf16_encode(v);
    }
    return tensor_2d(data, type, rows, cols);
}

/* What is handed to the CUDA backend instead of a twin b, of a product whose M, N and K are equal:
 * its codes as if they were transposed, or its scales column by column. The product must be wrong,
 * or the comparison would see neither. */
enum mistake { NO_MISTAKE, CODES_TRANSPOSED, SCALES_TRANSPOSED };

struct product_case {
    const char *name;
    int cc;
    size_t version;
    enum dtype a_type, b_type;
    enum scale_kind a, b;
    int64_t m, n, k;
    enum dtype out;
    bool bias, residual, adds;
    bool emulated;
    const char *forbidden; /* a way that failed its certificate */
    bool twin_a, twin_b;   /* untransposed twins */
    enum mistake mistake;
};

static const struct product_case CASES[] = {
    { "mxfp8, squares, bias, residual", 100, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_1X32,
      SCALE_32X32, 136, 40, 96, DTYPE_BF16, true, true, false, false, NULL },
    { "mxfp8, e5m2, added in f32", 121, 130100, DTYPE_E5M2, DTYPE_E4M3, SCALE_1X32, SCALE_1X32,
      24, 264, 160, DTYPE_F32, false, false, true, false, NULL },
    { "nvfp4, squares, bias", 120, 130100, DTYPE_E2M1, DTYPE_E2M1, SCALE_1X16, SCALE_16X16, 136,
      48, 96, DTYPE_BF16, true, false, false, false, NULL },
    { "nvfp4, added in f32", 100, 130401, DTYPE_E2M1, DTYPE_E2M1, SCALE_1X16, SCALE_1X16, 8, 136,
      32, DTYPE_F32, false, false, true, false, NULL },
    { "nvfp4 on Thor, bias apart", 110, 130100, DTYPE_E2M1, DTYPE_E2M1, SCALE_1X16, SCALE_1X16, 8,
      8, 32, DTYPE_BF16, true, false, false, false, NULL },
    { "nvfp4, 13.4.0", 100, 130400, DTYPE_E2M1, DTYPE_E2M1, SCALE_1X16, SCALE_1X16, 8, 8, 32,
      DTYPE_F32, false, false, false, true, NULL },
    { "mxfp8, forbidden", 100, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_1X32, SCALE_32X32, 8, 8, 32,
      DTYPE_F32, false, false, false, true, "e4m3 1x32 x e4m3 32x32" },
    { "TN, without NN", 100, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_1X32, SCALE_32X32, 16, 16, 32,
      DTYPE_F32, false, false, false, false, "e4m3 1x32 x e4m3 32x32 untransposed" },
    { "NN, forbidden", 100, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_1X32, SCALE_32X32, 16, 16, 32,
      DTYPE_F32, false, false, false, true, "e4m3 1x32 x e4m3 32x32 untransposed", false, true },
    { "NN, without TN", 100, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_1X32, SCALE_32X32, 16, 16, 32,
      DTYPE_F32, false, false, false, false, "e4m3 1x32 x e4m3 32x32", false, true },
    { "dgrad", 100, 130100, DTYPE_E5M2, DTYPE_E4M3, SCALE_1X32, SCALE_32X32, 136, 48, 96,
      DTYPE_BF16, true, true, false, false, NULL, false, true },
    { "wgrad, added in f32", 103, 130100, DTYPE_E5M2, DTYPE_E4M3, SCALE_1X32, SCALE_1X32, 144, 272,
      160, DTYPE_F32, false, false, true, false, NULL, true, true },
    { "a alone", 103, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_32X32, SCALE_1X32, 160, 24, 288,
      DTYPE_F32, false, false, false, false, NULL, true },
    { "dgrad, codes transposed", 100, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_1X32, SCALE_1X32, 160,
      160, 160, DTYPE_F32, false, false, false, false, NULL, false, true, CODES_TRANSPOSED },
    { "dgrad, scales transposed", 100, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_1X32, SCALE_1X32, 160,
      160, 160, DTYPE_F32, false, false, false, false, NULL, false, true, SCALES_TRANSPOSED },
    { "dgrad, N of 8", 100, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_1X32, SCALE_32X32, 136, 40, 96,
      DTYPE_F32, false, false, false, true, NULL, false, true },
    { "wgrad, TN alone", 121, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_1X32, SCALE_1X32, 144, 272, 160,
      DTYPE_F32, false, false, false, true, NULL, true, true },
    { "blocks by our kernel, bias, residual", 121, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_1X128,
      SCALE_128X128, 37, 152, 304, DTYPE_BF16, true, true, false, false, NULL },
    { "1x128, e5m2, added in f32", 89, 130100, DTYPE_E5M2, DTYPE_E4M3, SCALE_1X128, SCALE_1X128,
      24, 31, 160, DTYPE_F32, false, false, true, false, NULL },
    { "rows by our kernel", 120, 130100, DTYPE_E4M3, DTYPE_E5M2, SCALE_ROW, SCALE_ROW, 40, 33, 48,
      DTYPE_F32, true, false, false, false, NULL },
    { "row by tensor by our kernel", 121, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_ROW, SCALE_TENSOR,
      9, 40, 208, DTYPE_BF16, false, false, false, false, NULL },
    { "rows on sm_100", 100, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_ROW, SCALE_ROW, 8, 8, 32,
      DTYPE_F32, false, false, false, true, NULL },
    { "mxfp8 on Hopper", 90, 130100, DTYPE_E4M3, DTYPE_E4M3, SCALE_1X32, SCALE_1X32, 8, 8, 32,
      DTYPE_F32, false, false, false, true, NULL },
};

static void make_mistake(struct tensor *x, enum mistake mistake) {
    if (mistake == CODES_TRANSPOSED) {
        x->stride[0] = x->stride[1];
        x->stride[1] = 1;
    }
    if (mistake != SCALES_TRANSPOSED) return;
    int64_t rows = x->scale.dim[0], blocks = x->scale.dim[1];
    uint8_t *turned = (uint8_t *)aligned_alloc(256, (size_t)round_up(rows * blocks, 256));
    for (int64_t i = 0; i < rows * blocks; i++)
        turned[i] = ((const uint8_t *)x->scale.data)[i % blocks * rows + i / blocks];
    x->scale.data = turned;
}

/* The library reads twins where they are, and products of others are TN. */
static void check_form(const struct product_case *c, const struct tensor *a,
                       const struct tensor *b) {
    const char want[3] = { c->twin_b ? 'N' : 'T', c->twin_a ? 'T' : 'N', '\0' };
    bool twins = c->twin_a || c->twin_b;
    if (strcmp(lt.form, want) || (twins && (lt.data[0] != b->data || lt.data[1] != a->data)))
        fail("%s: a product %s of %s", c->name, lt.form, twins ? "copies" : "others");
}

static void try_case(struct cuda_backend *cb, struct backend *cpu, const struct product_case *c) {
    struct tensor a = operand(c->a_type, c->a, c->m, c->k, c->twin_a);
    struct tensor b = operand(c->b_type, c->b, c->n, c->k, c->twin_b);
    struct tensor bias = numbers(DTYPE_BF16, 1, c->n);
    struct tensor residual = numbers(c->out, c->m, c->n), out = numbers(c->out, c->m, c->n);
    struct tensor want = numbers(c->out, c->m, c->n);
    struct matmul_args args = {};
    struct err e = {};
    int64_t bytes = c->m * c->n * dtype_bytes(c->out);
    bias = tensor_1d(bias.data, DTYPE_BF16, c->n);
    memcpy(want.data, out.data, (size_t)bytes);
    args.out = &want;
    args.a = &a;
    args.b = &b;
    if (c->bias) args.bias = &bias;
    if (c->residual) args.residual = &residual;
    args.beta = c->adds ? 1.0f : 0.0f;
    args.name = "w";
    lt.version = c->version;
    lt.cc = c->cc;
    lt.thor = device_is_thor(c->cc);
    lt.calls = epilogues = syncs = 0;
    forbidden = c->forbidden;
    cb->cc = cb->caps = c->cc;
    if (cpu->ops->matmul(cpu, LANE_COMPUTE, &args, &e) != OK) fail("%s: %s", c->name, e.text);
    args.out = &out;
    make_mistake(&b, c->mistake);
    enum status st = cuda_matmul(&cb->base, LANE_COMPUTE, &args, &e);
    if (c->emulated) {
        if (st == OK || strcmp(e.text, "emulated") || lt.calls) fail("%s: native", c->name);
        return;
    }
    if (st != OK) fail("%s: %s", c->name, e.text);
    if (strcmp(last.way, "native") || !strstr(last.detail, c->a_type == DTYPE_E2M1 ? "e2m1" : "e"))
        fail("%s: %s, %s", c->name, last.way, last.detail);
    if (epilogues != lt.thor) fail("%s: %d epilogues of ours", c->name, epilogues);
    if (lt.thor) return; /* which does not run here */
    cudaDataType_t type = c->out == DTYPE_F32 ? CUDA_R_32F : CUDA_R_16BF;
    double worst = 0, top = 0;
    for (int64_t i = 0; i < c->m * c->n; i++) {
        double x = (double)number_at(type, want.data, i), y = (double)number_at(type, out.data, i);
        worst = fmax(worst, fabs(x - y));
        top = fmax(top, fabs(x));
    }
    if (c->mistake) {
        if (!(worst > top * 0.01)) fail("%s: off by %g of %g", c->name, worst, top);
        printf("%s: off by %.1e of %.1e, as it must be\n", c->name, worst, top);
        return;
    }
    /* The reference adds in f32; BF16 outputs may round to the neighbour. */
    if (!(worst <= top * (c->out == DTYPE_F32 ? 1e-5 : 1.0 / 128)) || top == 0)
        fail("%s: off by %g of %g", c->name, worst, top);
    bool ours = a.scale.dtype == DTYPE_F32;
    if (ours != (strstr(last.detail, ", mma.sync") != NULL)) fail("%s: %s", c->name, last.detail);
    if (ours ? lt.calls || syncs != 1 : syncs || lt.calls < 1 || lt.biased != c->bias)
        fail("%s: %d calls, %d of ours", c->name, lt.calls, syncs);
    if (!ours) check_form(c, &a, &b);
    printf("%s: off by %.1e of %.1e; %s%s%s\n", c->name, worst, top, last.detail,
           ours ? "" : ", ", ours ? "" : lt.form);
}

/* A wgrad that is added to BF16, on Hopper. Our kernel rounds once. For rows of E4M3 so does the
 * class, so it serves where no algorithm of the library does. For rows of E5M2 the class rounds
 * twice, so our kernel may not. */
static void try_own(struct cuda_backend *cb, enum dtype rows, int want) {
    enum { M = 64, N = 32, K = 256 };
    struct tensor a = operand(rows, SCALE_1X128, M, K, false);
    struct tensor b = operand(DTYPE_E4M3, SCALE_1X128, N, K, false);
    struct tensor out = numbers(DTYPE_BF16, M, N);
    struct matmul_args args = {};
    struct err e = {};
    args.out = &out;
    args.a = &a;
    args.b = &b;
    args.beta = 1.0f;
    args.name = "w";
    cb->cc = cb->caps = lt.cc = 90;
    hoppers = 0;
    if (cuda_matmul(&cb->base, LANE_COMPUTE, &args, &e) != OK) fail("on Hopper: %s", e.text);
    if (hoppers != want)
        fail("on Hopper: %d products of ours, not %d: %s", hoppers, want, last.detail);
    printf("on Hopper, %s: %s\n", rows == DTYPE_E4M3 ? "e4m3" : "e5m2", last.detail);
}

int main(void) {
    static struct cuda_backend cb;
    struct backend *cpu = NULL;
    struct err e = {};
    cb.sm_count = 1;
    cb.shared_bytes = SYNC_SHARED;
    cb.cc = cb.caps = 100;
    if (cpu_backend_open(&cpu, 1, &e) != OK || cuda_gemm_open(&cb, &e) != OK) {
        printf("FAILED: %s\n", e.text);
        return 1;
    }
    for (const struct product_case &c : CASES) {
        try_case(&cb, cpu, &c);
        bool mx = scale_is_mxfp8(c.a), turns = c.cc == 100 || c.cc == 103;
        if (cuda_twins_untransposed(&cb.base, c.a) != (mx && turns))
            fail("%s: twins %s", c.name, turns ? "transposed" : "untransposed");
    }
    try_own(&cb, DTYPE_E4M3, 1);
    try_own(&cb, DTYPE_E5M2, 0);
    if (lt.open) fail("%d structures of the library were not destroyed", lt.open);
    return failures != 0;
}
