#!/bin/bash
# long: 25
# A suite resumes: done rows are not run again, a stopped row resumes, and all rows are compared at
# the end. Two commands at once run each row once.
set -u
. tests/cli/lib.sh
suite="$tests/suite.lua --lib $lib --threads 1"

"$FP8LAB" run $suite >out 2>log & # stopped in its second row
pid=$!
await_step runs 5 tensorwise
"$FP8LAB" watch --json "$(echo runs/*tensorwise*/)" >watch.json
expect "the row, and those that ended" "2 of 2 [(1, 'bf16', 'done', True, True)]" \
    "$(python3 -c 'import json
s = json.load(open("watch.json"))["suite"]
print(s["row"], "of", s["rows"], [(r["row"], r["name"], r["status"], 0 < r["loss"] < 10,
                                   0 < r["eval_loss"] < 10) for r in s["ended"]])')"
grep -q "^row 2/2  step " log || grep -q "^row 1/2  step " log || fail "no line names its row"
kill -TERM $pid
wait $pid
expect "exit code of the stopped suite" 143 $?
expect "bundles" 2 "$(ls runs/*.tar.zst | wc -l)"
"$FP8LAB" verify runs/*tensorwise*/ >out 2>&1 || fail "the stopped row's directory: $(cat out)"
next=$(sed -n 's/^Next: fp8lab//p' log) # the command of the suite, which resumes it
[ -n "$next" ] || fail "no next command"

eval "\"$FP8LAB\" $next" >out 2>log
expect "exit code of the resumed suite" 0 $?
expect "rows not run again" 1 "$(grep -c "pair-bf16: already run .*(--again runs it again)" log)"
expect "rows gone on with" 1 "$(grep -c "resuming" log)"
expect "bundles" 2 "$(ls runs/*.tar.zst | wc -l)"
expect "the comparison" 1 "$(grep -c "What differs" out)"

"$FP8LAB" run --json $suite >out 2>log
expect "exit code if every row is done" 0 $?
expect "rows" '[["done", true], ["done", true]]' "$(python3 -c 'import json
print(json.dumps([[r["status"], r["earlier"]] for r in json.load(open("out"))["runs"]]))')"

# A reproduction is newer, and does not stand for its original.
original=$(ls runs/*pair-bf16*.tar.zst)
"$FP8LAB" repro "$original" --threads 1 >out 2>log || fail "repro"
again=$(ls runs/*pair-bf16*.tar.zst | grep -vxF "$original")
"$FP8LAB" run $suite >out 2>log
expect "the run that stands for the row" 1 "$(grep -cF "again): $original" log)"
rm "$again"

"$FP8LAB" run $suite --again --set train.steps=2 >out 2>log
"$FP8LAB" run $suite --again --set train.steps=2 >out 2>log
expect "runs after --again" 6 "$(ls runs/*.tar.zst | wc -l)"
set -- $(ls -t runs/*bf16*.tar.zst | head -2)
expect "results of equal inputs" "$(field "$1" 'run["results_sha256"]')" \
    "$(field "$2" 'run["results_sha256"]')"

# A row that was run alone (--only) counts as done for the suite.
"$FP8LAB" run $suite --runs parts --only '*.tensorwise' --set train.steps=3 >out 2>log
expect "exit code of one row" 0 $?
expect "rows" 1 "$(ls parts/*tensorwise*.tar.zst | wc -l)"
"$FP8LAB" run $suite --runs parts --set train.steps=3 >out 2>log
expect "rows not run again" 1 "$(grep -c "already run with these inputs" log)"
"$FP8LAB" run $suite --runs parts --set train.steps=3 --backend cuda --only '*.tensorwise' \
    >out 2>log
if [ -e "$(dirname "$FP8LAB")/libfp8lab_cuda.so" ] && [ ! -e /dev/nvidiactl ]; then
    says "no NVIDIA driver is installed on this machine"
elif [ -e "$(dirname "$FP8LAB")/libfp8lab_cuda.so" ]; then
    says "that run computed on cpu, and --backend says cuda; --again runs it on cuda"
else # built without nvcc
    says "there is no cuda backend"
fi
expect "bundles of the whole" 2 "$(ls parts/*.tar.zst | wc -l)"
"$FP8LAB" run $suite --runs parts --only pair-bf61 >out 2>log
expect "exit code for an unknown row" 2 $?
says "no run has such a name (nearest: pair-bf16); the runs are pair-bf16, pair-fp8.tensorwise"
"$FP8LAB" run $suite --runs parts --only '*.tensorwise' --set recipe.lm_head=fp8 >out 2>log
expect "exit code for a key that a row lacks" 2 $?
says "--set changes every row, also those that --only leaves out"

# Two commands that run one suite in one folder share its rows. If one is killed, the other takes
# its row over.
both() { # RUNS ARGS...: starts the suite twice at once; their process ids in $first and $second
    "$FP8LAB" run $suite --runs "$@" >out.first 2>log.first &
    first=$!
    "$FP8LAB" run $suite --runs "$@" >out.second 2>log &
    second=$!
}
both shared
wait $first
expect "exit code of the first" 0 $?
wait $second
expect "exit code of the second" 0 $?
expect "runs of two rows" 2 "$(ls shared/*.tar.zst | wc -l)"
expect "comparisons" 2 "$(cat out.first out.second | grep -c "one factor: recipe")"

both taken
await_checkpoint taken 25 bf16
owner=$(head -1 taken/*bf16*/lock)
kill -KILL "$owner"
left=$((first + second - owner))
wait $left
expect "exit code of the one left" 0 $?
wait
expect "runs of two rows" 2 "$(ls taken/*.tar.zst | wc -l)"
expect "rows that are done" 2 "$("$FP8LAB" list taken | grep -c done)"

# The same if the other command reaches the row only after the process died.
"$FP8LAB" run $suite --runs left >out 2>log &
first=$!
await_step left 5 bf16
"$FP8LAB" run $suite --runs left --only '*.tensorwise' \
    >out.second 2>log.second &
second=$!
await_checkpoint left 25 tensorwise
kill -KILL $second
wait $first
expect "exit code of the one left" 0 $?
wait
expect "rows gone on with" 1 "$(grep -c "resuming" log)"
expect "runs of two rows" 2 "$(ls left/*.tar.zst | wc -l)"

[ $failed = 0 ] && echo "suites resume, and share their rows"
exit $failed
