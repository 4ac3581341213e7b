#!/bin/bash
# generate: text that a run has learned, in its own recipe and another; draws that depend on seed
# and prompt alone; stop texts, chats, tokenizers, pipes and terminals; what is refused.
set -u
. "$PWD/tests/cli/lib.sh"
. "$root/tests/support/text.sh"
python3 -c 'open("cat.txt", "w").write("the cat sat on the mat. " * 400)'
cat >cat.lua <<'END'
local function row(name, recipe) return experiment { name = name, recipe = recipe,
  model = { vocab = 256, seq_len = 48, layers = 2, width = 32, heads = 2, ffn = 64, tied = true },
  data = text { "cat.txt" },
  train = { steps = 60, global_batch = 4, optimizer = adamw { lr = 0.01 } },
  checkpoint = { every = 60, keep = 1 }, archive = name == "packed" and "weights" or nil } end
return suite { name = "cats", row("bf16", bf16), row("delayed", fp8.delayed { history = 4 }),
               row("packed", fp8.blockwise) }
END
"$FP8LAB" run cat.lua --backend cpu --threads 1 >out 2>log || fail "the runs"
rm -r runs/*-packed-*.ckpt # the bundle has the weights too
generated() { "$FP8LAB" generate "$@" --backend cpu --threads 1 2>log; }
for run in runs/*.tar.zst; do
    expect "$run" " sat on the mat. the " "$(generated "$run" "the cat" --tokens 21)"
    says "21 tokens in" log
done
run=$(ls runs/*-bf16-*.tar.zst) delayed=$(ls runs/*-delayed-*.tar.zst)
expect "another recipe" " sat on the mat." "$(generated "$run" "the cat" --tokens 16 --recipe f32)"
expect "FP8 of BF16" " sat on" "$(generated "$run" "the cat" --tokens 7 --recipe fp8.tensorwise)"
expect "BF16 of FP8" " sat on" "$(generated "$delayed" "the cat" --tokens 7 --recipe bf16)"
expect "the checkpoint's folder" " sat on" \
    "$(generated "${run%.tar.zst}.ckpt" "the cat" --tokens 7 --tokenizer bytes)"
[ -d "${run%.tar.zst}.ckpt/step-000060" ] || fail "the folder of checkpoints"
expect "a stop text" " sat on the m" "$(generated "$run" "the cat" --stop "at. t" --stop zzz)"
expect "no tokens" "" "$(generated "$run" "the cat" --tokens 0)"
expect "one longest" "41" "$(($(generated "$run" "the cat" --tokens 99 | wc -c) - 1))"
says "1 of 1 texts ended at the 48 tokens that the model reads" log

# ---- a loop --------------------------------------------------------------------------------------
python3 -c 'open("na.txt", "w").write("na " * 3000)'
sed 's/cat.txt/na.txt/' cat.lua >na.lua
"$FP8LAB" run na.lua --only bf16 --runs na --backend cpu --threads 1 \
    --set train.steps=180 >out 2>log || fail "the run"
na=$(bundle_in na) loop="the text ends in a loop: the same 3 tokens 13 times."
expect "a loop" "$(printf 'na %.0s' {1..13})n" "$(generated "$na" "na " --tokens 40)"
says "$loop Always taking the most likely token often leads there; --temperature 0.8" log
expect "notes" 1 "$(grep -c loop log)"
generated "$na" "na " --tokens 40 --json >/dev/null
says "$loop" log
printf 'na \nna na\n' >nas
generated "$na" --prompts nas --tokens 36 >/dev/null
says "2 of 2 texts end in a loop, the first in the same 3 tokens 12 times." log
generated "$na" "na " --tokens 20 >/dev/null && grep loop log && fail "20 tokens are no loop"
generated "$na" "na " --tokens 40 --temperature 0.8 >/dev/null && grep loop log && fail "a draw"
generated "$run" "the cat" --tokens 36 >/dev/null && grep loop log && fail "no loop"

# ---- draws ---------------------------------------------------------------------------------------
draw() {
    generated "$run" --prompts prompts --tokens 12 --temperature 1.5 --recipe f32 --json "$@"
}
ids() { python3 -c 'import json, sys
print([x["ids"] for x in json.load(sys.stdin)["results"]])'; }
printf 'the cat\n\nsat on the\r\nthe cat\nmat.\n' >prompts
all=$(draw | ids)
expect "four prompts one by one" "$all" "$(draw --batch 1 | ids)"
expect "a batch of three" "$all" "$(draw --batch 3 | ids)"
[ "$all" != "$(draw --seed 7 | ids)" ] || fail "the seed changes nothing"
python3 - "$all" <<'PY' || fail "the same prompt twice has the same draws"
import sys
rows = eval(sys.argv[1])
assert len(rows) == 4 and rows[0] != rows[2], rows
PY
greedy=$(generated "$run" --prompts prompts --tokens 12 --json | ids)
expect "the likeliest alone" "$greedy" "$(generated "$run" --prompts prompts --tokens 12 --json \
    --temperature 9 --top-k 1 | ids)"
expect "a share of almost none" "$greedy" "$(generated "$run" --prompts prompts --tokens 12 \
    --json --temperature 9 --top-p 0.0001 | ids)"
generated "$run" --prompts prompts --tokens 4 >out
says "> sat on the" out
python3 - "$root" <<PY || fail "the keys of --json"
import json, re, sys
page = open("$root/runner/JSON.md")
rows = [x.split("|")[3] for x in page if x.startswith("| \`generate\` |")]
found = json.loads('''$(draw)''')
listed = re.findall(r"\`([a-z_]+)\`", " ".join(rows))
inside = set(found["results"][0])
assert set(listed) == set(found) - {"schema"} | inside, (listed, sorted(found), inside)
PY

# ---- logits --------------------------------------------------------------------------------------
generated "$run" "the cat sat" --tokens 1 --logits l.npy >next
python3 - <<'PY' || fail "--logits"
import struct
data = open("l.npy", "rb").read()
assert data[:8] == b"\x93NUMPY\x01\x00" and b"'shape': (11, 256)" in data[:128]
rows = struct.unpack("<2816f", data[128:])
last = rows[-256:]
assert chr(last.index(max(last))) == open("next").read()[0]
PY

# ---- terminals and pipes -------------------------------------------------------------------------
# Weights of a random model write any byte.
python3 "$root/tests/weights/make_models.py" models llama2
generated models/llama2 hello --tokens 9 --tokenizer bytes >raw
[ "$(LC_ALL=C tr -d '\000-\177' <raw | wc -c)" -gt 0 ] || fail "no byte above 127 in a pipe"
if command -v script >/dev/null; then
    script -qec "'$FP8LAB' generate models/llama2 hello --tokens 9 --tokenizer bytes \
        --backend cpu" /dev/null </dev/null >tty 2>&1
    python3 -c 'open("tty").read()' 2>log || fail "bytes that are no UTF-8 on a terminal"
    says "?" tty
fi

# ---- a tokenizer, and a chat ---------------------------------------------------------------------
run 0 --set checkpoint.every=6 --set checkpoint.keep=1 --set model.seq_len=128 -- "done  step 6"
texts=$(newest runs)
gives 0 generate "$texts" "the loss" --tokens 4 --json --backend cpu --threads 1 -- '"end":'
gives 2 generate "$texts" "the loss" --chat -- "its data were no chats" \
    "--tokenizer names a folder that has one"
mkdir model && cp tokenizer.json "$root/tests/chat/templates/chatml.jinja" model
mv model/chatml.jinja model/chat_template.jinja
printf '{"eos_token": "<|im_end|>", "pad_token": null}\n' >model/tokenizer_config.json
"$FP8LAB" generate "$texts" "hi<|im_end|>" --tokenizer model --chat --tokens 2 --json \
    --backend cpu >chat 2>log || fail "--chat"
"$FP8LAB" generate "$texts" "hi<|im_end|>" --tokens 2 --json --backend cpu >plain 2>log
python3 - <<'PY' || fail "a chat has the template around the prompt"
import json
chat, plain = (json.load(open(f))["results"][0] for f in ("chat", "plain"))
assert chat["prompt_tokens"] > plain["prompt_tokens"] + 5, (chat, plain)
PY

# Several messages: one user's is the same prompt as its text; more are a longer one.
one='{"messages": [{"role": "user", "content": "hi<|im_end|>"}]}'
echo "$one" >talks.jsonl
echo '{"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "yes"}, {"role": "user", "content": "and?"}]}' |
    tr -d '\n' >>talks.jsonl
"$FP8LAB" generate "$texts" --prompts talks.jsonl --tokenizer model --chat --tokens 2 --json \
    --backend cpu >talks 2>log || fail "--chat of conversations"
python3 - <<'PY' || fail "a conversation is rendered by the template"
import json
chat, (one, more) = json.load(open("chat"))["results"][0], json.load(open("talks"))["results"]
assert one["prompt_tokens"] == chat["prompt_tokens"] and one["prompt"].startswith("{"), (chat, one)
assert more["prompt_tokens"] > 2 * one["prompt_tokens"], (one, more)
PY
# The same lines by the other name, behind a BOM.
{ printf '\357\273\277' && cat talks.jsonl; } >talks.ndjson
"$FP8LAB" generate "$texts" --prompts talks.ndjson --tokenizer model --chat --tokens 2 --json \
    --backend cpu >again 2>log || fail "--chat of .ndjson with a BOM"
expect ".ndjson with a BOM" "$(ids <talks)" "$(ids <again)"
gives 2 generate "$texts" a --tokenizer bytes --chat --backend cpu -- "beside bytes" "put one there"
refused() { # LINE WORDS...
    printf '%s\n%s\n' "$one" "$1" >bad.jsonl
    gives 2 generate "$texts" --prompts bad.jsonl --tokenizer model --chat --backend cpu -- "${@:2}"
}
refused '{"messages": [{"role": "user"' "prompt 2: "
refused '{"text": "hi"}' "prompt 2: "
refused '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' \
    "prompt 2: its last message is the assistant's, but the model is to answer"

# ---- the tokens that end a text ------------------------------------------------------------------
ids_of() { "$FP8LAB" generate fake hello --tokens 6 --recipe f32 --json --backend cpu \
    --threads 1 "$@" | ids; }
python3 - "$root" <<'PY'
import sys
sys.path.insert(0, sys.argv[1] + "/tests/weights")
import make_models
make_models.write_model("fake", make_models.llama("llama", "LlamaForCausalLM", vocab_size=700),
                        "F32", 1)
PY
cp tokenizer.json fake
first=$(ids_of 2>log | sed 's/\[\[\([0-9]*\),.*/\1/')
echo "{\"eos_token_id\": [3, $first]}" >fake/generation_config.json
expect "an end in generation_config.json" "[[$first]]" "$(ids_of 2>log)"
expect "--no-end" 6 "$(ids_of --no-end 2>log | tr , '\n' | wc -l)"
echo "[" >fake/generation_config.json
gives 2 generate fake hello --backend cpu --threads 1 -- "fake/generation_config.json: line"

