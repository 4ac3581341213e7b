#!/bin/bash
# How long a run takes from the command to its first step, with an empty cache of choices and with
# the cache of the first run; and that both have the same bits without any flag. A third run times
# its own choices and keeps nothing.
#
#   tests/gpu/start.sh [PROGRAM] [ARGS of run...]
#
# default: build/release/fp8lab, experiments/repro_gpu.lua with 20 steps. For the whole 8B on 4 GPUs
# give its script and --set train.steps=4. Another process on the GPU is a failure: nothing is kept.
# The columns are seconds after the command until: the run's directory exists (machine, data),
# workers are ready (device, memory, weights), the first step is recorded (choices, the step).
set -u
program=$(realpath "${1:-build/release/fp8lab}")
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
experiments=${EXPERIMENTS:-$root/experiments}
[ $# -gt 0 ] || set -- "$experiments/repro_gpu.lua" --set train.steps=20
scratch=$(mktemp -d) failed=0
trap 'rm -rf "$scratch"' EXIT
export NO_COLOR=1 XDG_CACHE_HOME=$scratch/cache

fail() {
    echo "FAILED: $*"
    failed=1
}
field() { # RUNS EXPRESSION: of each row, in the order of their names
    local bundle
    for bundle in $(cd "$scratch/$1" && ls -- *.tar.zst | sort -t- -k2); do
        "$program" show --json "$scratch/$1/$bundle" | python3 -c 'import json, sys
run = json.load(sys.stdin)["run"]
print(eval(sys.argv[1]))' "$2"
    done
}
seconds() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (b - a) / 1e9 }'; }

# await PATTERN WORDS: until a file of the pattern has the words, or the run has ended.
await() {
    # shellcheck disable=SC2086  # a pattern
    until grep -qs -- "$2" $1; do
        kill -0 "$pid" 2>/dev/null || return
        sleep 0.01
    done
}
start() { # RUNS ARGS...: prints a line of the table
    local runs=$1 begun made ready step
    shift
    begun=$(date +%s%N)
    "$program" run --runs "$scratch/$runs" --lib "$experiments/lib" --backend cuda --keep-dir \
        "$@" >"$scratch/$runs.log" 2>&1 &
    pid=$!
    await "$scratch/$runs/*/data/run.json" schema && made=$(date +%s%N)
    await "$scratch/$runs/*/data/logs/runner.log" "start after step" && ready=$(date +%s%N)
    await "$scratch/$runs/*/data/metrics/train.jsonl" '"step":1,' && step=$(date +%s%N)
    wait "$pid" || { fail "$runs: exit code $?"; tail -5 "$scratch/$runs.log"; }
    grep -h "from the command to the first step" "$scratch/$runs"/*/data/logs/runner.log |
        cut -d' ' -f2- >>"$scratch/parts"
    printf '%-8s %8s %8s %8s  %s\n' "$runs" "$(seconds "$begun" "$made")" \
        "$(seconds "$begun" "$ready")" "$(seconds "$begun" "$step")" \
        "$(sed -n 's/.*choice table: //p' "$scratch/$runs"/*/data/logs/runner.log | tail -1)"
}

printf '%-8s %8s %8s %8s\n' run made ready step
start first "$@"
start second "$@"
start none "$@" --choices none
for what in 'run["results_sha256"]' 'run["inputs_sha256"]' 'run["inputs"]["choices"]'; do
    found=$(field first "$what")
    [ -n "$found" ] || fail "there is no $what"
    [ "$found" = "$(field second "$what")" ] || fail "the second run differs in $what"
done
[ -s "$XDG_CACHE_HOME/fp8lab/choices.json" ] ||
    { fail "nothing was kept"; grep -h "timed" "$scratch"/*.log; }
grep -qs " 0 of them timed now" "$scratch"/second/*/data/logs/runner.log ||
    ! grep -qs "choice table" "$scratch"/second/*/data/logs/runner.log ||
    fail "the second run timed algorithms"
cat "$scratch/parts" # of each run
same=other
[ "$(field first 'run["results_sha256"]')" = "$(field none 'run["results_sha256"]')" ] &&
    same="the same"
results=$(field first 'run["results_sha256"][:12]' | paste -sd ' ')
echo "first and second: results $results; none: $same"
exit $failed
