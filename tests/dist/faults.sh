#!/bin/bash
# long: 40
# Ranks of one host: their bits, and the end of a run whose ranks are stopped or die. More cases:
# tests/long/faults.sh.
set -u
golden=$PWD/tests/dist/golden.txt
. tests/dist/lib.sh

case_name="golden losses"
for ranks in 1 2 4; do
    run "$ranks" --runs "golden$ranks" --keep-dir
    expect "exit code with $ranks ranks" 0 $code
    for kind in train eval; do
        sed -n 's/.*"loss_bits":"\([0-9a-f]*\)".*"step":\([0-9]*\),.*/step \2 \1/p' \
            golden"$ranks"/*/data/metrics/$kind.jsonl | sed "s/^/$ranks ranks, $kind, /"
    done
done | grep -E 'step (1|6|12) ' >golden.txt
diff -u "$golden" golden.txt || fail "losses differ from tests/dist/golden.txt"
expect "tokens evaluated, twice each by 1, 2 and 4 ranks" '6 "tokens":64' \
    "$(grep -oh '"tokens":[0-9]*' golden?/*/data/metrics/eval.jsonl | uniq -c | sed 's/^ *//')"

case_name="undisturbed"
run 2 --runs a $long
expect "exit code" 0 $code
reference=$(field "$(bundle_in a)" 'run["results_sha256"]')

case_name="SIGTERM: all ranks stop after the same step"
run 2 --runs term $long &
await_step term $((every * 3 / 2))
kill -TERM "$(runner_of term)"
wait
expect status interrupted "$(field "$(bundle_in term)" 'run["status"]')"
expect "nothing is lost" True \
    "$(field "$(bundle_in term)" 'run["checkpoint_step"] == summary["step_last"] > 0')"
"$FP8LAB" run --resume last --runs term --threads 1 >out 2>log
expect "exit code of --resume" 0 $?
expect "results after it" "$reference" "$(field "$(bundle_in term)" 'run["results_sha256"]')"

case_name="a worker that cannot be started: there is a bundle"
(ulimit -n 64 && run 2 --runs unstarted && exit $code)
expect "exit code" 6 $?
bundle=$(bundle_in unstarted)
expect "status, rank and attempts" "('failed', None, [('failed', 0)])" "$(field "$bundle" \
    '(run["status"], error["rank"], [(a["reason"], a["to_step"]) for a in run["attempts"]])')"
expect "the text" True "$(field "$bundle" '"(ulimit -n)" in error["text"]')"
expect "what else is left" "" "$(left_in unstarted)"

case_name="kill -9 of rank 1"
run 2 --runs kill $endless &
await_step kill $((every * 5 / 4))
begin=$(seconds)
kill -KILL "$(rank_of "$(runner_of kill)" 1)"
wait
[ $(($(seconds) - begin)) -le 60 ] || fail "it took $(($(seconds) - begin)) s"
bundle=$(bundle_in kill)
expect status killed "$(field "$bundle" 'run["status"]')"
expect rank 1 "$(field "$bundle" 'error["rank"]')"
expect host "$(hostname)" "$(field "$bundle" 'error["host"]')"
expect "the operation" True \
    "$(field "$bundle" 'all(w in error["operation"] for w in ("step ", " (collective "))')"
expect "the text" True "$(field "$bundle" \
    'error["text"].startswith("rank 1 on %s was killed by signal 9" % error["host"])')"

case_name="kill -9 of rank 0, one retry, the newest checkpoint damaged"
run 2 --runs retry $long --set checkpoint.every=$((2 * every)) --retries 1 &
# The second of three checkpoints.
await_checkpoint retry $((every * 4))
newest=$(ls -d retry/*/data/checkpoints/step-* | tail -1)
truncate -s -1 "$newest/state.safetensors"
kill -KILL "$(rank_of "$(runner_of retry)" 0)"
wait
expect status done "$(field "$(bundle_in retry)" 'run["status"]')"
expect "attempts from" "[0, $((2 * every))]" \
    "$(field "$(bundle_in retry)" '[a["from_step"] for a in run["attempts"]]')"
from=$((2 * every))
grep -q "a damaged checkpoint is skipped: .*/state.safetensors.*; resuming from step $from" log ||
    fail "no such message"
expect results "$reference" "$(field "$(bundle_in retry)" 'run["results_sha256"]')"

case_name="a device that never worked: no retry"
mkdir missing.bin && cp "$BUILD/tests/dist/faulty" missing.bin/fp8lab &&
    echo "broken 2" >missing.bin/fault
FP8LAB=$PWD/missing.bin/fp8lab run 4 --runs missing --retries 1 --fewer-gpus
expect "exit code, rank and attempts" "6 2 ['failed']" "$code $(field "$(bundle_in missing)" \
    '"%d %s" % (error["rank"], [a["reason"] for a in run["attempts"]])')"

case_name="what a backend emulates is in the log and in the bundle"
mkdir ways.bin && cp "$BUILD/tests/dist/faulty" ways.bin/fp8lab && echo "emulates 0" >ways.bin/fault
FP8LAB=$PWD/ways.bin/fp8lab run 2 --runs ways --keep-dir
expect "the log" 1 "$(grep -c "emulated: 1 of 2 GEMMs (the first: layers.0.qkv.weight, dgrad)" \
    ways/*/data/logs/runner.log)"
"$FP8LAB" show "$(bundle_in ways)" 2>/dev/null | grep -q "^  GEMMs  *native 1, emulated 1$" ||
    fail "the bundle does not contain it"

case_name="a full disk for one rank"
for rank in 0 1; do # each writes 1 MiB of the file for an embedding of 4 MiB
    run 2 --runs full$rank $endless --set model.vocab=8192 --set checkpoint.every=2 &
    await_step full$rank 3
    await_checkpoint full$rank 2
    runner=$(runner_of full$rank)
    prlimit --fsize=1048576 --pid "$(rank_of "$runner" $rank)"
    await_words "could not be written; the run goes on" "full$rank/*/data/logs/runner.log"
    kill -TERM "$runner" # the checkpoint of a stop must be written
    wait
    bundle=$(bundle_in full$rank)
    expect "the exit code" 6 "$(field "$bundle" 'run["exit_code"]')"
    expect status failed "$(field "$bundle" 'run["status"]')"
    expect rank $rank "$(field "$bundle" 'error["rank"]')"
    expect "the checkpoint of before" True "$(field "$bundle" 'run["checkpoint_step"] >= 2')"
    "$FP8LAB" verify -q "$bundle" >/dev/null || fail "the bundle does not verify"
    grep -q "rank $rank on $(hostname): .*/\(model\|state\)[.]safetensors.*: File too large" log ||
        fail "rank and file are not named"
done

exit $failed
