/* AVX2 and FMA kernels (every x86-64 server and desktop CPU since Haswell and Zen). */
#include "kernels/cpu/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define ISA_TARGET __attribute__((target("avx2,fma")))
#define VEC __m256
#define VEC_FLOATS 8
#define VEC_LOAD(p) _mm256_load_ps(p)
#define VEC_STORE(p, v) _mm256_store_ps((p), (v))
#define VEC_SPLAT(x) _mm256_set1_ps(x)
#define VEC_MUL(a, b) _mm256_mul_ps((a), (b))
#define VEC_FMA(a, b, c) _mm256_fmadd_ps((a), (b), (c))
enum { MR = 6, NV = 2 }; /* 12 chains of 8, 2 of B, 1 broadcast: 15 of 16 registers */
#define MMA_FLOATS 8
#define MMA_MAX(a, b) ((mma_i)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#define MMA_FMA(a, b, c) ((mma_f)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
enum { MMA_MR = 8, MMA_NV = 4 }; /* 4 sums, 4 powers of two, a product, 1 broadcast */
#include "kernels/cpu/isa_kernels.h"

const struct isa ISA_AVX2 = { .name = "avx2", .title = "AVX2", .architecture = "x86_64-avx2",
                              ISA_KERNELS };
#endif
