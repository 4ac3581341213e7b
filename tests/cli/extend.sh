#!/bin/bash
# long: 20, waits
# run --extend: a new run makes more steps from a done run's kept checkpoint, with the bits of one
# long run. The parent is not changed; other learning rates are reported.
set -u
. tests/cli/lib.sh

extend() { # RUN ARGS...
    "$FP8LAB" run --threads 1 --extend "$@" >out 2>log
    code=$?
}
hopper="--arithmetic hopper" # of the parent; its extensions take it over
left() { find "$1" -mindepth 1 -maxdepth 1 -name '.*' ! -name .claim; } # of the command's own

case_name="a constant schedule: the bits of one run"
run_tiny $hopper --runs whole --set train.steps=24
run_tiny $hopper --runs runs
parent=$(newest runs)
before=$(sha256sum <"$parent")
kept=$(sha256sum runs/*.ckpt/*/* | cut -d' ' -f1)
extend "$parent" --set train.steps=24
expect "exit code" 0 $code
says "from its checkpoint of step 12 to step 24"
says "its learning rates up to there are those of the schedule over 24 steps"
child=$(newest runs)
[ "$child" != "$parent" ] || fail "there is no new run"
"$FP8LAB" compare --assert-equal whole/*.tar.zst "$child" >out 2>log
expect "exit code of compare --assert-equal" 0 $?
expect "the weights" "$(field whole/*.tar.zst 'run["final_weights_sha256"]')" \
    "$(field "$child" 'run["final_weights_sha256"]')"
expect "the parent's bundle" "$before" "$(sha256sum <"$parent")"
expect "the parent's checkpoint" "$kept" \
    "$(sha256sum "${parent%.tar.zst}".ckpt/*/* | cut -d' ' -f1)"
expect "parent" True \
    "$(field "$child" "run['parent'] == '$("$FP8LAB" show --json "$parent" | python3 -c \
        'import json, sys; print(json.load(sys.stdin)["identity"])')'")"
expect "extends" "(12, 12, None)" \
    "$(field "$child" 'tuple(run["extends"][k] for k in ("step", "steps", "rates_part"))')"
expect "attempts, the parent's first" "[(0, 12, True), (12, 24, False)]" \
    "$(field "$child" '[(a["from_step"], a["to_step"], "run" in a) for a in run["attempts"]]')"
expect "other inputs than those of one run" False \
    "$(field "$child" "run['inputs_sha256'] == '$(field whole/*.tar.zst 'run["inputs_sha256"]')'")"
"$FP8LAB" show "$child" >out 2>log
grep -q "^  extends  .*Z-tiny-.* from step 12$" out || fail "show says: $(grep extends out)"
"$FP8LAB" verify -q "$child" >out 2>log || fail "it does not verify"
expect "what else is left" "" "$(left runs)"

case_name="the same again, and further"
extend "$parent" --set train.steps=24
says "already run with these inputs"
extend "$child" --set train.steps=30
expect "exit code" 0 $code
run_tiny $hopper --runs further --set train.steps=30
expect "the weights" "$(field further/*.tar.zst 'run["final_weights_sha256"]')" \
    "$(field "$(newest runs)" 'run["final_weights_sha256"]')"
run_tiny $hopper --runs runs --set train.steps=24 # not the same run as the extension
expect "an extension taken for a plain run of as many steps" 0 "$(grep -c "already run" log)"

case_name="repro of an extension"
"$FP8LAB" repro "$child" >out 2>log
expect "exit code" 3 $?
says "its script alone cannot repeat it"
says "run --extend $(basename "$parent" .tar.zst) --set train.steps=24"

