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
