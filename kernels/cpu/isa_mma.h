/* A tensor core's additions (kernels/arithmetic.h) in vectors, included by isa_kernels.h. The
 * vectors are the compiler's, so one source serves all instruction sets. An isa_<name>.c defines
 *   MMA_FLOATS       floats of a vector
 *   MMA_MR, MMA_NV   rows of A, and vectors of rows of B, of a micro-tile
 *   MMA_MAX(a, b)    the larger of each pair of int32; MMA_FMA(a, b, c) fused
 *
 * The integers of rule 2 are conversions. A product of values is exact in f32, and so is its
 * multiple by 2^(fraction - E). The conversion to int32 truncates toward zero. Each half of a group
 * has one int32: 16 products of FP8, below 3.52 * 2^25 each, and C stay below 2^31. Sums and
 * products leave f32's range only if E is far from 0. Such outputs, NaN and infinities go to
 * mma_add, a row of a micro-tile at a time. */
#include "kernels/arithmetic.h"

typedef float mma_f __attribute__((vector_size(4 * MMA_FLOATS), may_alias));
typedef int32_t mma_i __attribute__((vector_size(4 * MMA_FLOATS), may_alias));

enum { MMA_NR = MMA_NV * MMA_FLOATS };
_Static_assert((int)MMA_MR <= (int)GEMM_MR_MAX && (int)MMA_NR <= (int)GEMM_NR_MAX, "isa.h");

#define EACH_VECTOR _Pragma("GCC unroll 4") for (int v = 0; v < MMA_NV; v++)
#define MMA_AT(type, p) (*(const type *)((p) + v * MMA_FLOATS))
#define MMA_SPLAT(type, x) ((x) - (type){ 0 }) /* unlike 0 + x, this keeps -0 and costs nothing */

/* E within these bounds: products and sums that matter are normal f32 numbers. */
enum { MMA_E_LEAST = -95, MMA_E_MOST = 100 };

/* Where an instruction reads: k of A's row and of B's columns, both packed. */
struct mma_group {
    const float *a, *b;
    const int32_t *ea, *eb;
    int64_t n;
};

ISA_TARGET static inline bool mma_all(const mma_i *ok) {
    mma_i all = ok[0];
    for (int v = 1; v < MMA_NV; v++) all = all & ok[v];
    int32_t lane[MMA_FLOATS], both = -1;
    memcpy(lane, &all, sizeof lane);
    for (int i = 0; i < MMA_FLOATS; i++) both &= lane[i];
    return both != 0;
}

/* sums += the truncated products k of [from, to). */
ISA_TARGET static inline void mma_products(const struct mma_group *g, int64_t from, int64_t to,
                                           const mma_f *up, mma_i *sums) {
    mma_i s[MMA_NV];
    mma_f scale[MMA_NV];
    EACH_VECTOR s[v] = sums[v], scale[v] = up[v];
    for (int64_t k = from; k < to; k++) {
        mma_f a = MMA_SPLAT(mma_f, g->a[k * MMA_MR]);
        EACH_VECTOR s[v] += __builtin_convertvector(
            a * MMA_AT(mma_f, g->b + k * MMA_NR) * scale[v], mma_i);
    }
    EACH_VECTOR sums[v] = s[v];
}

/* low + high, truncated toward zero to f32's 24 bits. */
ISA_TARGET static inline mma_f mma_joined(mma_i low, mma_i high) {
    /* sum = 256 * top + rest with 0 <= rest < 256: both are exact in f32. */
    mma_i rest = (low & 255) + (high & 255), top = (low >> 8) + (high >> 8) + (rest >> 8);
    mma_f large = __builtin_convertvector(top, mma_f) * 256.0f;
    mma_f small = __builtin_convertvector(rest & 255, mma_f);
    mma_f sum = large + small, error = (large - sum) + small; /* exact: |large| >= small, or 0 */
    mma_i bits = (mma_i)sum;
    /* Rounded away from zero: the error's sign is the other one. One ulp back. */
    return (mma_f)(bits + ((error != 0) & ((bits ^ (mma_i)error) < 0)));
}

