#!/bin/bash
# The choice table as an input of a run. An invalid table is rejected before anything runs, another
# device's by the backend, a changed one on --resume. A run on the CPU has none.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
export NO_COLOR=1
tests=$PWD/tests/cli
lib=$PWD/experiments/lib
cd "$TEST_TMP" || exit 1
failed=0

# run RUNS CODE ARGS...: the tiny experiment in that folder; its output goes to log.
run() {
    local runs=$1 code=$2
    shift 2
    "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --runs "$runs" --backend cpu --threads 1 \
        --set train.steps=6 "$@" >out 2>log
    local got=$?
    [ "$got" = "$code" ] || fail "exit code $got, not $code: $*"
}
fail() {
    echo "FAILED: $*"
    sed 's/^/    /' log | tail -5
    failed=1
}
says() { grep -qF -- "$1" log || fail "nobody says: $1"; }
field() { # RUNS EXPRESSION over run.json
    "$FP8LAB" show --json "$(ls -d "$1"/*.tar.zst)" |
        python3 -c 'import json, sys
run = json.load(sys.stdin)["run"]
print(eval(sys.argv[1]))' "$2"
}
is() { [ "$2" = "$3" ] || fail "$1: $3, not $2"; }

run plain 0
is "choices of the cpu" None "$(field plain 'run["inputs"]["choices"]')"
inputs=$(field plain 'run["inputs_sha256"]')
run none 0 --choices none
is "inputs with --choices none" "$inputs" "$(field none 'run["inputs_sha256"]')"
is "results" "$(field plain 'run["results_sha256"]')" "$(field none 'run["results_sha256"]')"

echo '{"not": "a table"}' >bad.txt
run bad 2 --choices bad.txt
says "bad.txt: no choice table of this version"
run absent 2 --choices absent.txt
[ -e bad ] || [ -e absent ] && fail "a run was begun"

printf 'fp8lab choices 1\ndevice NVIDIA H200\nlibraries cublaslt 130100, cudnn 91900\n' >h200.txt
run h200 2 --choices h200.txt
says "NVIDIA H200 (cublaslt 130100, cudnn 91900), and the cpu backend makes no choices"
is "its hash is an input" "$(sha256sum h200.txt | cut -d' ' -f1)" \
    "$(field h200 'run["inputs"]["choices"]')"
[ "$inputs" != "$(field h200 'run["inputs_sha256"]')" ] ||
    fail "inputs_sha256 is that without a table"

# The same table from a checkpoint that contains it.
mkdir carried
printf '{"schema": "fp8lab.checkpoint/1", "step": 1, "cursor": 4, "choices": "%s"}' \
    "$(sed 's/$/\\n/' h200.txt | tr -d '\n')" >carried/checkpoint.json
run carry 2 --choices carried
is "the table of a checkpoint" "$(field h200 'run["inputs"]["choices"]')" \
    "$(field carry 'run["inputs"]["choices"]')"

run caps 2 --caps sm_121
says "caps sm_121: the cpu backend cannot simulate a GPU"
[ -e caps ] && fail "a run was begun"

# A table that appears between two attempts is rejected.
"$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --runs stop --backend cpu --threads 1 \
    --set train.steps=1000000 >out 2>log &
for ((i = 0; i < 3000; i++)); do
    grep -qs '"step":2,' stop/*/data/metrics/train.jsonl && break
    sleep 0.02
done
kill -TERM $!
wait $!
FP8LAB_RUN=$(ls -d stop/*/)
cp h200.txt "$FP8LAB_RUN/data/choices.txt"
"$FP8LAB" run --resume "$FP8LAB_RUN" --backend cpu --threads 1 >out 2>log
is "exit code of --resume" 2 $?
says "its choice table data/choices.txt changed since it began (none, now"
rm "$FP8LAB_RUN/data/choices.txt"
exit $failed
