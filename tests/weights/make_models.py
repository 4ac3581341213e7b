"""Small random models of each family as Hugging Face folders, without any package.

    make_models.py FOLDER [NAME...]    writes FOLDER/NAME/config.json and safetensors, and
                                       FOLDER/text.txt; all but the last of MODELS by default

The weights are the same on every machine. tests/outside/weights.sh gives the folders to
transformers and records its losses; tests/weights/families.sh compares ours with them."""
import json
import os
import random
import struct
import sys

LENGTH = 32  # tokens of the text that is trained on; it has one byte more
SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 16}


def llama(kind, architecture, **more):
    config = {"model_type": kind, "architectures": [architecture], "hidden_size": 32,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
              "intermediate_size": 48, "vocab_size": 260, "max_position_embeddings": 64,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": False}
    config.update(more)
    return config


# name: configuration, type of the weights, number of files
MODELS = {
    "llama2": (llama("llama", "LlamaForCausalLM", num_key_value_heads=4), "F32", 1),
    "llama31": (llama("llama", "LlamaForCausalLM", rope_theta=500000.0, rope_scaling=SCALING),
                "BF16", 1),
    "llama32": (llama("llama", "LlamaForCausalLM", rope_theta=500000.0, tie_word_embeddings=True,
                      rope_scaling=dict(SCALING, factor=32.0)), "BF16", 3),
    "smollm2": (llama("llama", "LlamaForCausalLM", hidden_size=72, num_attention_heads=9,
                      num_key_value_heads=3, rope_theta=100000.0, tie_word_embeddings=True),
                "F32", 1),
    "mistral": (llama("mistral", "MistralForCausalLM", head_dim=16, sliding_window=8), "F16", 2),
    "qwen2": (llama("qwen2", "Qwen2ForCausalLM", rope_theta=1000000.0, use_sliding_window=False,
                    sliding_window=8, max_window_layers=2), "BF16", 1),
    "qwen3": (llama("qwen3", "Qwen3ForCausalLM", head_dim=16, tie_word_embeddings=True), "F32", 1),
    "gpt2": ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 32,
              "n_layer": 2, "n_head": 4, "vocab_size": 260, "n_positions": 64, "n_ctx": 64,
              "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}, "F32", 1),
    # Of 128 x 128 blocks, some cut off by an edge; made only if it is named.
    "blocks": (llama("llama", "LlamaForCausalLM", hidden_size=192, head_dim=64,
                     num_hidden_layers=1, intermediate_size=256), "BF16", 1),
}


def llama_tensors(c):
    width, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    head, ffn = c.get("head_dim") or width // heads, c["intermediate_size"]
    yield "model.embed_tokens.weight", [c["vocab_size"], width]
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", [width]
        yield at + "post_attention_layernorm.weight", [width]
        for name, rows in ("q", heads), ("k", kv), ("v", kv):
            yield f"{at}self_attn.{name}_proj.weight", [rows * head, width]
            if c["model_type"] == "qwen2":
                yield f"{at}self_attn.{name}_proj.bias", [rows * head]
        yield at + "self_attn.o_proj.weight", [width, heads * head]
        if c["model_type"] == "qwen3":
            yield at + "self_attn.q_norm.weight", [head]
            yield at + "self_attn.k_norm.weight", [head]
        yield at + "mlp.gate_proj.weight", [ffn, width]
        yield at + "mlp.up_proj.weight", [ffn, width]
        yield at + "mlp.down_proj.weight", [width, ffn]
    yield "model.norm.weight", [width]
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", [c["vocab_size"], width]


def gpt2_tensors(c):
    width = c["n_embd"]
    yield "transformer.wte.weight", [c["vocab_size"], width]
    yield "transformer.wpe.weight", [c["n_positions"], width]
    for layer in range(c["n_layer"]):
        at = f"transformer.h.{layer}."
        for name, shape in (("attn.c_attn", [width, 3 * width]), ("attn.c_proj", [width, width]),
                            ("mlp.c_fc", [width, 4 * width]), ("mlp.c_proj", [4 * width, width])):
            yield f"{at}{name}.weight", shape
            yield f"{at}{name}.bias", shape[1:]
        for name in "ln_1", "ln_2":
            yield f"{at}{name}.weight", [width]
            yield f"{at}{name}.bias", [width]
    yield "transformer.ln_f.weight", [width]
    yield "transformer.ln_f.bias", [width]


def encode(values, kind):
    if kind == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    whole = struct.pack(f"<{len(values)}f", *values)
    if kind == "F32":
        return whole
    return b"".join(whole[i + 2:i + 4] for i in range(0, len(whole), 4))  # truncated to bf16


def write_tensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def write_model(folder, config, kind, files):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/config.json", "w") as f:
        json.dump(config, f, indent=1)
    draw, tensors = random.Random(1), {}
    shapes = gpt2_tensors(config) if config["model_type"] == "gpt2" else llama_tensors(config)
    for name, shape in shapes:
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        middle = 1.0 if "norm" in name or "ln_" in name else 0.0
        if name.endswith("bias"):
            middle = 0.0
        values = [middle + 0.12 * draw.gauss(0, 1) for _ in range(count)]
        tensors[name] = (kind, shape, encode(values, kind))
    if files == 1:
        write_tensors(f"{folder}/model.safetensors", tensors)
        return
    index = {}
    for part in range(files):
        name = f"model-{part + 1:05}-of-{files:05}.safetensors"
        own = dict(list(tensors.items())[part::files])
        write_tensors(f"{folder}/{name}", own)
        index.update({key: name for key in own})
    total = sum(len(data) for _, _, data in tensors.values())
    with open(f"{folder}/model.safetensors.index.json", "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": index}, f)


def write_llmc(path, folder, kind, padded):
    """llm.c's .bin of a GPT-2 folder: [out, in], stacked over layers, the vocabulary padded."""
    config = MODELS["gpt2"][0]
    width, layers = config["n_embd"], config["n_layer"]
    with open(f"{folder}/model.safetensors", "rb") as f:
        raw = f.read()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])

    def values(name):
        begin, end = (8 + n + at for at in header[name]["data_offsets"])
        return list(struct.unpack(f"<{(end - begin) // 4}f", raw[begin:end]))

    def transposed(name):
        rows, cols = header[name]["shape"]
        was = values(name)
        return [was[r * cols + c] for c in range(cols) for r in range(rows)]

    extra = padded - config["vocab_size"]
    out = values("transformer.wte.weight") + [9.0] * (extra * width)
    out += values("transformer.wpe.weight")
    for part in ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
                 "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias",
                 "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"):
        for layer in range(layers):
            name = f"transformer.h.{layer}.{part}"
            out += transposed(name) if len(header[name]["shape"]) == 2 else values(name)
    out += values("transformer.ln_f.weight") + values("transformer.ln_f.bias")
    sizes = [20240326, 3 if kind == "F32" else 5, config["n_positions"], config["vocab_size"],
             layers, config["n_head"], width, padded]
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", *sizes, *[0] * (256 - len(sizes))) + encode(out, kind))


def main():
    folder = sys.argv[1]
    for name in sys.argv[2:] or list(MODELS)[:-1]:
        config, kind, files = MODELS[name]
        write_model(f"{folder}/{name}", config, kind, files)
    draw = random.Random(2)
    with open(f"{folder}/text.txt", "wb") as f:
        f.write(bytes(draw.randrange(256) for _ in range(LENGTH + 1)))


if __name__ == "__main__":
    main()
