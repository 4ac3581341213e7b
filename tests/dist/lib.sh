# For the shell tests of this folder: sourced, from the repository root.
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
export NO_COLOR=1
tests=$PWD/tests/cli
lib=$PWD/experiments/lib
cd "$TEST_TMP" || exit 1
failed=0
case_name=
# Steps between checkpoints of a run that a test disturbs.
[ "${CONFIG:-release}" = asan ] && : "${every:=20}"
: "${every:=50}"

fail() {
    echo "FAILED: $case_name: $*"
    for log in log*; do [ -f "$log" ] && tail -8 "$log" | sed "s/^/    $log: /"; done
    failed=1
}

expect() { # WHAT WANTED FOUND
    [ "$2" = "$3" ] || fail "$1: wanted $2, found $3"
}

# The command line of a run of the tiny experiment on $1 ranks.
command_of() { # RANKS ARGS...
    local ranks=$1
    shift
    echo "$FP8LAB run $tests/tiny.lua --lib $lib --threads 1 --set hardware.gpus=$ranks" \
        "--set train.global_batch=8 $*"
}
long="--set train.steps=$((6 * every)) --set checkpoint.every=$every"
# For runs that are not resumed: they cannot end too early.
endless="--set train.steps=1000000 --set checkpoint.every=$every"

run() { # RANKS ARGS...; exit code in $code
    # shellcheck disable=SC2046
    $(command_of "$@") >out 2>log
    code=$?
}

# The files in a folder of runs other than bundles, their checkpoints and the claim.
left_in() {
    find "$1" -mindepth 1 -maxdepth 1 ! -name '*.tar.zst' ! -name .claim ! -name '*.checkpoints'
}

bundle_in() { ls "$1"/*.tar.zst 2>/dev/null | head -1; }

# expression over run.json, such as run["status"]
field() { # BUNDLE EXPRESSION
    "$FP8LAB" show --json "$1" | python3 -c 'import json, sys
o = json.load(sys.stdin); run = o["run"]; summary = o["summary"]; error = run["error"]
print(eval(sys.argv[1]))' "$2"
}

# Waits until the run in $1 has recorded step $2.
await_step() {
    local i
    for ((i = 0; i < 3000; i++)); do
        grep -qs "\"step\":$2," "$1"/*/data/metrics/train.jsonl && return
        sleep 0.02
    done
    fail "step $2 was never recorded"
}

children_of() { cat "/proc/$1/task/$1/children"; }
# The worker of rank $2 among the children of runner $1.
rank_of() {
    local pid
    for pid in $(children_of "$1"); do
        tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -- "--rank $2 " && echo "$pid"
    done
}
runner_of() { head -1 "$(ls "$1"/*/lock)"; }
# The states of another host's ranks come with its heartbeats, two a second (TICK_MS). Waits for a
# few of them, so that the leader has received a step.
await_beats() { sleep 2; }
seconds() { date +%s; }