# ---- what is refused -----------------------------------------------------------------------------
gives 2 generate models/llama2 x -- "models/llama2 has no tokenizer.json; --tokenizer"
# Weights that are no numbers: the file, the tensor there, and what to do.
spoil() { # FOLDER TENSOR: makes its element 5 NaN in a copy of models/llama2
    rm -rf "$1" && cp -r models/llama2 "$1"
    python3 - "$1/model.safetensors" "$2" <<'PY'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack("<Q", data[:8])[0]
x = json.loads(data[8:8 + n])[sys.argv[2]]
size = {"F32": 4, "F16": 2, "BF16": 2}[x["dtype"]]
at = 8 + n + x["data_offsets"][0] + 5 * size
data[at:at + size] = b"\xff" * size
open(sys.argv[1], "wb").write(data)
PY
}
nan="is NaN, so the model computes no number"
for tensor in model.layers.0.self_attn.q_proj.weight model.norm.weight; do
    spoil spoilt $tensor
    "$FP8LAB" generate spoilt hello --tokenizer bytes --backend cpu --threads 1 >out 2>log
    expect "exit code of $tensor" 1 $?
    says "spoilt/model.safetensors: element 5 of $tensor $nan"
    says "The weights are damaged, or their training diverged: take another copy of them"
done
gives 2 generate "$run" -- "expected one prompt, or --prompts FILE"
gives 2 generate "$run" --prompt "the cat" -- \
    "generate has no flag --prompt; it is an argument: fp8lab generate RUN|DIR [PROMPT]"
