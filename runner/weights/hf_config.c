#include "runner/weights/hf_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"

/* ---- the families ------------------------------------------------------------------------------
 * Defaults are those of the configuration classes of transformers 5.23: a key that a file leaves
 * out has this value there. */
struct family {
    const char *type, *architecture;
    int64_t kv_heads; /* 0: as many as heads */
    int64_t head_dim; /* 0: width / heads */
    int64_t window;   /* of an absent sliding_window; 0: none */
    bool reads_head_dim, qkv_bias, qk_norm, layered_window;
};
static const struct family FAMILIES[] = {
    { "llama", "LlamaForCausalLM", .reads_head_dim = true },
    { "mistral", "MistralForCausalLM", .kv_heads = 8, .window = 4096, .reads_head_dim = true },
    { "qwen2", "Qwen2ForCausalLM", .kv_heads = 32, .window = 4096, .qkv_bias = true,
      .layered_window = true },
    { "qwen3", "Qwen3ForCausalLM", .kv_heads = 32, .head_dim = 128, .window = 4096,
      .reads_head_dim = true, .qk_norm = true, .layered_window = true },
    { "gpt2", "GPT2LMHeadModel", .kv_heads = 0 },
};
static const char FAMILY_NAMES[] = "llama (also SmolLM2), mistral, qwen2, qwen3, gpt2";

/* ---- typed access ------------------------------------------------------------------------------
 * The file and its first failure. After a failure nothing more is reported. */
struct reading {
    json_t *root; /* owned; a key is removed when it was used */
    const char *path;
    enum status st;
    struct err *e;
};

