#!/bin/bash
# tier: long
# init = { from = RUN, optimizer = true }: the bits of a run that goes on; another recipe, number of
# ranks and micro-batch; restart; a kill before the first checkpoint; repro; what is refused.
set -u
. tests/cli/lib.sh
experiment() { # NAME RECIPE STEPS [KEYS] [TRAIN KEYS]: writes NAME.lua
    cat >"$1.lua" <<END
return experiment { name = "$1", recipe = $2, data = text { "$root/README.md", holdout = 0.2 },
  model = { vocab = 256, seq_len = 32, layers = 2, width = 64, heads = 4, ffn = 96 },
  train = { steps = $3, global_batch = 4, optimizer = adamw { lr = 3e-3 }, ${5:-} },
  eval = { every = 4, batches = 8 }, checkpoint = { every = 4, keep = 1 }, ${4:-} }
END
}
cases=0
run_it() { # NAME ARGS...: exit code in $code, its bundle in $bundle; each in a folder of its own
    cases=$((cases + 1))
    "$FP8LAB" run "$1.lua" --backend cpu --threads 1 --runs "runs$cases" "${@:2}" >out 2>log
    code=$?
    bundle=$(bundle_in "runs$cases")
}
extend() { # BUNDLE STEPS: the extended run in $extended
    cases=$((cases + 1))
    "$FP8LAB" run --extend "$1" --set "train.steps=$2" --backend cpu --threads 1 \
        --runs "runs$cases" >out 2>log || fail "--extend"
    extended=$(bundle_in "runs$cases")
}
weights() { field "$1" 'run["final_weights_sha256"]'; }
first_loss() { # BUNDLE: "STEP LOSS" of its first record
    "$FP8LAB" extract "$1" --to first.d >out 2>&1 || fail "extract"
    head -1 first.d/data/metrics/train.jsonl |
        python3 -c 'import json, sys; o = json.load(sys.stdin); print(o["step"], o["loss"])'
    rm -r first.d
}
near() { # WHAT WANTED FOUND BOUND
    python3 -c 'import sys; a, b, bound = map(float, sys.argv[1:]); sys.exit(abs(a - b) > bound)' \
        "$2" "$3" "$4" || fail "$1: wanted $2 to $4, found $3"
}

for recipe in bf16 fp8.delayed; do
    case_name=$recipe
    experiment p $recipe 4
    run_it p
    parent=$bundle
    extend "$parent" 8
    experiment q $recipe 8 "init = { from = \"$parent\", optimizer = true }"
    run_it q --set checkpoint.init=true
    expect "exit code" 0 $code
    expect "weights" "$(weights "$extended")" "$(weights "$bundle")"
    expect "the first state is kept too" "[(4, ['init']), (8, ['last'])]" \
        "$(field "$bundle" '[(row["step"], row["as"]) for row in run["kept"]]')"
    for file in model state; do
        cmp "${parent%.tar.zst}.ckpt/step-000004/$file.safetensors" \
            "${bundle%.tar.zst}.ckpt/step-000004/$file.safetensors" || fail "it is not the parent's"
    done
    same=$bundle
done
case_name=
gives 0 show "$same" -- "weights and moments of step 4 of"
gives 0 repro "$same" --threads 1 -- "bitwise equal"
expect "the first step" "5" "$(first_loss "$same" | cut -d' ' -f1)"

# Another recipe, type of moments, number of ranks, micro-batch: the loss of the parent's weights.
for pair in "bf16 fp8.delayed" "bf16 fp8.blockwise" "fp8.tensorwise bf16"; do
    read -r from to <<<"$pair"
    case_name="$from to $to"
    experiment p "$from" 4
    run_it p
    parent=$bundle
    extend "$parent" 5
    wanted=$(field "$extended" 'summary["loss_final"]') # of step 5
    experiment q "$to" 6 "init = { from = \"$parent\", optimizer = true },
      hardware = { gpus = 2 }" 'micro_batch = 2, shard = "parameters",'
    run_it q --set train.optimizer.state=8bit
    expect "exit code" 0 $code
    near "loss" "$wanted" "$(first_loss "$bundle" | cut -d' ' -f2)" 0.01
done
case_name=

# restart: steps from 1; a run without optimizer = true differs.
experiment r bf16 6 "init = { from = \"$parent\", optimizer = true, restart = true }"
run_it r
expect "the first step of a restart" 1 "$(first_loss "$bundle" | cut -d' ' -f1)"
restarted=$(weights "$bundle")
experiment r bf16 6 "init = \"$parent\""
run_it r
[ "$restarted" != "$(weights "$bundle")" ] || fail "the moments made no difference"
gives 2 run r.lua --set init.restart=true -- "init.restart: without optimizer = true"

# A run that began so is extended with the same bits. The state may be in the bundle alone.
experiment r bf16 6 "init = { from = \"$parent\", optimizer = true, restart = true }"
run_it r
extend "$bundle" 9
experiment r bf16 9 "init = { from = \"$parent\", optimizer = true, restart = true },
    archive = \"full\""
run_it r
expect "weights of an extended restart" "$(weights "$bundle")" "$(weights "$extended")"
[ ! -e "${bundle%.tar.zst}.ckpt" ] || fail "the checkpoint is beside the bundle too"
experiment q bf16 12 "init = { from = \"$bundle\", optimizer = true }"
run_it q
expect "the first step after a bundle" 10 "$(first_loss "$bundle" | cut -d' ' -f1)"

# A run that is killed before its first checkpoint begins again with the same state.
experiment k bf16 400 "init = { from = \"$parent\", optimizer = true }"
sed -i 's/every = 4,/every = 400,/g' k.lua
"$FP8LAB" run k.lua --backend cpu --threads 1 --runs killed >out 2>log &
await_step killed 8
kill -KILL $! && wait $! 2>/dev/null
"$FP8LAB" run --resume "$(ls -d killed/*/ | head -1)" >out 2>log || fail "the resumed run"
says "starting again at the step of init"
run_it k
expect "weights after a kill" "$(weights "$bundle")" "$(weights "$(newest killed)")"

# ---- refusals
experiment q bf16 4 "init = { from = \"$parent\", optimizer = true }"
gives 2 run q.lua --backend cpu -- "the optimizer's state is of step 4, and train.steps is 4" \
    "restart = true"
gives 2 run q.lua --backend cpu --set train.steps=8 --set model.ffn=128 -- \
    "ffn_in.weight is [192, 64]; the model needs [256, 64]"
kept=$(ls -d "${parent%.tar.zst}.ckpt"/step-*)
cp -r "$kept" alone && rm alone/state.safetensors
experiment q bf16 8 'init = { from = "alone", optimizer = true }'
gives 2 run q.lua --backend cpu -- "alone has no state.safetensors"
cp -r "$kept" changed
python3 - changed/state.safetensors <<'END'
import sys
f = open(sys.argv[1], "r+b")
f.seek(-1, 2)
last = f.read(1)
f.seek(-1, 2)
f.write(bytes([last[0] ^ 1]))
END
experiment q bf16 8 'init = { from = "changed", optimizer = true }'
gives 2 run q.lua --backend cpu -- "changed/state.safetensors: tree SHA-256"
"$FP8LAB" export "$parent" --to hf >out 2>&1 || fail "export"
experiment q bf16 8 'init = { from = "hf", optimizer = true }'
gives 2 run q.lua --backend cpu -- "hf has weights alone; optimizer = true needs a run"
exit $failed
