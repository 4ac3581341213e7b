#!/bin/bash
# Plans of Llama-3-8B on one H200 and on 2, 4 and 8, with every way of sharding that fits, and
# sequences of 32k tokens on 8. Each way needs less memory than the one before.
set -u
: "${FP8LAB:=$PWD/build/release/fp8lab}"
export NO_COLOR=1
facts=tests/facts/h200x8.json
failed=0
plan() { # EXIT-CODE EXPERIMENT FLAG...: the plan must exit with that code
    local wanted=$1 script=experiments/$2.lua
    shift 2
    "$FP8LAB" plan -q "$script" --facts $facts "$@" >/dev/null 2>&1
    local code=$?
    [ $code = "$wanted" ] && return
    echo "FAILED: plan $script $*: exit code $code, wanted $wanted"
    failed=1
}
# A sum over ranks needs memory beside the arenas: at most 128 MiB, less if a shard is smaller.
terms() {
    "$FP8LAB" plan -q experiments/$1.lua --facts $facts --json "${@:2}" 2>/dev/null |
        grep -o '"item":"terms of a sum over ranks"' | head -1
}
[ -z "$(terms h200_bf16 --ranks 1)" ] || { echo "FAILED: memory for a sum of one rank"; failed=1; }
[ -n "$(terms h200_bf16 --ranks 4)" ] || {
    echo "FAILED: no memory for the sums of four ranks"
    failed=1
}
# --ranks N changes the experiment: a batch that N ranks cannot share is rejected, as in run, and
# the machine needs N GPUs.
plan 2 h200_bf16 --ranks 3
plan 0 h200_bf16 --ranks 8 --set hardware.gpus=4
small="--set train.optimizer.master=none --set train.grad_dtype=bf16"
for recipe in bf16 delayed tensorwise tensorwise_1f1l blockwise; do
    plan 3 h200_$recipe --ranks 1
    plan 0 h200_$recipe --ranks 1 $small --set train.optimizer.state=8bit
    plan 0 h200_$recipe --ranks 1 $small --set train.optimizer.state=bf16
    plan 0 h200_$recipe --ranks 1 --set train.grad_dtype=bf16 --set train.optimizer.offload=true
    for ranks in 2 4 8; do
        plan 0 h200_$recipe --ranks $ranks --set train.shard=gradients --set train.grad_dtype=bf16
        plan 0 h200_$recipe --ranks $ranks --set train.shard=parameters
    done
    plan 0 h200_$recipe --ranks 8
    plan 0 h200_$recipe --ranks 4 --set train.global_batch=64
    plan 0 h200_$recipe --ranks 8 --set model.seq_len=32768 --set train.recompute=block
done
"$FP8LAB" plan -q --json experiments/h200_tensorwise.lua --facts $facts |
    python3 -c 'import json, sys
run = json.load(sys.stdin)["runs"][0]
b = run["bytes_sharded"]
assert run["ranks"] == 8 and b["none"] > b["optimizer"] > b["gradients"] > b["parameters"] > 0, b
' || failed=1
[ $failed = 0 ] && echo "plans: as they should be"
exit $failed