gives 2 generate "$run" --prompts "the cat" -- "--prompts the cat: there is no such file" \
    'a prompt itself is an argument: fp8lab generate RUN "PROMPT"'
gives 2 generate "$run" x --prompts prompts -- "expected one prompt, or --prompts FILE"
gives 2 generate "$run" "$(printf 'x%.0s' {1..48})" -- "has 48 tokens; the model reads 48, so 47"
whole=$(printf 'x%.0s' {1..48}) # without a new token a prompt may be as long as a sequence
gives 2 generate "$run" "${whole}x" --tokens 0 -- "has 49 tokens; the model reads 48, so 48 at most"
gives 0 generate "$run" "$whole" --tokens 0 --logits whole.npy --backend cpu --threads 1 --
grep -aqF "'shape': (48, 256)" whole.npy || fail "the logits of a whole sequence"
gives 2 generate "$run" x --temperature hot -- "--temperature: expected a number from 0 to 100"
gives 2 generate "$run" x --top-p 2 -- "--top-p: expected a number from 0 to 1"
for flag in "top-k 5" "top-p 0.9" "seed 7"; do
    # shellcheck disable=SC2086  # words
    gives 2 generate "$run" x --$flag -- "--${flag% *} is about draws, and without --temperature"
done
gives 2 generate "$run" x --recipe int4 -- "there is no recipe int4: expected f32, bf16"
gives 2 generate "$run" x --recipe fp8.delayed -- "earlier training steps" "fp8.tensorwise"
gives 2 generate "$run" x --recipe f32 --backend cuda -- "the recipe f32 runs on the CPU"
gives 2 generate "$run" --prompts prompts --logits l.npy -- "--logits is for one prompt"
gives 2 generate cat.txt x -- "cat.txt"
"$FP8LAB" extract "$run" --to open >out 2>&1 || fail "extract"
rm open/*manifest*
gives 2 generate open x -- "is not closed" "one of its checkpoints: open/data/checkpoints/step-"
gives 2 generate nothing x -- "nothing is neither a path nor the beginning of a run's id"
printf '\n\n' >none && gives 2 generate "$run" --prompts none -- "none has no prompt"
gives 2 generate "$texts" "$(printf 'x\xff')" --tokenizer model --chat -- "is not UTF-8"
gives 2 generate "$run" x --logits absent/l.npy -- "absent/l.npy: there is no folder absent"
cp l.npy kept.npy && echo mine >notes
for other in notes /dev/null .; do
    gives 2 generate "$run" x --logits $other -- "--logits $other: " "and stays as it is; name"
done
expect "a file of another kind" mine "$(cat notes)"
gives 0 generate "$run" x --logits kept.npy --backend cpu --threads 1 --
sed 's/text { "cat.txt" }/synthetic {}/; s/steps = 60/steps = 2/; s/every = 60/every = 2/' \
    cat.lua >synthetic.lua
gives 0 run synthetic.lua --only bf16 --backend cpu --threads 1 -- "done  step 2"
gives 2 generate last x -- "the run's data are synthetic, not text" "--tokenizer names"
exit $failed
