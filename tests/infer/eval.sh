#!/bin/bash
# tier: long
# eval: on its own held-out data a run has the loss of its last evaluation, to the bit, for every
# kind of data and recipe; other data, recipes and folders; what does not fit is refused by name.
set -u
. "$PWD/tests/cli/lib.sh"
. "$root/tests/support/text.sh"
seq 999 | head -c 3000 >a.txt
seq 3 7 5000 | head -c 1207 >b.txt
cat >bytes.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "bytes", model = tiny.llama { seq_len = 32, layers = 1, vocab = 256 }, recipe = bf16,
  data = text { "a.txt", holdout = 0.2 },
  train = { steps = 6, global_batch = 4, micro_batch = 2, optimizer = adamw { lr = 1e-3 } },
  eval = { every = 3, batches = 4 }, checkpoint = { every = 6, keep = 1 },
}
LUA
kept='s/  eval = .*/  eval = { every = 6, batches = 3 }, checkpoint = { every = 6 },/'
train() { # SCRIPT ARGS...
    "$FP8LAB" run "$1" --lib "$lib" --threads 1 --backend cpu "${@:2}" >out 2>log || fail "run $*"
    bundle=$(newest runs)
}
last_record() { # KEY: of the run's last evaluation
    tar --zstd -xOf "$bundle" --wildcards '*/data/metrics/eval.jsonl' | tail -1 |
        python3 -c 'import json, sys; print(json.loads(sys.stdin.read()).get(sys.argv[1]))' "$1"
}
get() { # EXPRESSION ARGS...: of eval --json
    "$FP8LAB" eval --json --threads 1 --backend cpu "${@:2}" >out 2>log || fail "eval ${*:2}"
    python3 -c 'import json, sys; o = json.load(open("out")); print(eval(sys.argv[1]))' "$1"
}
same() { # WHAT: the run's own evaluation
    case_name=$1
    expect "loss_bits" "$(last_record loss_bits)" "$(get 'o["loss_bits"]' "$bundle")"
    expect "tokens" "$(last_record tokens)" "$(get 'o["tokens"]' "$bundle")"
    case_name=
}

# ---- the run's own data, to the bit
recipes="f32 fp8.delayed fp8.blockwise fp8.tensorwise"
[ "${CONFIG:-release}" = asan ] && recipes="fp8.delayed fp8.tensorwise"
for recipe in $recipes; do
    train bytes.lua --set recipe=$recipe --set checkpoint.milestones=3
    same "$recipe"
done
bytes=$bundle
record=$(tar --zstd -xOf "$bytes" --wildcards '*/eval.jsonl' | grep '"step":3,')
expect "an earlier checkpoint" True "$(get "o['loss_bits'] in '$record'" "$bytes" --checkpoint 3)"
expect "the last" 6 "$(get 'o["step"]' "$bytes" --checkpoint last)"
gives 2 eval "$bytes" --checkpoint best -- "has no checkpoint 'best' here" \
    "it kept step 3 (milestone), step 6 (last)"
gives 2 eval "$bytes" --checkpoint 4 -- "has no checkpoint '4' here"
sed "$kept" texts.lua >t.lua
train t.lua
text=$bundle
same "text with a tokenizer"
expect "a byte" "$("$FP8LAB" show "$text" | sed -n 's/^  eval per byte *\([0-9.]*\) .*/\1/p')" \
    "$(get '"%.6f" % o["loss_a_byte"]' "$text")"
rm -rf runs/cache # made again of the text, with the bundle's tokenizer
mv tokenizer.json moved.json
same "tokens made again"
mv moved.json tokenizer.json
sed "$kept; s|  data = text .*|  data = tokens { path = \"$(ls runs/cache/*.bin)\", MORE },|" \
    texts.lua | sed 's|MORE|holdout = 0.1, mask = "document", positions = "document"|' >k.lua
train k.lua
shards=$bundle
same "token shards"
mkdir model && cp tokenizer.json "$root/tests/chat/templates/chatml.jinja" model
mv model/chatml.jinja model/chat_template.jinja
printf '{"eos_token": "<|im_end|>", "pad_token": null}\n' >model/tokenizer_config.json
python3 - <<'PY'
import json
with open("talks.jsonl", "w") as f:
    for i in range(200):
        f.write(json.dumps({"messages": [{"role": "user", "content": f"say {i % 7}"},
                                         {"role": "assistant", "content": f"it is {i % 7} now"}]})
                + "\n")
