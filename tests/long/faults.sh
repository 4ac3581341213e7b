#!/bin/bash
# timeout: 900
# More ends of a run than tests/dist/faults.sh has: ranks that hang or lose their links,
# a suite that loses tasks.
set -u
. tests/dist/lib.sh

case_name="undisturbed"
run 2 --runs a $long
expect "exit code" 0 $code
reference=$(field "$(bundle_in a)" 'run["results_sha256"]')

case_name="resumed with another number of ranks"
run 2 --runs other $long &
await_step other $((every * 3 / 2))
kill -TERM "$(runner_of other)"
wait
kept=$(sha256sum other/*.tar.zst)
"$FP8LAB" run --resume last --runs other --threads 1 --ranks 3 >out 2>log
expect "exit code with 3" 2 $?
grep -q -- "--ranks 3: .*global_batch 8 must be a multiple of micro_batch 2 times the ranks" log ||
    fail "no error about the batch"
expect "the bundle after it" "$kept" "$(sha256sum other/*.tar.zst)"
"$FP8LAB" run --resume last --runs other --threads 1 --ranks 1 >out 2>log
expect "exit code of --resume" 0 $?
expect "ranks of the attempts" "[2, 1]" \
    "$(field "$(bundle_in other)" '[a["ranks"] for a in run["attempts"]]')"

case_name="a frozen rank, one retry on fewer"
run 4 --runs still $long --retries 1 --hang-after 6 --fewer-gpus &
await_step still $((every * 5 / 4))
kill -STOP "$(rank_of "$(runner_of still)" 2)"
wait
bundle=$(bundle_in still)
expect status done "$(field "$bundle" 'run["status"]')"
expect "ranks of the attempts" "[4, 2]" "$(field "$bundle" '[a["ranks"] for a in run["attempts"]]')"
grep -q "rank 2 on $(hostname) is frozen: no sign of life for [0-9]* s (last at .*step " log ||
    fail "the rank was not named"

# Ranks that misbehave while their processes live: see faulty.c.
faulty() { # KIND RUNS ARGS...: rank 2 of 4 does KIND in the middle of the run
    mkdir "$2.bin" && cp "$BUILD/tests/dist/faulty" "$2.bin/fp8lab"
    FP8LAB=$PWD/$2.bin/fp8lab run 4 --runs "$2" "${@:3}" &
    await_step "$2" $((every * 5 / 4))
    echo "$1 2" >"$2.bin/fault"
    wait
    bundle=$(bundle_in "$2")
}

case_name="a rank that loses its links, one retry on fewer"
faulty cut cut $long --retries 1 --fewer-gpus --keep-dir
expect status done "$(field "$bundle" 'run["status"]')"
expect "ranks of the attempts" "[4, 2]" "$(field "$bundle" '[a["ranks"] for a in run["attempts"]]')"
expect "devices of the second attempt" "0 1 " "$(tail -2 cut/*/data/metrics/telemetry.jsonl |
    sed 's/.*"device":\([0-9]*\),.*/\1/' | sort | tr '\n' ' ')"
grep -q "rank 2 on $(hostname) lost its links, last at .*; retrying without it" log ||
    fail "the rank was not named"
[ "$(grep -c "worker [0-3] failed: " cut/*/data/logs/runner.log)" -gt 1 ] ||
    fail "the other ranks' messages are lost"

case_name="a device that fails in the middle, and then before an attempt's first step"
faulty broken broken $endless --retries 2
expect "exit code and attempts" "1 3" \
    "$(field "$bundle" '"%d %d" % (run["exit_code"], len(run["attempts"]))')"
expect "the later ones are from a checkpoint" True \
    "$(field "$bundle" 'all(a["from_step"] >= '$every' for a in run["attempts"][1:])')"

case_name="a slow rank"
mkdir slow.bin && cp "$BUILD/tests/dist/faulty" slow.bin/fp8lab && echo "slow 2" >slow.bin/fault
FP8LAB=$PWD/slow.bin/fp8lab run 4 --runs slow
expect "the slowest, and that others wait for it" "2 True" "$(field "$(bundle_in slow)" \
    '"%d %s" % (summary["slowest_rank"], summary["wait_share_median"] > 0.3)')"

