#!/bin/bash
# `attention`: FP8 attention trains, stops and resumes from a shipped script; a recipe that does not
# define it, and a kernel that the backend lacks, are refused by name.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
export NO_COLOR=1
runs=$TEST_TMP/runs
failed=0
fail() { echo "FAILED: $1"; cat "$TEST_TMP/out" "$TEST_TMP/log"; failed=1; }

# The row has two attempts: --smoke stops and resumes it. Its records name the new tensors.
"$FP8LAB" run --smoke --anywhere --backend cpu -q --runs "$runs" \
    --only 'fp8-attention-delayed-fp8-seed1' experiments/fp8_attention.lua \
    >"$TEST_TMP/out" 2>"$TEST_TMP/log" || fail "a smoke run"
bundle=$(ls "$runs"/*fp8-attention-delayed-fp8*.tar.zst)
mkdir "$TEST_TMP/open" && tar -xf "$bundle" -C "$TEST_TMP/open" || fail "the bundle opens"
for tensor in qkv p do ds; do
    grep -rqs "layers.0.attention.$tensor" "$TEST_TMP/open" || fail "attention.$tensor is recorded"
done
"$FP8LAB" list --json "$runs" >"$TEST_TMP/out" 2>"$TEST_TMP/log"
python3 -c '
import json, sys
run = json.load(open(sys.argv[1]))["runs"][0]["run"]
sys.exit(run["status"] != "done" or len(run["attempts"]) != 2)' "$TEST_TMP/out" || fail "it resumes"

"$FP8LAB" check experiments/quickstart.lua --set attention.precision=fp8 \
    >"$TEST_TMP/out" 2>"$TEST_TMP/log"
[ $? = 2 ] && grep -q 'FP8 attention is defined by fp8.delayed and fp8.tensorwise, which scale' \
    "$TEST_TMP/log" || fail "bf16 has no FP8 attention"

"$FP8LAB" check experiments/quickstart.lua --set attention.precision=fp8 --set train.exact=true \
    --set attention.backend=cudnn >"$TEST_TMP/out" 2>"$TEST_TMP/log"
code=$?
[ $code = 2 ] && grep -q 'train.exact has attention by our own kernels alone' "$TEST_TMP/log" &&
    grep -q 'FP8 attention has no form with the CPU.s bits' "$TEST_TMP/log" ||
    fail "what train.exact refuses: exit code $code"

"$FP8LAB" run --smoke --anywhere --backend cpu -q --runs "$runs" \
    --only 'attention-backend-cudnn-1024-seed1' experiments/attention_backend.lua \
    >"$TEST_TMP/out" 2>"$TEST_TMP/log"
code=$?
[ $code = 2 ] && grep -q 'attention.backend = "cudnn": the cpu backend has one way' \
    "$TEST_TMP/log" || fail "cudnn on a CPU: exit code $code"
# plan names file and row in the words of check.
for verb in check plan; do
    "$FP8LAB" $verb --facts tests/facts/gb10.json experiments/attention_backend.lua \
        2>&1 >"$TEST_TMP/out" |
        grep '^fp8lab: experiments/attention_backend.lua: attention-backend-cudnn-1024-seed1: ' \
            >"$TEST_TMP/$verb"
done
[ "$(wc -l <"$TEST_TMP/plan")" = 1 ] && cmp -s "$TEST_TMP/check" "$TEST_TMP/plan" ||
    fail "plan says: $(cat "$TEST_TMP/plan")"
# What cuDNN serves on no GPU is refused with the script; what one machine lacks, where that machine
# is known. A script alone is accepted: its machine is not known.
cat >"$TEST_TMP/x.lua" <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "x", recipe = fp8.tensorwise, data = synthetic { seed = 7 },
  attention = { backend = "cudnn" },
  model = tiny.llama { seq_len = 256, layers = 1, width = 128, heads = 2, head_dim = 64 },
  train = { steps = 3, global_batch = 4, micro_batch = 2 },
}
LUA
sed 's/"cudnn.version": .*/"cudnn.version": null,/' tests/facts/h200.json >"$TEST_TMP/without.json"
sed 's/"cudnn.version": .*/"cudnn.version": "9.20.1",/' tests/facts/h200.json \
    >"$TEST_TMP/newer.json"
asked() { # CODE WORDS VERB FLAGS...
    local code=$1 words=$2 found
    shift 2
    "$FP8LAB" "$1" "$TEST_TMP/x.lua" --lib experiments/lib --runs "$runs" "${@:2}" \
        >"$TEST_TMP/out" 2>"$TEST_TMP/log"
    found=$?
    [ $found = "$code" ] && grep -qF -- "$words" "$TEST_TMP/out" "$TEST_TMP/log" ||
        fail "$*: exit code $found, wanted $code and: $words"
}
for verb in check plan; do
    asked 2 'the cpu backend has one way to compute attention' $verb --backend cpu
    asked 2 'found sm_121; leave the key out' $verb --facts tests/facts/gb10.json
    asked 2 'the cpu backend has one way' $verb --facts tests/facts/laptop.json
    asked 2 'cuDNN was not found on this machine, cuBLASLt 13.1.0 was' $verb \
        --facts "$TEST_TMP/without.json"
    asked 0 x $verb --facts tests/facts/h200.json
    asked 2 'cuDNN 9.19.0 has no plan for it on sm_90' $verb --facts tests/facts/h200.json \
        --set attention.precision=fp8
    asked 0 x $verb --facts "$TEST_TMP/newer.json" --set attention.precision=fp8
    asked 0 x $verb --facts tests/facts/h200x8.json # with the versions of no library
    asked 0 x $verb --backend cpu --set attention.backend=own
done
asked 2 'found sm_120' check --caps sm_120
asked 2 'caps sm_42: sm_80, sm_89' check --caps sm_42
asked 0 x check --caps sm_100
asked 0 x check
asked 3 'the machine is not the one' plan --set hardware.query='gpu.cc < 10.0' \
    --facts tests/facts/gb10.json
asked 2 'x: attention.backend = "cudnn": the cpu backend' run --backend cpu
for set in model.window=100 model.head_dim=32 model.seq_len=128; do
    asked 2 "found ${set%=*} ${set#*=}; leave the key out" check --set $set
done
asked 0 x check --set model.window=256
asked 0 x check --set model.seq_len=300
asked 2 'at least 256 tokens and a multiple of 128' check --set model.seq_len=300 \
    --set attention.precision=fp8
[ $failed = 0 ] && echo "attention: FP8 trains and resumes; refusals are named"
exit $failed
