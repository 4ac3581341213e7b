#!/bin/bash
# long: 35, waits
# fp8lab under the real launchers of Open MPI (mpirun) and MPICH (mpiexec, "hydra"), on the CPUs of
# one machine. Bits equal those of a run without launcher. Runs end properly when a launcher stops
# them, or when they lose a task. Each is tested if it is installed; they differ in how they kill.
set -u
skip() {
    printf '\n*** SKIP: %s\n' "$*"
    printf '*** tests of a real mpirun were NOT run: %s\n' "$*"
    exit 77
}

# The first of the programs whose --version has the words.
named() { # WORDS PROGRAM...
    local words=$1 program
    shift
    for program; do
        "$program" --version 2>&1 | grep -q "$words" && echo "$program" && return
    done
}
openmpi=$(named "(Open MPI)" mpirun.openmpi mpirun)
hydra=$(named "^HYDRA" mpiexec.hydra mpiexec)
[ -n "${FP8LAB_TEST_IMAGE:-}" ] || skip "FP8LAB_TEST_IMAGE=1 or .ci/run runs this"
[ -n "$openmpi$hydra" ] || skip "mpirun is not installed (containers/install.sh mpi)"

. tests/dist/lib.sh
every=20
[ "${CONFIG:-release}" = asan ] && every=5
endless="--set train.steps=1000000 --set checkpoint.every=$every"
program=$(readlink -f "$FP8LAB")
here=$(pwd -P)

# The launcher and its flags. Open MPI needs flags for more tasks than processors, and for root.
launcher() { # NAME TASKS
    case $1 in
    openmpi) echo "$openmpi --allow-run-as-root --oversubscribe -n $2" ;;
    hydra) echo "$hydra -n $2" ;;
    esac
}

# Starts the job in the background; its launcher's process id is in $pid.
start() { # NAME TASKS COMMAND...
    # shellcheck disable=SC2046
    $(launcher "$1" "$2") "${@:3}" >out 2>log </dev/null &
    pid=$!
}

# Runs the job to its end; exit code in $code.
job() {
    start "$@"
    wait "$pid"
    code=$?
}

