#include "runner/weights/hf_names.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* A NULL second name: the parameter is one tensor. */
struct row { const char *ours, *theirs[WEIGHT_PARTS_MAX]; };

static const struct row LLAMA[] = {
    { "embed", { "model.embed_tokens" } },
    { "final_norm", { "model.norm" } },
    { "head", { "lm_head" } },
    { "norm1", { "input_layernorm" } },
    { "norm2", { "post_attention_layernorm" } },
    { "qkv", { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj" } },
    { "q_norm", { "self_attn.q_norm" } },
    { "k_norm", { "self_attn.k_norm" } },
    { "attn_out", { "self_attn.o_proj" } },
    { "ffn_in", { "mlp.gate_proj", "mlp.up_proj" } },
    { "ffn_out", { "mlp.down_proj" } },
};
static const struct row GPT2[] = {
    { "embed", { "transformer.wte" } },   { "position", { "transformer.wpe" } },
    { "final_norm", { "transformer.ln_f" } }, { "head", { "lm_head" } },
    { "norm1", { "ln_1" } },              { "norm2", { "ln_2" } },
    { "qkv", { "attn.c_attn" } },         { "attn_out", { "attn.c_proj" } },
    { "ffn_in", { "mlp.c_fc" } },         { "ffn_out", { "mlp.c_proj" } },
};

static bool is_gpt2(const struct model_config *c) { return c->positions == POSITION_LEARNED; }

enum status hf_names_check(const struct model_config *c, struct err *e) {
    bool gpt2 = is_gpt2(c) && c->norm == NORM_LAYER && c->activation == ACTIVATION_GELU &&
                c->bias && !c->qk_norm && !c->window && c->kv_heads == c->heads &&
                c->heads * c->head_dim == c->width;
    bool llama = !is_gpt2(c) && c->norm == NORM_RMS && c->activation == ACTIVATION_SWIGLU &&
                 !(c->qk_norm && (c->bias || c->qkv_bias));
    if (gpt2 || llama) return OK;
    return FAIL(e, ERR_CONFIG, "no Hugging Face model here has these model keys: with positions = "
                "\"learned\" it is GPT-2 (layernorm, gelu, bias, as many kv_heads as heads, no "
                "qk_norm, no window), with \"rope\" Llama or a relative (rmsnorm, swiglu, biases "
                "or qk_norm, not both)");
}

static const struct row *find(const struct model_config *c, const char *ours, size_t n) {
    const struct row *rows = is_gpt2(c) ? GPT2 : LLAMA;
    size_t count = is_gpt2(c) ? sizeof GPT2 / sizeof *GPT2 : sizeof LLAMA / sizeof *LLAMA;
    for (size_t i = 0; i < count; i++)
        if (strlen(rows[i].ours) == n && !strncmp(rows[i].ours, ours, n)) return &rows[i];
    return NULL;
}

/* Rows of part `i` of a parameter of `rows` rows. */
static int64_t part_rows(const struct model_config *c, const struct row *row, int i, int64_t rows) {
    if (!row->theirs[1]) return rows;
    if (!row->theirs[2]) return rows / 2; /* gate, up */
    return (i == 0 ? c->heads : c->kv_heads) * c->head_dim;
}

int hf_names_parts(const struct model_config *c, const char *name, int64_t rows, int64_t cols,
                   struct weight_part out[WEIGHT_PARTS_MAX]) {
    char layer[48] = "";
    long long l;
    int used = 0, count = 0;
    if (sscanf(name, "layers.%lld.%n", &l, &used) == 1)
        snprintf(layer, sizeof layer, is_gpt2(c) ? "transformer.h.%lld." : "model.layers.%lld.", l);
    name += used;
    size_t n = strcspn(name, ".");
    const struct row *row = find(c, name, n);
    assert(row); /* hf_names_check() passed */
    for (; count < WEIGHT_PARTS_MAX && row->theirs[count]; count++) {
        struct weight_part *p = &out[count];
        snprintf(p->name, sizeof p->name, "%s%s%s", layer, row->theirs[count], name + n);
        p->rows = part_rows(c, row, count, rows);
        p->cols = cols;
        p->transposed = is_gpt2(c) && used && cols > 0; /* a layer's matrices */
    }
    return count;
}

static bool ends_with(const char *name, const char *suffix) {
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && !strcmp(name + n - m, suffix);
}

bool hf_names_ignored(const char *name) {
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
           ends_with(name, ".rotary_emb.inv_freq");
}
