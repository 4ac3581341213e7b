#!/bin/bash
# long: 40, waits
# A run is stopped, killed, or reaches a limit. Its record says so, and the resumed run has the bits
# of an undisturbed run. MOMENTS: more seconds after which it is killed, and a full disk
# (tests/long/run_control.sh).
set -u
. tests/cli/lib.sh
trap 'umount -l full 2>/dev/null' EXIT

# run ARGS...: the tiny experiment, long enough to be interrupted; exit code in $code.
run() {
    run_tiny --set checkpoint.every=$every --set trace.first=5 "$@"
}

worker_of() { # RUNS: the runner's only child
    local runner
    runner=$(runner_of "$1") && children_of "$runner"
}

same_results() { # BUNDLE
    expect "results of $1" "$reference" "$(field "$1" 'run["results_sha256"]')"
    "$FP8LAB" verify -q "$1" >/dev/null || fail "$1 does not verify"
}

event_files() { # RUNS: those in the bundle
    tar --zstd -tf "$(bundle_in "$1")" | grep -c '/data/tensorboard/events\.out\.tfevents\.[0-9]*\.'
}

resumed_equals_undisturbed() { # RUNS
    "$FP8LAB" run --resume last --runs "$1" --threads 1 >out 2>log
    expect "exit code of --resume" 0 $?
    expect status done "$(field "$(bundle_in "$1")" 'run["status"]')"
    same_results "$(bundle_in "$1")"
}

: "${every:=20}"
long="--set train.steps=$((6 * every))"
endless="--set train.steps=1000000" # for runs that are not resumed: they cannot finish early

case_name="undisturbed"
run --runs a $long
expect "exit code" 0 $code
reference=$(field "$(bundle_in a)" 'run["results_sha256"]')
inputs=$(field "$(bundle_in a)" 'run["inputs_sha256"]')
expect "event files" 1 "$(event_files a)"
expect "a directory is left" "" "$(find a -mindepth 1 -maxdepth 1 -type d ! -name '*.ckpt')"
! tar --zstd -tf "$(bundle_in a)" | grep -q "worker-0.log" || fail "the bundle has an empty log"
tar --zstd -xOf "$(bundle_in a)" --wildcards '*/data/logs/runner.log' >runner.log
"$FP8LAB" log "$(bundle_in a)" | cmp - runner.log || fail "log prints another log"
spent=
for part in script probe data record certificates device text memory weights trial graph reading \
    rest; do
    spent="$spent${spent:+, }$part [0-9]*"
done
for line in "run [-0-9a-zA-Z]*$" "program fp8lab .*, commit ..*, on ..*" \
    "command: .* run .*tiny.lua" \
    "script .*tiny.lua, sha256 [0-9a-f]*$" "recipe fp8.delayed: .*margin=0" \
    "model of [0-9]* parameters: 1 layers" "$((6 * every)) steps of 128 tokens, " \
    "data synthetic$" \
    "machine: .* cores, .* GiB" "saved data/checkpoints/step-0*$every: [0-9.]* GB, written in " \
    "start after step 0 of $((6 * every))$" \
    "from the command to the first step [1-9][0-9]* ms: $spent$" "backend cpu on ..*" \
    "step 1 of $((6 * every)): loss [0-9.]*, [0-9]* tokens/s$" \
    "evaluation after step 6: loss [0-9.]*, [0-9]* tokens$" \
    "checkpoint of step $every, sha256 [0-9a-f]*$" \
    "step $((6 * every)) of $((6 * every)): loss [0-9.]*, [0-9]* tokens/s$" "run ended: done$"; do
    grep -qE "^[-0-9T:]+\.[0-9]{3}Z $line" runner.log || fail "the log does not say: $line"
done

case_name="SIGTERM"
run --runs term $long &
await_step term $((every * 3 / 2))
"$FP8LAB" log -f last --runs term >followed 2>&1 &
kill -TERM "$(runner_of "term")"
wait
"$FP8LAB" log last --runs term | cmp - followed || fail "log -f missed something"
says "run ended: interrupted, exit code 143" followed
says "it can go on after step" followed
expect status interrupted "$(field "$(bundle_in term)" 'run["status"]')"
expect "exit code in run.json" 143 "$(field "$(bundle_in term)" 'run["exit_code"]')"
expect "checkpoint is of the last step" True \
    "$(field "$(bundle_in term)" 'run["checkpoint_step"] == summary["step_last"] > 0')"
