/* Products on mma.sync: tiles of 128 x 128 outputs, eight warps of 64 x 32, three stages of copies.
 *
 * For devices whose library has no mode for row or block scales (sm_89, sm_120, sm_121). Where the
 * tensor cores lack the instruction, the assembler emits unpacking and HMMA: slow, but the indices
 * are the same, so a Hopper GPU tests them. Grid: one block for each tile. Bound: tensor cores. */
#include "kernels/cuda/gemm_sync.cuh"

#include "kernels/cuda/gemm_sync_body.h"
#include "kernels/cuda/native.h"

template <int KIND, int SCALES>
__global__ void __launch_bounds__(SYNC_THREADS, 1)
    gemm_sync_kernel(const __grid_constant__ struct sync_product g) {
    extern __shared__ __align__(128) char memory[];
    const struct sync_place at = { (int)threadIdx.x, shared_address(memory) };
    sync_body(&g, at, blockIdx.x, KIND, SCALES);
}

typedef void (*kernel)(struct sync_product);

/* NULL: there is no such kernel. */
static kernel kernel_of(int kind, int scales) {
    static const kernel LAST[] = { gemm_sync_kernel<SYNC_E4M3_E4M3, SYNC_LAST>,
                                   gemm_sync_kernel<SYNC_E5M2_E4M3, SYNC_LAST>,
                                   gemm_sync_kernel<SYNC_E4M3_E5M2, SYNC_LAST> };
    static const kernel BLOCKS[] = { gemm_sync_kernel<SYNC_E4M3_E4M3, SYNC_BLOCKS>,
                                     gemm_sync_kernel<SYNC_E5M2_E4M3, SYNC_BLOCKS>,
                                     gemm_sync_kernel<SYNC_E4M3_E5M2, SYNC_BLOCKS> };
    if (kind == SYNC_BF16)
        return scales == SYNC_UNSCALED ? gemm_sync_kernel<SYNC_BF16, SYNC_UNSCALED> : NULL;
    if (kind < 0 || scales == SYNC_UNSCALED) return NULL;
    return scales == SYNC_LAST ? LAST[kind] : BLOCKS[kind];
}

enum status gemm_sync_open(const struct cuda_backend *b, struct err *e) {
    if (b->shared_bytes < SYNC_SHARED) return OK; /* gemm_sync_serves says no */
    for (int kind = 0; kind < SYNC_KIND_COUNT; kind++)
        for (int scales = SYNC_UNSCALED; scales <= SYNC_BLOCKS; scales++) {
            kernel k = kernel_of(kind, scales);
            if (k) CUDA_TRY(e, cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                    SYNC_SHARED));
        }
    return OK;
}

/* -1: no instruction multiplies these. The library's b is our a. */
static int kind_of(const struct gemm_problem *p) {
    if (p->a.type == CUDA_R_16BF && p->b.type == CUDA_R_16BF) return SYNC_BF16;
    if (p->a.type == CUDA_R_8F_E4M3 && p->b.type == CUDA_R_8F_E4M3) return SYNC_E4M3_E4M3;
    if (p->a.type == CUDA_R_8F_E4M3 && p->b.type == CUDA_R_8F_E5M2) return SYNC_E5M2_E4M3;
    if (p->a.type == CUDA_R_8F_E5M2 && p->b.type == CUDA_R_8F_E4M3) return SYNC_E4M3_E5M2;
    return -1;
}

static bool has_blocks(const struct gemm_operand *x) {
    return x->scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
           x->scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}
static bool has_one_or_rows(const struct gemm_operand *x) {
    return x->scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ||
           x->scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
}

static bool scales_fit(const struct cuda_backend *b, const struct gemm_problem *p, int kind) {
    if (kind == SYNC_BF16) return !p->a.scale && !p->b.scale;
    if (!gemm_sync_is_fast(b->caps) || b->cc < 89 || !p->a.scale || !p->b.scale) return false;
    return has_blocks(&p->a) ? has_blocks(&p->b)
                             : has_one_or_rows(&p->a) && has_one_or_rows(&p->b);
}

static bool rows_fit(const struct gemm_operand *x, int size) {
    return x->transposed && x->ld * size % 16 == 0 && (uintptr_t)x->data % 16 == 0;
}

bool gemm_sync_serves(const struct cuda_backend *b, const struct gemm_problem *p) {
    int kind = kind_of(p), size = kind == SYNC_BF16 ? 2 : 1;
    if (kind < 0 || b->shared_bytes < SYNC_SHARED || !scales_fit(b, p, kind)) return false;
    return rows_fit(&p->a, size) && rows_fit(&p->b, size) &&
           ceil_div(p->m, SYNC_COLS) * ceil_div(p->n, SYNC_ROWS) <= INT32_MAX;
}

static int shift_of(const struct gemm_operand *x) {
    return x->scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F ? 7 : 0;
}

enum status gemm_sync_run(const struct cuda_backend *b, const struct gemm_problem *p,
                          cudaStream_t stream, struct err *e) {
    int kind = kind_of(p), size = kind == SYNC_BF16 ? 2 : 1;
    int scales = kind == SYNC_BF16 ? SYNC_UNSCALED : has_blocks(&p->a) ? SYNC_BLOCKS : SYNC_LAST;
    struct sync_product g = {};
    g.a = (const uint8_t *)p->b.data;
    g.b = (const uint8_t *)p->a.data;
    g.factor_a = p->b.factors;
    g.factor_b = p->a.factors;
    g.bias = p->bias;
    g.addend = p->beta != 0.0f ? p->c : NULL;
    g.out = p->d;
    g.rows = p->n;
    g.cols = p->m;
    g.bytes = p->k * size;
    g.lda = p->b.ld * size;
    g.ldb = p->a.ld * size;
    g.ld = p->ld;
    g.blocks = ceil_div(p->k, 128);
    g.shift_a = shift_of(&p->b);
    g.shift_b = shift_of(&p->a);
    g.step_a = !p->b.one_factor;
    g.step_b = !p->a.one_factor;
    g.out_bf16 = p->type == CUDA_R_16BF;
    g.bias_bf16 = p->bias_type == CUDA_R_16BF;
    g.paired = p->ld % 2 == 0 && (uintptr_t)p->d % (g.out_bf16 ? 4 : 8) == 0;
    kernel_of(kind, scales)<<<(unsigned)sync_tiles(&g), SYNC_THREADS, SYNC_SHARED, stream>>>(g);
    return cuda_launched("matmul", e);
}
