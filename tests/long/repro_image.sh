#!/bin/bash
# timeout: 1800
# `make repro` builds its image with a tool that works here and runs the CPU's reference in it:
# bitwise equal.
set -u
: "${TEST_TMP:=$(mktemp -d)}"
. tests/support/container.sh
find_tools
find_base "$(dpkg --print-architecture 2>/dev/null || echo amd64)"
find_build_flags "$base"
one_at_a_time # with the settings of tests/containers/image.sh, so that both share the layers
env -u ARCH -u FP8LAB -u NATIVE TOOL="$runner" RUNS="$TEST_TMP/runs" PLATFORM=cpu ONLY=bf16 \
    BASE_IMAGE="$base" BUILD_FLAGS="$BUILD_FLAGS" SOURCE_DATE_EPOCH=1700000000 \
    containers/repro.sh >"$TEST_TMP/out" 2>"$TEST_TMP/said"
code=$?
grep -E 'is built: |lower limits' "$TEST_TMP/said"
tail -3 "$TEST_TMP/out"
[ "$code" = 0 ] && grep -qx "1 of 1 bitwise equal: cpu, $(uname -m), $runner" "$TEST_TMP/out" ||
    { echo "FAILED: exit code $code"; tail -20 "$TEST_TMP/said"; exit 1; }
