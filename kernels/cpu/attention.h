/* Shared by attention's forward and backward: sizes, packing for the GEMM micro-kernels (isa.h).
 *
 * The unit of work is a tile of up to nr query rows of one head. Everything of size [keys, queries]
 * is stored transposed, [key][nr]. So the output of a micro-kernel over panels of mr keys is,
 * without copying, its right operand for the sum over keys.
 *
 * Query t sees keys first_key[t] to t. A tile computes slightly more. Scores outside are dropped,
 * and their probabilities set to +0. A +0 factor does not change a chain if the other factor is
 * finite, except for the sign of a zero. "+ 0" at every output makes it positive. If an operand is
 * not finite, 0 * x would be NaN in rows that must not see x. Then tiles are one row wide, with
 * exactly the keys that the row sees. Keys that no query of a tile sees are skipped. For the same
 * reasons this changes no bit. */
#ifndef FP8LAB_KERNELS_CPU_ATTENTION_H
#define FP8LAB_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/clones.h"
#include "kernels/cpu/cpu.h"
#include "kernels/fp8_inline.h"

struct attention {
    const struct isa *isa;
    const struct tensor *qkv;
    const int32_t *first_key; /* [B,T], or NULL */
    int64_t batch, length, heads, kv_heads, head_dim;
    int64_t width;       /* elements from a qkv row to the next: (H+2G)*D, or more for codes */
    int64_t row;         /* (H+2G)*D */
    int64_t mr, nr;      /* micro-tile: mr keys or head dims by nr queries or keys */
    int64_t dim_padded;  /* D rounded up to mr */
    int64_t keys_padded; /* T rounded up to mr */
    float scale;         /* 1 / sqrt(D) */
    float factor;        /* of qkv's codes; 1 for act */
    float score_scale;   /* of a chain of scores: scale, times the factor twice */
};

/* A matrix that FP8 attention rounds (struct attention_cast); `given` NULL: nothing is rounded. */
struct rounding {
    const struct attention_cast *given;
    enum dtype code;
    float multiplier, factor; /* 1 if nothing is rounded */
    float max;                /* of the format */
};
/* What the rounding of some elements adds to its slot. */
struct tally { uint32_t amax; uint64_t saturated, flushed; };

/* Checks a cast and fills *r. `what`: "attention_fwd: p". */
NODISCARD enum status rounding_setup(struct rounding *r, const struct attention_cast *given,
                                     const char *what, struct err *e);
/* Adds what all threads found to the slot of the cast. */
void rounding_add(const struct rounding *r, const struct tally *t);

static inline uint8_t rounding_encode(enum dtype code, float x) {
    return code == DTYPE_E4M3 ? e4m3_encode_inline(x) : e5m2_encode_inline(x);
}
static inline float rounding_decode(enum dtype code, uint8_t x) {
    return code == DTYPE_E4M3 ? e4m3_decode_inline(x) : e5m2_decode_inline(x);
}

/* x rounded to a code, as a number without its factor. */
static inline float rounding_apply(const struct rounding *r, float x, struct tally *t) {
    uint32_t bits = f32_bits(x) & 0x7FFFFFFFu;
    float scaled = x * r->multiplier;
    uint8_t code = rounding_encode(r->code, scaled);
    t->amax = bits > t->amax ? bits : t->amax;
    t->saturated += (f32_bits(scaled) & 0x7FFFFFFFu) > f32_bits(r->max) && scaled == scaled;
    t->flushed += (code & 0x7Fu) == 0 && bits != 0;
    return rounding_decode(r->code, code);
}

/* n contiguous elements of act or of codes, the latter without their factor. */
static inline void attention_load(float *out, const struct tensor *x, int64_t offset, int64_t n) {
    if (!dtype_is_fp8(x->dtype)) { load_span(out, x, offset, n); return; }
    const uint8_t *in = (const uint8_t *)x->data + offset;
    for (int64_t i = 0; i < n; i++) out[i] = rounding_decode(x->dtype, in[i]);
}

/* Checks act, or FP8 codes with one scale, [rows, cols]; *factor: of the codes, 1 for act. */
NODISCARD enum status attention_check_rows(const struct tensor *x, const char *what, int dtypes,
                                           int64_t rows, int64_t cols, float *factor,
                                           struct err *e);

/* Checks qkv (codes if fp8, else act), the head counts and first_key (NULL: 0 everywhere), and
 * fills *a. `what`: the operator. */
NODISCARD enum status attention_setup(struct attention *a, struct backend *b, const char *what,
                                      const struct tensor *qkv, int64_t heads, int64_t kv_heads,
                                      const struct tensor *first_key, bool fp8, struct err *e);

/* The first key that query t of sequence i sees. */
static inline int64_t first_key_of(const struct attention *a, int64_t i, int64_t t) {
    return a->first_key ? a->first_key[i * a->length + t] : 0;
}
/* The same of the queries t .. t + n - 1, of nr columns; columns from n on get 0. */
void first_keys(const struct attention *a, int64_t i, int64_t t, int64_t n, int32_t *out);

/* Element offset of head `head` (q, then k, then v heads) of row t of sequence i. */
static inline int64_t attention_at(const struct attention *a, int64_t i, int64_t t, int64_t head) {
    return (i * a->length + t) * a->width + head * a->head_dim;
}

/* n rows of D floats: x's elements at offset, offset + stride, ... */
struct rows { const struct tensor *x; int64_t offset, stride, n; };

/* Packing. Each returns whether every element is finite. Padding rows and head dims are 0.
 *   columns: [D][panel], panel >= n         the right operand of scores: k = D
 *   panels:  [n/mr][D][mr]                  the left operand of scores: k = D
 *   across:  [D/mr][n][mr]                  the left operand of sums over rows: k = n */
bool pack_columns(const struct attention *a, float *out, int64_t panel, struct rows r);
bool pack_panels_of_rows(const struct attention *a, float *out, struct rows r);
bool pack_across(const struct attention *a, float *out, struct rows r);

/* out [panels * mr][nr] = the fma chains over k of `panels` consecutive left panels with one right
 * panel. Left panels are left_stride floats apart. */
void attention_multiply(const struct attention *a, float *out, const float *left,
                        int64_t left_stride, int64_t panels, const float *right, int64_t k);

/* Row c of `rows` (D elements) = in[d][c] * factor[c] + 0 for d < D; in is [D][nr]. */
void unpack_columns(const struct attention *a, struct rows out, const float *in,
                    const float *factor);

/* ---- as our GPU kernels compute it: attention_exact.c, attention_exact_bwd.c ---- */

/* Whether the backend's arithmetic and the call's tensors have exact kernels: BF16 and heads of 16,
 * 32, 64 or 128, as on the GPU. */
bool exact_serves(struct backend *b, const struct attention *a);
/* o [B*T, H*D] and lse [B,H,T], of a call that exact_serves. */
void exact_attention_fwd(struct backend *b, const struct attention *a, const struct tensor *o,
                         float *lse);

struct exact_gradients {
    const struct tensor *d_qkv, *d_o, *o;
    const float *lse;
    float *delta; /* [B,H,T], written first */
};
void exact_attention_bwd(struct backend *b, const struct attention *a,
                         const struct exact_gradients *g);

#endif
