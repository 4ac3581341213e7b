#!/bin/bash
# --json prints one line of valid JSON with the keys that runner/JSON.md lists.
set -u
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
failed=0

# The words in backquotes of the row of schema $1, after its second column.
documented() {
    sed -n '/^| schema /,/^$/p' runner/JSON.md | grep -E "^\|[^|]*\`$1\`" | cut -d'|' -f4- |
        grep -oE '`[a-z_0-9.]+`' | tr -d '`'
}

# expect CODE SCHEMA ARGUMENTS...: exit code, one line, the schema, and every key documented.
expect() {
    local code=$1 schema=$2 got key
    shift 2
    "$FP8LAB" "$@" --json >"$TEST_TMP/out" 2>"$TEST_TMP/err"
    got=$?
    [ "$got" = "$code" ] || fail "$*: exit code $got, not $code"
    [ "$(wc -l <"$TEST_TMP/out")" = 1 ] || fail "$*: not one line"
    python3 -c 'import json, sys
for key, value in json.load(open(sys.argv[1])).items():
    print(value if key == "schema" else "key " + key)' "$TEST_TMP/out" >"$TEST_TMP/keys" ||
        { fail "$*: not JSON"; return; }
    grep -qx "fp8lab.$schema/1" "$TEST_TMP/keys" || fail "$*: another schema"
    [ "$schema" = facts ] && return # the facts by name
    for key in $(sed -n 's/^key //p' "$TEST_TMP/keys"); do
        documented "$schema" | grep -qx "$key" ||
            fail "$*: runner/JSON.md does not list '$key' of $schema"
    done
}
fail() { echo "FAILED: $1"; sed 's/^/    /' "$TEST_TMP/err" | tail -3; failed=1; }

# Every documented key of schema $1 is in the last answer.
complete() {
    local key
    for key in $(documented "$1"); do
        grep -qx "key $key" "$TEST_TMP/keys" || fail "$1: '$key' of runner/JSON.md is missing"
    done
}

suite=tests/cli/suite.lua runs=$TEST_TMP/runs
expect 2 error nonsense
expect 0 data data LICENSE
expect 0 facts hw
expect 3 hw_match hw --query 'gpu.count>=1000'
expect 0 doctor doctor --quick --facts tests/facts/laptop.json
expect 0 bench bench gemm --m 16 --n 16 --k 16 --repeats 1 --backend cpu
expect 0 check check "$suite"
bad=(--set train.nonsense=1 --set model.width=x)
expect 2 check check "$suite" "${bad[@]}"
cp "$TEST_TMP/out" "$TEST_TMP/errors"
for verb in run plan advise "run --launch docker --dry-run"; do
    # shellcheck disable=SC2086  # words
    expect 2 check $verb "$suite" "${bad[@]}"
    cmp "$TEST_TMP/errors" "$TEST_TMP/out" || fail "$verb: other errors than those of check"
done
expect 0 plan plan "$suite" --backend cpu
expect 0 advise advise "$suite" --facts tests/facts/h200.json --runs "$runs"
expect 3 run_refused run experiments/h200_bf16.lua --runs "$runs" --set hardware.gpus=128
expect 0 run_result run experiments/quickstart.lua --smoke --only '*16' --only '*wise' \
    --runs "$runs" --backend cpu
bundles=("$runs"/*.tar.zst)
expect 0 list list "$runs"
expect 0 show show "${bundles[0]}"
expect 0 watch watch "${bundles[0]}"
expect 0 log log "${bundles[0]}"
expect 0 health health "${bundles[0]}"
expect 0 tag tag "${bundles[0]}" mine --note "some text"
expect 0 removal rm "${bundles[0]}" --dry-run
expect 0 removal gc "$runs" --dry-run
expect 0 verify verify "${bundles[0]}"
expect 0 extract extract "${bundles[0]}" --to "$TEST_TMP/extracted"
expect 0 compare compare "${bundles[@]}"
# The same numbers as tables.
"$FP8LAB" compare --csv "${bundles[@]}" >"$TEST_TMP/csv" 2>"$TEST_TMP/err" &&
    "$FP8LAB" compare --md "${bundles[@]}" >"$TEST_TMP/md" 2>"$TEST_TMP/err" &&
    python3 - "$TEST_TMP" 2>"$TEST_TMP/err" <<'PY' || fail "compare: tables other than --json"
import csv, json, sys
def same(text, value):
    return float(text) == value if isinstance(value, (int, float)) else text == (value or "")
out, table, page = (open(f"{sys.argv[1]}/{name}") for name in ("out", "csv", "md"))
report = json.load(out)
rows = list(csv.DictReader(table, strict=True))
assert len(rows) == len(report["runs"]) > 1
for row, run in zip(rows, report["runs"]):
    for key in row.keys() & run.keys() - {"ratio", "verified"}:
        value = run[key]
        assert same(row[key], value), (key, row[key], value)
    for key, value in run["ratio"].items():
        assert same(row["ratio_" + key], value), key
lines = page.read().splitlines()
assert len(lines) >= len(rows) + 2
assert all(run["id"] in line for run, line in zip(report["runs"], lines[2:]))
assert len({line.count("|") for line in lines[:len(rows) + 2]}) == 1, lines
PY
"$FP8LAB" compare --md --csv "${bundles[@]}" >"$TEST_TMP/out" 2>"$TEST_TMP/err"
[ $? = 2 ] || fail "compare takes two outputs"
expect 0 repro repro "${bundles[0]}" --runs "$TEST_TMP/again"
complete repro
if [ ! -e /dev/nvidiactl ]; then # refused, with the same keys
    expect 3 repro repro experiments/reference/h200/repro-gpu-bf16.tar.zst --runs "$TEST_TMP/again"
    complete repro
fi
expect 0 launch run "$suite" --launch docker --dry-run --runs "$runs"
exit "$failed"
