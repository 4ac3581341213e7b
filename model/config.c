#include "model/config.h"

/* The limit of each size and of heads * head_dim. Products of two sizes, and of a size and the rows
 * of a micro-batch, then fit into 64 bits without further checks. */
enum { SIZE_LIMIT = 1 << 24 };

static enum status positive(const char *name, int64_t value, struct err *e) {
    if (value > 0 && value <= SIZE_LIMIT) return OK;
    return FAIL(e, ERR_CONFIG, "model.%s is %lld; it must be between 1 and 2^24", name,
                (long long)value);
}

static enum status check_rope(const struct model_config *c, struct err *e) {
    const struct rope_config *r = &c->rope;
    if (!(r->theta > 1))
        return FAIL(e, ERR_CONFIG, "model.rope.theta is %g; it must be above 1", r->theta);
    /* exact_sin is defined up to 2^20; the fastest pair rotates by one radian per token. */
    if (c->seq_len > 1 << 20)
        return FAIL(e, ERR_CONFIG, "model.seq_len is %lld; rope reaches 1048576",
                    (long long)c->seq_len);
    if (r->factor == 0) return OK;
    if (!(r->factor >= 1) || !(r->low_freq_factor > 0) ||
        !(r->high_freq_factor > r->low_freq_factor) || r->original_seq_len <= 0)
        return FAIL(e, ERR_CONFIG,
                    "model.rope.scaling has factor %g, low_freq_factor %g, high_freq_factor %g, "
                    "original_seq_len %lld; wanted: factor >= 1, 0 < low < high, length > 0",
                    r->factor, r->low_freq_factor, r->high_freq_factor,
                    (long long)r->original_seq_len);
    return OK;
}

enum status model_config_check(const struct model_config *c, struct err *e) {
    TRY(positive("vocab", c->vocab, e));
    TRY(positive("seq_len", c->seq_len, e));
    TRY(positive("layers", c->layers, e));
    TRY(positive("width", c->width, e));
    TRY(positive("heads", c->heads, e));
    TRY(positive("kv_heads", c->kv_heads, e));
    TRY(positive("head_dim", c->head_dim, e));
    TRY(positive("ffn", c->ffn, e));
    if (c->layers > 4096)
        return FAIL(e, ERR_CONFIG, "model.layers is %lld; at most 4096", (long long)c->layers);
    if (c->heads % c->kv_heads)
        return FAIL(e, ERR_CONFIG,
                    "model.heads is %lld; it must be a multiple of model.kv_heads %lld",
                    (long long)c->heads, (long long)c->kv_heads);
    if (c->heads * c->head_dim > SIZE_LIMIT)
        return FAIL(e, ERR_CONFIG,
                    "model.heads %lld times model.head_dim %lld is %lld; at most 2^24",
                    (long long)c->heads, (long long)c->head_dim,
                    (long long)(c->heads * c->head_dim));
    if (c->head_dim % 2)
        return FAIL(e, ERR_CONFIG, "model.head_dim is %lld; it must be even",
                    (long long)c->head_dim);
    if (!(c->norm_eps > 0 && c->norm_eps < 1))
        return FAIL(e, ERR_CONFIG, "model.norm_eps is %g; it must be between 0 and 1", c->norm_eps);
    if (!(c->init_std > 0 && c->init_std < 10))
        return FAIL(e, ERR_CONFIG, "model.init_std is %g; it must be between 0 and 10",
                    c->init_std);
    if (c->window) TRY(positive("window", c->window, e));
    if (c->positions == POSITION_ROPE) TRY(check_rope(c, e));
    return OK;
}

const char *const GEMM_SITE_NAMES[GEMM_SITE_COUNT + 1] = { "qkv", "attn_out", "ffn_in", "ffn_out",
                                                           NULL };

struct gemm_size gemm_site_size(const struct model_config *c, enum gemm_site site) {
    switch (site) {
    case GEMM_QKV: return (struct gemm_size){ c->width, model_qkv_width(c) };
    case GEMM_ATTN_OUT: return (struct gemm_size){ c->heads * c->head_dim, c->width };
    case GEMM_FFN_IN: return (struct gemm_size){ c->width, model_ffn_in_width(c) };
    case GEMM_FFN_OUT: return (struct gemm_size){ c->ffn, c->width };
    case GEMM_SITE_COUNT: break;
    }
    return (struct gemm_size){ 0, 0 };
}

/* Elements of the weights of one layer's GEMMs. */
static int64_t layer_gemm_elements(const struct model_config *c) {
    int64_t n = 0;
    for (int s = 0; s < GEMM_SITE_COUNT; s++) {
        struct gemm_size size = gemm_site_size(c, (enum gemm_site)s);
        n += size.inputs * size.outputs;
    }
    return n;
}

static int64_t layer_bias_elements(const struct model_config *c) {
    int64_t n = 0;
    for (int s = 0; s < GEMM_SITE_COUNT; s++)
        if (gemm_site_has_bias(c, (enum gemm_site)s))
            n += gemm_site_size(c, (enum gemm_site)s).outputs;
    return n;
}

int64_t model_parameter_count(const struct model_config *c) {
    bool norm_bias = c->norm == NORM_LAYER && c->bias;
    int64_t norm = c->width * (norm_bias ? 2 : 1);
    int64_t layer = layer_gemm_elements(c) + layer_bias_elements(c) + 2 * norm;
    if (c->qk_norm) layer += 2 * c->head_dim;
    int64_t n = c->vocab * c->width * (c->tied ? 1 : 2) + c->layers * layer + norm;
    if (c->positions == POSITION_LEARNED) n += c->seq_len * c->width;
    return n;
}

double model_flops_per_token(const struct model_config *c) {
    double weights = (double)c->layers * (double)layer_gemm_elements(c) +
                     (double)c->vocab * (double)c->width;
    double length = (double)c->seq_len;
    double window = model_has_window(c) ? (double)c->window : length;
    double keys = window - window * window / (2 * length); /* that a query sees, on average */
    double attention = 12.0 * (double)c->layers * (double)c->heads * (double)c->head_dim * keys;
    return 6 * weights + attention;
}
