#!/bin/bash
# The same bits again, in every recipe: two new runs with one choice table, and a run that is
# stopped and resumed; runs with other algorithms of each class. Also a run that begins on
# one backend and ends on the other: its loss is near that of a whole run.
#
#   tests/gpu/repeat.sh [PROGRAM] [RECIPE...]     default build/release/fp8lab, all six
#
# PARTS=same skips the runs across backends, PARTS=cross skips all others. All run at the same time.
set -u
program=$(realpath "${1:-build/release/fp8lab}")
shift
recipes=${*:-bf16 fp8.delayed fp8.tensorwise fp8.rowwise fp8.blockwise fp8.mxfp8}
parts=${PARTS:-same cross}
# reference/ has full-size runs. These are short, so that checkpoints take little time, but long
# enough to be stopped in the middle.
steps=400 stop=100
size="--set model.layers=2 --set model.width=1024 --set model.heads=8 --set model.kv_heads=2
      --set model.ffn=2816 --set model.seq_len=512 --set train.global_batch=4
      --set train.micro_batch=2 --set train.steps=$steps --set eval.every=100"
root=$(cd "$(dirname "$0")/../.." && pwd)
experiments=${EXPERIMENTS:-$root/experiments} tiny=${TINY:-$root/tests/cli/tiny.lua}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export NO_COLOR=1
cd "$scratch" || exit 1

fail() { # the recipe's log is in `log`
    echo "FAILED: $*"
    sed 's/^/    /' log | tail -6
    failed=1
}
field() { # RUNS EXPRESSION over `show --json`
    "$program" show --json "$1"/*.tar.zst | python3 -c 'import json, sys
o = json.load(sys.stdin); run = o["run"]; summary = o["summary"]
print(eval(sys.argv[1]))' "$2"
}
run() { # RUNS ARGS...
    local runs=$1
    shift
    "$program" run --runs "$runs" --lib "$experiments/lib" "$@" >log 2>&1
}
# Stops `run ARGS...` by SIGTERM once its records have step STEP.
run_until() { # RUNS STEP ARGS...
    local runs=$1 step=$2 i code
    shift 2
    "$program" run --runs "$runs" --lib "$experiments/lib" "$@" >log 2>&1 &
    for ((i = 0; i < 6000; i++)); do
        grep -qs "\"step\":$step," "$runs"/*/data/metrics/train.jsonl && break
        kill -0 $! 2>/dev/null || break
        sleep 0.01
    done
    kill -TERM $! 2>/dev/null
    wait $!
    code=$?
    [ $code = 143 ] || fail "a stopped run exits with $code, not 143"
}

# A run that was stopped and resumed continued where it was stopped, in the middle.
resumed_midway() { # RUNS WHAT
    local to_from
    to_from=$(field "$1" \
        '"%d %d" % (run["attempts"][-2]["to_step"], run["attempts"][-1]["from_step"])')
    [ "${to_from% *}" = "${to_from#* }" ] && [ "${to_from% *}" -ge $stop ] ||
        fail "$2: stopped and resumed at steps $to_from"
}

# Timing changes no bit: the first, second and last algorithm of each class. The tables must differ.
other_tables() { # RECIPE RESULTS SCRIPT...
    mkdir -p tables
    local recipe=$1 results=$2 place
    shift 2
    for place in 1 2 99; do
        { head -3 whole/data/choices.txt; echo "place $place : -"; } >place.$place
        run "place$place" "$@" --backend cuda --choices "place.$place" ||
            fail "$recipe: algorithm $place of each class"
        [ "$(field "place$place" 'run["results_sha256"]')" = "$results" ] ||
            fail "$recipe: algorithm $place of each class has other bits"
        "$program" extract -q "place$place"/*.tar.zst --to "tables/$place" >log 2>&1 ||
            fail "$recipe: extract"
    done
    cmp -s tables/1/data/choices.txt tables/99/data/choices.txt &&
        fail "$recipe: the tables of the first and last algorithms are the same"
}

same_bits() { # RECIPE
    local script="$experiments/repro_gpu.lua --set recipe=$1 $size" results
    failed=0
    mkdir "$1"
    cd "$1" || exit 1
    run first $script --backend cuda || fail "$1: the first run"
    results=$(field first 'run["results_sha256"]')
    "$program" extract -q first/*.tar.zst --to whole >log 2>&1 || fail "$1: extract"
    run again $script --backend cuda --choices whole/data/choices.txt || fail "$1: the second run"
    [ "$(field again 'run["results_sha256"]')" = "$results" ] ||
        fail "$1: the second run has other bits"
    run_until stopped $stop $script --backend cuda --choices whole/data/choices.txt \
        --set checkpoint.every=150 --set checkpoint.keep=1
    run stopped --resume last --backend cuda || fail "$1: the resumed run"
    resumed_midway stopped "$1"
    other_tables "$1" "$results" $script
    [ "$(field stopped 'run["results_sha256"]')" = "$results" ] ||
        fail "$1: the resumed run has other bits"
    echo "$1: $(field first 'summary["loss_final_bits"]') after $steps steps, again and resumed" \
        "$([ $failed = 0 ] && echo the same, "${results:0:12}")"
    exit $failed
}

# Begins on the backend $2, continues on $3: its loss must be near that of a run on the CPU. Runs
# that differ by roundings diverge: 0.4 % was seen after these steps, a fifth of the limit.
resumes_across() { # RECIPE FROM TO
    local long="$tiny --set recipe=$1 --set train.steps=600 --set checkpoint.every=100"
    local from whole crossed
    failed=0
    mkdir "$1.$2.$3"
    cd "$1.$2.$3" || exit 1
    run whole $long --backend cpu --threads 2 || fail "$1: on the CPU"
    run_until part $stop $long --backend "$2" --threads 2
    run part --resume last --backend "$3" --choices none || fail "$1: from $2 to $3"
    resumed_midway part "$1: from $2 to $3"
    from=$(field part 'run["attempts"][-1]["from_step"]')
    whole=$(field whole 'summary["loss_final"]') crossed=$(field part 'summary["loss_final"]')
    python3 -c "import sys; sys.exit(not abs($crossed / $whole - 1) < 0.02)" ||
        fail "$1: from $2 to $3 the loss is $crossed, on the CPU $whole"
    echo "$1: from $2 to $3 at step $from: loss $crossed, on the CPU $whole"
    exit $failed
}

running=() all=0
for recipe in $recipes; do
    [[ " $parts " == *" same "* ]] || break
    (same_bits "$recipe") &
    running+=($!)
done
for way in "cpu cuda" "cuda cpu"; do
    [[ " $parts " == *" cross "* ]] || break
    (resumes_across fp8.delayed $way) &
    running+=($!)
done
for one in "${running[@]}"; do wait "$one" || all=1; done
exit $all
