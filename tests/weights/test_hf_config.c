/* The config.json of each family as model keys, and the keys that are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner/base/canonical.h"
#include "runner/weights/hf_config.h"

#define SIZES "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4," \
              "\"intermediate_size\":96,\"vocab_size\":300"
#define LLAMA "\"model_type\":\"llama\"," SIZES
#define GPT2 "\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":300"

struct case_ { const char *what, *text, *wanted; };

/* `wanted` must be a part of the canonical JSON of the model. */
static const struct case_ READ[] = {
    { "Llama's defaults", "{" LLAMA "}", "\"head_dim\":16,\"heads\":4,\"init_std\":0.02,"
      "\"kv_heads\":4,\"layers\":2,\"norm\":\"rmsnorm\",\"norm_eps\":1e-06,\"positions\":\"rope\","
      "\"qk_norm\":false,\"rope\":{\"scaling\":null,\"theta\":10000.0},\"seq_len\":2048,"
      "\"tied\":false,\"vocab\":300,\"width\":64}" },
    { "Llama 3.1's scaling", "{" LLAMA ",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":"
      "\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
      "\"original_max_position_embeddings\":8192}}",
      "\"rope\":{\"scaling\":{\"factor\":8.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
      "\"original_seq_len\":8192},\"theta\":500000.0}" },
    { "the keys of transformers 5", "{" LLAMA ",\"dtype\":\"float32\",\"rope_parameters\":"
      "{\"rope_type\":\"default\",\"rope_theta\":100000.0}}",
      "\"rope\":{\"scaling\":null,\"theta\":100000.0}" },
    { "a theta in rope_scaling", "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"default\","
      "\"rope_theta\":20000.0}}", "\"rope\":{\"scaling\":null,\"theta\":20000.0}" },
    { "the same theta twice", "{" LLAMA ",\"rope_theta\":20000,\"rope_parameters\":{\"rope_type\":"
      "\"default\",\"rope_theta\":20000.0}}", "\"rope\":{\"scaling\":null,\"theta\":20000.0}" },
    { "SmolLM2's own keys", "{" LLAMA ",\"is_llama_config\":true,\"rope_interleaved\":false,"
      "\"transformers.js_config\":{\"dtype\":\"q4\"}}", "\"vocab\":300,\"width\":64}" },
    { "a head_dim of its own", "{" LLAMA ",\"head_dim\":32}", "\"head_dim\":32" },
    { "biases everywhere", "{" LLAMA ",\"attention_bias\":true,\"mlp_bias\":true}",
      "\"bias\":true" },
    { "Mistral's absent window is 4096, its KV heads 8", "{\"model_type\":\"mistral\"," SIZES "}",
      "\"window\":4096" },
    { "Mistral's window off", "{\"model_type\":\"mistral\",\"sliding_window\":null," SIZES "}",
      "\"vocab\":300,\"width\":64}" },
    { "Qwen2 has biases of q, k, v and no window unless switched on",
      "{\"model_type\":\"qwen2\",\"sliding_window\":16,\"num_key_value_heads\":2," SIZES "}",
      "\"kv_heads\":2,\"layers\":2,\"norm\":\"rmsnorm\",\"norm_eps\":1e-06,\"positions\":\"rope\","
      "\"qk_norm\":false,\"qkv_bias\":true," },
    { "Qwen2 with its window", "{\"model_type\":\"qwen2\",\"use_sliding_window\":true,"
      "\"sliding_window\":16,\"max_window_layers\":0," SIZES "}", "\"window\":16" },
    { "Qwen3: head_dim 128 and QK-norm", "{\"model_type\":\"qwen3\"," SIZES "}",
      "\"head_dim\":128,\"heads\":4,\"init_std\":0.02,\"kv_heads\":32" },
    { "layer_types decide", "{\"model_type\":\"qwen3\",\"sliding_window\":16,\"layer_types\":"
      "[\"sliding_attention\",\"sliding_attention\"]," SIZES "}", "\"window\":16" },
    { "GPT-2", "{" GPT2 ",\"n_positions\":128,\"n_ctx\":128,\"n_inner\":null,\"attn_pdrop\":0.1}",
      "{\"activation\":\"gelu\",\"bias\":true,\"ffn\":256,\"heads\":4,\"init_std\":0.02,"
      "\"layers\":2,\"norm\":\"layernorm\",\"norm_eps\":1e-05,\"positions\":\"learned\","
      "\"seq_len\":128,\"tied\":true,\"vocab\":300,\"width\":64}" },
};

