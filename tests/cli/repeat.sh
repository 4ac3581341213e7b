#!/bin/bash
# long: 25
# run --repeat N: rows in turns; earlier runs count among the N; the same command again makes what
# is missing, also beside another command; --again makes N new ones.
set -u
. tests/cli/lib.sh
suite="$tests/suite.lua --lib $lib --threads 1"
short="$suite --set train.steps=3"

bundles() { find "$1" -maxdepth 1 -name '*.tar.zst' | wc -l; }
started() { sed -n 's/^\(pair-[^,]*, repeat [0-9] of [0-9]\)$/\1/p' log | tr '\n' ';'; }

"$FP8LAB" run $short --repeat 2 >out 2>log
expect "exit code" 0 $?
expect "the order" "pair-bf16, repeat 1 of 2;pair-fp8.tensorwise, repeat 1 of 2;\
pair-bf16, repeat 2 of 2;pair-fp8.tensorwise, repeat 2 of 2;" "$(started)"
expect "bundles" 4 "$(bundles runs)"
expect "runs compared" 4 "$(grep -cE '^[A-D]   (bf16|fp8.tensorwise) +1 +3 ' out)"
says "How much faster?" out
says "a CPU emulates FP8" out

"$FP8LAB" run $short --repeat 2 >out 2>log
expect "exit code if all are done" 0 $?
expect "bundles, once more" 4 "$(bundles runs)"
expect "earlier runs, each once" 4 "$(grep -o 'again): runs/.*' log | sort -u | wc -l)"
says "pair-bf16, repeat 2 of 2: already run with these inputs"

"$FP8LAB" run $short --repeat 3 --json >out 2>log
expect "bundles of three" 6 "$(bundles runs)"
expect "rows of --json" "6 4" "$(python3 -c 'import json
rows = json.load(open("out"))["runs"]
print(len({r["id"] for r in rows}), sum(r["earlier"] for r in rows))')"
"$FP8LAB" run $short >out 2>log
expect "bundles without --repeat" 6 "$(bundles runs)"
expect "rows without --repeat" 2 "$(grep -c 'already run' log)"
"$FP8LAB" run $short --repeat 2 --again >out 2>log
expect "bundles after --again" 10 "$(bundles runs)"

# Seeds are rows; a repeat has the bits of its row.
"$FP8LAB" run $short --runs seeds --set matrix.seed=1,2 --repeat 2 >out 2>log
expect "bundles of two seeds" 8 "$(bundles seeds)"
expect "different results" 4 "$(for b in seeds/*.tar.zst; do
    field "$b" 'run["results_sha256"]'; done | sort -u | wc -l)"

# An experiment alone.
"$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --threads 1 --runs alone --repeat 2 \
    --set train.steps=3 >out 2>log
expect "exit code of an experiment" 0 $?
expect "bundles of an experiment" 2 "$(bundles alone)"
says "A and B: equal bit for bit over 3 steps" out

# Stopped: the next command makes what is missing, and resumes the stopped row.
long="$suite --set train.steps=60 --repeat 2"
"$FP8LAB" run $long --runs stopped >out 2>log &
pid=$!
await_step stopped 5 tensorwise
"$FP8LAB" watch --json "$(echo stopped/*tensorwise*/)" >watch.json
says '"row":2,"rows":4' watch.json
says '"name":"bf16, repeat 1 of 2"' watch.json
kill -TERM $pid
wait $pid
expect "exit code of the stopped suite" 143 $?
next=$(sed -n 's/^Next: fp8lab//p' log)
[[ $next == *"--repeat 2"* ]] || fail "the next command is $next"
eval "\"$FP8LAB\" $next" >out 2>log
expect "exit code of the resumed suite" 0 $?
expect "rows gone on with" 1 "$(grep -c resuming log)"
expect "bundles" 4 "$(bundles stopped)"
expect "rows that are done" 4 "$("$FP8LAB" list stopped | grep -c done)"

# Two commands at once share the repeats; both compare all.
"$FP8LAB" run $long --runs shared >out.first 2>log.first &
first=$!
"$FP8LAB" run $long --runs shared >out.second 2>log &
wait $first
expect "exit code of the first" 0 $?
wait
expect "runs of both" 4 "$(bundles shared)"
for out in out.first out.second; do
    expect "runs compared in $out" 4 "$(grep -cE '^[A-D]   (bf16|fp8.tensorwise) +1 +60 ' $out)"
done

# Where it does not fit.
gives 2 run $short --repeat 0 -- "--repeat" "1 to 100"
gives 2 run --resume "$(newest runs)" --repeat 2 -- "no --repeat"
gives 2 run --extend "$(newest runs)" --repeat 2 -- "--only or --repeat"
gives 0 plan "$tests/suite.lua" --lib "$lib" --repeat 2 -- "fp8lab run" "--repeat 2"
expect "rows of the plan" 4 "$(grep -cE '^ *pair-(bf16|fp8.tensorwise) ' out)"

[ $failed = 0 ] && echo "repeats take turns, count earlier runs, and are shared"
exit $failed
