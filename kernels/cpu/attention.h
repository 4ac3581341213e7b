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

struct attention {
    const struct isa *isa;
    const struct tensor *qkv;
    const int32_t *first_key; /* [B,T], or NULL */
    int64_t batch, length, heads, kv_heads, head_dim;
    int64_t width;       /* floats of a qkv row: (H+2G)*D */
    int64_t mr, nr;      /* micro-tile: mr keys or head dims by nr queries or keys */
    int64_t dim_padded;  /* D rounded up to mr */
    int64_t keys_padded; /* T rounded up to mr */
    float scale;         /* 1 / sqrt(D) */
};

/* Checks qkv, the head counts and first_key (NULL: 0 everywhere), and fills *a. `what`: the
 * operator. */
NODISCARD enum status attention_setup(struct attention *a, struct backend *b, const char *what,
                                      const struct tensor *qkv, int64_t heads, int64_t kv_heads,
                                      const struct tensor *first_key, struct err *e);

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

#endif
