#!/bin/bash
# tier: long
# sample = { ... }: a run with samples has the bits of one without; texts are those of `generate`;
# they repeat after a resume and on two ranks; what `show` prints; tokenizers, chats; bad prompts.
set -u
. "$PWD/tests/cli/lib.sh"
. "$root/tests/support/text.sh"
python3 -c 'open("cat.txt", "w").write("the cat sat on the mat. " * 400)'
cat >s.lua <<'END'
local function row(name, recipe, sample) return experiment { name = name, recipe = recipe,
  model = { vocab = 256, seq_len = 48, layers = 2, width = 32, heads = 2, ffn = 64, tied = true },
  data = text { "cat.txt" }, sample = sample, eval = { every = 30, batches = 2 },
  train = { steps = 60, global_batch = 4, micro_batch = 2, optimizer = adamw { lr = 0.01 } },
  checkpoint = { every = 20 } } end
local sample = { every = 25, prompts = { "the cat", "mat. ", "on" }, tokens = 12 }
return suite { name = "s", row("bf16", bf16), row("bf16s", bf16, sample),
  row("delayed", fp8.delayed { history = 4 }),
  row("delayeds", fp8.delayed { history = 4 }, sample) }
END
"$FP8LAB" run s.lua --backend cpu --threads 1 >out 2>log || fail "the runs"
bundle() { ls runs/*-"$1"-*.tar.zst | head -1; }
of() { field "$(bundle "$1")" 'run["results_sha256"], run["final_weights_sha256"]'; }
samples() { tar --zstd -xOf "$1" --wildcards '*/metrics/samples.jsonl'; }
for kind in bf16 delayed; do
    expect "$kind: results and weights" "$(of $kind)" "$(of "${kind}s")"
    samples "$(bundle "${kind}s")" >"$kind.jsonl"
    expect "$kind: records" 9 "$(wc -l <"$kind.jsonl")"
done
gives 0 show "$(bundle bf16s)" -- "sample         step 60: the cat |  sat on the " "step 60: on |"
gives 0 verify "$(bundle bf16s)" -- valid
gives 0 show "$(bundle bf16)" --json -- '"samples":[]'
gives 0 compare "$(bundle bf16)" "$(bundle bf16s)" -- "equal bit for bit" "no factor"
tar --zstd -xOf "$(bundle bf16s)" --wildcards '*/runner.log' >log.run
says "samples after step 25" log.run
# The kept checkpoint gives the last samples, also with scales of earlier steps.
for kind in bf16 delayed; do
    printf 'the cat\nmat. \non\n' >prompts
    "$FP8LAB" generate "$(bundle "${kind}s")" --prompts prompts --batch 2 --tokens 12 --json \
        --backend cpu >now 2>log || fail "generate $kind"
    python3 - "$kind.jsonl" <<'PY' || fail "$kind: generate gives other texts"
import json, sys
last = [json.loads(line) for line in open(sys.argv[1])][-3:]
now = json.load(open("now"))["results"]
assert [x["ids"] for x in last] == [x["ids"] for x in now], (last, now)
assert [x["text"] for x in last] == [x["text"] for x in now]
assert [x["step"] for x in last] == [60] * 3 and last[0]["text"] == " sat on the "
PY
done

# ---- stopped and resumed; two ranks; the same again ----------------------------------------------
sed 's/^return suite.*/return row("one", fp8.tensorwise, sample)/; /^  row(/d' s.lua >one.lua
one() { "$FP8LAB" run one.lua --backend cpu --threads 1 "$@" >out 2>log; }
more=(--set train.steps=400 --set sample.every=150 --set sample.tokens=3 --set checkpoint.every=20)
one --runs whole "${more[@]}" || fail "400 steps"
"$FP8LAB" run one.lua --backend cpu --threads 1 --runs halves "${more[@]}" >out 2>log &
await_step halves 160
kill -KILL "$(children_of "$(runner_of halves)")"
wait $!
expect "killed" 1 $?
"$FP8LAB" run --resume halves/*/ --backend cpu --threads 1 >out 2>log || fail "resume"
samples "$(newest whole)" >whole.jsonl
expect "whole: records" 9 "$(wc -l <whole.jsonl)"
samples "$(newest halves)" | cmp - whole.jsonl || fail "samples after a resume"
# A stop request ends the texts of its step. With samples after each step it always meets some.
often=(--set train.steps=300 --set sample.every=1 --set sample.tokens=3
    --set checkpoint.every=1000)
for gpus in 1 2; do
    rm -rf whole halves
    one --runs whole "${often[@]}" --set hardware.gpus=$gpus || fail "300 samples"
    "$FP8LAB" run one.lua --backend cpu --threads 1 --runs halves "${often[@]}" \
        --set hardware.gpus=$gpus >out 2>log &
    await_step halves 20
    kill -TERM "$(runner_of halves)"
    wait $!
    expect "exit code of a stop, $gpus ranks" 143 $?
    step=$(ls -d halves/*/data/checkpoints/step-* | tail -1 | sed 's/.*step-0*//')
    [ "$(wc -l <"$(ls halves/*/data/metrics/samples.jsonl)")" -lt $((3 * step)) ] ||
        fail "a stop waits for the samples of step $step"
    "$FP8LAB" run --resume halves/*/ --backend cpu --threads 1 >out 2>log || fail "resume"
    samples "$(newest whole)" >whole.jsonl
    samples "$(newest halves)" | cmp - whole.jsonl || fail "samples after a stop, $gpus ranks"
    expect "weights after a stop" "$(field "$(newest whole)" 'run["final_weights_sha256"]')" \
        "$(field "$(newest halves)" 'run["final_weights_sha256"]')"
done
one --runs two --set hardware.gpus=2 || fail "two ranks"
expect "two ranks: records" 9 "$(samples "$(newest two)" | wc -l)"
one --runs greedy || fail "greedy"
samples "$(newest greedy)" >greedy.jsonl
one --runs drawn --set sample.temperature=1.2 --set sample.seed=5 || fail "draws"
samples "$(newest drawn)" >drawn.jsonl
cmp -s drawn.jsonl greedy.jsonl && fail "a temperature changes nothing"
gives 0 repro "$(newest drawn)" --runs again --backend cpu --threads 1 -- "bitwise equal"
samples "$(newest again)" | cmp - drawn.jsonl || fail "repro has other samples"
one --runs off --set sample=false || fail "sample = false"
samples "$(newest off)" 2>/dev/null | grep -q . && fail "samples although they are off"
one --smoke --runs smoke || fail "--smoke"

# ---- tokenizers and chats ------------------------------------------------------------------------
sed 's/eval = .*/sample = { every = 3, prompts = { "the loss" }, tokens = 5 },/' texts.lua >x.lua
gives 0 run x.lua --lib "$lib" --threads 1 --backend cpu -- "done  step 6"
gives 0 show last -- "step 6: the loss |"
mkdir model && cp tokenizer.json "$root/tests/chat/templates/chatml.jinja" model
mv model/chatml.jinja model/chat_template.jinja
printf '{"eos_token": "<|im_end|>", "pad_token": null}\n' >model/tokenizer_config.json
python3 - <<'PY'
import json
with open("talks.jsonl", "w") as f:
    for i in range(80):
        f.write(json.dumps({"messages": [{"role": "user", "content": f"say {i}"},
                                         {"role": "assistant", "content": "the loss"}]}) + "\n")
PY
sed 's|  data = text .*|  data = chats { "talks.jsonl", tokenizer = "model/" },|
     s/seq_len = 32/seq_len = 128/' x.lua >chats.lua
gives 0 run chats.lua --lib "$lib" --threads 1 --backend cpu --set checkpoint.every=6 -- \
    "done  step 6"
gives 0 generate "$(newest runs)" "the loss" --chat --tokens 5 --backend cpu --json -- "$(samples \
    "$(newest runs)" | tail -1 | python3 -c 'import json, sys
print(json.dumps(json.load(sys.stdin)["ids"], separators=(",", ":")))')"
samples "$(newest runs)" | python3 -c 'import json, sys
rows = [json.loads(line) for line in sys.stdin]
assert len(rows) == 2 and rows[0]["prompt_tokens"] > 15, rows' || fail "a chat has its template"

# ---- prompts of token ids, also where no tokenizer could read a text ----------------------------
ids='{ { 116, 104, 101, 32, 99, 97, 116 }, "mat. ", { 111, 110 } }'
sed "s/prompts = {[^}]*}/prompts = $ids/" \
    one.lua >ids.lua
"$FP8LAB" run ids.lua --backend cpu --threads 1 --runs ids >out 2>log || fail "prompts of ids"
samples "$(newest ids)" >ids.jsonl
python3 - <<'PY' || fail "ids are other texts than their text"
import json
texts, ids = ([json.loads(x) for x in open(f)] for f in ("greedy.jsonl", "ids.jsonl"))
assert [x["text"] for x in texts] == [x["text"] for x in ids], (texts, ids)
assert ids[0]["prompt"] == list(b"the cat") and ids[1]["prompt"] == "mat. "
PY
sed 's/"mat. ", //; s/data = text { "cat.txt" }/data = synthetic/' ids.lua >synthetic.lua
"$FP8LAB" run synthetic.lua --backend cpu --threads 1 --runs syn --set train.steps=4 \
    --set sample.every=2 --set hardware.gpus=2 >out 2>log || fail "samples of synthetic data"
samples "$(newest syn)" | python3 -c 'import json, sys
rows = [json.loads(x) for x in sys.stdin]
assert len(rows) == 4 and all(x["text"] is None and len(x["ids"]) == 12 for x in rows), rows' ||
    fail "records without a tokenizer"
gives 0 show "$(newest syn)" -- "step 4: 111 110 | "
gives 0 verify "$(newest syn)" -- valid
sed 's/111, 110/111, 256/' ids.lua >bad.lua
"$FP8LAB" run bad.lua --backend cpu --runs bad >out 2>log && fail "an id that the model lacks"
says "sample.prompts[3]: it has the token 256, but the model has tokens 0 to 255" log
sed 's/111, 110/111, -1/' ids.lua >bad.lua
gives 2 check bad.lua -- "sample.prompts[3][2]: expected an integer from 0 to 16777215"

# ---- token shards: the tokenizer that their description names, or one of the script -------------
"$FP8LAB" data tokenise --to shards --tokenizer tokenizer.json data/a.jsonl >out 2>&1 || fail shards
sed 's|  data = text .*|  data = tokens { path = "shards.bin" },|' x.lua >shards.lua
shards() { "$FP8LAB" run shards.lua --lib "$lib" --threads 1 --backend cpu "$@" >out 2>log; }
shards --runs shards.d --set checkpoint.every=6 || fail "text prompts for shards"
made=$(newest shards.d)
samples "$made" >described.jsonl
python3 -c 'import json
rows = [json.loads(x) for x in open("described.jsonl")]
assert len(rows) == 2 and all(x["text"] and len(x["ids"]) == 5 for x in rows), rows' ||
    fail "samples of shards"
gives 0 generate "$made" "the loss" --tokens 5 --backend cpu --json -- "$(tail -1 \
    described.jsonl | python3 -c 'import json, sys
print(json.dumps(json.load(sys.stdin)["ids"], separators=(",", ":")))')"
mv tokenizer.json away.json
gives 0 repro "$made" --runs again2 --backend cpu --threads 1 -- "bitwise equal"
samples "$(newest again2)" | cmp - described.jsonl || fail "repro takes the bundle's tokenizer"
shards --runs bad && fail "the tokenizer is gone"
says "the tokenizer of sample, named by shards.json" log
python3 - <<'PY'
import json
t = json.load(open("away.json"))
vocab = t["model"]["vocab"]
first, second = list(vocab)[-2:]
vocab[first], vocab[second] = vocab[second], vocab[first]
json.dump(t, open("tokenizer.json", "w"))
PY
shards --runs bad && fail "another tokenizer"
says "made the tokens; sample = { tokenizer = " log
shards --runs named --set sample.tokenizer=away.json || fail "sample.tokenizer"
samples "$(newest named)" | cmp - described.jsonl || fail "the same tokenizer by name"
mv shards.json other.json
shards --runs bad && fail "no tokenizer"
says "sample.prompts[1] is text, and shards.json names no tokenizer; write sample = " log
shards --runs named --set sample.tokenizer=bytes || fail "bytes"
mv away.json tokenizer.json
gives 2 check x.lua --lib "$lib" --set sample.tokenizer=bytes -- "has a tokenizer of its own"

# ---- what is refused -----------------------------------------------------------------------------
long=$(printf 'x%.0s' {1..48})
one --runs bad --set "sample.prompts=$long" && fail "a prompt that is too long"
says "sample.prompts[1]: it has 48 tokens, and model.seq_len 48 must leave room" log
gives 2 check one.lua --set data=synthetic -- "has no tokenizer that could read a prompt" \
    "sample = false"
sed 's/prompts = {[^}]*}/prompts = 3/' one.lua >none.lua
gives 2 check none.lua -- "expected a list of texts"
sed 's/prompts = {[^}]*}, //' one.lua >none.lua
gives 2 check none.lua -- "'prompts' is missing"
gives 2 check one.lua --set sample.every=0 -- "sample.every"
exit $failed