static void refuse(struct reading *r, const char *key, const json_t *found, const char *expected) {
    char *text = found ? json_dump_text(found, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (r->st == OK)
        r->st = FAIL(r->e, ERR_CONFIG, "%s: %s is %.80s; expected %s", r->path, key,
                     text ? text : "absent", expected);
    free(text);
}

/* `found` is moved. */
static void refuse_value(struct reading *r, const char *key, json_t *found, const char *expected) {
    refuse(r, key, found, expected);
    json_decref(found);
}

/* The key's value, borrowed until use_up(); NULL if it is absent or null. */
static const json_t *look(const struct reading *r, const char *key) {
    const json_t *v = json_object_get(r->root, key);
    return json_is_null(v) ? NULL : v;
}

static void use_up(struct reading *r, const char *key) { (void)json_object_del(r->root, key); }

enum { REQUIRED = -1, SIZE_LIMIT = 1 << 24 }; /* products of two sizes fit 64 bits */

/* 0 after a failure. */
static int64_t get_size(struct reading *r, const char *key, int64_t otherwise) {
    const json_t *v = look(r, key);
    int64_t i = v ? json_integer_value(v) : otherwise;
    if (v ? !json_is_integer(v) || i < 1 || i > SIZE_LIMIT : i < 0) {
        refuse(r, key, v, "a whole number from 1 to 2^24");
        i = 0;
    }
    use_up(r, key);
    return i;
}

static double number_of(struct reading *r, const json_t *v, const char *key, double otherwise) {
    if (v && !json_is_number(v)) refuse(r, key, v, "a number");
    double x = v ? json_number_value(v) : otherwise;
    if (!isfinite(x) || x < 0) refuse(r, key, v, "a number of at least 0");
    return x;
}

static double get_number(struct reading *r, const char *key, double otherwise) {
    double x = number_of(r, look(r, key), key, otherwise);
    use_up(r, key);
    return x;
}

static bool get_bool(struct reading *r, const char *key, bool otherwise) {
    const json_t *v = look(r, key);
    bool b = v ? json_is_true(v) : otherwise;
    if (v && !json_is_boolean(v)) refuse(r, key, v, "true or false");
    use_up(r, key);
    return b;
}

static void expect_bool(struct reading *r, const char *key, bool wanted) {
    const json_t *v = look(r, key);
    if (v && (!json_is_boolean(v) || json_is_true(v) != wanted))
        refuse(r, key, v, wanted ? "true" : "false");
    use_up(r, key);
}

static void expect_text(struct reading *r, const char *key, const char *const *words,
                        const char *expected) {
    const json_t *v = look(r, key);
    const char *text = json_string_value(v);
    bool fits = !v;
    for (int i = 0; text && words[i]; i++) fits = fits || !strcmp(text, words[i]);
    if (!fits) refuse(r, key, v, expected);
    use_up(r, key);
}
#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* ---- positions -------------------------------------------------------------------------------*/

/* A key of a RoPE table; its absence is an error. */
static double rope_number(struct reading *r, const json_t *table, const char *key) {
    char full[64];
    const json_t *v = json_object_get(table, key);
    snprintf(full, sizeof full, "rope_scaling.%s", key);
    if (!(json_number_value(v) > 0)) refuse(r, full, v, "a number above 0");
    return json_number_value(v);
}

/* Without a type transformers 4 fails, and transformers 5 ignores what else the table has. */
static void refuse_untyped(struct reading *r, const json_t *table) {
    const char *key;
    json_t *value;
    char expected[128];
    json_object_foreach((json_t *)table, key, value) {
        if (!strcmp(key, "rope_theta") || !strcmp(key, "partial_rotary_factor")) continue;
        snprintf(expected, sizeof expected, "\"llama3\" or \"default\", since %.60s is set", key);
        refuse(r, "rope_scaling.rope_type", NULL, expected);
    }
}

static json_t *read_scaling(struct reading *r, const json_t *table) {
    const json_t *type = json_object_get(table, "rope_type");
    if (!type) type = json_object_get(table, "type"); /* the name before 2024 */
    const char *name = json_string_value(type);
    if (!type) refuse_untyped(r, table);
    if (!type || (name && !strcmp(name, "default"))) return json_null();
    if (!name || strcmp(name, "llama3") != 0) {
        refuse(r, "rope_scaling.rope_type", type, "\"llama3\" or \"default\"");
        return json_null();
    }
    double length = rope_number(r, table, "original_max_position_embeddings");
    if (!(length >= 1 && length <= 1 << 24))
        refuse(r, "rope_scaling.original_max_position_embeddings",
               json_object_get(table, "original_max_position_embeddings"), "a length up to 2^24");
    if (r->st != OK) return json_null();
    return json_pack("{s:f,s:f,s:f,s:I}", "factor", rope_number(r, table, "factor"),
                     "low_freq_factor", rope_number(r, table, "low_freq_factor"),
                     "high_freq_factor", rope_number(r, table, "high_freq_factor"),
                     "original_seq_len", (json_int_t)length);
}

static void refuse_both(struct reading *r, const char *key, const json_t *found,
                        const char *other_key, const json_t *other) {
    char *text = json_dump_text(other, JSON_ENCODE_ANY | JSON_COMPACT), expected[256];
    snprintf(expected, sizeof expected, "nothing that contradicts %s, which is %.150s",
             other_key, text ? text : "set");
    free(text);
    refuse(r, key, found, expected);
}

/* rope_theta and rope_scaling, or rope_parameters with both, as transformers 5 writes it. */
static json_t *read_rope(struct reading *r) {
    const json_t *both = look(r, "rope_parameters"), *scaling = look(r, "rope_scaling");
    const json_t *table = both ? both : scaling;
    const char *key;
    json_t *value;
    if (table && !json_is_object(table)) refuse(r, "rope_scaling", table, "a table or null");
    json_object_foreach((json_t *)table, key, value)
        if (json_is_object(value))
            refuse(r, "rope_parameters", table, "one table for all layers");
    if (both && scaling) refuse_both(r, "rope_scaling", scaling, "rope_parameters", both);
    const json_t *outer = look(r, "rope_theta"), *inner = json_object_get(table, "rope_theta");
    if (json_is_null(inner)) inner = NULL;
    double alone = number_of(r, outer, "rope_theta", 10000);
    double theta = number_of(r, inner, "rope_theta", alone);
    if (inner && outer && (theta < alone || theta > alone))
        refuse_both(r, "rope_theta", outer, both ? "rope_parameters.rope_theta"
                                                 : "rope_scaling.rope_theta", inner);
    double part = number_of(r, json_object_get(table, "partial_rotary_factor"),
                            "partial_rotary_factor", get_number(r, "partial_rotary_factor", 1));
    if (part < 1 || part > 1) refuse_value(r, "partial_rotary_factor", json_real(part), "1");
    json_t *rope = json_pack("{s:f,s:o}", "theta", theta, "scaling", read_scaling(r, table));
    use_up(r, "rope_parameters");
    use_up(r, "rope_scaling");
    use_up(r, "rope_theta");
    return rope;
}

/* Whether all layers (1), none (0) or some (-1) use the sliding window. */
static int windowed_layers(struct reading *r, const struct family *f, int64_t layers) {
    const json_t *types = look(r, "layer_types");
    double from = f->layered_window ? get_number(r, "max_window_layers", 28) : 0;
    bool off = f->layered_window && !get_bool(r, "use_sliding_window", false);
    int64_t slide = off || from >= (double)layers ? 0 : layers - (int64_t)from;
    if (types) {
        size_t i;
        const json_t *type;
        slide = 0;
        json_array_foreach(types, i, type) {
            const char *name = json_string_value(type);
            bool slides = name && !strcmp(name, "sliding_attention");
            if (!slides && (!name || strcmp(name, "full_attention") != 0))
                refuse(r, "layer_types", type, "\"full_attention\" or \"sliding_attention\"");
            slide += slides;
        }
        if ((int64_t)json_array_size(types) != layers)
            refuse(r, "layer_types", types, "one word for each layer");
    }
    use_up(r, "layer_types");
    return slide == 0 ? 0 : slide == layers ? 1 : -1;
}

/* 0: no window. */
static int64_t read_window(struct reading *r, const struct family *f, int64_t layers) {
    const json_t *v = json_object_get(r->root, "sliding_window");
    if (!f->window && look(r, "sliding_window"))
        refuse(r, "sliding_window", v, "null or none: transformers ignores it in this model_type");
    int64_t window = json_is_null(v) ? 0 : get_size(r, "sliding_window", f->window);
    use_up(r, "sliding_window");
    int slide = windowed_layers(r, f, layers);
    if (slide < 0 && window > 0)
        refuse_value(r, "sliding_window", json_integer(window), "a window in all layers or in "
                     "none; max_window_layers or layer_types gives it to some");
    return slide ? window : 0;
}

/* ---- the two shapes --------------------------------------------------------------------------*/

static void check_multiple(struct reading *r, const char *key, int64_t size, const char *of,
                           int64_t heads) {
    char expected[96];
    if (size % heads == 0) return;
    snprintf(expected, sizeof expected, "a multiple of %s, which is %" PRId64, of, heads);
    refuse_value(r, key, json_integer(size), expected);
}

static void read_llama_biases(struct reading *r, const struct family *f, json_t *model,
                              bool *failed) {
    bool attention = get_bool(r, "attention_bias", false), ffn = get_bool(r, "mlp_bias", false);
    if (attention != ffn)
        refuse(r, attention ? "attention_bias" : "mlp_bias", json_true(),
               "false, or biases in attention and MLP");
    json_put(model, "bias", json_boolean(attention), failed);
    if (f->qkv_bias) json_put(model, "qkv_bias", json_true(), failed);
}

static json_t *read_llama(struct reading *r, const struct family *f) {
    int64_t width = get_size(r, "hidden_size", REQUIRED);
    int64_t layers = get_size(r, "num_hidden_layers", REQUIRED);
    int64_t heads = get_size(r, "num_attention_heads", REQUIRED);
    int64_t kv = get_size(r, "num_key_value_heads", f->kv_heads ? f->kv_heads : heads);
    int64_t head_dim = f->head_dim;
    if (f->reads_head_dim && look(r, "head_dim")) head_dim = get_size(r, "head_dim", REQUIRED);
    if (r->st == OK && !head_dim) {
        check_multiple(r, "hidden_size", width, "num_attention_heads", heads);
        head_dim = width / heads;
    }
    expect_text(r, "hidden_act", WORDS("silu", "swish"), "\"silu\"");
    int64_t window = read_window(r, f, layers);
    json_t *model = json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:f,s:s,s:s,s:o,s:b}", "vocab",
        (json_int_t)get_size(r, "vocab_size", REQUIRED), "seq_len",
        (json_int_t)get_size(r, "max_position_embeddings", 2048), "layers", (json_int_t)layers,
        "width", (json_int_t)width, "heads", (json_int_t)heads, "kv_heads", (json_int_t)kv,
        "head_dim", (json_int_t)head_dim, "ffn",
        (json_int_t)get_size(r, "intermediate_size", REQUIRED), "norm", "rmsnorm", "norm_eps",
        get_number(r, "rms_norm_eps", 1e-6), "activation", "swiglu", "positions", "rope", "rope",
        read_rope(r), "qk_norm", f->qk_norm);
    bool failed = !model;
    if (window) json_put(model, "window", json_integer(window), &failed);
    read_llama_biases(r, f, model, &failed);
    json_put(model, "tied", json_boolean(get_bool(r, "tie_word_embeddings", false)), &failed);
    return json_whole(model, failed);
}