/* `wanted` must be a part of the error. */
static const struct case_ REFUSED[] = {
    { "not JSON", "{", "c.json: line 1" },
    { "a list", "[]", "expected an object" },
    { "no model_type", "{}", "model_type is absent; expected llama" },
    { "another family", "{\"model_type\":\"mixtral\"}", "model_type is \"mixtral\"" },
    { "another head", "{" LLAMA ",\"architectures\":[\"LlamaForSequenceClassification\"]}",
      "expected LlamaForCausalLM" },
    { "a missing size", "{\"model_type\":\"llama\"}", "is absent; expected a whole number" },
    { "a size as text", "{\"model_type\":\"llama\",\"hidden_size\":\"64\"}",
      "hidden_size is \"64\"; expected a whole number" },
    { "a size with a fraction", "{\"model_type\":\"llama\",\"hidden_size\":64.0}",
      "hidden_size is 64.0" },
    { "a size that no computer holds", "{\"model_type\":\"gpt2\",\"n_embd\":4611686018427387904,"
      "\"n_layer\":1,\"n_head\":1,\"vocab_size\":300}",
      "n_embd is 4611686018427387904; expected a whole number from 1 to 2^24" },
    { "a width that the heads do not divide", "{\"model_type\":\"llama\",\"hidden_size\":32,"
      "\"num_hidden_layers\":2,\"num_attention_heads\":3,\"intermediate_size\":96,"
      "\"vocab_size\":300}",
      "hidden_size is 32; expected a multiple of num_attention_heads, which is 3" },
    { "the same key twice", "{" LLAMA ",\"vocab_size\":1}", "vocab_size" },
    { "an activation", "{" LLAMA ",\"hidden_act\":\"gelu\"}", "expected \"silu\"" },
    { "a scaling", "{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0}}",
      "rope_scaling.rope_type is \"yarn\"; expected \"llama3\"" },
    { "a scaling without its length", "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\","
      "\"factor\":2.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0}}",
      "rope_scaling.original_max_position_embeddings is absent" },
    { "a scaling without a type", "{" LLAMA ",\"rope_scaling\":{\"factor\":2.0}}",
      "rope_scaling.rope_type is absent; expected \"llama3\" or \"default\", since factor is set" },
    { "a scaling by nothing", "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\","
      "\"factor\":0.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
      "\"original_max_position_embeddings\":16}}",
      "rope_scaling.factor is 0.0; expected a number above 0" },
    { "a scaling of endless texts", "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\","
      "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
      "\"original_max_position_embeddings\":1e30}}",
      "rope_scaling.original_max_position_embeddings is 1e30; expected a length" },
    { "two tables of RoPE", "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\"},"
      "\"rope_parameters\":{\"rope_type\":\"default\"}}",
      "rope_scaling is {\"rope_type\":\"llama3\"}; expected nothing that "
      "contradicts rope_parameters, which is {\"rope_type\":\"default\"}" },
    { "two thetas", "{" LLAMA ",\"rope_theta\":1000.0,\"rope_scaling\":{\"rope_type\":\"default\","
      "\"rope_theta\":20000.0}}", "rope_theta is 1000.0; expected nothing that contradicts "
      "rope_scaling.rope_theta, which is 20000.0" },
    { "RoPE by layer type", "{" LLAMA ",\"rope_parameters\":{\"full_attention\":{}}}",
      "expected one table for all layers" },
    { "a part of the head is rotated", "{" LLAMA ",\"partial_rotary_factor\":0.5}",
      "partial_rotary_factor is 0.5; expected 1" },
    { "a part of the head in the table", "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"default\","
      "\"partial_rotary_factor\":0.25}}", "partial_rotary_factor is 0.25; expected 1" },
    { "quantised", "{" LLAMA ",\"quantization_config\":{\"bits\":4}}", "quantization_config is" },
    { "biases of attention alone", "{" LLAMA ",\"attention_bias\":true}",
      "attention_bias is true" },
    { "tensor parallel arithmetic", "{" LLAMA ",\"pretraining_tp\":2}", "pretraining_tp is 2" },
    { "some layers have a window", "{\"model_type\":\"qwen2\",\"use_sliding_window\":true,"
      "\"sliding_window\":16,\"max_window_layers\":1," SIZES "}",
      "sliding_window is 16; expected a window in all layers or in none" },
    { "a window that the family lacks", "{" LLAMA ",\"sliding_window\":16}",
      "sliding_window is 16; expected null" },
    { "RoPE of neighbours", "{" LLAMA ",\"rope_interleaved\":true}", "rope_interleaved is true" },
    { "an unknown key", "{" LLAMA ",\"logit_scale\":3.5}", "logit_scale is 3.5; expected no" },
    { "experts", "{" LLAMA ",\"num_local_experts\":8}", "num_local_experts is 8" },
    { "GPT-2's other GELU", "{" GPT2 ",\"activation_function\":\"gelu\"}",
      "expected \"gelu_new\"" },
    { "GPT-2's scaling by layer", "{" GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}",
      "expected false" },
    { "GPT-2 with an encoder", "{" GPT2 ",\"add_cross_attention\":true}", "expected false" },
};

