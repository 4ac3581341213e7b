#!/bin/bash
# show and list name what else of a run is FP8 beside its recipe: attention, and gradients between
# ranks. Rows that differ only there would look alike.
set -u
. "$PWD/tests/cli/lib.sh"

run_tiny --runs runs --set train.steps=1 --set recipe=fp8.delayed \
    --set attention.precision=fp8
expect "exit code" 0 $code
gives 0 show "$(bundle_in runs)" -- "fp8.delayed attention.precision=fp8"
gives 0 list runs -- "fp8.delayed attention.precision=fp8"
gives 0 list runs --recipe fp8.delayed -- "attention.precision=fp8"

run_tiny --runs two --set train.steps=1 --set recipe=bf16 --set train.grad_dtype=fp8 \
    --set hardware.gpus=2
expect "exit code" 0 $code
gives 0 show "$(bundle_in two)" -- "bf16 train.grad_dtype=fp8"
gives 0 list two -- "bf16 train.grad_dtype=fp8"

run_tiny --runs plain --set train.steps=1 --set recipe=fp8.delayed
gives 0 list plain -- "fp8.delayed"
! grep -q "precision\|grad_dtype" out || fail "a run without them"

[ "$failed" = 0 ] && echo "attention and gradients in FP8 are named beside the recipe"
exit "$failed"
