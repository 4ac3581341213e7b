#!/bin/bash
# long: 15, waits
# A done run keeps its last and best checkpoint beside the bundle. The command announces them, the
# bundle names their hashes, and no checkpoint is lost if keeping them fails.
set -u
. tests/cli/lib.sh
experiment="$tests/tiny.lua --lib $lib"

run() { run_tiny --runs "$@"; } # RUNS ARGS...
kept_in() { (cd "$1" && ls -d ./*.ckpt/step-* 2>/dev/null | sed 's|.*/||' | tr '\n' ' '); }
packed_in() { tar --zstd -tf "$1"/*.tar.zst | grep -c 'data/checkpoints/'; }

# A large learning rate at the end makes the loss rise, so an earlier evaluation is the best.
best="--set checkpoint.best=eval.loss --set train.steps=18 --set train.optimizer.lr=0.03
    --set checkpoint.every=4 --set eval.every=6"

case_name="the last and the best"
run both $best
expect "exit code" 0 $code
says "kept: the last and the best checkpoint of the run, once it is done, beside its bundle"
says "tiny: kept the checkpoints of step"
bundle=$(ls both/*.tar.zst)
steps=$(field "$bundle" '[row["step"] for row in run["kept"]]')
expect "as" "[['best'], ['last']]" "$(field "$bundle" '[row["as"] for row in run["kept"]]')"
expect "folders" "$(field "$bundle" '"".join("step-%06d " % row["step"] for row in run["kept"])')" \
    "$(kept_in both)"
expect "the last is the last" True "$(field "$bundle" 'run["kept"][1]["step"] == 18')"
evaluations=$(tar --zstd -xOf "$bundle" --wildcards '*/data/metrics/eval.jsonl' | python3 -c '
import json, sys
rows = [json.loads(line) for line in sys.stdin]
print(min(rows, key=lambda row: row["loss"])["step"])')
expect "the best is the best (of $steps)" "$evaluations" \
    "$(field "$bundle" 'run["kept"][0]["step"]')"
expect "checkpoints in the bundle" 0 "$(packed_in both)"
for step in both/*.ckpt/step-*; do
    hash=$(sha256sum <"$step/checkpoint.json" | cut -d' ' -f1)
    expect "hash of $step" True "$(field "$bundle" "'$hash' in [r['sha256'] for r in run['kept']]")"
done
"$FP8LAB" show "$bundle" >out 2>log
expect "lines of show" 2 "$(grep -c "^  kept  .* in .*both/.*\.ckpt/step-" out)"
"$FP8LAB" list both >out 2>log
expect "lines of list" 2 "$(wc -l <out)"
grep -q "TOKENS/S  CHECKPOINTS$" out || fail "list has no column of checkpoints"
says "  last 18, best $evaluations" out
gives 0 export best:eval.loss --runs both --to newest -- "the run's lowest held-out loss" \
    "; the weights are of its newest checkpoint" "; --checkpoint best has the others"
gives 0 export best:eval.loss --runs both --to chosen --checkpoint best -- chosen
grep -q "lowest held-out" out log && fail "export --checkpoint best speaks of the newest"

case_name="the initial weights"
run init --set checkpoint.init=true --set train.steps=4 --set checkpoint.every=4
expect "exit code" 0 $code
says "kept: the first and the last checkpoint of the run"
says "tiny: kept the checkpoints of step 0 (init), step 4 (last)"
expect "as" "[['init'], ['last']]" \
    "$(field "$(ls init/*.tar.zst)" '[row["as"] for row in run["kept"]]')"
expect "folders" "step-000000 step-000004 " "$(kept_in init)"
(cd init/*.ckpt/step-000000 && sha256sum --quiet -c "$tests/first_weights.txt") >log 2>&1 ||
    fail "not the weights that tests/outside/reproduce.sh recorded"

case_name="the planned size"
# shellcheck disable=SC2086
for verb in check plan; do
    "$FP8LAB" $verb $experiment $best >out 2>log
    grep -q "^kept: the last and the best checkpoint of the run, .* MiB per checkpoint" out ||
        fail "$verb does not say what is kept"
done
# shellcheck disable=SC2086
planned=$("$FP8LAB" plan --json $experiment $best 2>log |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["runs"][0]["keeps"]["bytes"])')
expect "planned bytes within 2 % of the files' ($planned)" True \
    "$(field "$bundle" "abs(run['kept'][0]['bytes'] - $planned) < 0.02 * $planned")"

case_name="a disk that is too small"
run_tiny --runs large --set train.steps=1000000000 --set checkpoint.every=1 \
    --set checkpoint.keep=1000000 --set model.width=512 --set model.ffn=2048
expect "exit code" 6 $code
says "checkpoints need up to "
says "and the disk of large has "
[ ! -e large ] || fail "a run began"
large="--set train.steps=1000000000 --set checkpoint.every=1 --set checkpoint.keep=1000000
    --set model.width=512 --set model.ffn=2048"
disk() { # VERB ARGS...: what --json says of the disk
    # shellcheck disable=SC2086
    "$FP8LAB" "$1" --json $experiment "${@:2}" 2>log | python3 -c 'import json, sys
o = json.load(sys.stdin)
disk, one = o["disk"], o["runs"][0]["keeps"] and o["runs"][0]["keeps"]["bytes"]
print(disk and (disk["folder"], disk["bytes"] / one, disk["free_bytes"] > 0, disk["fits"]))'
}
for verb in check plan; do
    # shellcheck disable=SC2086
    "$FP8LAB" $verb $experiment --runs large $large >out 2>log
    expect "exit code of $verb" 6 $?
    says "\`run\` would not start: checkpoints need up to "
    says "and the disk of large has "
    grep -q "^Next: " log && fail "$verb names a next command"
    grep -q "has room" out && fail "$verb finds room"
    # shellcheck disable=SC2086
    "$FP8LAB" $verb --json $experiment --runs large $large >out 2>log
    expect "exit code of $verb --json" 6 $?
    "$FP8LAB" $verb $experiment >out 2>log
    expect "exit code of $verb with room" 0 $?
    says "the disk of runs has room: checkpoints need up to " out
    # tiny.lua has 12 steps: one checkpoint is ever written, or the one of step 6 is there as well.
    expect "$verb: one" "('runs', 1.0, True, True)" "$(disk $verb --set checkpoint.every=12)"
    expect "$verb: two" "('there', 2.0, True, True)" \
        "$(disk $verb --runs there --set checkpoint.every=6 --set checkpoint.keep=1)"
    for archive in full weights; do # the bundle is packed beside what is there
        least=$([ $archive = full ] && echo 2 || echo 1.01)
        expect "$verb: $archive" True \
            "$(disk $verb --set archive=$archive --set checkpoint.every=12 |
                python3 -c "print($least <= eval(input())[1] <= 2)")"
    done
    expect "$verb: none" None "$(disk $verb --set checkpoint=false)"
done
for verb in check plan; do
    expect "$verb for another machine" None \
        "$(disk $verb --facts "$tests/../facts/laptop.json")"
done

# shellcheck disable=SC2086
"$FP8LAB" check $experiment $large --set 'hardware.query=gpu.product_name="NVIDIA X"' >out 2>log
expect "exit code of check for another machine" 0 $?
says "the script asks for another machine, whose disk may have room"

case_name="a disk with room for the rest of an interrupted run" # 3 checkpoints of 3.6 MiB at once
mkdir rest
trap 'umount -l rest 2>/dev/null' EXIT
if mount -t tmpfs -o size=20m tmpfs rest 2>/dev/null; then
    # shellcheck disable=SC2086
    "$FP8LAB" run $experiment --threads 1 --runs rest --set train.steps=200 >out 2>log &
    await_checkpoint rest 10
    kill -TERM $!
    wait $!
    expect "room for another such run" 6 \
        "$(run rest --set train.steps=201 >/dev/null && echo $code)"
    # shellcheck disable=SC2086
    "$FP8LAB" check $experiment --runs rest --set train.steps=200 >out 2>log
    expect "exit code of check" 0 $?
    says "Next: fp8lab run"
    run rest --set train.steps=200
    expect "exit code of the same command" 0 $code
    says "resuming"
    umount rest
else
    echo "NOT CHECKED: a disk with little room (no right to mount a tmpfs)"
fi

case_name="verify"
"$FP8LAB" verify -q "$bundle" >out 2>log || fail "kept checkpoints do not verify"
mv both/*.ckpt away
"$FP8LAB" verify "$bundle" >out 2>log || fail "a bundle without its checkpoints does not verify"
says "checkpoint not here: step $evaluations (best), kept in ${bundle%.tar.zst}.ckpt"
says "checkpoint not here: step 18 (last), kept in ${bundle%.tar.zst}.ckpt"
"$FP8LAB" show "$bundle" >out 2>log
grep -q "is no longer in" out || fail "show does not report the missing checkpoints"
mv away "${bundle%.tar.zst}.checkpoints" # the name until 2026-11-22
"$FP8LAB" verify "$bundle" >out 2>log || fail "kept checkpoints under their old name do not verify"
says "the kept checkpoint of step 18 (last) is intact"
mv "${bundle%.tar.zst}.checkpoints" "${bundle%.tar.zst}.ckpt"
state=$(ls both/*.ckpt/step-000018/state.safetensors)
printf '\377' | dd of="$state" bs=1 seek=3000 conv=notrunc 2>/dev/null
"$FP8LAB" verify "$bundle" >out 2>log
expect "exit code with one byte changed" 4 $?
says "$bundle: the bundle itself is intact, but its kept checkpoint of step 18 (last) is damaged: "
says "state.safetensors"
says "the kept checkpoint of step $evaluations (best) is intact"
says "; copy the checkpoint to ${bundle%.tar.zst}.ckpt again, or delete its folder there"
cp "$bundle" damaged
middle=$(($(stat -c %s "$bundle") / 2))
dd if=/dev/zero of="$bundle" bs=1 seek=$middle count=9 conv=notrunc 2>/dev/null
"$FP8LAB" verify "$bundle" >out 2>log
expect "exit code with both damaged" 4 $?
says "; the bundle is damaged or changed: copy it again from its source"
says "$bundle: its kept checkpoint of step 18 (last) is damaged: "
says "the kept checkpoint of step $evaluations (best) is intact"
rm -r "$(dirname "$state")"
truncate -s 100 "$bundle" # run.json cannot be read
"$FP8LAB" verify "$bundle" >out 2>log
expect "exit code of a damaged bundle" 4 $?
says "the kept checkpoint of step $evaluations is intact by its own hashes"
mv damaged "$bundle"
"$FP8LAB" verify "$bundle" >out 2>log || fail "the bundle does not verify without the checkpoint"

case_name="none, weights, full"
run none --set checkpoint.keep=0
says "no checkpoint of the run is kept at the end, although \`checkpoint\` is set"
expect "kept" "" "$(kept_in none)"
run only $best --set checkpoint.keep=0
expect "kept with keep = 0 and best" "['best']" \
    "$(field only/*.tar.zst '[a for row in run["kept"] for a in row["as"]]')"
run weights --set archive=weights --keep-dir
expect "kept beside the weights" "step-000012 " "$(kept_in weights)"
expect "files in the bundle" 4 "$(packed_in weights)" # of two checkpoints
"$FP8LAB" verify -q weights/*.tar.zst "$(ls -d weights/*Z-tiny-????????)" >out 2>log ||
    fail "bundle, directory and checkpoint do not verify"
run full --set archive=full
says "in its bundle"
expect "kept beside" "" "$(kept_in full)"
expect "files in the bundle" 6 "$(packed_in full)"
run smoke --smoke
expect "of a smoke run" "" "$(kept_in smoke)"
run without --set checkpoint=false
expect "kept without checkpoint" "" "$(kept_in without)"
grep -q "checkpoint" log && fail "a message mentions checkpoints"

case_name="keeping fails: no checkpoint is lost, and close keeps them"
steps=200
[ "${CONFIG:-release}" = asan ] && steps=100
# shellcheck disable=SC2086
"$FP8LAB" run $experiment --threads 1 --runs full_up --set train.steps=$steps >out 2>log &
await_step full_up 2
run=$(ls -d full_up/*)
echo "in the way" >"$run.ckpt"
wait $!
expect "exit code" 6 $?
says "the run is complete in $run"
[ -e "$run/data/checkpoints/step-$(printf %06d $steps)/state.safetensors" ] ||
    fail "the checkpoint is gone"
rm "$run.ckpt"
"$FP8LAB" close "$run" >out 2>log || fail "close fails"
expect kept "step-$(printf %06d $steps) " "$(kept_in full_up)"
"$FP8LAB" verify -q full_up/*.tar.zst >out 2>log ||
    fail "the bundle that close made does not verify"

[ $failed = 0 ] && echo "the last and the best checkpoint are kept"
exit $failed
