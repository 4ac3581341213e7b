#!/bin/bash
# eval.also: further sets change no bit of training; their losses are recorded, the same after a
# resume and in a repetition, and those of `eval --data`; wrong files are named.
set -u
. "$PWD/tests/cli/lib.sh"
shown="out log"
mkdir code
seq 1 400 >own.txt
seq 1000 1040 >code/a.txt
seq 2000 2020 >code/b.txt
seq 3000 3030 >law.txt
cat >t.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "t", model = tiny.llama { layers = 1, seq_len = 32, width = 32, heads = 2, ffn = 64 },
  recipe = fp8.tensorwise, data = text { "own.txt" },
  train = { steps = 40, global_batch = 2, micro_batch = 2, optimizer = adamw { lr = 1e-2 } },
  eval = { every = 4, batches = 8, also = { law = "law.txt", code = "code/*.txt" } },
  checkpoint = { every = 2 },
}
LUA
sed 's/, also = { .* } },$/ },/' t.lua >alone.lua
train() { "$FP8LAB" run "$@" --lib "$lib" --backend cpu --threads 1 >out 2>log || fail "run $*"; }
train t.lua --runs with
train alone.lua --runs without
with=$(bundle_in with) without=$(bundle_in without)
for runs in with without; do
    mkdir -p at/$runs && tar --zstd -xf "$(bundle_in $runs)" -C at/$runs --strip-components 1
done

# ---- the records ---------------------------------------------------------------------------------
python3 - at/with/data at/without/data >losses <<'PY' || fail "the records"
import json, struct, sys
def lines(folder, name, keys):
    return [[json.loads(line)[k] for k in keys] for line in open(f"{folder}/metrics/{name}.jsonl")]
a, b = sys.argv[1:]
for name, keys in (("train", ("loss_bits", "grad_norm_bits")), ("eval", ("step", "loss_bits"))):
    assert lines(a, name, keys) == lines(b, name, keys), name
runs = [json.load(open(f"{folder}/run.json")) for folder in (a, b)]
assert runs[0]["final_weights_sha256"] == runs[1]["final_weights_sha256"]
assert runs[0]["inputs"]["data"] == runs[1]["inputs"]["data"] and "also" not in runs[1]["inputs"]
files = [(f["path"], f.get("set")) for f in json.load(open(f"{a}/experiment/data.json"))]
assert files == [("own.txt", None), ("code/a.txt", "code"), ("code/b.txt", "code"),
                 ("law.txt", "law")], files
names = json.load(open(f"{a}/metrics/eval_sets.json"))
assert names == ["code", "law"], names
raw = open(f"{a}/metrics/eval_sets.npy", "rb").read()
head = 10 + struct.unpack("<H", raw[8:10])[0]
rows = list(struct.iter_unpack("<q2I2q2q", raw[head:]))
assert [r[0] for r in rows] == list(range(4, 41, 4)), rows
assert rows[-1][3:] == (320, 160, 309, 154), rows[-1]
print("%08x %08x" % rows[-1][1:3])
PY
read -r code law <losses
loss() { # FILES...: of `eval --data`
    set -- "${@/#/--data=}"
    "$FP8LAB" eval "$with" "$@" --json --threads 1 2>log |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["loss_bits"])'
}
expect "eval --data of law" "$law" "$(loss law.txt)"
expect "eval --data of code" "$code" "$(loss code/a.txt code/b.txt)"
expect "the run's own data" "$(tail -1 at/with/data/metrics/eval.jsonl |
    sed 's/.*"loss_bits":"\(.*\)","step.*/\1/')" "$(loss)"

gives 0 show "$with" -- "  eval set       code: " "on 309 tokens" "  eval set       law: "
gives 0 verify "$with" -- "valid"
gives 0 log "$with" -- "further sets after step 40: code "
gives 0 watch "$with" --json -- "eval_sets" '"code"'
events=$(ls at/with/data/tensorboard/*)
expect "tags of TensorBoard" "code/loss law/loss" \
    "$(grep -ao 'eval_sets/[a-z]*/[a-z_]*' "$events" | sort -u | cut -d/ -f2- | tr '\n' ' ' |
        sed 's/ $//')"
expect "eval_sets of the summary" "40 $law" \
    "$(field "$with" '"{step} {loss_bits}".format(**summary["eval_sets"]["law"])')"

# ---- again ---------------------------------------------------------------------------------------
gives 0 repro "$with" --exact --threads 1 --runs again -- "bitwise equal"
"$FP8LAB" run t.lua --lib "$lib" --backend cpu --threads 1 --runs cut >out 2>log &
await_step cut 6
kill -TERM $! && wait $!
"$FP8LAB" run --resume "$(ls -d cut/*/ | head -1)" --threads 1 >out 2>log || fail "the resumed run"
expect "results of the resumed run" "$(field "$with" 'run["results_sha256"]')" \
    "$(field "$(bundle_in cut)" 'run["results_sha256"]')"

