#!/bin/bash
# tier: long
# long: 8, waits
# FP8LAB_STOP_GRACE: the seconds from SIGTERM to SIGKILL that a container runtime allows. The run
# does what fits in them, and reports what does not, with the time it would need.
set -u
. tests/cli/lib.sh
# stop RUNS GRACE STEP ARGS...: SIGTERM after step STEP; exit code in $code, seconds in $took. With
# $unresponsive the worker, once that step's checkpoint is there (or `now`), is suspended.
stop() {
    local runs=$1 grace=$2 step=$3 pid begun
    shift 3
    FP8LAB_STOP_GRACE=$grace "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --threads 1 \
        --runs "$runs" --set eval=false "$@" >out 2>log &
    pid=$!
    await_step "$runs" "$step"
    if [ -n "$unresponsive" ]; then
        [ "$unresponsive" = now ] ||
            await_checkpoint "$runs" "$step"
        kill -STOP $(children_of "$pid")
    fi
    begun=$(date +%s%N)
    kill -TERM "$pid"
    wait "$pid"
    code=$?
    took=$((($(date +%s%N) - begun) / 1000000000))
}

for wrong in 0 -1 ten 1.5 100000; do
    FP8LAB_STOP_GRACE=$wrong "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" 2>log
    [ $? = 2 ] && grep -q "FP8LAB_STOP_GRACE: expected the whole seconds.*'$wrong'" log ||
        fail "FP8LAB_STOP_GRACE=$wrong is not refused"
done

unresponsive=
# Enough time: the checkpoint is in the bundle.
stop ample 60 3 --set train.steps=100000 --set checkpoint.every=50000
[ "$code" = 143 ] || fail "ample: exit code $code"
[ "$(field ample/*.tar.zst 'run["checkpoint_step"] > 0')" = True ] || fail "ample: no checkpoint"
tar --zstd -tf ample/*.tar.zst | grep -q data/checkpoints/ || fail "ample: none is in the bundle"

# Time for the bundle, but not for its checkpoints: they stay beside it, and the run can resume.
stop aside 1 3 --set train.steps=100000 --set checkpoint.every=1
[ "$code" = 143 ] || fail "aside: exit code $code"
grep -q "of checkpoints stay in its directory" log || fail "aside: no message about the checkpoints"
tar --zstd -tf aside/*.tar.zst | grep -q data/checkpoints/ && fail "aside: packed anyway"
run=$(find aside -mindepth 1 -maxdepth 1 -type d)
ls "$run"/checkpoints/step-*/model.safetensors >/dev/null || fail "aside: no checkpoint stayed"
"$FP8LAB" verify -q aside/*.tar.zst "$run" 2>log || fail "aside: does not verify"
"$FP8LAB" close "$run" >out 2>log || fail "aside: cannot be closed again"
tar --zstd -tf aside/*.tar.zst | grep -q data/checkpoints/ || fail "aside: close packs none"
"$FP8LAB" verify -q aside/*.tar.zst "$run" 2>log || fail "aside: does not verify once packed"

# A step longer than the worker's share of the time. The last good checkpoint counts, the runner
# does not wait the usual two minutes, and the message names the time needed.
unresponsive=1
stop slow 4 1 --set train.steps=6 --set checkpoint.every=1 --set train.global_batch=4096
[ "$code" = 143 ] || fail "slow: exit code $code"
[ "$took" -le 60 ] || fail "slow: $took s of 4"
grep -q -- "--stop-timeout [0-9]*0 -e FP8LAB_STOP_GRACE=[0-9]*0" log ||
    fail "slow: no --stop-timeout is named"
[ "$(field slow/*.tar.zst 'run["checkpoint_step"], run["status"]')" = "(1, 'interrupted')" ] ||
    fail "slow: not interrupted with the checkpoint of step 1"
"$FP8LAB" verify -q slow/*.tar.zst || fail "slow: does not verify"

# Killed before the first checkpoint: no message about checkpoints.
unresponsive=now
stop none 1 1 --set train.steps=100000 --set checkpoint.every=50000
[ "$code" = 143 ] || fail "none: exit code $code"
grep -q "of checkpoints stay in its directory" log && fail "none: a message mentions checkpoints"
[ "$(field none/*.tar.zst 'run["checkpoint_step"], run["status"]')" = "(0, 'interrupted')" ] ||
    fail "none: not interrupted without a checkpoint"
exit "$failed"
