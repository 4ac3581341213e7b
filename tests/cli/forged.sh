#!/bin/bash
# Untrusted text on the terminal: ids, `about`, errors, file names and printed lines of a bundle or
# script. It adds no line or row, does not control the terminal, and does not change the text
# direction.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
export NO_COLOR=1
failed=0
reference=$PWD/experiments/reference/cpu/repro-cpu-bf16.tar.zst
lib=$PWD/experiments/lib
cd "$TEST_TMP" || exit 1
mkdir runs
"$FP8LAB" extract -q "$reference" --to bag >log 2>&1 || { cat log; exit 1; }

# A bundle with forged texts and correct manifests; the name of its folder is forged too.
python3 - <<'PY' || exit 1
import hashlib, json, os, pathlib
evil = "x\nFORGED done 1 2\t\x1b[31mFORGED\u009b31mFORGED\u202eFORGED\u2028FORGED"
bag = pathlib.Path("bag")
def edit(path, change):
    value = json.loads((bag / path).read_text())
    change(value)
    (bag / path).write_text(json.dumps(value))
def run(value):
    value["id"] += evil
    value["name"] = evil  # so `repro` finds no run of that name, and trains nothing
    value["status"] = "failed" + evil
    value["started"] += evil
    value["error"] = {"code": "io", "text": evil}
    value["inputs"]["config"] = sha256(json.loads((bag / resolved).read_text()))
    value["inputs_sha256"] = sha256(value["inputs"])
resolved = "data/experiment/resolved.json"
def sha256(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":"),
                                     ensure_ascii=False).encode()).hexdigest()
edit(resolved, lambda value: value.update(about=evil, name=evil))
edit("data/run.json", run)
def manifest(name, paths):
    (bag / name).write_text("".join(
        f"{hashlib.sha256((bag / p).read_bytes()).hexdigest()}  {p}\n" for p in paths))
data = sorted(str(p.relative_to(bag)) for p in (bag / "data").rglob("*") if p.is_file())
info = (bag / "bag-info.txt").read_text().splitlines(True)
size = sum((bag / p).stat().st_size for p in data)
(bag / "bag-info.txt").write_text("".join(
    f"Payload-Oxum: {size}.{len(data)}\n" if line.startswith("Payload-Oxum") else line
    for line in info))
manifest("manifest-sha256.txt", data)
manifest("tagmanifest-sha256.txt", ["bag-info.txt", "bagit.txt", "manifest-sha256.txt"])
os.rename("bag", "runs/" + evil.replace("/", ""))
pathlib.Path("evil.lua").write_text(
    'print("x\\nFORGED\\27[31mFORGED\\u{202e}FORGED") error("x\\nFORGED\\u{9b}FORGED")')
pathlib.Path("suite.lua").write_text(
    'local tiny = require "models.tiny"\n'
    'return suite { name = "n", about = "\\u{202e}FORGED\\u{9b}",\n'
    '  experiment { name = "e", about = "\\u{202e}\\u{9b}", model = tiny.llama, recipe = bf16,\n'
    '               data = synthetic,\n'
    '               train = { steps = 1, global_batch = 1 } } }')
PY
evil=$(echo runs/*)

# says WORDS...: keeps the command's output.
mkdir said
count=0
says() {
    count=$((count + 1))
    printf '%s' "$*" >said/$count.words
    "$FP8LAB" "$@" >said/$count.out 2>said/$count.err
}
for json in "" --json; do
    says show $json "$evil"
    says list $json
    says list $json nowhere$'\n'FORGED$'\u202e'
    says verify $json "$evil"
    says verify $json "$reference" "$evil/data"
    rm -rf to*
    says extract $json "$evil" --to to$'\n'FORGED$'\u202e'
    says extract $json "$evil"
    says compare $json "$evil" "$reference"
    says check $json evil.lua
    says check $json suite.lua --lib "$lib"
    says check $json evil.lua$'\n'FORGED
    says run $json evil.lua
    says repro $json "$evil"
    says data $json $'x\nFORGED'
    says $json $'x\nFORGED'
done
says check suite.lua --lib "$lib" --resolved
says list
grep -q '?FORGED' said/$count.out || { echo "list does not show the forged id at all:"; failed=1; }

# No control character is left, and no line begins with FORGED.
python3 - <<'PY' || failed=1
import pathlib, re, sys
bad = False
for path in sorted(pathlib.Path("said").iterdir()):
    if path.suffix == ".words":
        continue
    said = path.read_bytes().decode()  # UTF-8, or this fails
    acts = re.findall("[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]", said)
    if acts or re.search("^FORGED", said, re.M):
        words = path.with_suffix(".words").read_text()
        print(f"FAILED: {words!r}: std{path.suffix[1:]} has {acts}:\n{said!r}")
        bad = True
sys.exit(bad)
PY
exit $failed