PY
sed "$kept; s|  data = text .*|  data = chats { \"talks.jsonl\", tokenizer = \"model/\", MORE },|
     s/MORE/holdout = 0.2/; s/seq_len = 32/seq_len = 128/" texts.lua >c.lua
train c.lua
chats=$bundle
same "conversations"
expect "tokens with loss" "$(last_record loss_tokens)" "$(get 'o["loss_tokens"]' "$chats")"
expect "loss a byte of some tokens" None "$(get 'o["loss_a_byte"]' "$chats")"

# A device's choices have bits: the run's table is taken, though timing would find another now.
mkdir bin && cp "$BUILD/tests/cli/chooser" bin/fp8lab
FP8LAB=$PWD/bin/fp8lab
echo 1 >bin/chooser
train bytes.lua --runs chosen --choices none
bundle=$(newest chosen)
echo 2 >bin/chooser
same "the run's choices"
[ "$(last_record loss_bits)" != "$(get 'o["loss_bits"]' "$bundle" --recipe bf16)" ] ||
    fail "choices change no bit here"
echo 2 another lib-2 >bin/chooser
gives 0 eval "$bundle" --backend cpu -- "bf16 on"
FP8LAB=$BUILD/fp8lab

# ---- other data: every token but the first is predicted once
expect "tokens of a file" 1206 "$(get 'o["loss_tokens"]' "$bytes" --data b.txt)"
expect "of two" 4206 "$(get 'o["loss_tokens"]' "$bytes" --data b.txt --data a.txt)"
expect "some batches" "(256, 4)" "$(get 'o["loss_tokens"], o["micro_batch"]' "$bytes" \
    --data b.txt --batches 2 --micro-batch 4)"
cat data/a.jsonl >other.jsonl
here=$(get 'o["loss_tokens"], round(o["loss"], 5)' "$text" --data other.jsonl)
"$FP8LAB" data tokenise --to other --tokenizer tokenizer.json other.jsonl >out 2>&1 || fail "tokens"
expect "its shards" "$here" \
    "$(get 'o["loss_tokens"], round(o["loss"], 5)' "$text" --data other.bin)"
gives 0 eval "$text" --data other.bin -- "bf16 on"
! grep -q "unless both give the same ids" out || fail "its own tokenizer is another"
"$FP8LAB" data tokenise --to plain --tokenizer bytes other.jsonl >out 2>&1 || fail "bytes"
gives 0 eval "$text" --data plain.bin -- \
    "plain.bin has tokens of the tokenizer bytes, and the model was trained on those of" \
    "unless both give the same ids, this loss says nothing"
cp plain.bin own.bin && cp plain.idx own.idx && cp plain.json own.json # tokens that a run names
sed "$kept; s|  data = text .*|  data = tokens { path = \"own\", holdout = 0.1 },|" \
    texts.lua >own.lua
train own.lua
gives 0 eval "$bundle" --data other.bin -- "and the model was trained on those of bytes: unless"
rm own.json
gives 0 eval "$bundle" --data other.bin -- "bf16 on"
! grep -q "unless both give the same ids" out || fail "a tokenizer that nothing names"
bytes_a_token=$(get 'round(o["loss"] / o["loss_a_byte"], 4)' "$text" --data other.jsonl)
expect "bytes per token of shards" "$bytes_a_token" \
    "$(get 'round(o["loss"] / o["loss_a_byte"], 4)' "$text" --data other.idx)"
[ "$(get 'o["loss_tokens"] < 0.5 * o["tokens"]' "$chats" --data talks.jsonl)" = True ] ||
    fail "the prompts of conversations have loss"
talks=$(get 'o["loss_bits"], o["loss_tokens"]' "$chats" --data talks.jsonl)
"$FP8LAB" data tokenise --chat --to talks --tokenizer model --max-tokens 128 talks.jsonl >out \
    2>&1 || fail "tokens of conversations"
expect "shards of conversations" "$talks" \
    "$(get 'o["loss_bits"], o["loss_tokens"]' "$chats" --data talks.bin)"

mkdir empty temporary # nothing is left behind, here or in the folder for temporary files
(cd empty && TMPDIR=../temporary "$FP8LAB" eval "../$bytes" --data ../b.txt --backend cpu) \
    >out 2>&1 || fail "eval from another folder"
expect "files left" "" "$(ls -A empty temporary | grep -v :)"

