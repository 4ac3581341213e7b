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
# Another arithmetic has other bits: the test can fail.
"$FP8LAB" repro "$root/experiments/reference/exact/exact-bf16.tar.zst" --backend cpu --exact \
    --steps 1 --arithmetic reference --runs other >out 2>log &&
    fail "the reference has the same bits"
exit "$failed"
