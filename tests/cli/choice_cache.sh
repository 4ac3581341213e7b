#!/bin/bash
# tier: long
# long: 60
# Choices that a run timed serve the next run: the same table and the same bits, unless --choices
# none. A table of another device, library, driver or build is not used. Nothing is kept of a GPU
# that was slowed down or shared. A damaged or unwritable cache is named, and the run goes on. The
# backend is a stand-in (chooser.c), whose choices have bits of their own.
set -u
. tests/cli/lib.sh
mkdir bin && cp "$BUILD/tests/cli/chooser" bin/fp8lab
FP8LAB=$PWD/bin/fp8lab
kept=$XDG_CACHE_HOME/fp8lab/choices.json

times() { echo "$*" >bin/chooser; } # [untimed] VALUE [DEVICE LIBRARY [RANK]]: what timing finds now

# run RUNS CODE ARGS...: the tiny experiment in that folder; its output goes to log.
run() {
    local runs=$1 wanted=$2
    case_name=$1
    shift 2
    run_tiny --runs "$runs" --set train.steps=6 "$@"
    expect "exit code" "$wanted" $code
}
results() { field "$(newest "$1")" 'run["results_sha256"]'; }
table() { field "$(newest "$1")" 'run["inputs"]["choices"]'; }
shapes() { # RUNS: "ALL of them NEW" of the last bundle's log
    tar -xOf "$(newest "$1")" --wildcards '*/data/logs/runner.log' |
        sed -n 's/.*choice table: \([0-9]*\) shapes, \([0-9]*\) of them timed now.*/\1 \2/p'
}
same() { # RUNS RUNS
    expect "results of $1 and $2" "$(results "$1")" "$(results "$2")"
    expect "tables of $1 and $2" "$(table "$1")" "$(table "$2")"
}
differ() { # RUNS RUNS
    [ "$(results "$1")" != "$(results "$2")" ] || fail "$1 and $2 have the same results"
    [ "$(table "$1")" != "$(table "$2")" ] || fail "$1 and $2 have the same table"
}
timed_all() { # RUNS
    local last
    last=$(shapes "$1" | head -1)
    [ "${last% *}" = "${last#* }" ] && [ "${last% *}" -gt 3 ] || fail "$1 timed '$last', not all"
}

times 1
run first 0 --keep-dir
timed_all first
[ -f "$kept" ] || fail "there is no $kept"
ls first/*/offered.json >/dev/null 2>&1 && fail "offered.json is left"
ls first/*/data/choices.txt >/dev/null 2>&1 || fail "the run's directory has no table"

decided=$(tar -xOf first/*.zst --wildcards '*/data/decisions.json')
expect "the table in decisions.json" data/choices.txt \
    "$(python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"])' <<<"$decided")"
expect "the hash in decisions.json" "$(table first)" \
    "$(python3 -c 'import json, sys; print(json.load(sys.stdin)["choices_sha256"])' <<<"$decided")"

# Timing would find something else now: the second run times nothing.
times 2
run second 0
same first second
expect "timed" "0" "$(shapes second | awk '{ n += $2 } END { print n + 0 }')"
expect "inputs_sha256" "$(field first/*.zst 'run["inputs_sha256"]')" \
    "$(field second/*.zst 'run["inputs_sha256"]')"

before=$(sha256sum <"$kept")
run none 0 --choices none
differ first none
timed_all none
expect "the cache after --choices none" "$before" "$(sha256sum <"$kept")"

# A row is the same row whatever its table: nothing is run again.
case_name="not again"
run_tiny --runs none --set train.steps=6
says "already run with these inputs"
expect bundles 1 "$(ls none/*.tar.zst | wc -l)"

# A new shape is timed and joins those that are kept; the others stay as they are.
run longer 0 --set model.seq_len=64
run again 0
same first again

