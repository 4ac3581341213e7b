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
[ $failed = 0 ] && echo "attention: FP8 trains and resumes; refusals are named"
exit $failed
