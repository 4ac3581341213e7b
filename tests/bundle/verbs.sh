#!/bin/bash
# show, list, verify, extract and compare on the command line: output and exit codes.
set -u
: "${BUILD:=$PWD/build/release}" "${TEST_TMP:=$(mktemp -d)}"
: "${FP8LAB:=$BUILD/fp8lab}"
failed=0
root=$PWD
cd "$TEST_TMP" || exit 1
mkdir runs
"$BUILD/tests/bundle/test_bundle" runs >list || exit 1
done=$(ls runs/*-done-*.tar.zst) killed=$(ls runs/*-killed-*.tar.zst)
rm -r runs/*-killed-0badcafe

# expect CODE TEXT COMMAND...: the exit code, and a text that stdout or stderr must hold.
expect() {
    local code=$1 text=$2 out got
    shift 2
    out=$("$FP8LAB" "$@" 2>&1)
    got=$?
    if [ "$got" -ne "$code" ] || ! grep -qF -- "$text" <<<"$out"; then
        printf 'fp8lab %s: exit %d, wanted %d and "%s":\n%s\n' "$*" "$got" "$code" "$text" "$out"
        failed=1
    fi
}

expect 0 "done" list
expect 2 "nowhere is no directory" list nowhere
expect 0 '"schema":"fp8lab.list/1"' list --json
expect 0 "loss is nan at step 7" show 20261121T024821Z
expect 0 "killed" show last
expect 2 "3 runs begin with 2026" show 2026
expect 2 "neither a path nor the beginning of a run" show 1999
expect 0 "valid: $done" verify "$done"
expect 0 '"schema":"fp8lab.verify/1"' verify --json runs/*-done-0badcafe
expect 0 "every one verified" extract "$killed" --to out
expect 6 "nothing is overwritten: --to DIR" extract "$killed" --to out
# Every error names the bundle.
cp -r out damaged
printf '\0' >>damaged/manifest-sha256.txt
for verb in verify "extract --to no" repro; do expect 4 "fp8lab: ./damaged: " $verb ./damaged; done
rm -r damaged
expect 0 "equal bit for bit over 20 steps" compare "$done" "$killed" --assert-equal
expect 0 "equal bit for bit over 20 steps" compare "$done" out --html page.html
expect 0 '"equal":true' compare --json "$done" "$killed"
# The next command names a run by its time, or by its path if the time does not select the bundle:
# the finished run still has its directory beside its bundle.
short=$(basename "$killed" | cut -c1-16)
expect 0 "Next: fp8lab compare --html compare.html $done $short" compare "$done" "$killed"
cp "$killed" "runs/$short-twin.tar.zst"
expect 0 "Next: fp8lab compare --html compare.html $done $killed" compare "$done" "$killed"
rm "runs/$short-twin.tar.zst"
# --runs finds runs of another folder by id; the next command names their paths.
mkdir -p elsewhere
cp "$done" "$killed" elsewhere/
for verb in show verify; do
    expect 0 "Next: fp8lab $([ $verb = show ] && echo verify || echo show) elsewhere/" \
        $verb --runs elsewhere "$short"
    expect 2 "$short" $verb --runs nowhere "$short"
done
expect 0 "every one verified" extract --runs elsewhere "$short" --to from-elsewhere
expect 0 "Next: fp8lab compare --html compare.html elsewhere/" \
    compare --runs elsewhere "$short" last
grep -q '<svg' page.html || { echo "page.html has no plot"; failed=1; }

# The crate's description of the columns is enough to read them.
python3 - out/data <<'PY' || { echo "the crate does not describe .cols"; failed=1; }
import json, pathlib, struct, sys
data = pathlib.Path(sys.argv[1])
graph = {e["@id"]: e for e in json.loads((data / "ro-crate-metadata.json").read_bytes())["@graph"]}
files = [e for e in graph.values() if e["@id"].endswith(".cols")]
assert len(files) >= 3, files
for file in files:
    scope = {"b": (data / file["@id"]).read_bytes(), "json": json, "struct": struct}
    exec(graph[file["conformsTo"]["@id"]]["description"].partition("In Python: ")[2], scope)
    lines = (data / file["@id"]).with_suffix(".jsonl")
    if lines.exists():
        records = [json.loads(line) for line in lines.open()]
        assert scope["head"]["rows"] == len(records), file
        if "step" in records[0]:
            assert list(scope["columns"]["step"]) == [r["step"] for r in records], file
    assert all(len(c) % scope["head"]["rows"] == 0 for c in scope["columns"].values()), file
PY

head -c 3000 "$done" >short.tar.zst
expect 4 "truncated" verify short.tar.zst
expect 4 "truncated" extract short.tar.zst --to never
echo "hello" >no.tar.zst
expect 4 "is no archive" verify no.tar.zst
expect 2 "neither a path" verify /nowhere/at/all.tar.zst
# A regular file that cannot be read is an I/O error, not a failed verification.
expect 6 "read /proc/self/mem: Input/output error" verify /proc/self/mem
chmod u+w out/data/run.json
echo >>out/data/run.json
expect 4 "wrong hash: data/run.json" verify out
expect 4 "wrong hash: data/run.json" show out
# verify checks all bundles; the worst result is the exit code; each message names its bundle.
expect 4 "wrong hash: data/run.json" verify no.tar.zst /nowhere.tar.zst out "$done"
expect 4 "valid: $done" verify no.tar.zst /nowhere.tar.zst out "$done"
expect 2 "valid: $done" verify /nowhere.tar.zst "$done"
lines=$("$FP8LAB" verify --json short.tar.zst "$done" 2>/dev/null |
    sed 's/.*"schema":"\([^"]*\).*/\1/' | xargs)
[ "$lines" = "fp8lab.error/1 fp8lab.verify/1" ] || { echo "verify --json: $lines"; failed=1; }
[ ! -e never ] || { echo "a bad bundle was extracted"; failed=1; }

mkdir other && "$BUILD/tests/bundle/test_bundle" other >/dev/null
live=$(ls -d other/*-done-0badcafe)
rm "$live"/*.txt "$live"/data/metrics/*.cols "$live"/data/*/fp8.cols "$live"/data/trace.cols
cp -r "$live" honest
sed -i '7s/"loss_bits":"......../"loss_bits":"00000000/' "$live/data/metrics/train.jsonl"
expect 5 "first differ at step 7, in train.loss" compare "$done" "$live" --assert-equal
expect 0 "first differ at step 7, in train.loss" compare "$done" "$live"
# A directory without manifests is shown as not verified.
expect 0 '"verified":false' show --json "$live"
expect 0 "done  (not verified: no manifest)" show "$live"
expect 0 "  not verified: no manifest" list other
expect 0 '"verified":false' list --json other
expect 0 '"verified":true' show --json "$done"
expect 0 '"verified":true' compare --json "$done" "$killed"
for words in "$("$FP8LAB" show "$done")" "$("$FP8LAB" list runs)"; do
    grep -q "not verified" <<<"$words" && { echo "a bundle was not verified: $words"; failed=1; }
done
expect 6 "the run is not finished" verify "$live"
# Columns are as wide as their texts, and the suggested command compares runs of one model.
mkdir wide
for id in 20261121T030000Z-tiny-aaaaaaaa 20261121T030001Z-tiny-bbbbbbbb \
    "20261121T030002Z-$(printf 'long-%.0s' {1..16})cccccccc"; do
    cp -r honest "wide/$id" && chmod -R u+w "wide/$id"
    sed -i "s/\"id\": *\"[^\"]*\"/\"id\":\"$id\"/" "wide/$id/data/run.json"
done
sed -i 's/"model": *null/"model":{"width":64}/' wide/*aaaaaaaa/data/experiment/resolved.json
expect 0 "Next: fp8lab compare wide/20261121T030001Z-tiny-bbbbbbbb" list wide
lengths=$("$FP8LAB" list -q wide | sed 's/  not verified: no manifest$//' |
    awk '{ print length($0) }' | sort -u | wc -l)
[ "$lengths" = 1 ] || { echo "list: columns are not aligned"; failed=1; }
# Text of a run must not reach a terminal as escape sequences.
sed -i 's/"status": *"done"/"status":"\\u001b[31mdone"/' "$live/data/run.json"
expect 0 "?[31mdone" show "$live"
expect 0 "?[31mdone" list other
expect 0 "?[31mdone" compare "$done" "$live"

# Bundles of earlier versions still verify.
count=0
for folder in "$root"/experiments/reference/*/; do
    bundles=("$folder"*.tar.zst)
    [ -e "${bundles[0]}" ] || continue
    count=$((count + ${#bundles[@]}))
    expect 0 "valid: " verify "${bundles[@]}"
    rows=$("$FP8LAB" list --json "$folder" | grep -o '"verified":true' | wc -l)
    [ "$rows" -eq ${#bundles[@]} ] || { echo "list $folder: $rows verified"; failed=1; }
    [ ${#bundles[@]} -eq 1 ] || expect 0 '"verified":true' compare --json "${bundles[@]}"
done
[ "$count" -gt 5 ] || { echo "experiments/reference holds $count bundles"; failed=1; }
exit $failed
