/* NEON kernels: part of every aarch64 CPU. */
#include "kernels/cpu/isa.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define ISA_TARGET
#define VEC float32x4_t
#define VEC_FLOATS 4
#define VEC_LOAD(p) vld1q_f32(p)
#define VEC_STORE(p, v) vst1q_f32((p), (v))
#define VEC_SPLAT(x) vdupq_n_f32(x)
#define VEC_MUL(a, b) vmulq_f32((a), (b))
#define VEC_FMA(a, b, c) vfmaq_f32((c), (a), (b))
enum { MR = 6, NV = 4 }; /* 24 chains of 4, 4 of B, 1 broadcast: 29 of 32 registers */
#define MMA_FLOATS 4
#define MMA_MAX(a, b) ((mma_i)vmaxq_s32((int32x4_t)(a), (int32x4_t)(b)))
#define MMA_FMA(a, b, c) ((mma_f)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
enum { MMA_MR = 8, MMA_NV = 4 };
#include "kernels/cpu/isa_kernels.h"

const struct isa ISA_NEON = { .name = "neon", .title = "NEON", .architecture = "aarch64-neon",
                              ISA_KERNELS };
#endif