case_name="a schedule that depends on the number of steps"
run_tiny --runs cosine --set train.schedule=cosine
cosine=$(newest cosine)
extend "$cosine" --runs cosine --set train.steps=20
expect "exit code" 0 $code
says "its learning rates differ from the schedule over 20 steps from step 1 on"
expect "rates_part" 1 "$(field "$(newest cosine)" 'run["extends"]["rates_part"]')"
"$FP8LAB" show "$(newest cosine)" >out 2>log
grep -q "from step 1 on its learning rates were not those of this schedule" out ||
    fail "show does not say it"
expect "decay over all steps" 20 \
    "$(field "$(newest cosine)" 'resolved["train"]["schedule"]["decay"]')"

case_name="invalid extensions"
runs=$(ls runs/*.tar.zst | wc -l)
refused() { # WORDS ARGS...
    local words=$1
    shift
    extend "$@"
    expect "exit code of $*" 2 $code
    says "$words"
}
refused "has done 12 steps, and train.steps is 12" "$parent"
refused "has done 12 steps, and train.steps is 8" "$parent" --set train.steps=8
for set in train.optimizer.lr=1 recipe=bf16 train.seed=2 train.global_batch=8 model.layers=2 \
    train.schedule.warmup=3 data.seed=9; do
    refused "--extend can change only train.steps," "$parent" --set train.steps=30 --set $set
done
refused "takes the script from the run" "$parent" --set train.steps=30 "$tests/tiny.lua"
refused "no --smoke" "$parent" --set train.steps=30 --smoke
"$FP8LAB" run --resume "$parent" >out 2>log
expect "exit code of --resume" 2 $?
says "run --extend RUN --set train.steps=N"
mv "${parent%.tar.zst}.ckpt" gone
refused "has no checkpoint to continue from" "$parent" --set train.steps=40
says "a run keeps its last one if the experiment has checkpoint"
mv gone "${parent%.tar.zst}.ckpt"
cp "${parent%.tar.zst}.ckpt/step-000012/state.safetensors" whole.state
printf '\377' |
    dd of="${parent%.tar.zst}.ckpt/step-000012/state.safetensors" bs=1 seek=3000 \
        conv=notrunc 2>/dev/null
extend "$parent" --set train.steps=40
expect "exit code with a damaged checkpoint" 4 $code
mv whole.state "${parent%.tar.zst}.ckpt/step-000012/state.safetensors"
expect "nothing was begun" "$runs" "$(ls runs/*.tar.zst | wc -l)"
expect "what else is left" "" "$(left runs)"

case_name="a checkpoint in a bundle of another folder of runs"
run_tiny $hopper --runs packed --set archive=full
extend "$(newest packed)" --runs elsewhere --set train.steps=24
expect "exit code" 0 $code
expect "the weights" "$(field whole/*.tar.zst 'run["final_weights_sha256"]')" \
    "$(field elsewhere/*.tar.zst 'run["final_weights_sha256"]')"

case_name="a stopped extension resumes"
"$FP8LAB" run --threads 1 --extend "$parent" --runs cut --set train.steps=1000000 >out 2>log &
await_step cut 20
kill -TERM $!
wait $!
"$FP8LAB" run --extend last --runs cut --set train.steps=2000000 >out 2>log
expect "exit code of an extension of an interrupted run" 2 $?
says "--resume continues this one"
("$FP8LAB" run --threads 1 --extend "$parent" --runs cut --set train.steps=1000000 >out 2>log) &
await_words resuming log
kill -TERM "$(runner_of cut)"
wait
expect "attempts" 3 "$(field cut/*.tar.zst 'len(run["attempts"])')"

case_name="a time limit that is used up"
run_tiny --runs limit --set train.steps=1000000 --set train.time_limit=1
expect status time_limit "$(field limit/*.tar.zst 'run["status"]')"
done_=$(field limit/*.tar.zst 'summary["step_last"]')
extend "$(newest limit)" --runs limit --set train.time_limit=false --set train.steps=$((done_ + 5))
expect "exit code" 0 $code
expect status done "$(field "$(newest limit)" 'run["status"]')"

[ $failed = 0 ] && echo "runs are extended"
exit $failed
