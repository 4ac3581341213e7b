#!/bin/bash
# tier: long
# long: 15, waits
# The same command again: an interrupted run resumes, a done run is named, and a running run is
# rejected. A run that failed for a cause outside resumes; one that would fail again starts anew,
# with a message. --again ignores earlier runs.
set -u
. tests/cli/lib.sh
experiment="$tests/tiny.lua --lib $lib --threads 1"

bundles() { find "$1" -maxdepth 1 -name '*.tar.zst' | wc -l; }
begin() { # RUNS STEP ARGS...: in the background, until it has recorded that step
    local runs=$1 step=$2
    shift 2
    # shellcheck disable=SC2086
    "$FP8LAB" run $experiment --runs "$runs" "$@" >/dev/null 2>log.begun &
    pid=$!
    await_step "$runs" "$step"
}
long="--set train.steps=300 --set checkpoint.every=50"
[ "${CONFIG:-release}" = asan ] && long="--set train.steps=120 --set checkpoint.every=20"

case_name="a run that is done"
run_tiny --runs whole $long
expect "exit code" 0 $code
reference=$(field "$(bundle_in whole)" 'run["results_sha256"]')
run_tiny --runs whole $long
expect "exit code of the second" 0 $code
says "already run with these inputs, not run again (--again runs it again): whole/"
grep -q "^done .* whole/" out || fail "no result line: $(cat out)"
expect bundles 1 "$(bundles whole)"
run_tiny --runs whole $long --again
expect "exit code with --again" 0 $code
expect "bundles after --again" 2 "$(bundles whole)"

