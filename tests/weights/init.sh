#!/bin/bash
# long: 30
# `init`: what is refused by name; equal inputs for one file and shards; several ranks; repro and
# --init; text that was tampered with; the same loss from a run's own checkpoint.
set -u
. tests/cli/lib.sh
. "$root/tests/weights/lib.sh"
edit() { # FOLDER PYTHON: changes the tensors of a one-file model; t is {name: (kind, shape, data)}
    python3 - "$1/model.safetensors" "$2" <<'END'
import json, struct, sys
path = sys.argv[1]
raw = open(path, "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head = json.loads(raw[8:8 + n])
t = {k: (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
     for k, v in head.items() if k != "__metadata__"}
exec(sys.argv[2])
head, at = {}, 0
for k, (kind, shape, data) in t.items():
    head[k] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
    at += len(data)
text = json.dumps(head).encode()
open(path, "wb").write(struct.pack("<Q", len(text)) + text + b"".join(x[2] for x in t.values()))
END
}
refused() { # WHAT WORDS...: run refuses x.lua before anything runs, and names the words
    case_name=$1
    shift
    gives 2 run x.lua --backend cpu -- "$@"
    case_name=
}
copy() { rm -rf models/x && cp -r "models/$1" models/x && script models/x; }

# ---- refusals
copy llama2 && edit models/x 'del t["model.layers.1.mlp.up_proj.weight"]'
refused "a missing tensor" "model.layers.1.mlp.up_proj.weight is missing"
copy llama2 && edit models/x 't["extra.weight"] = ("F32", [1], bytes(4))'
refused "an unexpected tensor" "the model has no tensor extra.weight, F32 [1]"
copy llama2 && edit models/x 'k = "model.norm.weight"; t[k] = ("F32", [16], t[k][2][:64])'
refused "another shape" "model.norm.weight is F32 [16]; the model needs [32]"
copy llama2 && edit models/x 'k = "model.norm.weight"; t[k] = ("F32", [64], 2 * t[k][2])'
refused "a longer tensor" "model.norm.weight is F32 [64]; the model needs [32]"
copy llama2 && edit models/x 'k = "model.norm.weight"; t[k] = ("I32", [32], t[k][2])'
refused "another type" "model.norm.weight is I32 [32]; expected F32, F16, BF16 or F8_E4M3"
copy llama2 && edit models/x 'k = "model.norm.weight"; t[k] = ("F32", [32], bytes(64))'
refused "bytes that are not the shape" "which is not its shape"
copy smollm2 && edit models/x 't["lm_head.weight"] = ("F32", [260, 72], bytes(260 * 72 * 4))'
refused "a tied model with another head" "lm_head.weight differs from model.embed_tokens.weight"
gives 2 generate models/x a --tokenizer bytes --tokens 1 --backend cpu -- "lm_head.weight differs"
copy smollm2 && edit models/x 't["lm_head.weight"] = t["model.embed_tokens.weight"]'
gives 0 generate models/x a --tokenizer bytes --tokens 1 --backend cpu --
copy llama2 && truncate -s 1000 models/x/model.safetensors
refused "a truncated file" "truncated?"
copy llama2 && echo '[' >models/x/model.safetensors
refused "no safetensors" "expected a safetensors file"
copy llama32 && rm models/x/model-00002-of-00003.safetensors
refused "a missing shard" "model-00002-of-00003.safetensors, which is not there"
gives 2 generate models/x a --tokenizer bytes --tokens 1 --backend cpu -- "which is not there"
copy llama32 && sed -i 's/model-00001/..\/model-00001/' models/x/model.safetensors.index.json
refused "an index that leaves the folder" "is in no file beside the index"
copy llama32 && sed -i 's/\("model.norm.weight": "model-0000\)./\11/' \
    models/x/model.safetensors.index.json
refused "an index that names another shard" "model-00001-of-00003.safetensors does not hold" \
    "model.norm.weight, as the index says"
copy llama32 && cp models/x/model-0000{1,2}-of-00003.safetensors
refused "a tensor in two shards" "is in "
copy llama2 && mv models/x/{model.safetensors,pytorch_model.bin}
refused "torch.save" "save_pretrained"
gives 2 check x.lua -- "x: its weights would be rejected: init = \"models/x\"" "save_pretrained" \
    "no checkpoint of the run is kept at the end"
copy llama2 && rm models/x/model.safetensors && touch models/x/__0_0.distcp
refused "a distributed checkpoint" "dcp_to_torch"
rm -rf models/x && mkdir -p models/x/snapshots && script models/x models/llama2
refused "a folder of Hugging Face's cache" "below snapshots/"
gives 2 check x.lua -- "x: its weights would be rejected" "below snapshots/"
script models/x
refused "the same as the model" "models/x/config.json does not exist" "below snapshots/"
script models/nowhere models/llama2
refused "no such folder" "init = \"models/nowhere\"" "--set init.from=PATH"
gives 0 check x.lua -- "x: its weights cannot be read here: init = \"models/nowhere\"" \
    "nor the beginning of a run's id in runs; --set init.from=PATH" "Next: fp8lab plan"
copy llama2 && edit models/x 't["model.norm.weight"] = ("F32", [32], b"\0\0\xc0\x7f" * 32)'
run_x
says "final_norm.weight is not finite"

# ---- another architecture; before minutes of tokenising
mkdir bert && cat >bert/config.json <<'END'
{"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 32}
END
cp models/llama2/model.safetensors bert
edit bert 't = {"embeddings.word_embeddings.weight": ("F32", [260, 32], bytes(260 * 32 * 4))}'
other=('bert/config.json is of another architecture than the model: its model_type is "bert", the'
    'model'"'s"' is "llama"; name weights of a llama'
    '(bert: tensor model.embed_tokens.weight is missing)')
script bert models/llama2
refused "a BERT" "${other[@]}"
gives 2 check x.lua -- "x: its weights would be rejected" "${other[@]}"
mkdir below && mv bert below
gives 0 check x.lua -- "x: its weights cannot be read here"
ln -s ../models below/models
gives 2 check x.lua --data-root below -- "x: its weights would be rejected" "model_type is \"bert\""
gives 2 run x.lua --data-root below --set data.tokenizer=bytes -- "model_type is \"bert\""
grep -q "tokenis" out && fail "text is tokenised before the weights are rejected"
mv below/bert .
script models/gpt2 models/llama2
refused "a GPT-2 folder for a Llama" "its model_type is \"gpt2\", the model's is \"llama\""
copy llama2 && sed -i 's/"llama"/"mistral"/' models/x/config.json
edit models/x 'del t["model.norm.weight"]' && script models/x models/llama2
refused "a Mistral without a tensor" "x: init = \"models/x\": models/x: tensor model.norm.weight is"

# ---- a run of another model, by its bundle and by its id
run_tiny --runs other --set train.steps=2
of=$(bundle_in other)
for init in "$of" "$(basename "$of" .tar.zst)"; do
    script "$init" models/llama2
    gives 2 run x.lua --runs other --backend cpu --set data.tokenizer=bytes -- \
        "init = \"$init\": other/" "; the model needs ["
    grep -q "tokenis" out && fail "text is tokenised before a run's weights are rejected"
    gives 2 check x.lua --runs other -- "x: its weights would be rejected" "the model needs ["
done

# ---- llm.c: the loss of the folder that the file was made of
PYTHONPATH=$root/tests/weights python3 -c 'import make_models as m
m.write_llmc("models/f32.bin", "models/gpt2", "F32", 384)
m.write_llmc("models/bf16.bin", "models/gpt2", "BF16", 384)'
wanted=$(sed -n 's/^gpt2 //p' "$root/tests/weights/losses.txt")
script models/f32.bin models/gpt2 && run_x
near "llm.c in f32" "$wanted" "$(loss_of)" 1e-5
script models/bf16.bin models/gpt2 && run_x
near "llm.c in bf16" "$wanted" "$(loss_of)" 0.02
truncate -s -4 models/bf16.bin
refused "a truncated .bin" "(truncated?)"
script models/f32.bin models/llama2
refused "a GPT-2 for a Llama" "models/f32.bin: "
printf '\243\331\064\001' | dd of=models/f32.bin conv=notrunc 2>/dev/null
script models/f32.bin models/gpt2
refused "llm.c's Llama" "llm.c's file of a Llama"
cp models/text.txt models/x.bin && script models/x.bin models/gpt2
refused "another .bin" "weights of torch.save"

# ---- the same inputs for the same weights
hash_of() { field "$(newest runs)" 'run["inputs"]["weights"]'; }
copy llama2 && run_x && one=$(hash_of)
PYTHONPATH=$root/tests/weights python3 -c 'import make_models as m
config, kind, _ = m.MODELS["llama2"]
m.write_model("models/three", config, kind, 3)'
script models/three && run_x
expect "the hash of three shards" "$one" "$(hash_of)"
whole=$(loss_of)
"$FP8LAB" log "$(newest runs)" >out 2>log
grep -qE "worker 0: weights: 0.[0-9]* GB read in [0-9.]* s, [0-9.]* GB/s$" out ||
    fail "the log does not say how fast the weights were read"

# ---- ranks: each reads its share; text and loss are those of one rank
cat >ranks.lua <<'END'
return experiment { name = "r", model = hf { "models/gpt2", seq_len = 16 }, init = "models/gpt2",
  recipe = f32, hardware = { gpus = GPUS }, data = text { "models/text.txt", holdout = 0 },
  train = { steps = 1, global_batch = 2, shard = "parameters" } }
END
for gpus in 1 2; do
    sed "s/GPUS/$gpus/" ranks.lua >x.lua
    run_x
    expect "$gpus ranks" 0 $code
    loss[$gpus]=$(loss_of)
done
near "two ranks" "${loss[1]}" "${loss[2]}" 1e-6

# ---- the record, repro, changed files
copy llama2 && run_x
bundle=$(newest runs)
expect "the record" models/x "$("$FP8LAB" show --json "$bundle" | python3 -c 'import json, sys
print(json.load(sys.stdin)["resolved"]["init"]["from"])')"
gives 0 repro "$bundle" --threads 1 -- "bitwise equal"
mv models/x models/y
gives 3 repro "$bundle" --threads 1 -- "$PWD/models/x, in the script models/x, hash" "--init DIR"
gives 0 repro "$bundle" --threads 1 --init models/y -- "bitwise equal"
mkdir -p moved/models && cp models/text.txt moved/models && cp -r models/y moved/models/x
(cd moved && gives 0 repro "../$bundle" --threads 1 -- "bitwise equal"; exit $failed) ||
    fail "a project that was moved, with its weights at the script's path"
(cd moved && edit models/x 't["model.norm.weight"] = ("F32", [32], bytes(128))'
    gives 3 repro "../$bundle" --threads 1 -- "models/x has other weights"; exit $failed) ||
    fail "other weights at the script's path"
gives 3 repro "$bundle" --threads 1 --init models/three/.. -- "initial weights"
run_tiny --runs random
gives 2 repro "$(bundle_in random)" --init models/y -- \
    "--init models/y: the run of random/" "begins with random weights and reads none: leave out"
edit models/y 't["model.norm.weight"] = ("F32", [32], bytes(128))'
gives 3 repro "$bundle" --threads 1 --init models/y -- "has other weights"

# ---- --smoke shrinks the model, which no real weights fit
script models/three models/llama31
gives 0 run x.lua --smoke --set data.holdout=0.5 --set data.paths="$root/README.md" \
    --backend cpu -- "a smoke run"

# ---- a run's own weights, in another recipe: the first loss is that of the parent's weights
parent() { # RECIPE: a run of two steps in $parent, and in $wanted the loss of its weights
    cat >parent.lua <<END
return experiment { name = "parent", model = hf { "models/three", seq_len = 32 },
  init = "models/three", recipe = $1, data = text { "models/text.txt", holdout = 0 },
  train = { steps = 2, global_batch = 1, optimizer = adamw { lr = 0.01 } },
  checkpoint = { every = 2, keep = 1 } }
END
    "$FP8LAB" run parent.lua --backend cpu --threads 1 >out 2>log || fail "the parent"
    parent=$(newest runs)
    # Step 3 of the same run begins with the weights of its checkpoint.
    "$FP8LAB" run --extend "$parent" --set train.steps=3 --backend cpu --threads 1 >out 2>log ||
        fail "--extend"
    wanted=$(loss_of)
}
from_parent() { # RECIPE BOUND: the first loss in that recipe
    script "$parent" models/three && sed -i "s/recipe = f32/recipe = $1/" x.lua
    run_x
    expect "$1 from a run: exit code" 0 $code
    near "$1 from a run" "$wanted" "$(loss_of)" "$2"
}
# E4M3 has 3 bits of fraction: an operand is off by up to 6 %, this loss of 4.4 by about 1 %.
parent bf16
from_parent bf16 0
from_parent f32 0.01
from_parent fp8.tensorwise 0.06
from_parent fp8.blockwise 0.06
"$FP8LAB" show "$(newest runs)" >shown 2>log
says "weights of step 2 of" shown
parent fp8.blockwise
gives 0 check x.lua --set init.from=last -- "Next: fp8lab run"
from_parent bf16 0.06
from_parent fp8.blockwise 0
exit $failed
