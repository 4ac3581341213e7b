#!/bin/bash
# tier: long
# The audit by the command line: its records and the line of `show`, the same results without it,
# a resumed run, two ranks, and `doctor --audit`.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
export NO_COLOR=1 OMP_NUM_THREADS=1
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
# run NAME ARGUMENTS...: a run of tiny.lua; its bundle is $TEST_TMP/NAME/*.tar.zst.
run() {
    local name=$1
    shift
    "$FP8LAB" run tests/cli/tiny.lua --backend cpu --runs "$TEST_TMP/$name" "$@" \
        >"$TEST_TMP/$name.log" 2>&1 || { fail "$name: exit code $?"; cat "$TEST_TMP/$name.log"; }
    "$FP8LAB" show "$TEST_TMP/$name"/*.tar.zst >"$TEST_TMP/$name.shown" 2>&1
}
results() { sed -n 's/^  results *//p' "$TEST_TMP/$1.shown"; }

run plain
run audited --set train.audit.every=2
run often --set train.audit.every=1 --set train.audit.outputs=5 --set hardware.gpus=2
run off --set train.audit=false
grep -q '^  audit *384 products and [0-9,]* FP8 codes compared, all equal$' \
    "$TEST_TMP/audited.shown" || fail "show: $(grep audit "$TEST_TMP/audited.shown")"
# 12 steps, two ranks, 5 outputs each.
grep -q '^  audit *120 products' "$TEST_TMP/often.shown" ||
    fail "two ranks: $(grep audit "$TEST_TMP/often.shown")"
grep -q '^  audit' "$TEST_TMP/plain.shown" "$TEST_TMP/off.shown" && fail "audited by default"
[ -n "$(results plain)" ] && [ "$(results plain)" = "$(results audited)" ] &&
    [ "$(results plain)" = "$(results off)" ] || fail "an audit changed the results"

"$FP8LAB" doctor --backend cpu --quick --audit >"$TEST_TMP/doctor" 2>&1
words="CPU: 1792 products and [0-9]* FP8 codes of 7 recipes compared with the host's, all equal$"
grep -q "$words" "$TEST_TMP/doctor" || fail "doctor --audit: $(grep audit "$TEST_TMP/doctor")"
exit $failed
