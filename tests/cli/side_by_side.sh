#!/bin/bash
# long: 60
# run --side-by-side N: rows at the same time, each once; a stop, a killed process, a failed row, a
# full disk; what is printed; where it does not fit.
set -u
. tests/cli/lib.sh
suite="$tests/suite.lua --lib $lib --threads 1"
short="$suite --set train.steps=3"
long="$suite --set train.global_batch=2 --set train.steps=600 --set eval.every=600"
endless="$suite --set train.steps=1000000"
cat >lr.lua <<'LUA'
local tiny = require "models.tiny"
return suite { -- the second row's loss becomes infinite
  name = "lr", matrix = { ["train.optimizer.lr"] = { 1e-3, 100, 2e-3, 3e-3 } }, recipe = bf16,
  model = tiny.llama { layers = 1, seq_len = 32 }, data = synthetic { seed = 7 },
  train = { steps = 20, global_batch = 4, micro_batch = 2, optimizer = adamw { clip = 0 } },
  checkpoint = { every = 10, keep = 1 },
}
LUA

bundles() { find "$1" -maxdepth 1 -name '*.tar.zst' | wc -l; }
slots() { # RUNS: "NAME SLOT of HOW-MANY" of each run's last attempt
    for bundle in "$1"/*.tar.zst; do
        field "$bundle" 'run["name"] + " %d of %d" % (lambda s: (s["slot"], s["rows_at_once"]))(
            run["attempts"][-1]["side_by_side"])'
    done | sort
}
both_running() { # RUNS: until both rows have made steps
    await_step "$1" 5 bf16
    await_step "$1" 5 tensorwise
}

case_name="each row once"
"$FP8LAB" run $short --side-by-side 2 >out 2>log
expect "exit code" 0 $?
expect bundles 2 "$(bundles runs)"
expect "slots" 2 "$(slots runs | sed 's/.* \([01] of 2\)/\1/' | sort -u | wc -l)"
expect comparisons 1 "$(grep -c "one factor: recipe" out)"
expect "lines of rows" 2 "$(grep -cE '^slot [01]: done  step 3 ' out)"
expect "lines of nobody" "" "$(grep -vE '^(slot [01]: |kept: |2 rows, 2 at once$|Next: )' log)"
! grep -q "already run" log || fail "its own rows count as earlier runs"
tar --zstd -xOf "$(newest runs)" --wildcards '*/data/logs/runner.log' >runner.log
grep -q " slot [01] of 2 rows at once$" runner.log || fail "runner.log does not say it"
"$FP8LAB" show "$(newest runs)" >shown
grep -qE "side by side +2 rows at once; this was slot [01]" shown || fail "show does not say it"
"$FP8LAB" run $short --side-by-side 2 >out 2>log
expect "exit code if all are done" 0 $?
expect "earlier runs" 2 "$(grep -c "already run with these inputs" log)"
expect "bundles" 2 "$(bundles runs)"
"$FP8LAB" run $short --side-by-side 2 --again --json >out 2>log
expect "exit code of --again" 0 $?
expect "bundles of --again" 4 "$(bundles runs)"
expect "rows of --json" '[["done", false], ["done", false]]' "$(python3 -c 'import json
print(json.dumps([[r["status"], r["earlier"]] for r in json.load(open("out"))["runs"]]))')"
"$FP8LAB" run $short --side-by-side 2 --runs quiet -q >out 2>log
expect "messages of -q" "" "$(cat log)"
"$FP8LAB" run $short --side-by-side 1 --runs one >out 2>log
expect "exit code of one at once" 0 $?
expect "runs of one at once" "None" "$(for bundle in one/*.tar.zst; do
    field "$bundle" 'run["attempts"][0].get("side_by_side")'
done | sort -u)"

# More slots than rows; repeats: each slot begins with its own repeat.
case_name=repeats
"$FP8LAB" run $short --side-by-side 3 --repeat 2 --set eval=false --runs turns >out 2>log
expect "exit code" 0 $?
expect bundles 4 "$(bundles turns)"
first_of() { sed -n "s/^slot $1: \(.*repeat.*\)/\1/p" log | head -1; }
expect "the first row of slot 0" "pair-bf16, repeat 1 of 2" "$(first_of 0)"
expect "the first row of slot 1" "pair-fp8.tensorwise, repeat 2 of 2" "$(first_of 1)"
gives 0 run $short --side-by-side 9 --runs nine --

# Beside an ordinary command.
case_name="beside another command"
"$FP8LAB" run $short --repeat 2 --runs shared >out.other 2>log.other &
"$FP8LAB" run $short --repeat 2 --runs shared --side-by-side 2 >out 2>log
expect "exit code" 0 $?
wait $!
expect "exit code of the other" 0 $?
expect bundles 4 "$(bundles shared)"