static json_t *read_gpt2(struct reading *r) {
    int64_t width = get_size(r, "n_embd", REQUIRED);
    int64_t heads = get_size(r, "n_head", REQUIRED);
    if (r->st == OK) check_multiple(r, "n_embd", width, "n_head", heads);
    expect_text(r, "activation_function", WORDS("gelu_new", "gelu_pytorch_tanh"), "\"gelu_new\"");
    expect_bool(r, "scale_attn_weights", true);
    expect_bool(r, "scale_attn_by_inverse_layer_idx", false);
    expect_bool(r, "add_cross_attention", false);
    use_up(r, "n_ctx"); /* the older name of n_positions */
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:f,s:s,s:s,s:b,s:b}", "vocab",
                     (json_int_t)get_size(r, "vocab_size", REQUIRED), "seq_len",
                     (json_int_t)get_size(r, "n_positions", 1024), "layers",
                     (json_int_t)get_size(r, "n_layer", REQUIRED), "width", (json_int_t)width,
                     "heads", (json_int_t)heads, "ffn",
                     (json_int_t)get_size(r, "n_inner", 4 * width), "norm", "layernorm", "norm_eps",
                     get_number(r, "layer_norm_epsilon", 1e-5), "activation", "gelu", "positions",
                     "learned", "bias", true, "tied",
                     get_bool(r, "tie_word_embeddings", true));
}

