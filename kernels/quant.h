/* How a tensor becomes FP8: the rule that turns an amax into a scale, and the output sink.
 *
 * Semantics to the constant, with the projects they come from: kernels/RECIPES.md. */
#ifndef FP8LAB_KERNELS_QUANT_H
#define FP8LAB_KERNELS_QUANT_H

#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The constants by which the projects differ. All multiply by m, saturate, and store the factor
 * s ~ 1/m.
 * max is the largest finite value of the code's format. */
enum quant_constants {
    /* TransformerEngine: amax below amax_min is raised to it. amax 0, infinite or NaN -> m = 1.
     * Otherwise m = max/amax in f32; an infinite m becomes FLT_MAX; pow2 masks m to a power of two.
     * s = 1/m in f32. */
    QUANT_TE,
    /* torchao float8: amax raised to amax_min (1e-12); m = f32(max / f64(amax)); pow2 rounds m down
     * to 2^floor(log2 m); s = 1/m in f32. A zero tensor has m = max/1e-12. */
    QUANT_TORCHAO,
    /* DeepSeek-V3 / DeepGEMM: amax raised to amax_min (1e-4; a gradient's: 448 * 2^-126); s =
     * amax/448 in f32 (pow2 rounds s *up*); m = 1/s in f32. */
    QUANT_DEEPSEEK,
    /* MXFP8 as TransformerEngine: s = e8m0_encode_up(amax * (1/448)), m = 2^-(s-127). */
    QUANT_MX,
    /* QUANT_TE for TransformerEngine's FP8 blocks: an infinite m becomes the largest finite value
     * of the input's dtype, BF16, instead of FLT_MAX. With pow2 both are 2^127. */
    QUANT_TE_BLOCK,
    /* NVFP4 as TransformerEngine: S from the tensor's amax, an E4M3 scale a block (nvfp4.h). The
     * multiplier of one amax is S, the stored factor 1/S as a GEMM has it: amax * (1/2688). */
    QUANT_NVFP4
};

struct quant_rule {
    enum quant_constants constants;
    float amax_min; /* epsilon; 0 for TE */
    bool pow2;
};

/* m (multiplier) and s (stored factor) for one amax under a rule; the scalar that every backend
 * must reproduce bit for bit. `code` is the FP8 format. Returns m, writes s to *stored. */
float quant_multiplier(const struct quant_rule *rule, enum dtype code, float amax, float *stored);

enum scale_source {
    SCALE_SOURCE_NONE,  /* high precision only: `codes` is NULL */
    SCALE_SOURCE_KNOWN, /* delayed: codes = sat(x * *multiplier), factor already in codes->scale */
    SCALE_SOURCE_AMAX,  /* current: one scale from this tensor's amax, known when it is complete */
    SCALE_SOURCE_BLOCK  /* one scale a row, block or tile, from its own amax */
};

/* Stochastic rounding of a gradient's codes. A draw depends on the seed, the step, the tensor, the
 * copy (codes or twin) and the element's place in the global batch. It depends on no rank, and on
 * no size of a micro-batch. kernels/nvfp4.h has the formula. */
struct round_draws {
    const struct tensor *step;     /* [1] i32 */
    const struct tensor *sequence; /* [1] i32: place of the micro-batch's first sequence */
    int64_t sequence_rows;         /* rows of a sequence */
    int64_t row;                   /* of the tensor's first row, among those of the micro-batch */
    uint64_t seed;
    uint32_t tensor;
};

/* The output of every operator that feeds a GEMM.
 *
 * Definition, the same for a fused kernel and for its composition: the operator computes in f32,
 * rounds once to `value`'s dtype (BF16; F32 in the f32 recipe), and everything below reads that
 * rounded value: amax, codes, transposed codes, stats. TransformerEngine's fused norms and
 * activations differ: with delayed scaling and MXFP8 they quantise the f32 result.
 *   value   [rows, K]. In the f32 and bf16 recipes it is the result. With FP8 codes it is the
 *           result too if keep_value; otherwise scratch, undefined afterwards
 *           (the CPU stages through it; a fused kernel need not touch it). Never NULL.
 *   codes   [rows, K] FP8 with scale, or NULL. codes->transposed [K, rows], if not NULL, gets
 *           the same codes moved (SCALE_TENSOR and square blocks) or is quantised
 *           afresh from `value` along the other axis (SCALE_ROW, SCALE_1X128, SCALE_1X32,
 *           SCALE_1X16). It may be untransposed (tensor.h). Under SCALE_32X32 it then has the
 *           bytes of the codes, and may share their memory.
 *           A transposed twin may be wanted alone: codes->data NULL and codes->transposed set.
 *   multiplier  [1] f32, read for SCALE_SOURCE_KNOWN only.
 *   amax    [1] u32 or NULL: becomes the unsigned maximum of itself and |x| bits of every element,
 *           so NaN and infinity are kept (NaN bits order above infinity). Recorded with every
 *           source.
 *   stats   [2] u64 or NULL: += elements that saturated (|x*m| above the format's maximum), and
 *           += non-zero elements that became zero. Counted in the row-wise codes; in the
 *           transposed codes if there are no others.
 *   sums    [K] F32 or BF16, or NULL: += the column sums of the value, rounded once. The gradient
 *           of a bias.
 *   own_amax  with SCALE_SOURCE_AMAX: no other operator adds to the amax, so it is final when the
 *           producer has read the whole tensor. The producer then makes the codes too, and
 *           quantise_finish does nothing. If the value is not kept, a backend may compute it
 *           twice instead of storing it: once for the amax, once for the codes.
 *   rotate  with SCALE_1X16: the twin is made of the value rotated by nvfp4_rotate, in groups of 16
 *           rows from the first. A last group of fewer rows is not rotated.
 *   draws   NULL: codes are rounded to nearest. With SCALE_1X16: stochastically.
 *   error   [2] f32 or NULL. No operator reads it: whoever makes codes through the sink also adds
 *           their error there, with quant_error. Needs keep_value.
 * Callers call quantise_finish(sink) after the producer and before the codes are read. */
struct sink {
    struct tensor *value;
    struct tensor *codes;
    const struct tensor *multiplier;
    struct tensor *amax;
    struct tensor *stats;
    const struct tensor *sums;
    const struct tensor *error;
    enum scale_source source;
    struct quant_rule rule;
    bool keep_value, own_amax, rotate;
    const struct round_draws *draws;
};

/* True if quantise_finish makes the codes. */
static inline bool sink_waits(const struct sink *s) {
    return s->source == SCALE_SOURCE_AMAX && !s->own_amax;
}

/* True if the codes are the twin's, too, and need be stored once. */
static inline bool sink_shares_codes(const struct sink *s) {
    const struct tensor *twin = s->codes->transposed;
    return twin && s->codes->data == twin->data && s->codes->scale.kind == SCALE_32X32 &&
           fp8_is_untransposed(twin);
}

/* A sink without codes: the high-precision result only. */
static inline struct sink sink_value(struct tensor *value, struct tensor *amax) {
    struct sink s;
    memset(&s, 0, sizeof s);
    s.value = value;
    s.amax = amax;
    s.keep_value = true;
    return s;
}

#ifdef __cplusplus
}
#endif
#endif