# The process of task $2 among the descendants of $1. A launcher's threads also have children.
task_of() {
    local child
    for child in $(cat "/proc/$1"/task/*/children); do
        if tr '\0' '\n' <"/proc/$child/environ" | grep -qxE "(PMI|OMPI_COMM_WORLD)_RANK=$2"; then
            echo "$child"
        else
            task_of "$child" "$2"
        fi
    done
} 2>/dev/null

# The runners and workers of this job that still run.
alive() {
    local at
    find /proc -maxdepth 2 -name cwd -lname "$here" 2>/dev/null | while read -r at; do
        [ "$(readlink "${at%cwd}exe")" != "$program" ] || echo "${at//[!0-9]/}"
    done
}
# They must exit shortly after their launcher.
all_ended() {
    local i
    for ((i = 0; i < 50; i++)); do
        [ -n "$(alive)" ] || return
        sleep 0.1
    done
    fail "still running: $(alive)"
    # shellcheck disable=SC2046
    kill -KILL $(alive) 2>/dev/null
}

stop() { # SIGNAL TASKS RUNS STEP: signals the launcher once the run has recorded the step
    await_step "$3" "$4"
    expect "runners and workers" $(($2 + 4)) "$(alive | wc -l)"
    kill -"$1" "$pid"
    wait "$pid"
    code=$?
    all_ended
}

run 4 --runs alone
expect "exit code" 0 $code
reference=$(field "$(bundle_in alone)" 'run["results_sha256"]')

for mpi in openmpi hydra; do
    case_name="$mpi"
    if [ -z "${!mpi}" ]; then
        echo "SKIP: $mpi is not installed (containers/install.sh mpi)"
        continue
    fi
    job $mpi 1 true
    if [ $code != 0 ]; then
        sed 's/^/    /' log | tail -3
        echo "SKIP: ${!mpi} cannot start a program here: exit code $code"
        continue
    fi
    tried=1

    # 4 tasks: one a rank. 2 tasks: two ranks each, as with one task per host.
    for tasks in 2 4; do
        case_name="$mpi, $tasks tasks"
        runs=$mpi$tasks
        # shellcheck disable=SC2046
        job $mpi $tasks env -u NO_COLOR TERM=xterm $(command_of 4 --runs "$runs")
        expect "exit code" 0 $code
        expect "bundles" 1 "$(ls "$runs"/*.tar.zst | wc -l)"
        expect "results" "$reference" "$(field "$(bundle_in "$runs")" 'run["results_sha256"]')"
        expect "what else is left" "" "$(left_in "$runs")"
        expect "lines with the result" 1 "$(grep -c "done.*$runs/" out)"
        expect "colour in a file" 0 "$(cat out log | grep -c $'\033')"
    done

    case_name="$mpi, GPUs that the tasks cannot share"
    # shellcheck disable=SC2046
    job $mpi 3 $(command_of 4 --runs uneven)
    expect "exit code" 2 $code
    grep -q "3 tasks, and the experiment has hardware.gpus = 4" log || fail "no such message"
    expect "what is left" "" "$(left_in uneven)"
    all_ended

    case_name="$mpi, a worker is killed" # not its runner, whose end the launcher would notice
    # shellcheck disable=SC2046,SC2086
    start $mpi 2 $(command_of 4 --runs $mpi-worker $endless)
    await_step $mpi-worker $every
    kill -KILL "$(rank_of "$(task_of "$pid" 1)" 3)"
    wait "$pid"
    expect "exit code" 1 $?
    all_ended
    expect "status and rank" "('killed', 3)" \
        "$(field "$(bundle_in $mpi-worker)" 'run["status"], error["rank"]')"

    # Both launchers then end the other tasks. Open MPI waits a second, sends SIGTERM, waits a
    # second and sends SIGKILL; here three seconds, since other tests load the machine. MPICH sends
    # SIGKILL at once: task 0 writes no bundle; the next command that finds the run does.
    export OMPI_MCA_odls_base_sigkill_timeout=3
    case_name="$mpi, a task is killed"
    # shellcheck disable=SC2046,SC2086
    start $mpi 4 $(command_of 4 --runs $mpi-task $endless)
    await_checkpoint $mpi-task $every
    kill -KILL "$(task_of "$pid" 2)"
    wait "$pid" && fail "exit code 0"
    all_ended
    if [ $mpi = openmpi ]; then
        expect "status and rank" "('failed', 2)" \
            "$(field "$(bundle_in $mpi-task)" 'run["status"], error["rank"]')"
    else
        "$FP8LAB" list $mpi-task >out 2>log || fail "list: exit code $?"
        expect "status, and a checkpoint" "('killed', True)" \
            "$(field "$(bundle_in $mpi-task)" 'run["status"], run["checkpoint_step"] > 0')"
    fi

    # Their exit code says little. Open MPI's is 1. MPICH's is 143 or sometimes 0, as also for a
    # shell script that exits with 143.
    case_name="$mpi, SIGTERM to it"
    # shellcheck disable=SC2046,SC2086
    start $mpi 2 $(command_of 4 --runs $mpi-stopped $endless)
    stop TERM 2 $mpi-stopped $((every * 5 / 4))
    bundle=$(bundle_in $mpi-stopped)
    expect "status" "interrupted" "$(field "$bundle" 'run["status"]')"
    expect "nothing is lost" True \
        "$(field "$bundle" 'run["checkpoint_step"] == summary["step_last"] > 0')"
    step=$(field "$bundle" 'run["checkpoint_step"]')

    # Both forward the signal, and kill no process after it.
    case_name="$mpi, resumed with one task a rank, and SIGUSR1"
    start $mpi 4 "$FP8LAB" run --resume last --runs $mpi-stopped --threads 1
    stop USR1 4 $mpi-stopped $((step + 3))
    bundle=$(bundle_in $mpi-stopped)
    expect "attempts" "['signal', 'signal']" \
        "$(field "$bundle" '[a["reason"] for a in run["attempts"]]')"
    expect "first step after it" "$step" "$(field "$bundle" 'run["attempts"][1]["from_step"]')"
    expect "nothing is lost" True \
        "$(field "$bundle" "run['checkpoint_step'] == summary['step_last'] > $step")"
done
[ -n "${tried:-}" ] || [ $failed = 1 ] || skip "mpirun cannot start a program here"
exit $failed
