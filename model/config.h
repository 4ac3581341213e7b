/* The sizes and choices of one transformer, and values derived from them. runner/plan/options.c
 * fills the struct from the resolved configuration; model_config_check checks it once. */
#ifndef FP8LAB_MODEL_CONFIG_H
#define FP8LAB_MODEL_CONFIG_H

#include "kernels/tensor.h"

enum norm_kind { NORM_RMS, NORM_LAYER };
enum activation_kind { ACTIVATION_SWIGLU, ACTIVATION_GELU };
enum position_kind { POSITION_ROPE, POSITION_LEARNED };

/* Llama-3.1's frequency scaling. Wavelengths above original_seq_len/low_freq_factor are stretched
 * by factor; wavelengths below original_seq_len/high_freq_factor are kept; between the two the
 * stretch is interpolated linearly. factor 0: no scaling. */
struct rope_config {
    double theta, factor, low_freq_factor, high_freq_factor;
    int64_t original_seq_len;
};

struct model_config {
    int64_t vocab, seq_len, layers, width, heads, kv_heads, head_dim, ffn;
    enum norm_kind norm;
    enum activation_kind activation;
    enum position_kind positions;
    struct rope_config rope;
    double norm_eps, init_std;
    bool qk_norm, tied;
    bool bias;     /* of every linear layer and LayerNorm */
    bool qkv_bias; /* of q, k and v, if not of all */
    int64_t window; /* a query sees the last `window` keys, its own included; 0: all before it */
};

/* Allocated vocabulary rows. They are padded so that FP8 head GEMMs are legal on every device, and
 * the padding is masked. */
enum { VOCAB_ALIGN = 128 };
/* train.head_chunk must be a multiple: the rows of a chunk are wgrad's K, and an FP8 GEMM needs K
 * in whole FP8_ROW_ALIGN. */
enum { HEAD_CHUNK_ALIGN = FP8_ROW_ALIGN };
static inline int64_t model_vocab_padded(const struct model_config *c) {
    return round_up(c->vocab, VOCAB_ALIGN);
}
/* The default of train.head_chunk, the rows of logits at a time. Chunks have equal size, at most
 * 1 GiB of BF16 logits, and 1024 to 2^20 rows. The result depends on the chunk size, so the
 * default follows from the sizes alone. LOG.md has its effect on speed. */
static inline int64_t model_head_chunk(int64_t vocab, int64_t rows) {
    int64_t most = ((int64_t)1 << 30) / (2 * round_up(vocab, VOCAB_ALIGN)) / 128 * 128;
    if (most < 1024) most = 1024;
    if (most > 1 << 20) most = 1 << 20;
    int64_t chunk = round_up(ceil_div(rows, ceil_div(rows, most)), 128);
    return chunk > 1024 ? chunk : 1024;
}
/* The rows of each head chunk and of the last one, which may be smaller and use another GEMM.
 * `asked` is train.head_chunk; 0: the default. */
struct head_rows { int64_t each, last; };
static inline struct head_rows model_head_rows(int64_t vocab, int64_t rows, int64_t asked) {
    struct head_rows h = { asked ? asked : model_head_chunk(vocab, rows), 0 };
    if (h.each > rows) h.each = rows;
    h.last = rows - (rows - 1) / h.each * h.each;
    return h;
}
/* Whether the window hides any key. */
static inline bool model_has_window(const struct model_config *c) {
    return c->window > 0 && c->window < c->seq_len;
}
static inline int64_t model_qkv_width(const struct model_config *c) {
    return (c->heads + 2 * c->kv_heads) * c->head_dim;
}
static inline int64_t model_ffn_in_width(const struct model_config *c) {
    return c->activation == ACTIVATION_SWIGLU ? 2 * c->ffn : c->ffn;
}

/* The GEMMs of one layer, in execution order. */
enum gemm_site { GEMM_QKV, GEMM_ATTN_OUT, GEMM_FFN_IN, GEMM_FFN_OUT, GEMM_SITE_COUNT };

/* "qkv", "attn_out", "ffn_in", "ffn_out", NULL: in parameter names, scripts and records. */
extern const char *const GEMM_SITE_NAMES[GEMM_SITE_COUNT + 1];

/* The weight is [outputs, inputs]. */
struct gemm_size { int64_t inputs, outputs; };
struct gemm_size gemm_site_size(const struct model_config *c, enum gemm_site site);
static inline bool gemm_site_has_bias(const struct model_config *c, enum gemm_site site) {
    return c->bias || (c->qkv_bias && site == GEMM_QKV);
}

/* ERR_CONFIG naming the field, the value and what it must be: positive sizes, heads % kv_heads
 * == 0, even head_dim, ... */
NODISCARD enum status model_config_check(const struct model_config *c, struct err *e);

/* The count of parameters, unpadded. The FLOP of one token's forward and backward: 6 per matmul
 * weight, and causal attention counted once (12 * layers * heads * head_dim * seq_len / 2). */
int64_t model_parameter_count(const struct model_config *c);
double model_flops_per_token(const struct model_config *c);

#endif
