#!/bin/bash
# tier: long
# long: 45, waits
# The tasks of a job, started with the environment variables of each launcher. One task per host or
# one a rank gives one bundle, with the bits of a run of one runner.
set -u
. tests/dist/lib.sh

run 4 --runs alone
expect "exit code" 0 $code
reference=$(field "$(bundle_in alone)" 'run["results_sha256"]')

# Other commands than command_of's, for `command=NAME job ...`.
rows() { echo "$FP8LAB run rows.lua --lib $lib --threads 1 ${*:2}"; }
again() { echo "$FP8LAB run --resume last --threads 1 ${*:2}"; }

# Starts task $1 of $2 of launcher $3, followed by RUNS and further arguments.
task() {
    local i=$1 n=$2 launcher=$3 runs=$4
    shift 4
    case $launcher in
    torchrun) set -- RANK="$i" WORLD_SIZE="$n" LOCAL_RANK="$i" LOCAL_WORLD_SIZE="$n" \
        MASTER_ADDR=${master:-127.0.0.1} MASTER_PORT=29511 TORCHELASTIC_RUN_ID=none -- "$@" ;;
    openmpi) set -- OMPI_COMM_WORLD_RANK="$i" OMPI_COMM_WORLD_SIZE="$n" \
        OMPI_COMM_WORLD_LOCAL_RANK="$i" OMPI_COMM_WORLD_LOCAL_SIZE="$n" \
        PMIX_NAMESPACE=prterun-node1-77@1 -- "$@" ;;
    pmi) set -- PMI_RANK="$i" PMI_SIZE="$n" MPI_LOCALRANKID="$i" MPI_LOCALNRANKS="$n" -- "$@" ;;
    srun) set -- SLURM_PROCID="$i" SLURM_STEP_NUM_TASKS="$n" SLURM_LOCALID="$i" SLURM_NODEID=0 \
        SLURM_STEP_TASKS_PER_NODE="$n" SLURM_JOB_ID=4711 SLURM_STEP_ID=0 SLURM_NTASKS=99 \
        SLURM_STEP_NODELIST="n[1-2]" -- "$@" ;;
    esac
    local vars=()
    while [ "$1" != -- ]; do vars+=("$1"); shift; done
    shift
    # shellcheck disable=SC2046
    env "${vars[@]}" $("${command:-command_of}" 4 --runs "$runs" "$@") >"out$i" 2>"log$i" &
    echo $! >"pid$i" # env becomes the program
    wait $!
    echo $? >"code$i"
}

job() { # TASKS LAUNCHER RUNS ARGS...
    local n=$1 i
    shift
    rm -f log? out? code? pid?
    for ((i = 0; i < n; i++)); do task "$i" "$n" "$@" & done
    wait
}

# Waits until there are $1 job files in folder $2; until the content of file $1 is not $2.
await_files() { await "[ \"\$(ls -A $2 2>/dev/null | grep -cx '\.job-[-_0-9a-z]*')\" = $1 ]"; }
await_other() { await "[ -f '$1' ] && [ \"\$(cat '$1')\" != '$2' ]"; }
await_signals() { # of task $1: waits until it handles stop requests itself
    await "grep -qs '^SigBlk:.*14203$' /proc/\$(cat pid$1 2>/dev/null)/status"
}
await() {
    local i
    for ((i = 0; i < 3000; i++)); do
        eval "$1" && return
        sleep 0.02
    done
    fail "it never reached $1"
}