# Stopped in the middle: nothing is left either, and the signal ends the program.
for i in $(seq 4000); do cat b.txt; done >long.txt
TMPDIR=temporary "$FP8LAB" eval "$bytes" --data long.txt --backend cpu --threads 1 >stopped 2>&1 &
await_words evaluating stopped
kill -TERM $!
wait $!
expect "exit code after a signal" 143 $?
expect "files left after a signal" "" "$(ls -A temporary | grep -v :)"

# ---- several processes: the bits of one, whether or not the batches divide among them
many='o["loss_bits"], o["tokens"], o["loss_tokens"], o["examples"], o["right"]'
parts() { # ARGUMENTS...
    expect "three processes: $*" "$(get "$many" "$@")" "$(get "$many" "$@" --gpus 3)"
}
parts "$chats"
parts "$bytes" --data b.txt --batches 5
expect "no more than batches" 2 "$(get 'o["ranks"]' "$bytes" --data b.txt --batches 2 --gpus 64)"
gives 2 eval "$bytes" --gpus 65 -- "--gpus: expected a whole number from 1 to 64"
# A rank that fails is named: no GPU is visible, or there is no plugin.
[ -e "${FP8LAB%/*}/libfp8lab_cuda.so" ] && code=3 || code=2
CUDA_VISIBLE_DEVICES="" gives $code eval "$bytes" --gpus 2 --backend cuda -- "rank "

# ---- other recipes: near the run's own, which is not the same
own=$(get 'o["loss"]' "$bytes" --data b.txt)
for recipe in f32 fp8.blockwise; do
    expect "$recipe is near" "('$recipe', True)" \
        "$(get "o['recipe'], 0 < abs(o['loss'] - $own) < 0.01" "$bytes" --data b.txt \
            --recipe $recipe)"
done

# ---- folders: a checkpoint, and a Hugging Face folder of the same weights
step=$(ls -d "${bytes%.tar.zst}".ckpt/step-000006)
bf16=$(get 'o["loss_bits"]' "$bytes" --data b.txt --recipe bf16 --micro-batch 1)
expect "a checkpoint" "$bf16" "$(get 'o["loss_bits"]' "$step" --data b.txt --tokenizer bytes)"
gives 0 export "$bytes" --to hf --
expect "a Hugging Face folder" "$bf16" "$(get 'o["loss_bits"]' hf --data b.txt --tokenizer bytes)"
cp tokenizer.json hf
gives 2 eval hf --data a.txt -- "the model has 256 tokens: it is another model's tokenizer"
rm hf/tokenizer.json

# ---- multiple choice: tests/infer/test_questions.c has the rule, tests/outside/choices.sh another
python3 - <<'PY'
import struct
def example(i):
    words = [2, 4, 5, 1, 2, 3, 4, 5] + [w for k in range(4) for w in (k + 1, *range(60, 61 + k))]
    return struct.pack(f"<{len(words) + 3}H", 65535, 2 * len(words) + 6, i, *words)
