#!/bin/bash
# show: tensor and step of the largest shares, and the memory reported by the driver, as in the
# bundle's files.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
export NO_COLOR=1
failed=0
for bundle in experiments/reference/{cpu,h200}/repro-*-fp8.{delayed,tensorwise}.tar.zst \
    experiments/reference/cpu/repro-cpu-bf16.tar.zst; do
    rm -rf "$TEST_TMP/bag"
    "$FP8LAB" extract -q "$bundle" --to "$TEST_TMP/bag" >"$TEST_TMP/log" 2>&1 &&
        "$FP8LAB" show -q "$bundle" >"$TEST_TMP/shown" || failed=1
    python3 - "$TEST_TMP" <<'PY' || { echo "FAILED: $bundle"; failed=1; }
import ast, glob, json, math, re, struct, sys

def found(name):
    return glob.glob(f"{sys.argv[1]}/bag/**/{name}", recursive=True)

# Both forms of FP8's figures: labels, and per step the step and a share for each label.
def read_cols(path, share):
    b = open(path, "rb").read()
    n, = struct.unpack_from("<Q", b)
    head = json.loads(b[8:8 + n])
    kind = {"i64": "q", "f64": "d", "u32": "I", "u64": "Q"}
    columns = {c["name"]: struct.unpack_from(
        f"<{head['rows'] * c['width']}{kind[c['type']]}", b, 8 + n + c["offset"])
        for c in head["columns"]}
    return head["labels"], columns["step"], columns[share]

def read_npy(path, labels, share):
    b = open(path, "rb").read()
    n, = struct.unpack_from("<H", b, 8)
    head = ast.literal_eval(b[10:10 + n].decode())
    rows = "<" + "".join(f"{(f[2:] or ((1,),))[0][0]}{ {'<i8': 'q', '<f4': 'f', '<f8': 'd'}[f[1]] }"
                         for f in head["descr"])
    at = 0
    for name, _, *shape in head["descr"]:
        if name == share:
            break
        at += shape[0][0] if shape else 1
    table = [struct.unpack_from(rows, b, 10 + n + i * struct.calcsize(rows))
             for i in range(head["shape"][0])]
    return labels, [row[0] for row in table], [v for row in table for v in row[at:at + len(labels)]]

def fp8(share):
    if found("fp8.cols"):
        return read_cols(found("fp8.cols")[0], share)
    return read_npy(found("fp8.npy")[0], json.load(open(found("fp8_slots.json")[0])), share)

shown = {}
for line in open(sys.argv[1] + "/shown"):
    shown[line[2:16].strip()] = line[17:].strip()
for share in "saturated", "underflow":
    if shown["recipe"] == "bf16":
        assert share not in shown, shown
        continue
    labels, steps, values = fp8(share)
    values = [-1 if math.isnan(v) else v for v in values]
    at = values.index(max(values))
    wanted = "%.3g %% of %s in step %d, at worst" % (
        100 * values[at], labels[at % len(labels)], steps[at // len(labels)])
    if max(values) <= 0:
        wanted = "nothing"
    if "delayed" not in shown["recipe"] and share == "saturated":
        wanted = "nothing: each scale is from the values themselves"
    assert shown[share] == wanted, (shown[share], wanted)
telemetry = [json.loads(line) for line in open(found("telemetry.jsonl")[0])]
def most(key):
    return max((row[key] for row in telemetry if key in row), default=None)
used = most("gpu_memory_used_bytes")
assert shown.get("GPU memory") == (used and "%.1f MiB in use at most, by all processes" % (
    used / 2**20)), shown
arenas = "%.1f MiB per rank, .*" % (most("device_bytes") / 2**20)
assert re.fullmatch(arenas, shown["arenas"]), shown
PY
done

# The kernels of attention, and what was tried on the device. A way that failed is named.
exact=experiments/reference/exact/exact-fp8.delayed.tar.zst
has_line() { # LINE
    grep -qx "  $1" "$TEST_TMP/shown" || { echo "FAILED: show has no line: $1"; failed=1; }
}
"$FP8LAB" show -q $exact >"$TEST_TMP/shown" || failed=1
has_line "attention      4x128, heads 4/2 of 32: forward mma: exact; backward mma: exact"
has_line "certificates   30 passed, 0 failed"
rm -rf "$TEST_TMP/bag"
"$FP8LAB" extract -q $exact --to "$TEST_TMP/bag" >"$TEST_TMP/log" 2>&1 || failed=1
run=$(dirname "$(find "$TEST_TMP/bag" -name bagit.txt)")
rm "$run"/*manifest-*
python3 - "$run/data/certificates.json" <<'PY'
import json, sys
document = json.load(open(sys.argv[1]))
attention, cast = (next(c for c in document["certificates"] if c["section"] == s)
                   for s in ("attention", "cast"))
attention.update(outcome="failed", fault="stale output", forbid="cudnn")
cast.update(outcome="absent")
json.dump(document, open(sys.argv[1], "w"))
PY
"$FP8LAB" show -q "$run" >"$TEST_TMP/shown" || failed=1
has_line "certificates   28 passed, 1 failed, 1 refused by the backend"
has_line "failed         attention bf16, 4 x 128, heads 4/2 of 32: stale output; not used"

# show and compare name a recipe with its options, so two rows of one kind have two names.
h200=experiments/reference/figures/llama3-8b-8layers-loss
ends='fp8.tensorwise param_gather=true first_bf16=1 last_bf16=1'
"$FP8LAB" show -q $h200-tensorwise-1f1l.tar.zst | grep -qx "  recipe  *$ends" ||
    { echo "FAILED: show hides options of the recipe"; failed=1; }
"$FP8LAB" compare -q $h200-{bf16,tensorwise,tensorwise-1f1l,delayed,blockwise}.tar.zst \
    >"$TEST_TMP/compared" || failed=1
for row in 'B   fp8.tensorwise param_gather=true  ' "C   $ends  "; do
    grep -qF "$row" "$TEST_TMP/compared" || { echo "FAILED: compare has no row '$row'"; failed=1; }
done

# The row that all are compared with, and the tolerance.
compare() { "$FP8LAB" compare -q $h200-{bf16,tensorwise,tensorwise-1f1l}.tar.zst "$@" 2>&1; }
compare --baseline "$ends" --tolerance 2% >"$TEST_TMP/compared" || failed=1
for words in "mean eval loss    from C" "  2.00 %  no verdict: row and baseline need 3 seeds"; do
    grep -qF "$words" "$TEST_TMP/compared" || { echo "FAILED: --baseline: no '$words'"; failed=1; }
done
for tolerance in 1 x% -1% 101% nan%; do
    compare --tolerance=$tolerance >"$TEST_TMP/compared"
    [ $? = 2 ] && grep -qF "write a percentage from 0 to 100" "$TEST_TMP/compared" ||
        { echo "FAILED: --tolerance $tolerance is taken"; failed=1; }
done
compare --baseline nothing | grep -qF 'no row has this name; the rows are "bf16", ' ||
    { echo "FAILED: --baseline nothing"; failed=1; }
exit $failed
