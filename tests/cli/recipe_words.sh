#!/bin/bash
# show, list and check name the options of a recipe, and what else of a run is FP8: attention, and
# gradients between ranks. Rows that differ only there would look alike.
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

sed 's/bf16, fp8.tensorwise/bf16, fp8.delayed, fp8.delayed { wgrad = "bf16" },\
     fp8.rowwise { lm_head = "fp8", pow2 = false }/' "$tests/suite.lua" >options.lua
gives 0 check options.lua --lib "$lib" -- \
    " recipe                              layers   width  seq_len    steps     config" \
    " bf16                                     1     128" \
    " fp8.delayed                              1     128" \
    " fp8.delayed wgrad=bf16                   1     128" \
    " fp8.rowwise pow2=false lm_head=fp8       1     128"
gives 0 check "$tests/tiny.lua" --lib "$lib" -- " recipe           layers   width" \
    " fp8.delayed           1     128"
gives 0 check "$tests/tiny.lua" --lib "$lib" --set attention.precision=fp8 -- \
    " fp8.delayed attention.precision=fp8       1     128"

[ "$failed" = 0 ] && echo "options, attention and gradients in FP8 are named beside the recipe"
exit "$failed"
