#!/bin/bash
# One reference bundle, as `make repro` runs it without an image.
set -u
. tests/cli/lib.sh
shown="out log"
cd "$root" || exit 1
FP8LAB="$FP8LAB" PLATFORM=cpu ONLY=fp8.delayed RUNS=$TEST_TMP/make containers/repro.sh \
    >"$TEST_TMP/out" 2>"$TEST_TMP/log"
code=$?
cd "$TEST_TMP" || exit 1
[ $code = 0 ] || fail "make repro: exit code $code"
grep -q "^1 of 1 bitwise equal: cpu" out || fail "make repro on a CPU is not bitwise equal"
exit $failed
