#!/bin/bash
# long: 12
# Bundles of exact runs of an H200 are repeated on a CPU, to the bit: a change to an operator under
# `hopper`, or to a definition that a GPU shares, is seen without a GPU.
set -u
. tests/cli/lib.sh
# The first steps here; tests/long/exact.sh repeats all of them.
steps=${STEPS:-3}
for bundle in "$root"/experiments/reference/exact/*.tar.zst; do
    case_name=$(basename "$bundle" .tar.zst)
    "$FP8LAB" repro "$bundle" --backend cpu --exact --steps "$steps" --runs runs >out 2>log ||
        fail "exit code $?"
    grep -q '^bitwise equal' out || fail "not bitwise equal"
    "$FP8LAB" show --json "$(newest runs)" | grep -q '"arithmetic": *"hopper"' ||
        fail "the arithmetic is not the H200's"
done
expect "bundles" 4 "$(find runs -name '*.tar.zst' | wc -l)"
# What a user without a GPU is told: of this run a CPU compares every bit.
"$FP8LAB" repro "$root/experiments/reference/exact/exact-bf16.tar.zst" --runs none >out 2>log
code=$?
[ -e /dev/nvidiactl ] || { [ $code = 3 ] && grep -q 'backend cpu compares every bit' out log; } ||
    fail "without a backend: exit code $code: $(cat out log)"
"$FP8LAB" repro "$root/experiments/reference/exact/exact-bf16.tar.zst" --backend cpu --exact \
    --steps 21 --runs none >out 2>log
code=$?
[ $code = 3 ] && grep -q 'holds 20 steps, and --steps asks for 21' out log ||
    fail "more steps than there are: exit code $code: $(cat out log)"
# Recipes whose products the CPU does not follow.
for recipe in f32 fp4.nvfp4; do
    "$FP8LAB" check "$root/experiments/quickstart.lua" --set matrix.recipe=$recipe \
        --set train.exact=true >out 2>log
    code=$?
    [ $code = 2 ] && grep -q 'train.exact has no form of this recipe' log ||
        fail "$recipe: exit code $code"
done
# Another arithmetic has other bits: the test can fail.
"$FP8LAB" repro "$root/experiments/reference/exact/exact-bf16.tar.zst" --backend cpu --exact \
    --steps 1 --arithmetic reference --runs other >out 2>log &&
    fail "the reference has the same bits"
exit "$failed"