/* ---- the other keys --------------------------------------------------------------------------*/

/* Keys that change no logit: ids of tokens, names, how generation draws, dropout (there is none
 * here), and how another program stores or splits the model. */
static const char *const NEUTRAL[] = {
    "architectures", "model_type", "auto_map", "torch_dtype", "dtype", "transformers_version",
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
    "unk_token_id", "cls_token_id", "mask_token_id", "use_cache", "initializer_range",
    "attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "task_specific_params", "reorder_and_upcast_attn", "attn_implementation",
    "max_window_layers", "finetuning_task", "id2label", "label2id", "num_labels", "problem_type",
    "return_dict", "output_attentions", "output_hidden_states", "torchscript", "is_decoder",
    "chunk_size_feed_forward", "name_or_path", "tokenizer_class", "prefix", "max_length",
    "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "temperature",
    "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "diversity_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "num_return_sequences", "return_dict_in_generate", "use_bfloat16", "model_max_length",
    "pretraining_data", "unsloth_version", "unsloth_fixed", "is_llama_config", NULL
};

static bool is_neutral(const char *key) {
    if (key[0] == '_') return true;
    for (int i = 0; NEUTRAL[i]; i++)
        if (!strcmp(key, NEUTRAL[i])) return true;
    return !strncmp(key, "transformers.js", 15);
}

