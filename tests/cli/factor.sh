#!/bin/bash
# A suite names the factor that it asks about; the comparison at its end judges a row of another
# value against the row that differs only there. The rule: tests/bundle/test_compare_factor.c.
set -u
. "$PWD/tests/cli/lib.sh"
runs=$TEST_TMP/runs

smoke() { # SCRIPT ROWS...: its output in `out`, its messages in `log`
    local only=() row
    for row in "${@:2}"; do only+=(--only "$row"); done
    "$FP8LAB" run --smoke --anywhere "$root/experiments/$1" "${only[@]}" --runs "$runs" \
        --backend cpu --threads 1 >"$TEST_TMP/out" 2>"$TEST_TMP/log"
    expect "exit code of $1" 0 $?
}

case_name="FP8 attention beside the same recipe"
smoke fp8_attention.lua '*attention-bf16-seed1' '*delayed-*-seed1'
says "    C differs from the baseline only in attention.precision" "$TEST_TMP/out"
says "mean eval loss    from B" "$TEST_TMP/out" # fp8.delayed with attention in BF16
says "mean eval loss    from A" "$TEST_TMP/out" # of which BF16 is the baseline
expect "rows without a verdict" 0 "$(grep -c 'no verdict on' "$TEST_TMP/out")"
says "--html compare.html --factor attention.precision=bf16 " "$TEST_TMP/log"

case_name="gradients beside f32"
smoke grad_fp8.lua '*bf16-f32-seed1' '*bf16-bf16-seed1'
says "    B differs from the baseline only in train.grad_dtype" "$TEST_TMP/out"
bundles=("$runs"/*grad*-f32-*.tar.zst "$runs"/*grad*-bf16-seed*.tar.zst) # A, then B
expect "bundles" 2 "${#bundles[@]}"

case_name="a key that does nothing" # 8-bit gradients on one rank: check, run and its log say so
nothing='train.grad_dtype = "fp8" does nothing on one rank, which sends no gradients: its bits are'
smoke grad_fp8.lua '*bf16-fp8-seed1'
says "grad-fp8-bf16-fp8-seed1: $nothing" "$TEST_TMP/log"
says "(a smoke run has one GPU, whatever the script asks for)" "$TEST_TMP/log"
"$FP8LAB" log "$(newest "$runs")" >"$TEST_TMP/out" || fail "log"
says "$nothing those of \"f32\"" "$TEST_TMP/out"
gives 0 check "$root"/experiments/grad_fp8.lua --set hardware.gpus=1 -- \
    "grad-fp8-bf16-fp8-seed1 and 7 more: $nothing"
gives 0 check "$root"/experiments/grad_fp8.lua -- "grad-fp8-bf16-fp8-seed1"
! grep -qF "does nothing" "$TEST_TMP/out" || fail "two ranks send gradients"

case_name="compare --factor"
gives 0 compare "${bundles[@]}" --factor train.grad_dtype=f32 --html "$TEST_TMP/page.html" -- \
    "B differs from the baseline only in train.grad_dtype"
says "differs from the baseline only in train.grad_dtype" "$TEST_TMP/page.html"
says "--factor train.grad_dtype=f32" "$TEST_TMP/page.html"
gives 0 compare "${bundles[@]}" --factor train.grad_dtype=f64 -- \
    "no verdict on A, B: no row has train.grad_dtype = f64"
gives 0 compare "$runs"/*-attention-delayed-*.tar.zst --factor attention.precision=bf16 -- \
    "B differs from the baseline only in attention.precision"
! grep -q "no run is BF16" "$TEST_TMP/out" || fail "another question was asked"
gives 2 compare "${bundles[@]}" --factor train.grad_dtype -- "write KEY=VALUE"
gives 2 compare "${bundles[@]}" --factor train.grad_dtype=f32 --baseline bf16 -- \
    "--baseline and --factor each say which row is whose baseline"

gives 2 compare "${bundles[@]}" --factor train.grad_dtpe=f32 -- \
    "no row has a value of train.grad_dtpe; did you mean train.grad_dtype?"
gives 2 compare "${bundles[@]}" --factor recipe=bf16 -- "without a factor"

case_name="a suite whose factor no row has" # check and run say so before anything runs
sed 's/train.grad_dtype=f32/train.grad_dtpe=f32/' "$root/experiments/grad_fp8.lua" >typo.lua
gives 2 check typo.lua -- "typo.lua:38: factor: no row has a value of train.grad_dtpe; did you mean"
gives 2 run typo.lua --runs "$runs" -- "nothing was run"
gives 0 check "$root/experiments/grad_fp8.lua" --set train.grad_dtype=fp8 --
cat >margin.lua <<'LUA'
local tiny = require "models.tiny"
return suite {
  name = "margin", factor = "recipe.margin=0", model = tiny.llama { layers = 1, seq_len = 16 },
  data = synthetic, train = { steps = 1, global_batch = 1 },
  matrix = { recipe = { bf16, fp8.delayed }, seed = { 1, 2 } },
}
LUA
gives 0 run margin.lua --lib "$lib" --runs margin --only '*bf16*' -- "What differs" # no such key

case_name="the scripts that ask about a key"
for script in fp8_attention:precision=bf16 grad_fp8:grad_dtype=f32 attention_backend:backend=own; do
    says "${script#*:}\"" "$root/experiments/${script%:*}.lua"
done
exit $failed