static void families(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof READ / sizeof *READ; i++) {
        struct err e = { 0 };
        json_t *model = NULL;
        char *text = NULL;
        size_t n;
        if (hf_config_read(READ[i].text, strlen(READ[i].text), "c.json", &model, &e) != OK)
            fail_msg("%s: %s", READ[i].what, e.text);
        assert_int_equal(json_canonical(model, &text, &n, &e), OK);
        if (!strstr(text, READ[i].wanted)) fail_msg("%s: %s", READ[i].what, text);
        free(text);
        json_decref(model);
    }
}

static void refusals(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        struct err e = { 0 };
        json_t *model = NULL;
        const char *text = REFUSED[i].text;
        enum status st = hf_config_read(text, strlen(text), "c.json", &model, &e);
        if (st != ERR_CONFIG || model) fail_msg("%s: accepted", REFUSED[i].what);
        if (!strstr(e.text, REFUSED[i].wanted)) fail_msg("%s: %s", REFUSED[i].what, e.text);
    }
}

/* A model that no family has is not written as one of them. */
static void not_written(void **state) {
    struct model_config c = { .vocab = 300, .seq_len = 32, .layers = 2, .width = 64, .heads = 4,
                              .kv_heads = 4, .head_dim = 16, .ffn = 96, .norm = NORM_RMS,
                              .activation = ACTIVATION_SWIGLU, .positions = POSITION_ROPE,
                              .norm_eps = 1e-5f, .rope = { .theta = 10000 } };
    struct err e = { 0 };
    json_t *out;
    (void)state;
    c.qkv_bias = true;
    assert_int_equal(hf_config_write(&c, "float32", NULL, &out, &e), OK);
    json_decref(out);
    c.bias = true;
    assert_int_equal(hf_config_write(&c, "float32", NULL, &out, &e), ERR_CONFIG);
    if (!strstr(e.text, "both bias and qkv_bias")) fail_msg("%s", e.text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families),
        cmocka_unit_test(refusals),
        cmocka_unit_test(not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
