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
expect 2 "nowhere is not a directory" list nowhere
expect 0 '"schema":"fp8lab.list/1"' list --json
expect 0 "loss is nan at step 7" show 20261121T024821Z
expect 0 "killed" show last
expect 0 "watch: saturated, 1 tensor" health "$done" # one of its three is clipped in each step
expect 0 "3 FP8 tensors" health last
expect 0 '"schema":"fp8lab.health/1"' health --json runs/*-done-0badcafe
expect 2 "no run" health --runs nowhere last
expect 2 "3 runs begin with 2026" show 2026
expect 2 "neither a path nor the beginning of a run" show 1999
expect 0 "valid: $done" verify "$done"
expect 0 '"schema":"fp8lab.verify/1"' verify --json runs/*-done-0badcafe
expect 0 "every one verified" extract "$killed" --to out
expect 6 "nothing is overwritten: --to DIR" extract "$killed" --to out
expect 6 "out exists, and nothing is overwritten" extract "$killed" --to out/
expect 0 "slash: " extract "$killed" --to slash//
ln -s nowhere hanging && mkdir held.partial
expect 6 "hanging exists, and nothing is overwritten" extract "$killed" --to hanging
expect 6 "another extraction may be writing it: wait, or" extract "$killed" --to held
expect 6 "; make the folder around it first" extract "$killed" --to no/where
[ -d slash/data ] || { echo "--to slash// made no slash/data"; failed=1; }
# Every error names the bundle.
cp -r out damaged
printf '\0' >>damaged/manifest-sha256.txt
for verb in verify "extract --to no" repro; do expect 4 "fp8lab: ./damaged: " $verb ./damaged; done
rm -r damaged
expect 0 "equal bit for bit over 20 steps" compare "$done" "$killed" --assert-equal
expect 0 "equal bit for bit over 20 steps" compare "$done" out --html page.html
expect 0 "wrote one.html" show "$done" --html one.html
grep -q '<h2>Settings</h2>' one.html || { echo "one.html has no settings"; failed=1; }
# A page replaces a page, and no other file: with a forgotten name, the next argument is a bundle.
before=$(sha256sum "$done")
for flag in "show last --html" "compare $killed out --html" "compare $killed out --seed-band"; do
    expect 2 "$done: the file holds other data, and stays as it is" $flag "$done"
done
[ "$(sha256sum "$done")" = "$before" ] || { echo "$done was replaced"; failed=1; }
expect 0 "wrote page.html" show "$done" --html page.html
expect 2 "new.tar.zst: such names are for bundles" show "$done" --html new.tar.zst
printf '<h1>My notes</h1> A page has <title>fp8lab in its head.\n' >notes.html
expect 2 "notes.html: the file holds other data" show "$done" --html notes.html
expect 2 "there is no folder none; make it" show "$done" --html none/page.html
expect 2 "it is not a regular file" show "$done" --html /dev/null
expect 0 "plots to figures" compare "$done" out --svg figures
expect 6 "one.html" compare "$done" out --svg one.html
expect 0 '"equal":true' compare --json "$done" "$killed"
# The next command names all runs by their times, else by their ids, else as they were given. The
# finished run still has its directory beside its bundle, so its id does not select the bundle.
short=$(basename "$killed" | cut -c1-16)
expect 0 "Next: fp8lab compare --html compare.html $done $killed" compare "$done" "$killed"
mkdir two && mv "runs/$(basename "$done" .tar.zst)" two
expect 0 "Next: fp8lab compare --html compare.html $(basename "$done" | cut -c1-16) $short" \
    compare "$done" "$killed"
cp "$killed" "runs/$short-twin.tar.zst"
expect 0 "Next: fp8lab compare --html compare.html $(basename "$done" .tar.zst) $(basename \
    "$killed" .tar.zst)" compare "$done" "$killed"
rm "runs/$short-twin.tar.zst"
mv "two/$(basename "$done" .tar.zst)" runs
# --runs finds runs of another folder by id; the next command names their paths.
mkdir -p elsewhere
cp "$done" "$killed" elsewhere/
for verb in show verify; do
    expect 0 "Next: fp8lab $([ $verb = show ] && echo run --resume || echo show) elsewhere/" \
        $verb --runs elsewhere "$short"
    expect 2 "$short" $verb --runs nowhere "$short"
done
expect 0 "every one verified" extract --runs elsewhere "$short" --to from-elsewhere
expect 0 "Next: fp8lab compare --html compare.html elsewhere/" \
    compare --runs elsewhere "$short" last
grep -q '<svg' page.html || { echo "page.html has no plot"; failed=1; }

# The crate describes each stream, and an array's own header is enough to read it.
python3 - out/data <<'PY' || { echo "the crate does not describe the streams"; failed=1; }
import ast, json, pathlib, struct, sys
data = pathlib.Path(sys.argv[1])
graph = {e["@id"]: e for e in json.loads((data / "ro-crate-metadata.json").read_bytes())["@graph"]}

def read_npy(path):
    raw = path.read_bytes()
    assert raw[:8] == b"\x93NUMPY\x01\x00" and raw[8:10] != b"\0\0"
    begin = 10 + int.from_bytes(raw[8:10], "little")
    head = ast.literal_eval(raw[10:begin].decode())
    form = "<" + "".join(str(c[2][0] if len(c) > 2 else 1) + {"i8": "q", "f8": "d", "f4": "f",
                                                              "u8": "Q"}[c[1][1:]]
                         for c in head["descr"])
    assert head["shape"][0] * struct.calcsize(form) == len(raw) - begin
    return head, [row for row in struct.iter_unpack(form, raw[begin:])]

streams = {p.name: graph[f"metrics/{p.name}"] for p in (data / "metrics").glob("*.jsonl")}
assert streams.keys() == {"train.jsonl", "eval.jsonl", "telemetry.jsonl"}, streams
for name, entity in streams.items():
    keys = json.loads((data / "metrics" / name).open().readline()).keys()
    missing = [k for k in keys if k not in entity["description"] and not k.endswith("_bits")]
    assert not missing, (name, missing)
for name, width, rows in ("fp8", 3, 20), ("trace", 6, 20):
    entity = graph[f"metrics/{name}.npy"]
    assert graph[entity["conformsTo"]["@id"]]["name"] == "NumPy array file"
    head, table = read_npy(data / "metrics" / f"{name}.npy")
    assert all(c[0] in entity["description"] for c in head["descr"]), entity
    assert [row[0] for row in table] == list(range(1, rows + 1))
    labels = [w for w in entity["description"].split() if w.endswith(".json")]
    assert len(json.loads((data / labels[0]).read_bytes())) == width
PY

head -c 3000 "$done" >short.tar.zst
echo "hello" >no.tar.zst
cp "$done" flipped.tar.zst
printf '\377' | dd of=flipped.tar.zst bs=1 seek=1000 conv=notrunc 2>dd.log
# A damaged bundle: the same exit code from all that take a run.
for command in show log "log -f" watch "watch --json" verify "extract --to never" repro health \
    "compare $done" "export --to never" eval "generate --prompts list" tag "tag --note x" \
    "run --resume" "run --extend"; do
    expect 4 "fp8lab: ./short.tar.zst is truncated" $command ./short.tar.zst
    expect 4 "is no archive" $command ./no.tar.zst
    expect 4 "fp8lab: " $command ./flipped.tar.zst
done
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
rm "$live"/*.txt
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
