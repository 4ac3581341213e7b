#!/bin/bash
# The choice table as an input of a run. An invalid table is rejected before anything runs, another
# device's by the backend, a changed one on --resume. A run on the CPU has none.
set -u
. tests/cli/lib.sh

# run RUNS CODE ARGS...: the tiny experiment in that folder; its output goes to log.
run() {
    local runs=$1 wanted=$2
    shift 2
    run_tiny --runs "$runs" --backend cpu --set train.steps=6 "$@"
    expect "exit code of $*" "$wanted" $code
}

run plain 0
expect "choices of the cpu" None "$(field plain/*.tar.zst 'run["inputs"]["choices"]')"
inputs=$(field plain/*.tar.zst 'run["inputs_sha256"]')
run none 0 --choices none
expect "inputs with --choices none" "$inputs" "$(field none/*.tar.zst 'run["inputs_sha256"]')"
expect "results" "$(field plain/*.tar.zst 'run["results_sha256"]')" \
    "$(field none/*.tar.zst 'run["results_sha256"]')"

echo '{"not": "a table"}' >bad.txt
run bad 2 --choices bad.txt
says "bad.txt: no choice table of this version"
run absent 2 --choices absent.txt
[ -e bad ] || [ -e absent ] && fail "a run was begun"

printf 'fp8lab choices 1\ndevice NVIDIA H200\nlibraries cublaslt 130100, cudnn 91900\n' >h200.txt
{ cat h200.txt && printf 'gemm 1 2 3 : 00ff\ngemm 4 5 6 : 00'; } >cut.txt
{ cat h200.txt && printf 'gemm 1 2 3 : 00ff\n\0\0\0\0'; } >zero.txt
{ cat h200.txt && printf 'gemm 1 99999999999999999999 3 : 00\n'; } >large.txt
run cut 2 --choices cut.txt
says "cut.txt: choice table, line 5: cut off"
run zero 2 --choices zero.txt
says "zero.txt: choice table: byte 93 is 0"
run large 2 --choices large.txt
says "large.txt: choice table, line 4: expected 'kind integers : hex'"
[ -e cut ] || [ -e zero ] || [ -e large ] && fail "a run was begun"

run h200 2 --choices h200.txt
says "NVIDIA H200 (cublaslt 130100, cudnn 91900), and the cpu backend makes no choices"
expect "its hash is an input" "$(sha256sum h200.txt | cut -d' ' -f1)" \
    "$(field h200/*.tar.zst 'run["inputs"]["choices"]')"
[ "$inputs" != "$(field h200/*.tar.zst 'run["inputs_sha256"]')" ] ||
    fail "inputs_sha256 is that without a table"

# The same table from a checkpoint that contains it.
mkdir carried
printf '{"schema": "fp8lab.checkpoint/1", "step": 1, "cursor": 4, "choices": "%s"}' \
    "$(sed 's/$/\\n/' h200.txt | tr -d '\n')" >carried/checkpoint.json
run carry 2 --choices carried
expect "the table of a checkpoint" "$(field h200/*.tar.zst 'run["inputs"]["choices"]')" \
    "$(field carry/*.tar.zst 'run["inputs"]["choices"]')"

run caps 2 --caps sm_121
says "caps sm_121: the cpu backend cannot simulate a GPU; add --backend cuda"
[ -e caps ] && fail "a run was begun"

# A table that appears between two attempts is rejected.
run_tiny --runs stop --backend cpu --set train.steps=1000000 &
await_step stop 2
kill -TERM "$(runner_of stop)"
wait
FP8LAB_RUN=$(ls -d stop/*/)
cp h200.txt "$FP8LAB_RUN/data/choices.txt"
"$FP8LAB" run --resume "$FP8LAB_RUN" --backend cpu --threads 1 >out 2>log
expect "exit code of --resume" 2 $?
says "its choice table data/choices.txt changed since it began (none, now"
rm "$FP8LAB_RUN/data/choices.txt"
exit $failed
