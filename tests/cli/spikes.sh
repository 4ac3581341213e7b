#!/bin/bash
# Spikes of the loss and of the gradient norm: what show, health and watch say of them. The records
# are made up, in the directory of a run that was killed.
set -u
. tests/cli/lib.sh
killed_run() { # RUNS WORDS: sets `run` to its directory
    "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --backend cpu --threads 1 --runs "$1" \
        --set train.steps=100000 "${@:2}" >out 2>log &
    await_step "$1" 2
    kill -9 "$(runner_of "$1")" $(pgrep -P "$(runner_of "$1")")
    wait
    run=$(echo "$1"/*/)
}
records() { # AWK: adds to loss and norm of step s; the last of 300 steps
    awk "function high() { $1 }"'
        BEGIN { for (s = 1; s <= 300; s++) { loss = 2 + (s * 7 % 11) / 500
            norm = 1 + (s * 5 % 13) / 50; high()
            printf "{\"step\":%d,\"loss\":%.6f,\"grad_norm\":%.6f,\"lr\":0.001,\"tokens\":64,\
\"step_time_us\":100,\"tokens_per_s\":640000}\n", s, loss, norm } }' \
        >"${run}data/metrics/train.jsonl"
}

case_name="a calm run"
killed_run runs
records ''
"$FP8LAB" show "$run" >out 2>log || fail "show: $?"
says "spikes         none in 268 steps" out
"$FP8LAB" health "$run" >out 2>log || fail "health: $?"
says "spikes: none in 268 steps" out
grep -q "  try " out && fail "advice without a spike"

case_name="two spikes and a large norm"
records 'if (s == 120 || s == 121) loss += 1.5; if (s == 203) loss += 0.8; if (s == 204) norm = 14'
found="2 of the loss (steps 120, 203), the largest +1.5 nats; 1 of the gradient norm (step 204), \
the largest 12 times its median"
"$FP8LAB" show "$run" >out 2>log || fail "show: $?"
says "spikes         $found" out
"$FP8LAB" health "$run" >out 2>log || fail "health: $?"
says "spikes: $found" out
says "try     the same run in BF16" out
"$FP8LAB" health "$run" --json >out 2>log || fail "health --json: $?"
says '"kind":"spike","last":121,"median":2.0' out
"$FP8LAB" show "$run" --json >out 2>log || fail "show --json: $?"
says '"spikes":{"grad_norm":{"count":1,' out
"$FP8LAB" watch "$run" --json >out 2>log || fail "watch --json: $?"
says '"spike_step":203,"spikes":2,' out
case_name="a short run"
records 'if (s == 30) exit'
"$FP8LAB" show "$run" >out 2>log || fail "show: $?"
grep -q "spikes" out && fail "a run of 29 steps was judged"
"$FP8LAB" health "$run" >out 2>log || fail "health: $?"
says "spikes: too few steps to judge any by" out

case_name="a run in BF16" # which BF16 would not help
killed_run plain --set recipe=bf16
records 'if (s == 120) loss += 1.5'
"$FP8LAB" health "$run" >out 2>log || fail "health: $?"
says "try     a lower learning rate, a longer warmup" out
grep -q "in BF16" out && fail "BF16 is advised to a run in BF16"
exit $failed
