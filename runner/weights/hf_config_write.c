/* A model as a Hugging Face config.json: in the keys that transformers 4 and 5 both read. */
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/weights/hf_config.h"
#include "runner/weights/hf_names.h"

struct form { const char *type, *architecture; };

static struct form form_of(const struct model_config *c) {
    if (c->positions == POSITION_LEARNED) return (struct form){ "gpt2", "GPT2LMHeadModel" };
    if (c->qk_norm) return (struct form){ "qwen3", "Qwen3ForCausalLM" };
    if (c->qkv_bias) return (struct form){ "qwen2", "Qwen2ForCausalLM" };
    if (c->window) return (struct form){ "mistral", "MistralForCausalLM" };
    return (struct form){ "llama", "LlamaForCausalLM" };
}

const char *hf_config_type(const struct model_config *c) { return form_of(c).type; }

static enum status check(const struct model_config *c, struct err *e) {
    TRY(hf_names_check(c, e));
    if (c->qkv_bias && c->heads * c->head_dim != c->width)
        return FAIL(e, ERR_CONFIG, "Qwen2 has a head_dim of width / heads, the model has %lld",
                    (long long)c->head_dim);
    if (c->bias && c->qkv_bias)
        return FAIL(e, ERR_CONFIG, "no Hugging Face model here has both bias and qkv_bias; bias "
                    "includes those of q, k and v");
    if (c->bias && c->window)
        return FAIL(e, ERR_CONFIG, "no Hugging Face model here has both bias and window");
    return OK;
}

static void put_gpt2(json_t *o, const struct model_config *c, bool *failed) {
    json_put(o, "n_embd", json_integer(c->width), failed);
    json_put(o, "n_layer", json_integer(c->layers), failed);
    json_put(o, "n_head", json_integer(c->heads), failed);
    json_put(o, "n_inner", json_integer(c->ffn), failed);
    json_put(o, "n_positions", json_integer(c->seq_len), failed);
    json_put(o, "n_ctx", json_integer(c->seq_len), failed);
    json_put(o, "layer_norm_epsilon", json_real(c->norm_eps), failed);
    json_put(o, "activation_function", json_string("gelu_new"), failed);
    /* Dropout is 0 here, and 0.1 by the class's default. */
    json_put(o, "attn_pdrop", json_real(0), failed);
    json_put(o, "embd_pdrop", json_real(0), failed);
    json_put(o, "resid_pdrop", json_real(0), failed);
}

static void put_window(json_t *o, const struct model_config *c, const char *type, bool *failed) {
    bool qwen = !strncmp(type, "qwen", 4);
    if (!qwen && strcmp(type, "mistral") != 0) return;
    json_put(o, "sliding_window", c->window ? json_integer(c->window) : json_null(), failed);
    if (!qwen) return;
    json_put(o, "use_sliding_window", json_boolean(c->window > 0), failed);
    json_put(o, "max_window_layers", json_integer(c->window ? 0 : c->layers), failed);
}

static void put_llama(json_t *o, const struct model_config *c, const char *type, bool *failed) {
    const struct rope_config *r = &c->rope;
    json_put(o, "hidden_size", json_integer(c->width), failed);
    json_put(o, "num_hidden_layers", json_integer(c->layers), failed);
    json_put(o, "num_attention_heads", json_integer(c->heads), failed);
    json_put(o, "num_key_value_heads", json_integer(c->kv_heads), failed);
    json_put(o, "intermediate_size", json_integer(c->ffn), failed);
    json_put(o, "max_position_embeddings", json_integer(c->seq_len), failed);
    json_put(o, "rms_norm_eps", json_real(c->norm_eps), failed);
    json_put(o, "hidden_act", json_string("silu"), failed);
    json_put(o, "rope_theta", json_real(r->theta), failed);
    if (!c->qkv_bias) json_put(o, "head_dim", json_integer(c->head_dim), failed);
    if (!c->qkv_bias) json_put(o, "attention_bias", json_boolean(c->bias), failed);
    if (!strcmp(type, "llama")) json_put(o, "mlp_bias", json_boolean(c->bias), failed);
    put_window(o, c, type, failed);
    if (r->factor > 0)
        json_put(o, "rope_scaling",
                 json_pack("{s:s,s:f,s:f,s:f,s:I}", "rope_type", "llama3", "factor", r->factor,
                           "low_freq_factor", r->low_freq_factor, "high_freq_factor",
                           r->high_freq_factor, "original_max_position_embeddings",
                           (json_int_t)r->original_seq_len), failed);
}

/* What the weights do not decide: ids of tokens, and how long sequences may get. */
static void take_over(json_t *o, const json_t *base, bool *failed) {
    static const char *const IDS[] = { "bos_token_id", "eos_token_id", "pad_token_id" };
    for (size_t i = 0; i < sizeof IDS / sizeof *IDS; i++) {
        json_t *id = json_object_get(base, IDS[i]);
        if (id) json_put(o, IDS[i], json_incref(id), failed);
    }
    json_t *longest = json_object_get(base, "max_position_embeddings");
    const json_t *own = json_object_get(o, "max_position_embeddings");
    if (own && json_integer_value(longest) > json_integer_value(own))
        json_put(o, "max_position_embeddings", json_incref(longest), failed);
}

enum status hf_config_write(const struct model_config *c, const char *dtype, const json_t *base,
                            json_t **out, struct err *e) {
    struct form form = form_of(c);
    bool failed = false;
    *out = NULL;
    TRY(check(c, e));
    json_t *o = json_pack("{s:s,s:[s],s:s,s:I,s:b,s:f,s:b}", "model_type", form.type,
                          "architectures", form.architecture, "torch_dtype", dtype, "vocab_size",
                          (json_int_t)c->vocab, "tie_word_embeddings", c->tied,
                          "initializer_range", c->init_std, "use_cache", true);
    if (c->positions == POSITION_LEARNED) put_gpt2(o, c, &failed);
    else put_llama(o, c, form.type, &failed);
    take_over(o, base, &failed);
    *out = json_whole(o, failed);
    return *out ? OK : FAIL(e, ERR_MEMORY, "config.json");
}