case_name="a bundle of another configuration under this one's hash"
run_tiny --runs foreign --set train.steps=4
expect "exit code" 0 $code
"$FP8LAB" extract -q "$(bundle_in foreign)" --to bag >log 2>&1 || fail "no directory"
rm -r foreign/*
python3 - <<'PY' # with right manifests
import hashlib, pathlib
bag = pathlib.Path("bag")
resolved = bag / "data/experiment/resolved.json"
resolved.write_text(resolved.read_text().replace('"steps":4', '"steps":5'))
def manifest(name, paths):
    (bag / name).write_text("".join(
        f"{hashlib.sha256((bag / p).read_bytes()).hexdigest()}  {p}\n" for p in paths))
manifest("manifest-sha256.txt",
         sorted(str(p.relative_to(bag)) for p in (bag / "data").rglob("*") if p.is_file()))
manifest("tagmanifest-sha256.txt", ["bag-info.txt", "bagit.txt", "manifest-sha256.txt"])
PY
mv bag foreign/
run_tiny --runs foreign --set train.steps=4
expect "exit code" 0 $code
says "not taken for an earlier run: foreign/bag: run.json says config is"
expect "bundles after it" 1 "$(bundles foreign)"

case_name="a run that was interrupted"
begin cut 60 $long
kill -TERM $pid
wait $pid
expect status interrupted "$(field "$(bundle_in cut)" 'run["status"]')"
run_tiny --runs cut $long
expect "exit code" 0 $code
says "resuming"
expect bundles 1 "$(bundles cut)"
expect attempts 2 "$(field "$(bundle_in cut)" 'len(run["attempts"])')"
expect results "$reference" "$(field "$(bundle_in cut)" 'run["results_sha256"]')"

case_name="an interrupted run of which only the bundle is left"
begin alone 60 $long
kill -TERM $pid
wait $pid
rm -r "$(find alone -mindepth 1 -maxdepth 1 -type d)"
(umask 027 && run_tiny --runs alone --keep-dir $long && exit $code)
expect "exit code" 0 $?
says "unpacking alone/"
expect "folders without the mode of the umask" "" \
    "$(find alone -mindepth 1 -type d ! -perm 750)"
expect bundles 1 "$(bundles alone)"
expect results "$reference" "$(field "$(bundle_in alone)" 'run["results_sha256"]')"

case_name="a reproduction of the first steps, and one that was interrupted"
source=$(bundle_in whole)
"$FP8LAB" repro "$source" --runs part --threads 1 --steps 60 >out 2>log || fail "repro --steps"
part=$(bundle_in part)
expect "its checkpoint" "('interrupted', 0)" \
    "$(field "$part" '(run["status"], run["checkpoint_step"])')"
"$FP8LAB" repro "$source" --runs part --threads 1 >out 2>log.repro &
pid=$!
await_step part 60
kill -TERM $pid
wait $pid
stopped=$(newest part)
expect "the checkpoint of the interrupted one" True \
    "$(field "$stopped" 'run["checkpoint_step"] > 0')"
cat "$part" "$stopped" | sha256sum >before
run_tiny --runs part $long
expect "exit code" 0 $code
grep -q resuming log && fail "a reproduction goes on as the run"
cat "$part" "$stopped" | sha256sum | cmp - before || fail "a reproduction was changed"
expect bundles 3 "$(bundles part)"

case_name="other inputs"
run_tiny --runs alone --set train.steps=4
expect "exit code" 0 $code
expect bundles 2 "$(bundles alone)"

case_name="flags that --resume cannot take"
for flag in "--set train.steps=9" --smoke "--extend last" "--only x" --again; do
    # shellcheck disable=SC2086
    gives 2 run --resume last --runs alone $flag -- "continues a run as it is: no ${flag%% *}"
done
gives 2 run --resume last --runs alone x.lua -- "as it is: leave out x.lua"

case_name="a run that is live"
begin live 20 --set train.steps=1000000
run_tiny --runs live --set train.steps=1000000
expect "exit code" 6 $code
says "process $pid is already running it in live/"
says "--again starts a second run"
expect "runs" 1 "$(find live -mindepth 1 -maxdepth 1 -type d | wc -l)"
kill -TERM $pid
wait $pid

case_name="a run whose disk was full when it resumed"
begin outside 60 $long
kill -TERM $pid
wait $pid
(trap '' XFSZ; ulimit -f 200; "$FP8LAB" run --resume last --runs outside --threads 1 >out 2>log)
expect "exit code" 6 $?
says "the bundle could not be written; what the run recorded is in outside/"
expect status failed "$(field outside/* 'run["status"]')"
run_tiny --runs outside $long
expect "exit code of the same command" 0 $code
says "resuming"
expect bundles 1 "$(bundles outside)"
expect results "$reference" "$(field "$(bundle_in outside)" 'run["results_sha256"]')"

case_name="a run that resumed where there is no GPU"
begin nogpu 60 $long
kill -TERM $pid
wait $pid
CUDA_VISIBLE_DEVICES='' "$FP8LAB" run --resume last --backend cuda --runs nogpu >out 2>log &&
    fail "it ran"
run_tiny --runs nogpu $long
expect "exit code of the same command" 0 $code
expect bundles 1 "$(bundles nogpu)"
expect results "$reference" "$(field "$(bundle_in nogpu)" 'run["results_sha256"]')"

case_name="a run that failed"
bad="--set train.optimizer.lr=100 --set train.optimizer.weight_decay=10"
run_tiny --runs bad $bad
expect "exit code" 1 $code
run_tiny --runs bad $bad
expect "exit code of the second" 1 $code
says "an earlier run with these inputs ended as failed, so a new run begins at step 0"
expect bundles 2 "$(bundles bad)"

case_name="a run that failed after its first checkpoint"
run_tiny --runs late $bad --set checkpoint.every=1 --set train.steps=100
expect "exit code" 1 $code
earlier=$(find late -mindepth 1 -maxdepth 1 -type d)
run_tiny --runs late $bad --set checkpoint.every=1 --set train.steps=100
expect "exit code of the second" 1 $code
says "so a new run begins at step 0; the earlier run: $earlier"
says " with: fp8lab run --resume $earlier)"
expect bundles 2 "$(bundles late)"

[ $failed = 0 ] && echo "the same command resumes a run or names it"
exit $failed