# ---- wrong files ---------------------------------------------------------------------------------
wrong() { # KEY=VALUE WORDS...
    local set=$1
    shift
    gives 2 run t.lua --lib "$lib" --set "$set" --runs none -- "$@"
}
ln own.txt link.txt
ln -s code/b.txt symbolic.txt
: >empty.txt && : >none.txt
wrong eval.also.law=code/b.txt "eval.also.law: code/b.txt is named twice, first in eval.also.code"
wrong "eval.also.law=o*.txt" "eval.also.law: own.txt is also among the run's own data"
wrong eval.also.law=link.txt "eval.also.law: link.txt is also among the run's own data"
wrong eval.also.law=symbolic.txt "symbolic.txt is named twice, first in eval.also.code"
gives 2 check t.lua --lib "$lib" --set eval.also.law=link.txt -- "link.txt is also among the run's"
cp own.txt copy.txt
cp code/b.txt copy_b.txt
wrong eval.also.law=copy.txt "eval.also.law: copy.txt is a copy of own.txt, which is among"
wrong eval.also.law=copy_b.txt "copy_b.txt is a copy of code/b.txt, which is in eval.also.code"
wrong eval.also.law=empty.txt "eval.also.law: empty.txt: 0 tokens"
wrong "eval.also.law=x*.txt" 'eval.also.law: no file matches "x*.txt"'
wrong eval.also.law=code "eval.also.law: code is a folder"
wrong eval.also.law=no.txt "eval.also.law: open no.txt"
gives 0 check t.lua --lib "$lib" --set eval.also.law=no.txt -- "eval.also.law: open no.txt"
[ ! -e none ] || fail "a run was made"

# ---- text that becomes tokens, several ranks -----------------------------------------------------
last() { # RUNS: the losses of the last step
    mkdir -p "at/$1" && tar --zstd -xf "$(bundle_in "$1")" -C "at/$1" --strip-components 1
    python3 -c 'import struct, sys
print(*struct.unpack("<q2f2q2q", open(sys.argv[1], "rb").read()[-48:])[1:3])' \
        "at/$1/data/metrics/eval_sets.npy"
}
tokens="--set data.tokenizer=bytes"
# shellcheck disable=SC2086  # two words
train t.lua --runs text $tokens
text=$(bundle_in text)
set -- $(last text)
found=$("$FP8LAB" eval "$text" --data law.txt --json --threads 1 2>log |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["loss"])')
expect "eval --data of text" "$2" "$found"
rm -r text/cache
gives 0 repro "$text" --exact --threads 1 --runs again --cache other -- "tokenising 2 files" \
    "bitwise equal"
gives 2 run t.lua --lib "$lib" $tokens --set data.paths=law.txt,none.txt,own.txt \
    --set eval.also.law=empty.txt,copy.txt --runs none -- \
    "eval.also.law: copy.txt is a copy of own.txt, which is among the run's own data"
gives 2 run t.lua --lib "$lib" $tokens --set eval.also.law=copy_b.txt --runs none -- \
    "eval.also.law: copy_b.txt is a copy of code/b.txt, which is in eval.also.code"
tr 1-9 9 <own.txt >even.txt # of as many tokens: shards have equal indices
train t.lua --runs even $tokens --set eval.also.law=even.txt
gives 2 run t.lua --lib "$lib" $tokens --set eval.also.law=no.txt --runs none -- \
    "eval.also.law: open no.txt"
"$FP8LAB" data tokenise own.txt --tokenizer bytes --to own >out 2>log || fail "own.bin"
for end in bin idx; do ln own.$end link.$end; done
sed 's/text { .* },/tokens { path = "own.bin", format = "megatron" },/; s/ffn = 64/&, vocab = 256/
     s/also = { .* } },$/also = { law = "link.bin" } },/' t.lua >shards.lua
gives 2 check shards.lua --lib "$lib" -- "eval.also.law: link is also among the run's own data"
mv law.txt away.txt
gives 0 eval "$text" --threads 1 --cache other -- "loss"
gives 0 eval "$with" --threads 1 -- "loss"
gives 3 repro "$with" --threads 1 --runs again -- "law.txt"
mv away.txt law.txt
train t.lua --runs ranks --set hardware.gpus=2 --set train.micro_batch=1
python3 -c 'import sys
a = [float(x) for x in sys.argv[1:]]
assert all(abs(x - y) < 0.05 * x for x, y in zip(a[:2], a[2:])), a' $(last with) $(last ranks) ||
    fail "the losses of two ranks"
exit $failed
