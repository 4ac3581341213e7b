#!/bin/bash
# What `list` and `show` say of a run that is running, of one whose runner was killed, and of one
# that was stopped.
set -u
. "$PWD/tests/cli/lib.sh"
shown="out log"
endless=(--set train.steps=1000000 --set eval=false)

begin() { # RUNS ARGS...: an endless run in the background
    "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --threads 1 --runs "$@" "${endless[@]}" \
        >run.out 2>run.log &
}
look() { # COMMAND...
    "$FP8LAB" "$@" >out 2>log || fail "$* exits with $?"
    cat log >>out
}
released() { flock -w 60 "$1"/*/lock true; } # the worker exits after its runner

case_name="running"
begin killed --set checkpoint.every=20
await_checkpoint killed 20
id=$(basename killed/*)
look list killed
says "not packed yet: it is running" out
grep -q "not verified" out && fail "a running run is no damaged one"
look show last --runs killed
says "$id  running  (not packed yet: it is running)" out

case_name="killed"
kill -KILL "$(runner_of killed)"
wait 2>/dev/null
released killed
look show last --runs killed
says "$id  left open  (its runner died: \`fp8lab close\` packs it)" out
says "Next: fp8lab close killed/$id" out
look list killed
step=$(field killed/*.tar.zst 'run["checkpoint_step"]')
says "$id was interrupted: \`fp8lab run --resume killed/$id\` continues it from step $step" out
grep -q "not packed yet\|not verified" out && fail "it is packed"
look list -q killed
grep -q "interrupted: " out && fail "-q has notes"

case_name="stopped"
begin killed --set checkpoint.every=20 --set name=second
await_checkpoint killed 20 second
kill -TERM "$(runner_of killed)"
wait
look list killed
second=$(basename killed/*second*.tar.zst .tar.zst)
says "$second was interrupted: \`fp8lab run --resume killed/$second\` continues it from step" out
says "; 1 other run was interrupted too: \`fp8lab show RUN\` says how one continues" out

case_name="a bundle alone"
mkdir alone
cp "killed/$second.tar.zst" alone/
look list alone
says "$second was interrupted: \`fp8lab run --resume alone/$second.tar.zst\` continues it" out
look show "alone/$second.tar.zst"
says "Next: fp8lab run --resume alone/$second.tar.zst" out

case_name="killed without a checkpoint"
begin early --set checkpoint.every=900000
await_step early 1
kill -KILL "$(runner_of early)"
wait 2>/dev/null
released early
look list early
id=$(basename early/*.tar.zst .tar.zst)
says "$id was interrupted without a checkpoint: \`fp8lab run\` of its script begins it again" out

case_name="done"
run_tiny --runs killed
expect "exit code" 0 "$code"
look list killed --status done
grep -q "interrupted" out && fail "a run that is not listed"

[ "$failed" = 0 ] && echo "open and interrupted runs are named as such"
exit "$failed"