case_name="a stop"
"$FP8LAB" run $long --side-by-side 2 --runs stopped >out 2>log &
pid=$!
both_running stopped
"$FP8LAB" watch --json "$(echo stopped/*tensorwise*/)" >watch.json
says '"rows":2' watch.json
kill -TERM $pid
wait $pid
expect "exit code" 143 $?
expect "rows that said so" 2 "$(grep -c "^slot [01]: .*: stopping: checkpoint, bundle" log)"
expect "statuses" "interrupted" "$(for bundle in stopped/*.tar.zst; do
    field "$bundle" 'run["status"]'
done | sort -u)"
next=$(sed -n 's/^Next: fp8lab//p' log)
[[ $next == *"--side-by-side 2"* ]] || fail "the next command is $next"
eval "\"$FP8LAB\" $next" >out 2>log
expect "exit code of the next command" 0 $?
expect "rows gone on with" 2 "$(grep -c "^slot [01]: .*: resuming" log)"
expect bundles 2 "$(bundles stopped)"
expect comparisons 1 "$(grep -c "one factor: recipe" out)"

case_name="another signal"
"$FP8LAB" run $endless --side-by-side 2 --runs twice >out 2>log &
pid=$!
both_running twice
for lock in twice/*/lock; do kill -STOP "$(children_of "$(head -1 "$lock")")"; done
for ((i = 0; i < 600; i++)); do
    [ "$(grep -c "another signal: killing the workers" log)" = 2 ] && break
    kill -INT $pid
    sleep 0.2
done
wait $pid
expect "exit code" 130 $?

# Its process dies: the other row goes on, and this command resumes the lost one.
for again in "" --again; do
    case_name="a killed process $again"
    "$FP8LAB" run $long --side-by-side 2 --runs "killed$again" $again >out 2>log &
    pid=$!
    await_checkpoint "killed$again" 25 bf16
    kill -KILL "$(head -1 killed$again/*bf16*/lock)"
    wait $pid
    expect "exit code" 0 $?
    grep -q "its process ended by signal 9 (Killed) in pair-bf16; this command takes the row" log ||
        fail "it does not say which"
    expect "rows that are done" 2 "$("$FP8LAB" list "killed$again" | grep -c done)"
    expect bundles 2 "$(bundles "killed$again")"
    expect "rows gone on with" 1 "$(grep -c ": resuming" log)"
done

# The command itself is killed: nothing of it lives on.
case_name="a killed command"
"$FP8LAB" run $endless --side-by-side 2 --runs orphans >out 2>log &
pid=$!
both_running orphans
left=$(for lock in orphans/*/lock; do head -1 "$lock" && children_of "$(head -1 "$lock")"; done)
kill -KILL $pid
wait $pid 2>/dev/null
for lock in orphans/*/lock; do flock -w 60 "$lock" true || fail "$lock is still held"; done
for process in $left; do
    for ((i = 0; i < 1200; i++)); do
        [ -e "/proc/$process" ] || break
        sleep 0.05
    done
    [ ! -e "/proc/$process" ] || fail "process $process lives on"
done

case_name="a row that fails"
"$FP8LAB" run lr.lua --lib "$lib" --threads 1 --side-by-side 2 --runs fails >out 2>log
expect "exit code" 1 $?
expect "runs, each once" 4 "$(bundles fails)"
expect "rows that are done" 3 "$("$FP8LAB" list fails | grep -c done)"

# The last checkpoint does not fit: no further row begins.
case_name="a full disk"
(trap '' XFSZ; ulimit -f 1000; "$FP8LAB" run lr.lua --lib "$lib" --threads 1 --side-by-side 2 \
    --only 'lr-lr-0.001' --repeat 4 --runs full >out 2>log)
expect "exit code" 6 $?
expect "runs that began" 2 "$(bundles full)"

case_name="where it does not fit"
alone="$tests/tiny.lua --lib $lib"
gives 2 run $suite --side-by-side 0 -- "--side-by-side" "1 to 64"
gives 2 run $alone --side-by-side 2 -- "is no suite: it has one run"
gives 2 run --resume "$(newest runs)" --side-by-side 2 -- "no --resume, since it continues one run"
gives 2 run --extend "$(newest runs)" --side-by-side 2 -- "no --extend"
gives 2 run $suite --side-by-side 2 --profile -- "no --profile, since a profiler follows one run"
gives 2 run $suite --side-by-side 2 --launch srun -- "one job for each"
RANK=0 WORLD_SIZE=2 gives 2 run $suite --side-by-side 2 -- "torchrun started 2 tasks"
more=$(($(nproc) + 1))
[ $more -gt 64 ] || gives 3 run "$tests/suite.lua" --lib "$lib" --side-by-side $more \
    --repeat $more --backend cpu -- "need as many processors, and there are $(nproc)"
gives 0 run $suite --side-by-side 2 --launch docker --dry-run -- "--side-by-side=2"

[ $failed = 0 ] && echo "rows run side by side, each once"
exit $failed
