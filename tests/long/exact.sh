#!/bin/bash
# long: 260
# timeout: 1800
# tests/cli/exact.sh with all 20 steps, and a step of GPT-2 124M that an H200 made.
set -u
STEPS=20 tests/cli/exact.sh || exit 1
. tests/cli/lib.sh
"$FP8LAB" repro "$root/experiments/reference/exact-gpt2/gpt2-one-fp8.tensorwise.tar.zst" \
    --backend cpu --exact --runs gpt2 >out 2>log || fail "exit code $?"
grep -q '^bitwise equal' out || fail "not bitwise equal"
exit "$failed"