case_name="kill -9 of rank 1 while a checkpoint is written, one retry"
run 2 --runs saving $long --set checkpoint.every=5 --set checkpoint.background=false --retries 1 &
await_step saving 10
pid=$(rank_of "$(runner_of saving)" 1)
unfinished=$(ls -d saving/*/data/checkpoints)/.unfinished
while kill -0 "$pid" 2>/dev/null; do
    [ -d "$unfinished" ] || { sleep 0.002; continue; }
    kill -STOP "$pid"
    sleep 0.2
    [ -d "$unfinished" ] && break # the others cannot finish it without this rank
    kill -CONT "$pid"
done
kill -KILL "$pid"
wait
bundle=$(bundle_in saving)
expect status done "$(field "$bundle" 'run["status"]')"
expect "the second attempt is from a checkpoint" "2 True" \
    "$(field "$bundle" '"%d %s" % (len(run["attempts"]), run["attempts"][1]["from_step"] >= 5)')"
expect results "$reference" "$(field "$bundle" 'run["results_sha256"]')"
grep -q "rank 1 on $(hostname) was killed by signal 9 (Killed), last at checkpoint of step " log ||
    fail "the checkpoint is not named"

# These wait without load, so they run at the same time, each in its own folder.
first_thread_hangs() {
    case_name="a rank whose first thread hangs"
    faulty stuck stuck $endless --hang-after 6
    expect "status and rank" "failed 2" \
        "$(field "$bundle" '"%s %d" % (run["status"], error["rank"])')"
    expect "the text" True "$(field "$bundle" \
        'error["text"].startswith("rank 2 on %s hung: no event for " % error["host"])')"
}
two_tasks() { # COMMAND...: started as by srun, on this host; the processes are $leader, $follower
    local task
    for task in 0 1; do
        env SLURM_PROCID=$task SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=$task SLURM_NODEID=0 \
            SLURM_STEP_TASKS_PER_NODE=2 SLURM_JOB_ID=12 SLURM_STEP_ID=3 \
            "$@" >out$task 2>log$task &
        [ $task = 0 ] && leader=$! || follower=$!
    done
}
tasks_in_the_middle() { # ARGS...: of a run
    # shellcheck disable=SC2046,SC2086
    two_tasks $(command_of 4 --runs tasks $endless "$@")
    await_step tasks $((every * 5 / 4))
}
other_worker_stands_still() {
    case_name="a frozen worker of another runner"
    tasks_in_the_middle --hang-after 6
    kill -STOP "$(pgrep -f -- "fp8lab worker .*$PWD/tasks/.*--rank 3 ")"
    wait
    bundle=$(bundle_in tasks)
    expect "status and rank" "failed 3" \
        "$(field "$bundle" '"%s %d" % (run["status"], error["rank"])')"
    expect "the text" True "$(field "$bundle" \
        'error["text"].startswith("rank 3 on %s is frozen: " % error["host"])')"
}
asked_while_failing() { # RETRIES
    case_name="SIGTERM after a death, retries: $1"
    run 2 --runs asked $endless --retries "$1" &
    await_checkpoint asked $every
    runner=$(runner_of asked) dies=$(rank_of "$(runner_of asked)" 1)
    kill -STOP "$(rank_of "$runner" 0)" # so that the attempt takes its time to end
    kill -KILL "$dies"
    while kill -0 "$dies" 2>/dev/null; do sleep 0.02; done # its runner has noticed
    kill -TERM "$runner"
    wait
    bundle=$(bundle_in asked)
    expect "status and exit code" "interrupted 143" \
        "$(field "$bundle" '"%s %d" % (run["status"], run["exit_code"])')"
    expect attempts "['crashed']" \
        "$(field "$bundle" '[a["reason"] for a in run["attempts"]]')"
    expect "what had happened" 1 "$(field "$bundle" 'error["rank"]')"
    "$FP8LAB" verify -q "$bundle" >/dev/null || fail "the bundle does not verify"
}
other_asked_while_failing() {
    case_name="SIGTERM to another runner after a death, one retry"
    tasks_in_the_middle --retries 1
    runner=$(runner_of tasks) dies=$(rank_of "$(runner_of tasks)" 1)
    kill -STOP "$(rank_of "$runner" 0)" # so that the attempt takes its time to end
    kill -KILL "$dies"
    while kill -0 "$dies" 2>/dev/null; do sleep 0.02; done
    kill -TERM "$follower"
    wait
    bundle=$(bundle_in tasks)
    expect "status, exit code and attempts" "interrupted 143 ['crashed']" "$(field "$bundle" \
        '"%s %d %s" % (run["status"], run["exit_code"], [a["reason"] for a in run["attempts"]])')"
}
worker_does_not_die() {
    case_name="a worker that SIGKILL does not end"
    mkdir bin && cp "$BUILD/tests/dist/faulty" bin/fp8lab
    # shellcheck disable=SC2046,SC2086
    FP8LAB=$PWD/bin/fp8lab two_tasks $(FP8LAB=$PWD/bin/fp8lab command_of 2 --runs unkillable \
        $endless --retries 1 --fewer-gpus)
    await_checkpoint unkillable $every
    echo "unkillable 1" >bin/fault
    worker=$(children_of "$follower")
    worker=${worker% }
    kill -KILL "$worker"
    wait "$leader"
    expect "exit code" 6 $?
    wait
    bundle=$(bundle_in unkillable)
    expect "status and attempts" "failed 1" \
        "$(field "$bundle" '"%s %d" % (run["status"], len(run["attempts"]))')"
    expect "the text" True "$(field "$bundle" "error['text'].endswith('; rank 1 on $(hostname) \
(process $worker) does not die, 30 s after SIGKILL: it is left behind and keeps its GPU')")"
    grep -q "no retry: rank 1 on $(hostname) (process $worker) does not die" log0 ||
        fail "no error about the unkillable process"
}
cat >rows.lua <<END
local tiny = require "models.tiny"
return suite {
  name = "rows", model = tiny.llama { layers = 1, seq_len = 32 }, data = synthetic { seed = 7 },
  hardware = { gpus = 4 }, checkpoint = { every = $every },
  train = { steps = $((4 * every)), global_batch = 4, micro_batch = 1 }, recipe = bf16 {},
  matrix = { ["train.seed"] = { 1, 2 } },
}
END
suite="$FP8LAB run $PWD/rows.lua --lib $lib --threads 1"
suite_on_what_is_left() {
    case_name="a suite that loses a task, then a GPU: further rows are without the task"
    # shellcheck disable=SC2086
    two_tasks $suite --runs left --retries 2 --fewer-gpus
    await_checkpoint left $every
    kill -KILL "$follower"
    await_step left $((every * 9 / 4)) # of the remaining ranks
    kill -KILL "$(rank_of "$leader" 1)"
    wait "$leader"
    expect "exit code" 0 $?
    wait
    # shellcheck disable=SC2046
    set -- $(ls left/*.tar.zst)
    expect "ranks of the first row's attempts" "[4, 2, 1]" \
        "$(field "$1" '[a["ranks"] for a in run["attempts"]]')"
    expect "of the second's" "[2]" "$(field "$2" '[a["ranks"] for a in run["attempts"]]')"
    expect "the steps of one rank are not missing" True \
        "$(field "$1" "0 <= summary['ranks_steps_missing'] < $every")"
}
suite_without_a_task() {
    case_name="a suite that loses a task, without --fewer-gpus"
    # shellcheck disable=SC2086
    two_tasks $suite --runs all
    await_checkpoint all $every
    kill -KILL "$follower"
    wait "$leader"
    expect "exit code" 1 $?
    wait
    expect "bundles" 1 "$(ls all/*.tar.zst | wc -l)"
    grep -q "task 1 on .* is lost: .*; --fewer-gpus continues without it" log0 ||
        fail "no reason why the suite stops"
    $suite --runs all --only '*1' >out 2>log
    expect "exit code of its row again" 0 $?
    expect "bundles then" 1 "$(ls all/*.tar.zst | wc -l)"
    expect "it goes on" "[0, $every]" \
        "$(field "$(bundle_in all)" '[a["from_step"] for a in run["attempts"]]')"
}
beside=()
for each in first_thread_hangs other_worker_stands_still "asked_while_failing 0" \
    "asked_while_failing 1" other_asked_while_failing worker_does_not_die \
    suite_on_what_is_left suite_without_a_task; do
    folder=${each// /-}
    (mkdir "$folder" || exit 1; cd "$folder" || exit 1; $each; exit $failed) &
    beside+=($!)
done
for each in "${beside[@]}"; do wait "$each" || failed=1; done

case_name="no GPU is left"
run 1 --runs last $endless --retries 1 --fewer-gpus &
await_checkpoint last $every
kill -KILL "$(children_of "$(runner_of last)")"
wait
bundle=$(bundle_in last)
expect status killed "$(field "$bundle" 'run["status"]')"
expect attempts 1 "$(field "$bundle" 'len(run["attempts"])')"
grep -q "no GPU is left on the host of task 0, which leads the run" log || fail "no such message"

exit $failed