rows = b"".join(map(example, range(9)))
head = struct.pack("<256i", 20240522, 1, 9, len(rows) // 9, *[0] * 252)
open("nine.bin", "wb").write(head + rows)
open("cut.bin", "wb").write(head + rows[:-2])
PY
nine() { get "$1" "$bytes" --choices nine.bin "${@:2}"; }
expect "examples" "(9, True, 90)" \
    "$(nine 'o["examples"], o["right"] == 9 * o["accuracy"], o["tokens"]')"
parts "$bytes" --choices nine.bin --micro-batch 5
expect "in batches of three" "$(nine 'round(o["loss"], 5)' --recipe f32)" \
    "$(nine 'round(o["loss"], 5)' --recipe f32 --micro-batch 3)"
python3 - "$root/runner/JSON.md" <<'PY' || fail "--json: other keys than runner/JSON.md"
import json, re, sys
rows = [x.split("|")[3] for x in open(sys.argv[1]) if x.startswith("| `eval` |")]
assert set(re.findall("`([a-z_]+)`", " ".join(rows))) == set(json.load(open("out"))) - {"schema"}
PY
gives 0 eval "$bytes" --choices nine.bin --backend cpu -- "of 9 by its loss per token"
gives 2 eval "$bytes" --choices cut.bin -- "cut.bin: example 8 at byte" "(truncated?)"
gives 2 eval "$bytes" --choices nine.bin --data b.txt -- "leave out --data"

# ---- refused by name
gives 2 eval "$step" --checkpoint last --data b.txt -- "chooses among the checkpoints of a run"
gives 2 eval "$step" -- "is not a run, so it has no data of its own: --data FILE"
gives 2 eval hf --data b.txt -- "has no tokenizer, so b.txt cannot be read as text: --tokenizer"
"$FP8LAB" data tokenise -q b.txt --tokenizer bytes --to tokens >out 2>&1 || fail "tokenise"
expect "tokens with an index, by a model of bytes" "$(get 'o["loss_bits"]' "$bytes" --data b.txt)" \
    "$(get 'o["loss_bits"]' "$bytes" --data tokens.bin)"
gives 2 eval "$bytes" --data b.txt --data tokens.bin -- "b.txt and tokens.bin are of two kinds"
gzip -k b.txt
gives 2 eval "$bytes" --data b.txt.gz -- "b.txt.gz is a gzip file, which is not read as text"
# Other formats, as `run` refuses them, for a model of bytes and one with a tokenizer.
padding() { head -c 4000 /dev/zero; }
{ printf '\x93NUMPY\x01\0v\0{}' && padding; } >x.npy
{ printf '\x40\0\0\0\0\0\0\0{"a":{}}' && padding; } >x.safetensors
cp b.txt.gz packed.txt
for run in "$bytes" "$text"; do
    gives 2 eval "$run" --data x.npy -- "x.npy is a NumPy array, which is not read as text; write"
    gives 2 eval "$run" --data x.safetensors -- "x.safetensors is a safetensors file" "init ="
done
gives 2 eval "$bytes" --data packed.txt -- "packed.txt is a gzip file" 'the tokenizer "bytes"'
gives 0 eval "$bytes" --data packed.txt --tokenizer bytes -- "fp8.tensorwise on"
{ cat b.txt && printf '\0'; } >zero.txt
gives 0 eval "$bytes" --data zero.txt -- \
    "zero.txt: bytes of zero in the first 64 KiB, so it may be no text; all of it is read as text"
gives 2 eval "$bytes" --data none.txt -- "--data none.txt: there is no such file"
: >empty.txt
gives 2 eval "$bytes" --data empty.txt -- "empty.txt: 0 tokens; to evaluate takes at least two"
gives 2 eval "$bytes" --data b.txt --seq-len 33 -- "the model reads at most 32"
gives 2 eval "$bytes" --data b.txt --recipe fp4 -- "there is no recipe fp4"
gives 2 eval "$bytes" --recipe fp8.delayed -- "--recipe fp8.tensorwise"
gives 2 eval "$shards" --data a.txt -- "has no tokenizer, so a.txt cannot be read as text"
gives 2 eval "$text" --data other.bin --data a.txt -- "other.bin and a.txt are of two kinds"
cp other.idx big.idx
python3 -c 'open("big.bin", "wb").write(b"\xff\xff" * (len(open("other.bin", "rb").read()) // 2))'
gives 2 eval "$text" --data big.bin -- "big.bin: token id 65535 at byte 0 is beyond" \
    "; model.vocab must be larger than each id"
head -c 100 other.bin >short.bin
gives 2 eval "$text" --data short.bin -- "an llm.c shard has a header of 1024 (truncated?)"
mv hf/model.safetensors hf/pytorch_model.bin
gives 2 eval hf --data b.txt --tokenizer bytes --cache unmade -- "save_pretrained"
[ ! -e unmade ] || fail "tokens were made for weights that are refused"
printf '{"model_type": "mamba", "hidden_size": 8}' >hf/config.json
gives 2 eval hf --data b.txt -- "mamba"
mv a.txt away.txt
gives 2 eval "$bytes" -- "the run's own data are not here" "a.txt  "
mkdir moved && mv away.txt moved
bundle=$bytes
expect "data found in a folder" "$(last_record loss_bits)" \
    "$(get 'o["loss_bits"]' "$bytes" --data moved)"
gives 2 eval "$bytes" --data empty -- "the run's own data are not here"
mv moved/away.txt .
sed 's/a.txt/away.txt/; s/checkpoint = .*/}/; s/^}$//' bytes.lua >unkept.lua
echo >>unkept.lua
train unkept.lua
gives 2 eval "$bundle" -- "has no weights: a run keeps its last checkpoint"
"$FP8LAB" run --smoke bytes.lua --threads 1 --runs smoke >out 2>log || fail "a smoke run"
gives 2 eval "$(newest smoke)" -- "; this is a smoke run, which keeps none"

[ $failed = 0 ] && echo "runs and folders are evaluated"
exit $failed
