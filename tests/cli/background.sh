#!/bin/bash
# Checkpoints are written from a copy, beside the steps. The bits are those of a run whose steps
# wait. One that cannot be written costs no run, unless it is the last: then the exit code is
# 6, the status says so, and the older checkpoint can be resumed from.
set -u
. tests/cli/lib.sh

hashes() { (cd "$1"/*.ckpt && sha256sum step-*/* | cut -d' ' -f1,3 | tr '\n' ' '); } # RUNS

# A run that cannot write files of more than 1 MB, once it has saved step 5; the runner's process is
# $runner, the command's is $command.
run_out_of_room() { # RUNS STEPS
    "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --threads 1 --runs "$1" --set train.steps="$2" \
        --set checkpoint.every=5 >out 2>log &
    command=$!
    await_checkpoint "$1" 5
    runner=$(runner_of "$1")
    prlimit --fsize=1000000:unlimited --pid "$(children_of "$runner" | cut -d' ' -f1)"
    await_words "could not be written; the run goes on" "$1/*/data/logs/runner.log"
}
older=$(cat <<'PY'
run["checkpoint_step"] >= 5 and run["checkpoint_step"] < summary["step_last"]
PY
)

case_name="the same bits"
for background in true false; do
    run_tiny --runs $background --set checkpoint.background=$background --set train.steps=20 \
        --set checkpoint.milestones=3,7,11,16
    expect "exit code" 0 $code
done
expect "results" "$(field true/*.tar.zst 'run["results_sha256"]')" \
    "$(field false/*.tar.zst 'run["results_sha256"]')"
expect "checkpoints" "$(hashes true)" "$(hashes false)"
expect "saves" "(8, 0, True)" "$(field true/*.tar.zst \
    '(lambda s: (s["written"], s["failed"], 0 < s["stall_us_max"] <= s["stall_us_sum"]))(
     run["saves"])')"
"$FP8LAB" show true/*.tar.zst >out 2>log
says "8 saved; a step waited " out

case_name="plan"
"$FP8LAB" plan "$tests/tiny.lua" --lib "$lib" >out 2>log
says "copy while it is written" out
"$FP8LAB" plan "$tests/tiny.lua" --lib "$lib" --set checkpoint.background=false >out 2>log
grep -q "copy while it is written" out && fail "a copy is planned that is not made"
copies() { # ARGS...: what the plan of several rows says of the copy
    "$FP8LAB" plan "$tests/suite.lua" --lib "$lib" --set checkpoint.every=5 "$@" >out 2>log
    grep -F "checkpoint's copy while it is written" out
}
copies --facts "$root/tests/facts/laptop.json" | grep -q "up to 3.* MiB, which the peak has" ||
    fail "the copy of a CPU's rows"
copies --facts "$root/tests/facts/h200.json" | grep -q "MiB, on the host, beside the peak" ||
    fail "the copy of a GPU's rows"
copies --set checkpoint.background=false && fail "rows plan a copy that is not made"

case_name="the last one cannot be written"
run_out_of_room last 100000
kill -TERM "$runner" # its checkpoint would be the last
wait "$command"
expect "exit code" 6 $?
bundle=$(bundle_in last)
expect "status and exit code" "failed 6" \
    "$(field "$bundle" '"%s %d" % (run["status"], run["exit_code"])')"
expect "the error" True "$(field "$bundle" '("File too large" in error["text"] and
    "the last checkpoint, of step %d, is missing" % summary["step_last"] in error["text"])')"
expect "an older checkpoint stays" True "$(field "$bundle" "$older")"
expect "failed saves are counted" True "$(field "$bundle" 'run["saves"]["failed"] >= 1')"
"$FP8LAB" verify -q "$bundle" >/dev/null || fail "the bundle does not verify"

case_name="only one in the middle"
run_out_of_room middle 100000
prlimit --fsize=unlimited:unlimited --pid "$(children_of "$runner" | cut -d' ' -f1)"
failed_at=$(grep -o "checkpoint of step [0-9]*" middle/*/data/logs/runner.log | tail -1)
await_checkpoint middle $((${failed_at##* } + 50))
kill -TERM "$runner"
wait "$command"
expect "exit code" 143 $?
expect "the last step is saved" True \
    "$(field "$(bundle_in middle)" 'run["checkpoint_step"] == summary["step_last"]')"

[ $failed = 0 ] && echo "checkpoints are written beside the steps"
exit $failed