/* One instruction for one row of the micro-tile. */
ISA_TARGET static inline void mma_row(const struct mma *m, const struct mma_group *g, float *c) {
    mma_i e[MMA_NV], ok[MMA_NV], low[MMA_NV], high[MMA_NV];
    mma_f up[MMA_NV], down[MMA_NV];
    EACH_VECTOR e[v] = MMA_SPLAT(mma_i, MMA_ZERO);
    for (int64_t k = 0; k < g->n; k++) {
        mma_i ea = MMA_SPLAT(mma_i, g->ea[k * MMA_MR]);
        EACH_VECTOR e[v] = MMA_MAX(e[v], ea + MMA_AT(mma_i, g->eb + k * MMA_NR));
    }
    EACH_VECTOR {
        mma_i bits = MMA_AT(mma_i, c) & 0x7FFFFFFF;
        mma_i both = MMA_MAX(e[v], (bits >> 23) - 127);
        ok[v] = ((both >= MMA_E_LEAST) & (both <= MMA_E_MOST)) | ((bits == 0) & (e[v] < -4096));
        e[v] = MMA_MAX(both, MMA_SPLAT(mma_i, MMA_E_LEAST));
        up[v] = (mma_f)((m->fraction + 127 - e[v]) << 23);
        down[v] = (mma_f)((e[v] - m->fraction + 127) << 23);
    }
    if (!mma_all(ok)) {
        for (int j = 0; j < MMA_NR; j++)
            c[j] = mma_add(m, g->n, (struct mma_terms){ g->a, g->ea, MMA_MR },
                           (struct mma_terms){ g->b + j, g->eb + j, MMA_NR }, c[j]);
        return;
    }
    int64_t half = g->n < m->group / 2 ? g->n : m->group / 2;
    EACH_VECTOR {
        low[v] = __builtin_convertvector(MMA_AT(mma_f, c) * up[v], mma_i);
        high[v] = MMA_SPLAT(mma_i, 0);
    }
    mma_products(g, 0, half, up, low);
    mma_products(g, half, g->n, up, high);
    int32_t kept = -(1 << (23 - m->mantissa));
    EACH_VECTOR {
        mma_i sum = (mma_i)mma_joined(low[v], high[v]) & kept;
        *(mma_f *)(c + v * MMA_FLOATS) = (mma_f)sum * down[v];
    }
}

ISA_TARGET static void isa_mma(const struct mma *m, int64_t k, const float *a, const int32_t *ea,
                               const float *b, const int32_t *eb, float *c) {
    for (int64_t at = 0; at < k; at += m->group)
        for (int i = 0; i < MMA_MR; i++) {
            struct mma_group g = { a + at * MMA_MR + i, b + at * MMA_NR, ea + at * MMA_MR + i,
                                   eb + at * MMA_NR, k - at < m->group ? k - at : m->group };
            mma_row(m, &g, c + i * MMA_NR);
        }
}

ISA_TARGET static void isa_mma_fold(const float *chain, const float *sa, const float *sb,
                                    bool a_first, float *c) {
    for (int i = 0; i < MMA_MR; i++)
        EACH_VECTOR {
            mma_f *at = (mma_f *)(c + i * MMA_NR + v * MMA_FLOATS);
            mma_f x = MMA_AT(mma_f, chain + i * MMA_NR), s = MMA_SPLAT(mma_f, 1.0f);
            if (sa && a_first) x = x * sa[i], s = MMA_AT(mma_f, sb);
            else if (sa) s = sa[i] * MMA_AT(mma_f, sb);
            *at = MMA_FMA(x, s, *at);
        }
}

ISA_TARGET static void isa_mma_exponents(int least, const float *x, int32_t *exponents, int64_t n) {
    for (int64_t i = 0; i < n; i++) exponents[i] = mma_exponent(x[i], least);
}

#define ISA_MMA                                                                    \
    .mma_mr = MMA_MR, .mma_nr = MMA_NR, .mma = isa_mma, .mma_fold = isa_mma_fold, \
    .mma_exponents = isa_mma_exponents