"$FP8LAB" show "$(find term -mindepth 1 -maxdepth 1 -type d)" >out 2>log
expect "what show says is next" "run --resume" "$(sed -n 's/^Next: fp8lab \(.*\) term.*/\1/p' log)"
resumed_equals_undisturbed term

case_name="SIGTERM to the worker alone, from another process; without event files"
run --runs other $long --set tensorboard=false &
await_step other $((every * 5 / 4))
kill -TERM $(worker_of other)
wait
expect status interrupted "$(field "$(bundle_in other)" 'run["status"]')"
expect "exit code in run.json" 143 "$(field "$(bundle_in other)" 'run["exit_code"]')"
resumed_equals_undisturbed other
expect "event files" 0 "$(event_files other)"
expect "the run's identity" "$inputs" "$(field "$(bundle_in other)" 'run["inputs_sha256"]')"

case_name="SIGINT to the whole process group, as a terminal sends it"
set -m
(run --runs int $endless; echo $code >int.code) &
await_step int $((every * 5 / 4))
kill -INT -$!
wait $!
set +m
expect "exit code" 130 "$(cat int.code)"
expect status interrupted "$(field "$(bundle_in int)" 'run["status"]')"

case_name="a stop that arrives as two signals, as from GNU timeout"
run --runs pair $endless &
await_step pair $((every * 5 / 4))
pid=$(runner_of pair)
kill -STOP "$pid" # so that both are pending when it goes on
kill -TERM "$pid"
kill -HUP "$pid"
kill -CONT "$pid"
wait
says "stopping: checkpoint, bundle, exit; another signal after 1 s exits at once"
expect status interrupted "$(field "$(bundle_in pair)" 'run["status"]')"
expect "checkpoint is of the last step" True \
    "$(field "$(bundle_in pair)" 'run["checkpoint_step"] == summary["step_last"] > 0')"

case_name="another signal exits at once"
run --runs twice $endless &
await_step twice $((every * 5 / 4))
pid=$(runner_of twice)
kill -STOP $(worker_of twice) # a suspended worker cannot stop by itself
kill -TERM "$pid"
await_words "stopping: checkpoint, bundle, exit" log
while kill -TERM "$pid" 2>/dev/null; do sleep 0.1; done # those of the first second do not count
wait
says "another signal: killing the workers; steps since the last checkpoint are lost"
expect "nothing is packed" "" "$(bundle_in twice)"
expect "exit code in run.json" 143 "$(field twice/* 'run["exit_code"]')"
"$FP8LAB" list twice >out 2>log
expect "list bundles it" interrupted "$(field "$(bundle_in twice)" 'run["status"]')"

case_name="time limit"
run --runs limit --set train.steps=1000000 --set train.time_limit=2
expect "exit code" 0 $code
expect status time_limit "$(field "$(bundle_in limit)" 'run["status"]')"
expect "nothing is lost" True \
    "$(field "$(bundle_in limit)" 'run["checkpoint_step"] == summary["step_last"] > 0')"

case_name="a time limit counts over all attempts"
run --runs budget $endless --set train.time_limit=1h &
await_step budget $((every * 5 / 4))
kill -TERM "$(runner_of budget)"
wait
expect "the first attempt took time" True \
    "$(field "$(bundle_in budget)" 'run["attempts"][0]["seconds"] > 0')"
rm budget/*.tar.zst budget/*/*manifest-sha256.txt
sed -i 's/"seconds": *[0-9.]*/"seconds": 3600.0/' budget/*/data/run.json
rm -r budget/*/data/tensorboard
touch "$(echo budget/*/data)/tensorboard" # no event file can be made
timeout 300 "$FP8LAB" run --resume last --runs budget --threads 1 >out 2>log # counts all time
expect "exit code" 0 $?
expect status time_limit "$(field "$(bundle_in budget)" 'run["status"]')"
expect attempts 2 "$(field "$(bundle_in budget)" 'len(run["attempts"])')"
says "no more TensorBoard files of this run are written"
"$FP8LAB" run --resume last --runs budget --threads 1 >out 2>log
expect "exit code of another --resume" 2 $?
grep -q "has used up train.time_limit" log || fail "the error does not say that the time is used up"

