#!/bin/bash
# advise: what it says about runs that are damaged, that learned nothing, and of FP8 attention. The
# rule itself: tests/bundle/test_evidence.c.
set -u
. "$PWD/tests/cli/lib.sh"
facts=$root/tests/facts/h200.json

script() { # NAME KEYS: a suite of three seeds, a step each
    cat >"$1.lua" <<LUA
local tiny = require "models.tiny"
return suite {
  name = "$1", model = tiny.llama { layers = 1, seq_len = 16 }, data = synthetic, $2
  train = { steps = 1, global_batch = 1 }, eval = { every = 1, batches = 1 },
}
LUA
}
advise() { # NAME ARGUMENTS... -- WORDS...
    gives 0 advise "$1.lua" --lib "$lib" --runs runs --facts "$facts" "${@:2}"
}
json() { # NAME ARGUMENTS...
    "$FP8LAB" advise "$1.lua" --lib "$lib" --runs runs --facts "$facts" --json "${@:2}" \
        >out 2>log || fail "exit code $?"
}
loss() { # EXPRESSION: of the row of fp8.delayed in `out`
    python3 -c 'import json, sys
o = json.load(open("out"))
x = [row["loss"] for row in o["rows"] if row["recipe"] == "fp8.delayed"][0]
sys.exit(not eval(sys.argv[1]))' "$1" || fail "not so: $1"
}

case_name="runs that learned nothing"
script plain 'matrix = { recipe = { bf16, fp8.delayed }, seed = { 1, 2, 3 } },'
gives 0 run plain.lua --lib "$lib" --runs runs --threads 1 -- \
    "no verdict: the baseline has learned nothing: its mean loss is 5.5"
advise plain --detail -- "compare says: the baseline has learned nothing: its mean loss is 5.5" \
    " % to bf16, at most " ", 3 seeds, after 16 tokens); compare says"
json plain --set data.seed=7 --set train.steps=2
loss 'o["runs"] == 6 and o["runs_unreadable"] == 0 and o["unreadable"] == []'
loss 'x["verdict"] == "not judged" and x["baseline"] == "bf16" and x["tokens"] == 16'
loss 'x["other_data"] and x["other_training"]'
json plain
loss 'not x["other_data"] and not x["other_training"]'

case_name="a damaged run" # is named; the others are compared
damaged=$(newest runs)
tar --zstd -xf "$damaged" -C runs && rm "$damaged"
echo '{}' >>"${damaged%.tar.zst}/data/metrics/eval.jsonl"
advise plain -- "Loss: bf16 is what the others are compared with (1 run could not be read)." \
    "no evidence about the loss: ${damaged%.tar.zst}"
json plain
loss 'o["runs"] == 5 and o["runs_unreadable"] == 1 and o["runs_problem"] == ""'
loss 'len(o["unreadable"]) == 1 and "eval.jsonl" in o["unreadable"][0]'

case_name="initial weights" # by content, not by path
script parent 'recipe = bf16, archive = "weights",'
gives 0 run parent.lua --lib "$lib" --runs parents --threads 1 --
gives 0 export "$(newest parents)" --to w --
script child 'matrix = { recipe = { bf16, fp8.delayed }, seed = { 1, 2, 3 } }, init = "w",'
gives 0 run child.lua --lib "$lib" --runs children --threads 1 --
child() { # ARGUMENTS...
    "$FP8LAB" advise child.lua --lib "$lib" --runs children --facts "$facts" --json "$@" \
        >out 2>log || fail "exit code $?"
}
child
loss 'x["baseline"] == "bf16" and not x["other_training"]'
mv w moved
child
loss 'not x["other_training"]'
says "so runs count as begun with the same weights if init.from is the same" log
child --set init=moved
loss 'not x["other_training"]'
gives 0 run parent.lua --lib "$lib" --runs others --threads 1 --set train.seed=9 --
gives 0 export "$(newest others)" --to w --
child
loss 'x["other_training"]'

case_name="FP8 attention" # which BF16 does not define
script attention 'recipe = fp8.delayed, attention = { precision = "fp8" },'
advise attention -- 'a suite of fp8.delayed with attention.precision "bf16" and "fp8", three' \
    ' seeds each, and factor = "attention.precision=bf16" does'
script both 'recipe = fp8.delayed, factor = "attention.precision=bf16",
  matrix = { ["attention.precision"] = { "bf16", "fp8" }, seed = { 1, 2, 3 } },'
gives 0 run both.lua --lib "$lib" --runs runs --threads 1 -- "only in attention.precision"
advise attention --detail -- " % to fp8.delayed with attention in BF16, at most "
exit $failed
