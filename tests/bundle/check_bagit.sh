#!/bin/sh
# Independent tools (tar, zstd, the packages bagit, roc-validator and numpy) read bundles of a done, a
# failed and a killed run. test_bundle writes made-up bundles. Two bundles come from real runs, one
# of them with a killed runner.
set -eu
: "${BUILD:=$PWD/build/release}" "${VENV:=$PWD/build/venv}" "${TEST_TMP:=$(mktemp -d)}"
: "${FP8LAB:=$BUILD/fp8lab}"
here=$(dirname "$0")
if ! [ -x "$VENV/bin/python" ] ||
    ! "$VENV/bin/python" -c 'import bagit, numpy, rocrate, rocrate_validator' 2>/dev/null; then
    echo "SKIPPED: bagit, numpy, rocrate or roc-validator is missing"
    exit 77
fi
if ! command -v zstd >/dev/null; then
    echo "SKIPPED: the command zstd is missing"
    exit 77
fi
mkdir -p "$TEST_TMP/runs" "$TEST_TMP/out"
# numpy.load reads the FP8 records of each run: a row for each step, a value for each label.
check_arrays() {
    "$VENV/bin/python" - "$@" <<'PY'
import json, sys, numpy
for run in sys.argv[1:]:
    fp8 = numpy.load(run + "/data/metrics/fp8.npy")
    labels = json.load(open(run + "/data/metrics/fp8_slots.json"))
    assert len(fp8) >= 3 and list(fp8["step"]) == list(range(1, len(fp8) + 1)), (run, fp8["step"])
    assert fp8["amax"].shape == (len(fp8), len(labels)) and fp8["amax"].dtype == "f4", fp8.dtype
    assert (fp8["scale"] > 0).all() and (fp8["saturated"] <= 1).all(), run
PY
}
"$BUILD/tests/bundle/test_bundle" "$TEST_TMP/runs" >"$TEST_TMP/list"

cat >"$TEST_TMP/real.lua" <<'LUA'
return experiment {
  name = "real", about = "Does a real run leave a valid bundle?",
  model = { vocab = 96, seq_len = 32, layers = 2, width = 64, heads = 4, ffn = 160 },
  recipe = fp8.blockwise {},
  data = synthetic { seed = 7 },
  train = { steps = 4, global_batch = 4, micro_batch = 2, seed = 1,
            optimizer = adamw { lr = 1e-3 }, schedule = constant {} },
  checkpoint = { every = 2, keep = 1 }, archive = "full",
}
LUA
(cd "$TEST_TMP" && "$FP8LAB" run -q real.lua)
# A run whose runner is killed in the middle; the next command closes it.
cd "$TEST_TMP"
"$FP8LAB" run -q real.lua --set name=shot --set train.steps=1000000 &
runner=$!
tries=0
until cat runs/*-shot-*/data/metrics/train.jsonl 2>/dev/null | grep -q '"step":4,'; do
    tries=$((tries + 1))
    [ $tries -lt 3000 ] || { echo "the run to be killed made no step"; exit 1; }
    sleep 0.1
done
check_arrays runs/*-shot-* # while the run writes it
kill -9 $runner
wait $runner 2>/dev/null || true
check_arrays runs/*-shot-*
tries=0
until "$FP8LAB" list runs | grep -q 'shot.*killed'; do # the worker exits when its pipe closes
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { echo "the killed run was never closed"; exit 1; }
    sleep 0.1
done
cd - >/dev/null
ls "$TEST_TMP"/runs/*-real-*.tar.zst "$TEST_TMP"/runs/*-shot-*.tar.zst >>"$TEST_TMP/list"
[ "$(wc -l <"$TEST_TMP/list")" -eq 5 ]

while read -r bundle; do
    zstd -qdc "$bundle" | tar -C "$TEST_TMP/out" -xf -
done <"$TEST_TMP/list"
"$VENV/bin/python" -W ignore -m bagit --validate --quiet "$TEST_TMP"/out/*
"$VENV/bin/python" "$here/check_crate.py" "$TEST_TMP"/out/*/data
check_arrays "$TEST_TMP"/out/*
for status in failed killed shot; do
    grep -q '"http://schema.org/FailedActionStatus"' \
        "$TEST_TMP"/out/*"-$status-"*/data/ro-crate-metadata.json
done
# A changed byte must fail, otherwise the checks above prove nothing.
echo >>"$(ls "$TEST_TMP"/out/*-done-*/data/run.json)"
if "$VENV/bin/python" -W ignore -m bagit --validate --quiet "$TEST_TMP"/out/*-done-* \
    2>/dev/null; then
    echo "bagit accepted a changed file"
    exit 1
fi
echo "bagit, roc-validator and numpy accept done, failed and killed runs, made up and real"