# A kill also loses the checkpoint that is being written.
for moment in 0.15 ${MOMENTS:-}; do
    case_name="kill -9 of the worker after $moment s"
    run --runs "worker$moment" $long &
    await_step "worker$moment" 1
    sleep "$moment"
    kill -KILL $(worker_of "worker$moment")
    wait
    bundle=$(bundle_in "worker$moment")
    if [ "$(field "$bundle" 'run["status"]')" = done ]; then continue; fi # before the kill
    expect status killed "$(field "$bundle" 'run["status"]')"
    expect "exit code in run.json" 1 "$(field "$bundle" 'run["exit_code"]')"
    expect "it says why" True "$(field "$bundle" '"killed by signal 9" in run["error"]["text"]')"
    expect "at most the steps since the last checkpoint but one are lost" True \
        "$(field "$bundle" \
            '0 <= summary["step_last"] - run["checkpoint_step"] <= '$((2 * every + 1)))"
    if [ -d "${bundle%.tar.zst}" ]; then resumed_equals_undisturbed "worker$moment"; fi
done

for moment in 0.2 ${MOMENTS:-}; do
    case_name="kill -9 of the runner after $moment s"
    run --runs "runner$moment" $long &
    await_step "runner$moment" 1
    sleep "$moment"
    kill -KILL "$(runner_of "runner$moment")" 2>/dev/null
    wait 2>/dev/null
    for lock in "runner$moment"/*/lock; do # the worker exits after it, and releases the lock
        [ ! -e "$lock" ] || flock -w 60 "$lock" true
    done
    "$FP8LAB" list "runner$moment" >out 2>log
    bundle=$(bundle_in "runner$moment")
    if [ "$(field "$bundle" 'run["status"]')" = done ]; then continue; fi
    expect status killed "$(field "$bundle" 'run["status"]')"
    expect "at most the steps since the last checkpoint but one are lost" True \
        "$(field "$bundle" \
            '0 <= summary["step_last"] - run["checkpoint_step"] <= '$((2 * every + 1)))"
    expect "the attempt that died is recorded" "[('runner died', True)]" "$(field "$bundle" \
        '[(a["reason"], a["seconds"] >= 0) for a in run["attempts"]]')"
    "$FP8LAB" verify -q "$bundle" >/dev/null || fail "$bundle does not verify"
    if [ -d "${bundle%.tar.zst}" ]; then resumed_equals_undisturbed "runner$moment"; fi
done

case_name="retries"
run --runs retry $long --retries 1 &
await_step retry $((every * 5 / 4))
kill -KILL $(worker_of "retry")
wait
expect status done "$(field "$(bundle_in retry)" 'run["status"]')"
expect attempts 2 "$(field "$(bundle_in retry)" 'len(run["attempts"])')"
expect "the second one began at a checkpoint" 0 \
    "$(field "$(bundle_in retry)" 'run["attempts"][1]["from_step"] % '$every)"
expect "event files" 2 "$(event_files retry)"
same_results "$(bundle_in retry)"

case_name="a hang"
run --runs hang $endless --hang-after 3 &
await_step hang 2
kill -STOP $(worker_of "hang")
wait
expect status failed "$(field "$(bundle_in hang)" 'run["status"]')"
expect "it says why" True "$(field "$(bundle_in hang)" '"is frozen" in run["error"]["text"]')"

case_name="two runs in one directory"
run --runs twin $endless &
await_step twin 20
"$FP8LAB" run --resume "$(ls -d twin/*)" --runs twin >out 2>log2
expect "exit code of the second" 6 $?
grep -q "is writing this run" log2 || fail "$(cat log2)"
"$FP8LAB" close "$(ls -d twin/*)" >out 2>log2
expect "exit code of close" 6 $?
kill -TERM "$(runner_of "twin")"
wait

# Makes the lock of a run look as if it came from HOST, with another boot id, where flock does not
# work across hosts. The runner and worker are gone.
case_name="a runner on another host"
run --runs far $endless &
await_checkpoint far $every
pid=$(runner_of far)
kill -KILL "$(worker_of far)" "$pid"
wait
flock -w 60 far/*/lock true
printf '%s\nnode17\n00000000-0000-0000-0000-000000000000\n' "$pid" >far.lock
cp far.lock "$(ls far/*/lock)"
"$FP8LAB" list far >out 2>log
expect "list leaves it open" "" "$(bundle_in far)"
grep -q "running on node17 " out || fail "list says: $(cat out)"
expect "host in JSON" '"node17"' "$("$FP8LAB" list far --json | grep -o '"node17"')"
"$FP8LAB" run --resume last --runs far --threads 1 >out 2>log
expect "exit code of --resume" 6 $?
"$FP8LAB" close last --runs far >out 2>log
expect "exit code of close" 6 $?
grep -q "on host node17.*fp8lab close --force far/" log || fail "close does not say how"
"$FP8LAB" close last --runs far --force >out 2>log
expect "exit code of close --force" 0 $?
expect status killed "$(field "$(bundle_in far)" 'run["status"]')"
expect "no lock stays" "" "$(ls far/*/lock 2>/dev/null)"