# Variables left over in a shell: each task waits for another that was not started, and tells the
# user so at once and after 10 s. The end of this file checks that. (No `wait` here is for them.)
for i in 0 1; do
    (RANK=$i WORLD_SIZE=2 "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --runs left$i \
        >/dev/null 2>left.$i & echo $! >left.pid$i)
done

for launcher in torchrun openmpi pmi srun; do
    for tasks in 2 4; do
        case_name="$launcher, $tasks tasks"
        runs=$launcher$tasks
        job $tasks $launcher "$runs"
        expect "exit codes" "$(yes 0 | head -$tasks | tr '\n' ' ')" "$(cat code? | tr '\n' ' ')"
        expect "bundles" 1 "$(ls "$runs"/*.tar.zst | wc -l)"
        expect "results" "$reference" "$(field "$(bundle_in "$runs")" 'run["results_sha256"]')"
        expect "what else is left" "" "$(left_in "$runs")"
    done
done

case_name="the hosts are recorded"
expect "tasks, and SLURM_PROCID of each" "[(0, '0'), (1, '1')]" \
    "$("$FP8LAB" extract -q "$(bundle_in srun2)" >/dev/null 2>&1
    python3 -c 'import json, glob
print([(h["task"], h["environment"]["kept"]["SLURM_PROCID"])
       for h in json.load(open(glob.glob("*/data/system/hosts.json")[0]))])')"

case_name="a suite, row by row"
cat >rows.lua <<'END'
local tiny = require "models.tiny"
return suite {
  name = "rows", model = tiny.llama { layers = 1, seq_len = 32 }, data = synthetic { seed = 7 },
  recipe = bf16 {}, hardware = { gpus = 4 },
  train = { steps = 3, global_batch = 4, micro_batch = 1, seed = 1 },
  matrix = { ["train.shard"] = { "optimizer", "gradients", "parameters" } },
}
END
for _ in first second; do # the second time all rows are done
    command=rows job 2 torchrun suite
    expect "exit codes" "0 0 " "$(cat code? | tr '\n' ' ')"
    expect "bundles" 3 "$(ls suite/*.tar.zst | wc -l)"
done
expect "rows that are equal" 2 "$(grep -c "equal bit for bit over 3 steps" out0)"

case_name="a missing task"
rm -f log? out? code? pid?
task 0 2 srun missing --tasks-within 1
expect "exit code" 1 "$(cat code0)"
grep -q "task 1 of the 2 that srun started on n\[1-2\] did not connect within 1 s" log0 ||
    fail "the task is not named"
expect "what is left" "" "$(ls -A missing)"

case_name="a missing leader"
rm -f log? out? code? pid?
task 1 2 srun missing --tasks-within 1
expect "exit code" 1 "$(cat code1)"
grep -q "task 1 of 2 (srun) did not find task 0 within 1 s by $PWD/missing/.job-srun-4711-0 (for a \
run of one task unset SLURM_PROCID and SLURM_STEP_NUM_TASKS): there is no such file" log1 ||
    fail "no message with the whole path"

case_name="stopped while a task is missing"
for i in 0 1; do # 0 waits for 1, then 1 for 0
    rm -f log? out? code? pid?
    task $i 2 srun waits &
    [ $i = 1 ] || await_files 1 waits
    await_signals $i
    kill -TERM "$(cat pid$i)"
    wait
    expect "exit code of task $i" 143 "$(cat code$i)"
    expect "what is left" "" "$(ls -A waits)"
done
grep -q "stopped by signal 15 (Terminated) before it found task 0" log1 || fail "no such message"

case_name="a connected task is stopped, or dies, while another is missing"
for signal in TERM KILL; do
    rm -f log? out? code? pid?
    task 0 4 srun waits &
    await_files 1 waits
    task 1 4 srun waits &
    await_signals 1
    [ $signal = TERM ] || await "[ \"\$(ls -l /proc/\$(cat pid0)/fd | grep -c socket)\" -gt 1 ]"
    kill -$signal "$(cat pid1)"
    wait
    expect "exit codes" "$([ $signal = TERM ] && echo "143 143" || echo "1 137") " \
        "$(cat code? | tr '\n' ' ')"
    expect "what is left" "" "$(ls -A waits)"
done
grep -q "task 1 on $(hostname) was lost before all tasks had connected" log0 ||
    fail "the task is not named"

case_name="data that are not the same on all hosts"
mkdir -p here there
seq 9000 >here/data.txt
seq 8000 >there/data.txt
cat >text.lua <<'END'
local tiny = require "models.tiny"
return experiment {
  name = "text", model = tiny.llama { layers = 1, seq_len = 32 }, recipe = bf16 {},
  data = text { "data.txt" }, hardware = { gpus = 4 },
  train = { steps = 3, global_batch = 4, micro_batch = 1, seed = 1 },
}
END
texts() { echo "$FP8LAB run ../text.lua --lib $lib --threads 1 ${*:2}"; }
refused() { # RUNS WORDS: by task 1; its rank, host and file are named
    (cd here && command=texts task 0 2 srun "../$1") &
    (cd there && command=texts task 1 2 srun "../$1")
    wait
    expect "exit codes of $1" "2 2 " "$(cat here/code0 there/code1 | tr '\n' ' ')"
    grep -q "rank [23] on $(hostname): data.txt: $2 when the run began" here/log0 ||
        fail "$1: rank, host and file are not named"
}
refused longer "38893 bytes, but 43893"
seq 9000 | tr 1 2 >there/data.txt
refused other "same size but other bytes than"
rm -rf here there

case_name="a job file that others can read is rejected"
mkdir -p stranger
echo '{"addresses":["127.0.0.1"],"port":9,"secret":"x"}' >stranger/.job-srun-4711-0
chmod 644 stranger/.job-srun-4711-0
task 1 2 srun stranger --tasks-within 20
expect "exit code" 4 "$(cat code1)"
rm -rf stranger

case_name="a task that does not know the secret"
rm -f log? out? code? pid?
mkdir -p other
task 0 3 srun secret --tasks-within 15 & # it times out after both others have connected
await_files 1 secret
sed 's/"secret":"/&0/' secret/.job-srun-4711-0 >other/.job-srun-4711-0
chmod 600 other/.job-srun-4711-0
task 1 3 srun secret &
task 2 3 srun other --tasks-within 1
grep -q "task 2 of 3 (srun) did not find task 0 within 1 s .*may be another job's task 0, or the \
file may have changed .*did not prove that it knows this job's secret" log2 ||
    fail "task 2 does not report it"
wait
expect "exit codes" "1 1 1 " "$(cat code? | tr '\n' ' ')"
here=$(hostname)
grep -q "task 2 of the 3 .* did not connect within 15 s to task 0 on $here (connected: 1 on \
$here); [1-9][0-9]* connections did not prove that they know the job's secret, the last from \
[0-9:]" log0 || fail "task 0 does not name the tasks that it found"
rm -rf other

case_name="two jobs with torchrun's defaults, in one folder"
mkdir -p one two
each() { # JOB MASTER SEED INDEX
    (cd "$1" && master=$2 task "$4" 2 torchrun ../both --set "train.seed=$3")
}
each one 127.0.0.2 1 0 &
await_files 1 both
each two 127.0.0.3 2 0 &
await_files 2 both
each one 127.0.0.2 1 1 &
each two 127.0.0.3 2 1 &
wait
expect "exit codes" "0 0 0 0 " "$(cat one/code? two/code? | tr '\n' ' ')"
expect "bundles" 2 "$(ls both/*.tar.zst | wc -l)"

case_name="a job after a killed job of the same name"
rm -f log? out? code? pid?
task 0 2 srun same &
await_files 1 same
kill -KILL "$(cat pid0)"
wait
killed=$(cat same/.job-srun-4711-0)
task 0 2 srun same &
await_other same/.job-srun-4711-0 "$killed"
task 1 2 srun same
wait
expect "exit codes" "0 0 " "$(cat code? | tr '\n' ' ')"
expect "what else is left" "" "$(left_in same)"

case_name="two jobs of one name: both fail"
rm -f {.,one,two}/{log,out,code,pid}?
task 0 2 srun same &
await_files 1 same
(cd two && task 0 2 srun ../same)
wait
(cd two && task 1 2 srun ../same --tasks-within 1)
expect "exit codes" "6 6 1 " "$(cat code0 two/code? | tr '\n' ' ')"
for log in log0 two/log0; do
    grep -q "another job of this name is waiting for its tasks: its task 0 is on $here ([0-9:]" \
        $log || fail "$log has no reason"
done
grep -q "did not find task 0 within 1 s .*there is no such file, which task 0 creates: all tasks \
of a job need the same folder of runs and the same job name" two/log1 ||
    fail "the second's task 1 found the first"
expect "what else is left" "" "$(left_in same)"

case_name="an error of the script reaches every task"
job 2 srun broken --set no.such.key=1
expect "exit codes" "2 2 " "$(cat code? | tr '\n' ' ')"

case_name="GPUs that cannot be shared out"
rm -f log? out? code? pid?
job 3 srun uneven
expect "exit codes" "2 2 2 " "$(cat code? | tr '\n' ' ')"
grep -q "3 tasks, and the experiment has hardware.gpus = 4" log0 || fail "no such message"
expect "what is left" "" "$(left_in uneven)"

case_name="SIGTERM to one task stops all"
# shellcheck disable=SC2086
job 2 srun stopped $long &
await_step stopped $((every * 5 / 4))
expect "what still tells the secret" "" "$(find stopped -name '.job*')"
kill -TERM "$(cat pid1)"
wait
expect status interrupted "$(field "$(bundle_in stopped)" 'run["status"]')"
expect "who stopped it" True "$(field "$(bundle_in stopped)" \
    '"stopped by signal 15 (Terminated), which task 0 did not send, after" in error["text"]')"
expect "nothing is lost" True \
    "$(field "$(bundle_in stopped)" 'run["checkpoint_step"] == summary["step_last"] > 0')"
expect "exit codes" "143 143 " "$(cat code? | tr '\n' ' ')"

# Followers are idle while the leader waits for the claim of a row, which the test holds.
begins() { await "ls -l /proc/\$(cat pid0 2>/dev/null)/fd 2>/dev/null | grep -q '[.]claim$'"; }
for rows in 0 1; do # rows that are complete by then
    case_name="SIGTERM to one task between attempts, after $rows"
    runs=between$rows
    mkdir $runs && exec 7>$runs/.claim && flock 7
    command=rows job 2 srun $runs --set train.steps=$((2 * every)) 7>&- &
    begins
    if [ $rows = 1 ]; then
        flock -u 7
        await_step $runs 1
        flock 7
        await "[ -n \"\$(bundle_in $runs)\" ]"
        begins
    fi
    kill -TERM "$(cat pid1)"
    await "grep -qs 'task 1: asking task 0 to stop' log1"
    exec 7>&-
    wait
    expect "exit codes" "143 143 " "$(cat code? | tr '\n' ' ')"
    ended=$(ls -tr $runs/*.tar.zst | while read -r bundle; do field "$bundle" 'run["status"]'; done)
    expect "how the rows ended" "$(yes done | head -$rows | tr '\n' ' ')interrupted " \
        "$(echo "$ended" | tr '\n' ' ')"
    grep -q "task 1 on $(hostname) got a stop request (signal 15, Terminated): all tasks stop" \
        log0 ||
        fail "task 0 does not name the asked task"
done

case_name="SIGTERM to one task while another process runs the rows"
"$FP8LAB" run rows.lua --lib "$lib" --threads 1 --runs theirs --only "*parameters*" \
    --set train.steps=1000000 >out 2>log &
theirs=$!
await_step theirs 1
command=rows job 2 srun theirs --only "*parameters*" --set train.steps=1000000 &
ours=$!
await "grep -qs 'another process is running it; this command waits for it at the end' log0"
kill -TERM "$(cat pid1)"
wait $ours
expect "exit codes" "143 143 " "$(cat code? | tr '\n' ' ')"
kill -TERM $theirs
wait

case_name="resumed with GPUs that cannot be shared out: the run is unchanged"
kept=$(sha256sum stopped/*.tar.zst)
command=again job 3 srun stopped
expect "exit codes" "2 2 2 " "$(cat code? | tr '\n' ' ')"
expect "its bundle" "$kept" "$(sha256sum stopped/*.tar.zst)"

case_name="resumed together"
command=again job 2 srun stopped
expect "exit codes" "0 0 " "$(cat code? | tr '\n' ' ')"
expect attempts "['signal', 'done']" \
    "$(field "$(bundle_in stopped)" '[a["reason"] for a in run["attempts"]]')"

case_name="a task's runner is killed"
# shellcheck disable=SC2086
job 2 srun lost $endless &
await_checkpoint lost $every
await_beats
kill -KILL "$(cat pid1)"
wait
bundle=$(bundle_in lost)
expect status failed "$(field "$bundle" 'run["status"]')"
expect "the text" True "$(field "$bundle" \
    'error["text"].startswith("task 1 on ") and " with ranks 2 to 3 is lost: " in error["text"]')"
expect "its rank" 2 "$(field "$bundle" 'error["rank"]')"
expect "its operation" True "$(field "$bundle" '"step " in error["operation"]')"

for i in 0 1; do
    case_name="RANK=$i and WORLD_SIZE=2, left in a shell"
    await "grep -q 'after 10 s' left.$i"
    kill -TERM "$(cat left.pid$i)"
    expect "lines that say what to do" 2 "$(grep -c "RANK=$i and WORLD_SIZE=2 are set, .* for a \
run of one task unset RANK and WORLD_SIZE, for 2 tasks start " left.$i)"
    others=$([ $i = 0 ] && echo "other tasks" || echo "task 0")
    head -1 left.$i | grep -q "^waiting up to 300 s for $others: RANK" || fail "no message at once"
    sed -n 2p left.$i | grep -q "after 10 s task $((1 - i)) has not .*: RANK" || fail "not named"
done

exit $failed
