/* Vector kernels: one source (isa_kernels.h), compiled once per instruction set, chosen when the
 * backend opens. All give the same bits; only speed differs. */
#ifndef FP8LAB_KERNELS_CPU_ISA_H
#define FP8LAB_KERNELS_CPU_ISA_H

#include "kernels/arithmetic.h"
#include "kernels/dtype.h"

enum { GEMM_MR_MAX = 16, GEMM_NR_MAX = 32 };

struct isa {
    const char *name;         /* "avx512" */
    const char *title;        /* "AVX-512", for people */
    const char *architecture; /* "x86_64-avx512" */
    int mr, nr;               /* micro-tile of the GEMM: mr rows of A by nr rows of B */

    /* Continues the fma chains of c [mr][nr] over k more terms, k ascending:
     * c[i][j] = fma(a[k][i], b[k][j], c[i][j]).
     * a is packed [k][mr], b [k][nr]. b, c and sb are 64-byte aligned. */
    void (*gemm)(int64_t k, const float *a, const float *b, float *c);
    /* A fresh chain over k terms from +0, then c[i][j] = fma(chain, sa[i] * sb[j], c[i][j]). */
    void (*gemm_scaled)(int64_t k, const float *a, const float *b, const float *sa, const float *sb,
                        float *c);

    /* The same product as a tensor core adds it (kernels/arithmetic.h). Micro-tiles are
     * [mma_mr][mma_nr]; ea, eb hold the exponents of the packed values (mma_exponents).
     * mma: continues the chains of c over k terms. All but the last call of a chain have k a
     * multiple of the group. b, eb, c, chain, sb are aligned to 16 floats, or to a row of the
     * micro-tile.
     * mma_fold: c = fma(chain, sa[i] * sb[j], c), or with a's factor first fma(chain * sa[i],
     * sb[j], c); sa NULL: c + chain. */
    int mma_mr, mma_nr;
    void (*mma)(const struct mma *m, int64_t k, const float *a, const int32_t *ea, const float *b,
                const int32_t *eb, float *c);
    void (*mma_fold)(const float *chain, const float *sa, const float *sb, bool a_first, float *c);
    void (*mma_exponents)(int least, const float *x, int32_t *exponents, int64_t n);

    /* n codes to f32, exact (dtype.h). */
    void (*fp8_decode)(enum dtype t, float *out, const uint8_t *codes, int64_t n);
    /* out[i] = encode(x[i] * m[i]): the product rounded to f32, then nearest even, saturating. */
    void (*fp8_encode)(enum dtype t, uint8_t *out, const float *x, const float *m, int64_t n);
    /* count[0] += elements with |x*m| above the format's maximum, count[1] += x != 0 as code 0. */
    void (*fp8_stats)(enum dtype t, const uint8_t *codes, const float *x, const float *m, int64_t n,
                      uint32_t count[2]);
    void (*bf16_decode)(float *out, const uint16_t *x, int64_t n);
    void (*bf16_encode)(uint16_t *out, const float *x, int64_t n);
    /* Maximum of |x| bits over n elements: NaN and infinity are kept. */
    uint32_t (*amax)(const float *x, int64_t n);
    /* max[i] = the larger of max[i] and the bits of |x[i]|. */
    void (*amax_each)(uint32_t *max, const float *x, int64_t n);
    /* E2M1 by e2m1_round_stochastic: random has a byte an element. */
    void (*e2m1_round)(uint8_t *out, const float *x, const float *m, const uint8_t *random,
                       int64_t n);
    /* nvfp4_rotate of n columns of x, 16 rows that are `stride` apart; rounded to BF16. */
    void (*rotate)(float *x, int64_t stride, int64_t n);
};

/* The instruction sets that this build holds. */
#if defined(__x86_64__)
extern const struct isa ISA_AVX512, ISA_AVX2;
#endif
#if defined(__aarch64__)
extern const struct isa ISA_NEON;
#endif
extern const struct isa ISA_PORTABLE;

/* The kernels of that name, or NULL where this build or machine lacks them. NULL: the best here. */
const struct isa *isa_find(const char *name);

#endif
