#!/bin/bash
# The loss of a guess by frequencies: run.json has it, and a baseline that reaches no more than it
# gets no verdict. The text has two letters in turn, so a guess has ln 2, and a smoothed count of
# 2560 targets -ln((1280 + 1) / (2560 + 256)) = 0.7877.
set -u
. "$PWD/tests/cli/lib.sh"
cd "$TEST_TMP" || exit 1
lib=$root/experiments/lib
python3 -c 'print("ab" * 20000, end="")' >letters.txt

script() { # FILE RATE EVAL
    cat >"$1.lua" <<LUA
local tiny = require "models.tiny"
return suite {
  name = "$1", matrix = { recipe = { bf16, fp8.delayed }, seed = { 1, 2, 3 } },
  model = tiny.llama { vocab = 256, seq_len = 32, layers = 1 },
  data = text { paths = { "letters.txt" }, holdout = 0.1 },
  train = { steps = 20, global_batch = 4, micro_batch = 4,
            optimizer = adamw { lr = $2 }, schedule = constant { warmup = 0 } },
  eval = $3,
}
LUA
}
figure() { # NAME: guess_loss of the newest run of that suite
    local bundle
    bundle=$(ls -t "runs-$1"/*.tar.zst | head -1)
    tar --zstd -xOf "$bundle" --wildcards '*/data/run.json' |
        python3 -c 'import json, sys; print("%.4f" % json.load(sys.stdin).get("guess_loss", -1))'
}

case_name="a model that only counts" # its loss is below a uniform guess's, and above the letters'
script few 3e-4 '{ every = 20, batches = 2 }'
"$FP8LAB" run few.lua --lib "$lib" --runs runs-few --threads 1 --backend cpu >out 2>&1 ||
    fail "exit code $?"
expect "guess_loss" 0.7877 "$(figure few)"
says "no verdict: the baseline has learned less than how often each token occurs: its" out
says ", and a guess by the frequencies in training has 0.787" out
gives 0 advise few.lua --lib "$lib" --runs runs-few --facts "$root/tests/facts/h200.json" --detail \
    -- "compare says: the baseline has learned less than" "; train longer; "
grep -q ';;' out && fail "advise: two semicolons"

case_name="a model that knows which letter follows"
script more 3e-3 '{ every = 20, batches = 2 }'
"$FP8LAB" run more.lua --lib "$lib" --runs runs-more --threads 1 --backend cpu >out 2>&1 ||
    fail "exit code $?"
! grep -q "baseline has learned" out || fail "a trained baseline has learned nothing"

case_name="no evaluation"
script none 3e-4 false
"$FP8LAB" run none.lua --lib "$lib" --runs runs-none --threads 1 --backend cpu >out 2>&1 ||
    fail "exit code $?"
expect "no figure" -1.0000 "$(figure none)"
exit "$failed"