# The table of a bundle comes before the cache: --resume, --choices and repro.
case_name=given
tar -xOf none/*.zst --wildcards '*/data/choices.txt' >none.txt
run given 0 --choices none.txt
same none given
expect "the cache after --choices FILE" 1 "$(grep -c '"device": "stand-in"' "$kept")"
case_name=resume
times 3
run_tiny --runs stop --set train.steps=1000000 --choices none &
await_step stop 7
kill -TERM "$(runner_of stop)"
wait
stopped=$(ls -d stop/*/)
cp "$stopped/data/choices.txt" before.txt
"$FP8LAB" run --resume "$stopped" --threads 1 >out 2>log &
await_step stop 30
kill -TERM "$(runner_of stop)"
wait
cmp -s before.txt "$stopped/data/choices.txt" || fail "the table of a resumed run changed"
case_name=repro # timing would find 3, and 1 is kept
"$FP8LAB" repro none/*.zst --exact --runs repro --backend auto --threads 1 >out 2>log
expect "exit code" 0 $?

# Tables of something else are kept beside, and not used.
for other in "2 other lib-1" "2 stand-in lib-2"; do
    times "$other"
    run "${other// /-}" 0
    timed_all "${other// /-}"
    differ first "${other// /-}"
done
times 2
run still 0
same first still
case_name="another build"
cp "$kept" good.json
python3 - "$kept" <<'P'
import hashlib, json, sys
path = sys.argv[1]
file = json.load(open(path))
for table in file["tables"]: table["kernels"] = "0" * 64
text = json.dumps(file["tables"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
file["sha256"] = hashlib.sha256(text.encode()).hexdigest()
json.dump(file, open(path, "w"))
P
run build 0
timed_all build
grep -q "is ignored" log && fail "a table of another build is no damage"
cp good.json "$kept"

# Damage: one digit of a choice, a cut file, no file at all, a folder.
damage() { # WHAT WORDS: the file was damaged
    times 1
    run "$1" 0
    says "$kept keeps the algorithms that earlier runs timed, but it cannot be used and is ignored"
    says "$2"
    same first "$1"
    run "$1.after" 0
    grep -q ignored log && fail "the file was not replaced"
    same first "$1.after"
}
sed -i '0,/ : 01"/s// : 02"/' "$kept"
damage digit "its content does not have the hash that it states"
truncate -s -30 "$kept"
damage cut "choices.json:"
echo '{"schema": "fp8lab.choices/0"}' >"$kept"
damage version "its schema is not fp8lab.choices/1"

# A newer program wrote the file: it stays as it is, and the choices lie beside the runs.
echo '{"schema": "fp8lab.choices/9"}' >"$kept"
times 1
run newer 0
expect "times said" 1 "$(grep -c "$kept .* stays as it is: a newer program wrote it" log)"
expect "the file" '{"schema": "fp8lab.choices/9"}' "$(cat "$kept")"
[ -f newer/cache/choices.json ] || fail "the choices are not kept beside the runs"
same first newer

# Memory too short to time: the choice serves this run only.
rm "$kept"
times untimed 2
run short 0
[ -e "$kept" ] && fail "an untimed choice was kept"

# A GPU that is slowed down, or that another process uses. The driver is a stand-in.
mkdir driver
cc -shared -fPIC -o driver/libnvidia-ml.so.1 "$root/tests/support/stand_in/nvml.c" || exit 1
gpu() { LD_LIBRARY_PATH=$PWD/driver "$@"; }
times 1
FAKE_PROCESSES=1 FAKE_THROTTLE=68 gpu run hot 0
says "algorithms were timed on GPU 0 while it was slowed down: thermal (hardware)"
[ -e "$kept" ] && fail "times of a slow GPU were kept"
FAKE_PROCESSES=3 gpu run busy 0
says "other processes used it; later runs time their own"
[ -e "$kept" ] && fail "times of a shared GPU were kept"
FAKE_PROCESSES=1 gpu run cool 0
expect driver 1 "$(grep -c '"driver": "580.159.04"' "$kept")"

# The rows of one suite have one table, although nothing of it is kept.
rm "$kept"
case_name=suite
FAKE_PROCESSES=1 FAKE_THROTTLE=64 gpu "$FP8LAB" run "$tests/suite.lua" --lib "$lib" --threads 1 \
    --runs suite --set train.steps=4 >out 2>log
expect "exit code" 0 $?
[ -e "$kept" ] && fail "times of a slow GPU were kept"
tables=$(for bundle in suite/*.zst; do
    tar -xOf "$bundle" --wildcards '*/data/choices.txt' | sha256sum
done | sort -u | wc -l)
expect "tables of two rows" 1 "$tables"

# Two ranks have rank 0's choices, of an earlier run too.
times 1
run pair 0 --set hardware.gpus=2 --anywhere
times 2
run pair2 0 --set hardware.gpus=2 --anywhere
same pair pair2
expect "ranks with this table" 2 "$(field "$(newest pair2)" 'run["attempts"][0]["choices_ranks"]')"

# A rank that chose something else: the error names it.
case_name="another rank"
times 1 stand-in lib-1 1
run_tiny --runs odd --set train.steps=6 --set hardware.gpus=2 --anywhere --choices none
expect "exit code" 6 $code
grep -qE "ranks (0 and 1|1 and 0) chose different algorithms \(choices" log ||
    fail "the error does not name the rank"
times 1

# Two runs at once: the file is whole, and later runs agree with it.
rm "$kept"
run_tiny --runs at-once-1 --set train.steps=6 2>/dev/null &
"$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --threads 1 --runs at-once-2 --set train.steps=6 \
    --set model.seq_len=64 >out2 2>log2
wait
run after 0
same at-once-1 after
run after2 0 --set model.seq_len=64
same at-once-2 after2

# A home folder that cannot be written, and none at all: the folder of runs has the file. If neither
# can be written, that is said once.
: >file
case_name=unwritable
times 1
XDG_CACHE_HOME=$PWD/file run unwritable 0
expect "messages" 1 "$(grep -c "are kept for later runs in unwritable/cache: mkdir" log)"
times 2
XDG_CACHE_HOME=$PWD/file run unwritable 0 --again
grep -q "kept for later runs" log && fail "nothing was timed"
expect "tables of both" 1 "$(for bundle in unwritable/*.zst; do
    field "$bundle" 'run["inputs"]["choices"]'
done | sort -u | wc -l)"
mkdir nowhere && : >nowhere/cache
XDG_CACHE_HOME=$PWD/file run nowhere 0
expect "messages" 1 "$(grep -c "are not kept for later runs, which time their own: mkdir" log)"
case_name="no home"
env -u XDG_CACHE_HOME -u HOME "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --threads 1 \
    --runs homeless --set train.steps=2 >out 2>log
expect "exit code without a home" 0 $?
[ -f homeless/cache/choices.json ] || fail "there is no cache beside the runs"
"$FP8LAB" list homeless >out 2>log || fail "list"
expect "runs listed" 1 "$(grep -c tiny out)"
mkdir home
env -u XDG_CACHE_HOME HOME="$PWD/home" "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --threads 1 \
    --runs homely --set train.steps=2 >out 2>log
[ -f home/.cache/fp8lab/choices.json ] || fail "there is no cache in the home folder"
case_name="--cache"
XDG_CACHE_HOME=$PWD/other run named 0 --cache named-cache
[ -f named-cache/choices.json ] || fail "there is no cache in the named folder"
[ ! -e other ] || fail "there is a cache in the home folder too"
exit $failed
