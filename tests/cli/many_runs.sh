#!/bin/bash
# long: 20, waits
# A folder of many runs: found, filtered, tagged, removed. What is needed, living or foreign is
# never removed, and tags change no bundle.
set -u
. tests/cli/lib.sh
mkdir runs
reference=$root/experiments/reference/cpu
for kind in bf16 fp8.delayed fp8.tensorwise fp8.rowwise; do
    bundle=$reference/repro-cpu-$kind.tar.zst
    cp "$bundle" "runs/$(tar --zstd -tf "$bundle" | head -1 | cut -d/ -f1).tar.zst"
done
all() { (cd "$1" && find . | sort | xargs -d '\n' stat -c '%n %s'); }
id() { ls runs | grep -- "-$1-" | sed 's/\.tar\.zst$//' | head -1; }
shown() { "$FP8LAB" show -q "$@" | head -1 | cut -d' ' -f1; }

case_name="forms of RUN"
expect "last" "$(ls runs | tail -1 | sed 's/.tar.zst//')" "$(shown last)"
expect "last~1" "$(ls runs | tail -2 | head -1 | sed 's/.tar.zst//')" "$(shown last~1)"
expect "name:" "$(id repro-cpu-fp8.delayed)" "$(shown 'name:*delayed')"
best=$("$FP8LAB" list --sort eval --ids -q | head -1)
expect "best:eval.loss" "$best" "$(shown best:eval.loss)"
fastest=$("$FP8LAB" list --sort speed --reverse --ids -q | head -1)
expect "best:tokens_per_s" "$fastest" "$(shown best:tokens_per_s)"
gives 2 show last~4 -- "last~4: runs has 4 runs; last~3 is the oldest"
gives 2 show last~x -- "after last~ comes a whole number"
gives 2 show name:nothing -- "no run in runs is called nothing"
gives 2 show best:accuracy -- "unknown; use best:eval.loss, best:loss"
gives 0 verify last last~1 -- "valid: runs/"
gives 0 compare -q best:eval.loss 'name:*rowwise' -- "Bit by bit"
mkdir mixed # of two vocabularies: their losses do not compare, their speeds do
cp runs/*bf16*.tar.zst "$root/experiments/reference/h200/repro-gpu-bf16.tar.zst" mixed
for measure in eval.loss loss; do
    gives 2 show best:$measure --runs mixed -- "no loss is the best of other data or another" \
        ", vocabulary 256) and 2" ", vocabulary 1024) are both in mixed; name a run by its id"
done
gives 2 export best:loss --runs mixed --to none -- ", vocabulary 1024) are both in mixed"
gives 0 show -q best:tokens_per_s --runs mixed -- "repro-gpu-bf16"
mkdir second # of runs that began in one second, the one changed last is the last
for name in b.1 c.2 a.3; do
    cp "$bundle" second/20261128T195717Z-$name.tar.zst
    touch -d "2026-11-28T19:57:18.${name#*.}Z" second/*$name*
done
gives 0 verify last last~2 --runs second -- "valid: second/20261128T195717Z-a.3" "17Z-b.1"
gives 0 verify last~1 --runs second -- "valid: second/20261128T195717Z-c.2"

case_name="a renamed bundle" # is found by its name and by its id, wherever that is printed
mkdir renamed
own=$(id repro-cpu-bf16)
cp "runs/$own.tar.zst" renamed/mine.tar.zst
cp "runs/$(id repro-cpu-fp8.rowwise).tar.zst" renamed
expect "ids" "$(id repro-cpu-fp8.rowwise) renamed/mine.tar.zst" \
    "$("$FP8LAB" list -q --ids renamed | sort | tr '\n' ' ' | sed 's/ $//')"
for run in mine "$own" "${own::-3}" $("$FP8LAB" list -q --ids --name '*bf16' renamed); do
    gives 0 verify "$run" --runs renamed -- "valid: renamed/mine.tar.zst"
    gives 0 rm "$run" --runs renamed --dry-run -- "renamed/mine.tar.zst  (bundle)" "1 item"
done
gives 0 compare -q "$own" last~1 --runs renamed -- "Bit by bit"
gives 2 show "${own::8}" --runs renamed -- "2 runs begin with ${own::8}"
cp renamed/mine.tar.zst renamed/mine-2.tar.zst
gives 0 verify mine --runs renamed -- "valid: renamed/mine.tar.zst"
gives 2 rm "$own" --runs renamed --dry-run -- "2 runs begin with $own"
cp renamed/mine.tar.zst "renamed/$own.tar.zst" # a name comes before what other files say they are
gives 0 verify "$own" --runs renamed -- "valid: renamed/$own.tar.zst"
mv "renamed/$own.tar.zst" "renamed/20261121T000000Z-other.tar.zst" && rm renamed/mine*
gives 0 verify "$own" --runs renamed -- "valid: renamed/20261121T000000Z-other.tar.zst"

case_name="list"
gives 0 list -q --recipe 'fp8.*' --name '*wise' -- fp8.tensorwise fp8.rowwise \
    "3x128" "cpu" "2026-11-21"
expect "rows" 3 "$(wc -l <out)"
expect "since" 0 "$("$FP8LAB" list -q --ids --since 2026-11-22 | wc -l)"
expect "since the second" 3 "$("$FP8LAB" list -q --ids --since 2026-11-21T06:42:00Z | wc -l)"
expect "status" 4 "$("$FP8LAB" list -q --ids --status done | wc -l)"
expect "another status" 0 "$("$FP8LAB" list -q --ids --status left | wc -l)"
gives 0 list --status "running on node17" -- "none of the 4 runs in runs matches"
gives 2 list --status don -- "--status: found 'don'; a run is done, time_limit, interrupted"
gives 2 list --since yesterday -- "--since: found 'yesterday'; write a day (2026-11-20)"
for time in 2026-13-01 2026-02-30 2026-11-21T25:00:00Z 2026-11-21T06:42:00+02:00; do
    gives 2 list --since $time -- "--since: found '$time'; write a day (2026-11-20)"
done
expect "since a fraction" 3 "$("$FP8LAB" list -q --ids --since 2026-11-21T06:42:00.000Z | wc -l)"
gives 2 list --sort colour -- "--sort: found 'colour'; the columns are date"
gives 0 list --name nothing -- "none of the 4 runs in runs matches; a pattern is of the whole name"
gives 0 list --name 'nothing*' -- "none of the 4 runs in runs matches"
! grep -q "whole name" out || fail "advice for a pattern"
gives 0 list --name nothing --runs runs -- "none of the 4 runs in runs matches"
gives 2 list --runs nowhere -- "nowhere is not a directory"
gives 2 list runs --runs runs -- "two folders of runs: runs and --runs runs; give one"
gives 2 gc runs --runs runs -- "two folders of runs: runs and --runs runs; give one"
gives 0 gc --runs runs --dry-run --

case_name="tags"
before=$(sha256sum runs/*.tar.zst)
gives 0 tag last best-so-far paper --note "for the talk" -- "tags  best-so-far, paper" \
    "note  for the talk"
gives 0 list -q --tag paper --tag best-so-far -- "best-so-far, paper"
expect "rows" 2 "$(wc -l <out)"
gives 0 show -q last -- "tags           best-so-far, paper" "note           for the talk"
gives 2 tag last "two words" -- "'two words' is not a tag"
gives 2 tag last --remove other -- "the run does not have the tag 'other'"
gives 0 verify last -- valid
expect "bundles" "$before" "$(sha256sum runs/*.tar.zst)"
gives 0 tag last --remove paper --remove best-so-far --no-note -- "tags  none"
expect "files of notes" 0 "$(find runs -name '*.notes.json' | wc -l)"
for tag in a b c d e f g h; do "$FP8LAB" tag last $tag >"tagged-$tag" 2>&1 & done
wait
gives 0 tag last -- "tags  a, b, c, d, e, f, g, h" # of commands at once, none loses a tag
notes=runs/$(shown last).notes.json
echo '{"schema":"fp8lab.notes/1","tags":["a b"],"note":null}' >"$notes"
gives 0 list -- "$notes does not hold tags and a note" # and the run is listed
expect "rows" 4 "$(grep -c ' done ' out)"
rm "$notes"
mkfifo "$notes"
gives 0 list -- "is not a file of at most"
rm "$notes"

case_name="rm asks"
before=$(all runs)
gives 2 rm last -- "nothing was removed: there is no terminal to ask on; --yes removes"
gives 0 rm last --dry-run -- "would remove 1 item, "
expect "files" "$before" "$(all runs)"

answers() { # ANSWER [COMMAND...]: rm on a terminal; the command runs between question and answer
    python3 - "$FP8LAB" "$@" >out 2>&1 <<'PY'
import os, pty, subprocess, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], ["fp8lab", "rm", "name:*delayed"])
said, answered = b"", False
while True:
    try:
        piece = os.read(fd, 4096)
    except OSError:
        piece = b""
    if not piece:
        break
    said += piece
    if b"[y/N]" in said and not answered:
        answered = True
        if sys.argv[3:]:
            subprocess.run(sys.argv[3:], check=True)
        os.write(fd, sys.argv[2].encode() + b"\n")
print(said.decode(), "exit", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PY
}
answers n
says "nothing was removed" out
answers ""
says "nothing was removed" out
answers y "$FP8LAB" tag 'name:*delayed' wanted
says "the folder changed since the question" out
expect "files" "$before" "$(all runs | grep -v notes)"
answers y
says "removed 2 items" out
expect "files" "$(grep -v delayed <<<"$before")" "$(all runs)"

case_name="rm of what is no run, or not only one"
echo "my backup" | zstd -q >runs/backup.tar.zst
ln -s "$(id repro-cpu-bf16).tar.zst" runs/20261121T000000Z-link-01234567.tar.zst
before=$(all runs)
gives 2 rm --yes runs/backup.tar.zst -- "it may be something else: remove it yourself"
gives 2 rm --yes runs/20261121T000000Z-link-01234567.tar.zst -- "is a link"
expect "files" "$before" "$(all runs)"
gives 6 rm --yes "$(id repro-cpu-bf16)" -- "backup.tar.zst cannot be read, so whether it began with"
expect "files" "$before" "$(all runs)"
rm runs/backup.tar.zst runs/20261121T000000Z-link-01234567.tar.zst
tensorwise=$(id repro-cpu-fp8.tensorwise)
mkdir "runs/$tensorwise"
echo mine >"runs/$tensorwise/thesis.txt"
gives 0 rm --yes "runs/$tensorwise.tar.zst" -- \
    "stays: runs/$tensorwise: it is not known to be the directory of this run"
expect "the bundle" absent "$([ -e "runs/$tensorwise.tar.zst" ] && echo there || echo absent)"
expect "another's directory" mine "$(cat "runs/$tensorwise/thesis.txt")"
rm -r "runs/$tensorwise"

case_name="rm of a living run"
live=runs/20261121T000000Z-live-01234567
"$FP8LAB" extract -q "$(id repro-cpu-fp8.rowwise)" --to $live >log 2>&1
exec 9>"$live/lock"
flock 9
touch "$live.tar.zst.partial"
before=$(all runs)
gives 6 rm --yes $live -- "is running; stop it first"
gives 0 gc --yes -- "there is nothing to remove"
expect "files" "$before" "$(all runs)"
exec 9>&-
gives 0 gc --yes -- "$live.tar.zst.partial  (half-written archive)"
expect "files" "$(grep -v partial <<<"$before")" "$(all runs)"
rm -r "$live"

case_name="gc and the cache of tokens"
mkdir runs/cache
gives 0 gc --yes -- "there is nothing to remove"
grep -q "stays:" out && fail "an empty cache is nothing to speak of"
head -c 3145728 /dev/zero >runs/cache/0123.bin
before=$(all runs)
gives 0 gc --yes -- "stays: runs/cache: 3.0 MiB, mostly tokens, which runs make again" \
    "there is nothing to remove"
expect "files" "$before" "$(all runs)"
gives 0 gc --help -- "So does DIR/cache" "while no run uses it. A run that needs the tokens"
rm -r runs/cache

case_name="parents and children"
family() { all family | grep -v '^\./cache\|^\./\.claim'; }
steps="--set train.steps=6 --set checkpoint.every=2 --set eval.every=2"
# shellcheck disable=SC2086
run_tiny --runs family $steps --set checkpoint.best=eval.loss --set checkpoint.milestones=2,4
expect "exit code" 0 $code
parent=$(basename "$(bundle_in family)" .tar.zst)
kept=family/$parent.ckpt
"$FP8LAB" run --extend "family/$parent.tar.zst" --runs family --set train.steps=8 --lib "$lib" \
    --threads 1 >out 2>log || fail "extend"
child=$("$FP8LAB" list -q --ids family | grep -v "^$parent$")
# shellcheck disable=SC2086
run_tiny --runs family $steps --set init="$kept/step-000002" --set train.seed=2
expect "exit code" 0 $code
heir=$("$FP8LAB" list -q --ids family | grep -v "^$parent$\|^$child$")
"$FP8LAB" tag "$parent" keep --runs family >out
before=$(family)
gives 6 rm --yes --runs family "$parent" -- \
    "began with a checkpoint of family/$parent.tar.zst (step"
gives 6 rm --yes --runs family "$parent" "$child" -- "$heir.tar.zst began with a checkpoint of"
expect "files" "$before" "$(family)"
gives 0 gc family --checkpoints all --dry-run -- \
    "stays: $kept/step-000006: family/$child.tar.zst began with it" \
    "stays: $kept/step-000002: family/$heir.tar.zst began with it"
expect "files" "$before" "$(family)"
gives 0 gc family --checkpoints old --yes -- "$kept/step-000004"
mine() { grep -v "$parent.ckpt/step-000004\|$child.ckpt/step-00000[24]"; }
expect "last, best, and what others need" "$(mine <<<"$before" | grep -v ckpt' ')" \
    "$(family | grep -v ckpt' ')"
before=$(family)
echo damaged >family/20261121T000000Z-lost-01234567.tar.zst
gives 0 gc family --checkpoints all --yes -- "it cannot be read, so all checkpoints stay"
expect "checkpoints" "$before" "$(family | grep -v lost)"
gives 0 rm --yes --runs family 20261121T000000Z-lost -- "Z-lost-01234567.tar.zst  (bundle)"
mkdir family/.20261121T000000Z-new-01234567.new
gives 0 gc family --checkpoints all --yes -- \
    "all its checkpoints stay: a run is being started in it"
rmdir family/.20261121T000000Z-new-01234567.new
expect "checkpoints" "$before" "$(family)"
gives 0 gc family --checkpoints all --yes -- "$child.ckpt/step-000008  (step 8 (last"
expect "what others need" "step-000002 step-000006 " "$(ls $kept | tr '\n' ' ')"
mv "family/$parent.tar.zst" moved
gives 0 gc family --yes -- "stays: $kept: " " of kept checkpoints, whose bundle is not here; move"
mv moved "family/$parent.tar.zst"
expect "checkpoints of a moved bundle" "step-000002 step-000006 " "$(ls $kept | tr '\n' ' ')"
gives 0 rm --yes --runs family "$parent" "$child" "$heir" -- "tags and note"
expect "files" "" "$(family | grep -v '^\. ')"

case_name="directories beside bundles"
# shellcheck disable=SC2086
run_tiny --runs twice $steps --keep-dir
expect "exit code" 0 $code
double=$(bundle_in twice) double=${double%.tar.zst}
mkdir -p twice/.gone.removed/data
echo changed >"$double/data/logs/runner.log"
gives 0 gc twice --yes -- "stays: $double: it is not what its bundle holds" ".gone.removed"
[ -d "$double/data" ] || fail "a changed directory was lost"
rm -r "$double"
"$FP8LAB" extract -q "$double.tar.zst" --to "$double" >log 2>&1
for mine in notes.txt data/notes.txt data/checkpoints/step-000099/model.safetensors; do
    mkdir -p "$(dirname "$double/$mine")" && echo mine >"$double/$mine"
    gives 0 gc twice --yes -- "stays: $double: it is not what its bundle holds: " "$mine"
    rm "$double/$mine"
done
gives 0 gc twice --yes -- "$double  (its bundle holds the same)"
[ ! -e "$double" ] || fail "the double stays"
gives 0 verify "$double.tar.zst" -- valid
"$FP8LAB" extract -q "$double.tar.zst" --to "$double" >log 2>&1
# A disk without room for the lock of the directory.
(trap '' XFSZ && ulimit -f 0 && "$FP8LAB" rm --yes "$double.tar.zst") 2>&1 | cat >out
says "removed 3 items" out
expect "files" "" "$(all twice | grep -v '^\. \|cache\|claim')"
case_name="a user's file in the directory"
run_tiny --runs noted --set train.steps=1000000 --set checkpoint=false &
await_step noted 20
kill -9 "$(runner_of noted)" $(pgrep -P "$(runner_of noted)")
wait
noted=$(echo noted/*/) noted=${noted%/}
mkdir "$noted/my" && echo mine >"$noted/my/notes.txt"
gives 0 close "$noted" -- "$noted.tar.zst: its directory stays: the bundle lacks my/notes.txt"
expect "the file" mine "$(cat "$noted/my/notes.txt")"
gives 0 gc noted --yes -- "there is nothing to remove"

exit $failed