/* null, false, 0 and empty switch a feature off. */
static bool is_off(const json_t *v) {
    if (json_is_string(v)) return !*json_string_value(v);
    if (json_is_object(v)) return json_object_size(v) == 0;
    if (json_is_array(v)) return json_array_size(v) == 0;
    return !json_is_true(v) && !(json_number_value(v) > 0) && !(json_number_value(v) < 0);
}

/* E4M3 with a factor for each 128 x 128 block, as DeepSeek-V3 and `export` write it. */
static bool is_block_fp8(const json_t *q) {
    const json_t *block = json_object_get(q, "weight_block_size");
    const json_t *format = json_object_get(q, "fmt");
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    return method && !strcmp(method, "fp8") && json_array_size(block) == 2 &&
           json_integer_value(json_array_get(block, 0)) == 128 &&
           json_integer_value(json_array_get(block, 1)) == 128 &&
           (!format || !strcmp(json_is_string(format) ? json_string_value(format) : "", "e4m3"));
}

static void check_rest(struct reading *r) {
    const char *key;
    json_t *value;
    const json_t *quantised = look(r, "quantization_config");
    if (quantised && !is_block_fp8(quantised))
        refuse(r, "quantization_config", quantised,
               "weights in F32, F16 or BF16, or fp8 with a weight_block_size of [128, 128]");
    use_up(r, "quantization_config");
    const json_t *tp = look(r, "pretraining_tp");
    if (tp && json_integer_value(tp) != 1) refuse(r, "pretraining_tp", tp, "1");
    use_up(r, "pretraining_tp");
    json_object_foreach(r->root, key, value)
        if (!is_neutral(key) && !is_off(value))
            refuse(r, key, value, "no such key: it may change the model, and fp8lab does not know "
                   "it (if it does not, remove it from a copy)");
}

static const struct family *find_family(struct reading *r) {
    const json_t *type = look(r, "model_type");
    const json_t *first = json_array_get(json_object_get(r->root, "architectures"), 0);
    const char *name = json_string_value(type), *architecture = json_string_value(first);
    for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++) {
        const struct family *f = &FAMILIES[i];
        if (!name || strcmp(name, f->type) != 0) continue;
        if (!architecture || !strcmp(architecture, f->architecture)) return f;
        refuse(r, "architectures", first, f->architecture);
        return NULL;
    }
    refuse(r, "model_type", type, FAMILY_NAMES);
    return NULL;
}

enum status hf_config_read(const char *text, size_t n, const char *path, json_t **model,
                           struct err *e) {
    struct reading r = { .path = path, .e = e };
    json_error_t why;
    *model = NULL;
    enum status st = json_parse(&r.root, text, n, JSON_REJECT_DUPLICATES, &why);
    if (st == ERR_FORMAT)
        return FAIL(e, ERR_CONFIG, "%s: line %d: %s", path, why.line, why.text);
    if (st != OK) return FAIL(e, st, "%s: %s", path, why.text);
    if (!json_is_object(r.root)) r.st = FAIL(e, ERR_CONFIG, "%s: expected an object", path);
    const struct family *f = r.st == OK ? find_family(&r) : NULL;
    double std = f ? get_number(&r, "initializer_range", 0.02) : 0;
    bool failed = false;
    if (f) {
        *model = strcmp(f->type, "gpt2") ? read_llama(&r, f) : read_gpt2(&r);
        if (std > 0) json_put(*model, "init_std", json_real(std), &failed);
        check_rest(&r);
    }
    if (r.st == OK && (!*model || failed)) r.st = FAIL(e, ERR_MEMORY, "no memory for %s", path);
    if (r.st != OK) {
        json_decref(*model);
        *model = NULL;
    }
    json_decref(r.root);
    return r.st;
}
