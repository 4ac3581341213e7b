#include "kernels/cpu/matmul_mma.h"

#include <math.h>

void mma_pack(const struct isa *isa, const struct mma_way *way, int least, const struct operand *o,
              int64_t row, int64_t k0, int64_t kn, float *values, int32_t *exponents,
              float *scratch) {
    int64_t n = kn * o->width;
    if (way->widened || way->scaled) pack_scales(o, row, k0, kn, scratch);
    if (way->widened)
        for (int64_t i = 0; i < n; i++) {
            float factor = scratch[i / o->width / o->block * o->width + i % o->width];
            values[i] = bf16_decode(bf16_encode(values[i] * factor));
        }
    isa->mma_exponents(least, values, exponents, n);
    if (way->scaled)
        for (int64_t i = 0; i < n; i++) {
            float factor = scratch[i / o->width / o->block * o->width + i % o->width];
            values[i] = values[i] * factor;
            if (!isfinite(values[i])) exponents[i] = MMA_SPECIAL;
            else if (values[i] != 0.0f) exponents[i] += ilogbf(factor); /* padding has factor 0 */
        }
}

void mma_micro_tile(const struct isa *isa, const struct mma_way *way, struct mma_panel a,
                    struct mma_panel b, int64_t k, int64_t kn, float *sums) {
    _Alignas(64) float chain[GEMM_MR_MAX * GEMM_NR_MAX];
    int64_t mr = isa->mma_mr, nr = isa->mma_nr, length = way->order.chain;
    if (!length) {
        isa->mma(&way->mma, kn, a.value + k * mr, a.exponent + k * mr, b.value + k * nr,
                 b.exponent + k * nr, sums);
        return;
    }
    for (int64_t end = k + kn; k < end; k += length) {
        int64_t n = end - k < length ? end - k : length, block = k / length;
        memset(chain, 0, (size_t)(mr * nr) * sizeof *chain);
        isa->mma(&way->mma, n, a.value + k * mr, a.exponent + k * mr, b.value + k * nr,
                 b.exponent + k * nr, chain);
        isa->mma_fold(chain, a.factor ? a.factor + block * mr : NULL,
                      a.factor ? b.factor + block * nr : NULL, way->factors == FACTOR_A_FIRST,
                      sums);
    }
}

/* One instruction for all outputs of a micro-tile, from the exact sums of its `n` blocks. */
static void add_terms(const struct isa *isa, const struct mma_way *way, int64_t n,
                      float block[MMA_TERMS][GEMM_MR_MAX * GEMM_NR_MAX], const float *sa,
                      const float *sb, float *sums) {
    int64_t mr = isa->mr, nr = isa->nr;
    int32_t ea[MMA_TERMS * GEMM_MR_MAX], eb[MMA_TERMS * GEMM_NR_MAX];
    isa->mma_exponents(MMA_LEAST_E4M3, sa, ea, n * mr);
    isa->mma_exponents(MMA_LEAST_E4M3, sb, eb, n * nr);
    for (int64_t i = 0; i < mr; i++)
        for (int64_t j = 0; j < nr; j++) {
            float value[MMA_TERMS];
            int32_t exponent[MMA_TERMS];
            for (int64_t t = 0; t < n; t++) {
                value[t] = block[t][i * nr + j] * sa[t * mr + i];
                exponent[t] = ea[t * mr + i];
            }
            sums[i * nr + j] =
                mma_add(&way->mma, n, (struct mma_terms){ value, exponent, 1 },
                        (struct mma_terms){ sb + j, eb + j, nr }, sums[i * nr + j]);
        }
}

void mma_term_tile(const struct isa *isa, const struct mma_way *way, struct mma_panel a,
                   struct mma_panel b, int64_t k, int64_t kn, float *sums) {
    _Alignas(64) float block[MMA_TERMS][GEMM_MR_MAX * GEMM_NR_MAX];
    int64_t mr = isa->mr, nr = isa->nr;
    for (int64_t end = k + kn; k < end;) {
        const float *sa = a.factor + k / way->term * mr, *sb = b.factor + k / way->term * nr;
        int64_t n = 0;
        for (; n < way->mma.group / way->term && k < end; n++, k += way->term) {
            memset(block[n], 0, (size_t)(mr * nr) * sizeof *block[n]);
            isa->gemm(end - k < way->term ? end - k : way->term, a.value + k * mr,
                      b.value + k * nr, block[n]);
        }
        add_terms(isa, way, n, block, sa, sb, sums);
    }
}