# `list` closes only runs that this host left open; `close` also those of a host long silent.
case_name="a lock of this host before a reboot, of another container, of a silent host"
for lines in "$(hostname)\n00000000-0000-0000-0000-000000000000" \
    "node17\n$(cat /proc/sys/kernel/random/boot_id)" \
    "node17\n00000000-0000-0000-0000-000000000001"; do
    rm far/*.tar.zst far/*/*manifest-sha256.txt
    sed -i 's/"status": "killed"/"status": "running"/' far/*/data/run.json
    printf '%s\n'"$lines"'\n' "$pid" >"$(ls -d far/*)/lock"
    [[ $lines != *-000000000001 ]] || touch -d '16 minutes ago' far/*/lock
    "$FP8LAB" list far >out 2>log
    if [[ $lines == *-000000000001 ]]; then
        expect "list closes another host's" "" "$(bundle_in far)"
        grep -q " left open " out || fail "list says: $(cat out)"
        grep -q "was left open by another user or on another host" log ||
            fail "list does not say how"
        "$FP8LAB" close last --runs far >out 2>log
        expect "exit code of close" 0 $?
    fi
    expect "status after $lines" killed "$(field "$(bundle_in far)" 'run["status"]')"
done

# Without a checkpoint a run resumes at step 0; its directory is not deleted.
case_name="kill -9 of a runner before its first checkpoint"
run_tiny --set checkpoint=false --set train.steps=1000000 --runs early &
await_step early 2
pid=$(runner_of early)
kill -KILL "$(worker_of early)" "$pid"
wait
flock -w 60 early/*/lock true
early=$(ls -d early/*)
"$FP8LAB" run --resume "$early" --runs early --threads 1 >out 2>log &
await_words "there is no checkpoint: starting again at step 0" log
kill -TERM "$(runner_of early)"
wait $!
expect "exit code of --resume" 143 $?
expect "the same run" "$early.tar.zst interrupted" \
    "$(bundle_in early) $(field "$(bundle_in early)" 'run["status"]')"

case_name="a full disk" # by thousands of steps; dist/faults.sh has a limit on a file's size
mkdir -p full
if [ -z "${MOMENTS:-}" ]; then
    echo "left to tests/long/run_control.sh: a full disk"
elif mount -t tmpfs -o size=2m tmpfs full 2>/dev/null; then
    run --runs full --set train.steps=100000 --set checkpoint.every=100000
    expect "exit code of a disk without room for the checkpoints" 6 $code
    says "checkpoints need up to"
    expect "runs that began" "" "$(ls full)"
    mount -o remount,size=16m full
    "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --threads 1 --runs full \
        --set train.steps=100000 --set checkpoint.every=100000 >out 2>log &
    await_step full 2
    cat /dev/zero >full/filler 2>/dev/null
    wait $!
    expect "exit code" 6 $?
    rm full/filler
    expect status failed "$(field full/* 'run["status"]')"
    expect "it says why" True "$(field full/* '"No space left" in run["error"]["text"]')"
    mount -o remount,size=64m full
    if [ -z "$(bundle_in full)" ]; then # there was no room for it
        "$FP8LAB" close full/* >out 2>log || fail "close, with room again"
    fi
    "$FP8LAB" verify -q full/*.tar.zst >/dev/null || fail "the bundle does not verify"
    umount full
else
    echo "NOT CHECKED: a full disk (no right to mount a tmpfs)"
fi

[ $failed = 0 ] && echo "run control: all cases passed"
exit $failed
