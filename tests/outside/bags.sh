#!/bin/bash
# The packages bagit, roc-validator and numpy read five bundles: a done, a failed and a killed run
# that test_bundle makes up, a real run, and a real run whose runner was killed.
# tests/bundle/crate_shapes.txt records the shapes of the first three. tests/bundle/unpacked.sh
# compares with them.
set -u
. tests/outside/lib.sh
arrays() { # RUN...: numpy reads the FP8 records: a row for each step, a value for each label
    python - "$@" <<'PY' >log 2>&1
import json, sys, numpy
for run in sys.argv[1:]:
    fp8 = numpy.load(run + "/data/metrics/fp8.npy")
    labels = json.load(open(run + "/data/metrics/fp8_slots.json"))
    assert len(fp8) >= 3 and list(fp8["step"]) == list(range(1, len(fp8) + 1)), (run, fp8["step"])
    assert fp8["amax"].shape == (len(fp8), len(labels)) and fp8["amax"].dtype == "f4", fp8.dtype
    assert (fp8["scale"] > 0).all() and (fp8["saturated"] <= 1).all(), run
PY
}
bagit() { python -m bagit --validate --quiet "$@" 2>log; }
mkdir runs out
"$BUILD/tests/bundle/test_bundle" "$TEST_TMP/runs" >list || fail "no bundles were made"

real="$tests/tiny.lua --lib $lib --threads 1 --set archive=full"
# shellcheck disable=SC2086  # words
"$FP8LAB" run -q $real --set name=real >log 2>&1 || fail "the real run: exit code $?"
# The next command closes a run whose runner was killed.
# shellcheck disable=SC2086
"$FP8LAB" run -q $real --set name=shot --set train.steps=1000000 >log 2>&1 &
await_step runs 4 shot
arrays runs/*-shot-* || fail "numpy does not read a live run"
kill -KILL $!
wait $! 2>/dev/null
arrays runs/*-shot-* || fail "numpy does not read a killed run"
flock -w 60 runs/*-shot-*/lock true # the worker exits when its pipe closes
"$FP8LAB" list runs >out.list 2>log
grep -q 'shot.*killed' out.list || fail "the killed run was never closed"
ls runs/*-real-*.tar.zst runs/*-shot-*.tar.zst >>list
expect bundles 5 "$(wc -l <list)"

while read -r bundle; do zstd -qdc "$bundle" | tar -C out -xf -; done <list
bagit out/* || fail "bagit does not accept a bundle"
arrays out/* || fail "numpy does not read the arrays of a bundle"
python "$root/tests/outside/check_crate.py" out/*/data >log || fail "roc-validator finds faults"
for status in failed killed shot; do
    grep -q '"http://schema.org/FailedActionStatus"' \
        out/*"-$status-"*/data/ro-crate-metadata.json ||
        fail "$status: no FailedActionStatus"
done
if [ $failed = 0 ]; then
    python "$root/tests/bundle/crate_shapes.py" out/*-{done,failed,killed}-0badcafe/data >shapes
    recorded tests/bundle/crate_shapes.txt shapes
fi

# Without these two, the checks above would prove nothing.
sed -i 's/"instrument"/"tool"/' out/*-done-*/data/ro-crate-metadata.json
python "$root/tests/outside/check_crate.py" out/*-done-*/data >log &&
    fail "roc-validator accepts an action without an instrument"
bagit out/*-done-* && fail "bagit accepts a changed file"
exit $failed
