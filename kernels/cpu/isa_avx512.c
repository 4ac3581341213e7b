/* AVX-512 kernels (F, BW, DQ, VL: every CPU since Skylake-SP and Zen 4). */
#include "kernels/cpu/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define ISA_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define VEC __m512
#define VEC_FLOATS 16
#define VEC_LOAD(p) _mm512_load_ps(p)
#define VEC_STORE(p, v) _mm512_store_ps((p), (v))
#define VEC_SPLAT(x) _mm512_set1_ps(x)
#define VEC_MUL(a, b) _mm512_mul_ps((a), (b))
#define VEC_FMA(a, b, c) _mm512_fmadd_ps((a), (b), (c))
enum { MR = 12, NV = 2 }; /* 24 chains of 16, 2 of B, 1 broadcast: 27 of 32 registers */
#define MMA_FLOATS 16
#define MMA_MAX(a, b) ((mma_i)_mm512_max_epi32((__m512i)(a), (__m512i)(b)))
#define MMA_FMA(a, b, c) ((mma_f)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
enum { MMA_MR = 8, MMA_NV = 2 };
#include "kernels/cpu/isa_kernels.h"

const struct isa ISA_AVX512 = { .name = "avx512", .title = "AVX-512",
                                .architecture = "x86_64-avx512", ISA_KERNELS };
#endif
