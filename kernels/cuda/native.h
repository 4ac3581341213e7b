/* Who multiplies FP8 and FP4 operands, of sizes and versions alone: cuBLASLt directly, our kernel
 * on mma.sync, or cuBLASLt after the operands were widened. C and C++, without a GPU: the plan asks
 * too. */
#ifndef FP8LAB_KERNELS_CUDA_NATIVE_H
#define FP8LAB_KERNELS_CUDA_NATIVE_H

#include "kernels/cuda/scratch.h"

struct gemm_kind {
    int cc;                 /* the device's compute capability: 90 for 9.0 */
    int64_t library;        /* cublasLtGetVersion(): 130401 for 13.4.1. 0: a sound version */
    enum scale_kind a, b;
    int64_t m, n, k;        /* out [m,n] = a [m,k] b [n,k]^T */
    bool untransposed_a, untransposed_b; /* twins that are contiguous along m or n (tensor.h) */
};

static inline bool device_is_blackwell(int cc) { return cc >= 100; }
/* Jetson Thor: 10.1 for CUDA 12, 11.0 from CUDA 13 on. */
static inline bool device_is_thor(int cc) { return cc == 101 || cc == 110; }

/* Whether the library has MXFP8 products other than TN, those that read codes contiguous along
 * either axis: on 10.0 and 10.3. CUTLASS has them there as fast (tcgen05); 12.x has TN alone until
 * cuBLAS 13.6 (pytorch #198126). Thor is said to have them too, and keeps TN: nobody has tried. */
static inline bool device_multiplies_untransposed(int cc) { return cc == 100 || cc == 103; }

/* Scales of one byte, in blocks of 32 (MXFP8) or 16 (NVFP4) along K. */
static inline bool scale_is_byte(enum scale_kind kind) {
    return scale_block(kind) == 32 || scale_block(kind) == 16;
}

/* Block-scaled operands with scales of one byte. NVIDIA requires rows of 16 bytes (16 codes of FP8,
 * 32 of FP4). A last block that is short is nowhere described, so K is whole blocks. The rows of
 * the product then start at 16 bytes where n is a multiple of 8. TransformerEngine has the same
 * limits. An untransposed operand's lines are its M or N, which then is a multiple of 16, too.
 * Known faults of versions: release notes of CUDA 13.2.1, and TransformerEngine's
 * cublaslt_gemm.cu. */
static inline const char *gemm_byte_refusal(const struct gemm_kind *g) {
    bool fp4 = scale_is_nvfp4(g->a);
    if (!device_is_blackwell(g->cc)) return "the device has no such block scales";
    if ((g->untransposed_a || g->untransposed_b) && !device_multiplies_untransposed(g->cc))
        return "the library has TN alone";
    if (g->k % 32 || g->m % 8 || g->n % 8) return "K is no multiple of 32, or M or N of 8";
    if ((g->untransposed_a && g->m % 16) || (g->untransposed_b && g->n % 16))
        return "M or N of a twin is no multiple of 16";
    if (g->library && g->library < 120801)
        return "cuBLASLt < 12.8.1 mixes up MXFP8, FP8";
    if (fp4 && g->library == 130400) return "cuBLASLt 13.4.0 drops NVFP4's factor";
    return NULL;
}

/* NULL: the library has the mode. Otherwise why it does not multiply these operands; static, and
 * short enough for the detail of a decision. */
static inline const char *gemm_refusal(const struct gemm_kind *g) {
    if (scale_is_byte(g->a)) return gemm_byte_refusal(g);
    return gemm_is_native(g->cc, g->a, g->b, g->m, g->n) ? NULL : "the library has no such mode";
}

/* Whether the refusal is of this version of the library alone, which users can change. */
static inline bool gemm_refused_by_version(const struct gemm_kind *g) {
    struct gemm_kind sound = *g;
    sound.library = 0;
    return gemm_refusal(g) && !gemm_refusal(&sound);
}

/* Whether the library also adds a bias. Not for NVFP4 on Thor (CUDALibrarySamples #303). */
static inline bool gemm_adds_bias(const struct gemm_kind *g) {
    return !(scale_is_nvfp4(g->a) && device_is_thor(g->cc));
}

/* Whether the device's tensor cores multiply FP8 by mma.sync. Elsewhere it assembles to something
 * slow. */
static inline bool gemm_sync_is_fast(int cc) { return cc == 89 || cc == 120 || cc == 121; }

enum gemm_by { GEMM_BY_LIBRARY, GEMM_BY_SYNC /* gemm_sync.cu */, GEMM_EMULATED };

/* Our kernel takes f32 factors. It multiplies at twice the rate of BF16 and reads one byte a code
 * instead of widening it, so it serves all shapes that the library lacks the mode for. */
static inline enum gemm_by gemm_by_of(const struct gemm_kind *g) {
    if (!gemm_refusal(g)) return GEMM_BY_LIBRARY;
    bool ours = gemm_sync_is_fast(g->cc) && !scale_is_byte(g->a) && !scale_is_byte(g->b);
    return ours ? GEMM_BY_SYNC : GEMM_EMULATED;
}

#endif
