#!/bin/bash
# The device fails in the middle of a run (fault_plugin.c). The run ends with exit code 1, its error
# names operator and step, and its bundle is complete.
#
#   tests/gpu/fault.sh [FOLDER] [PROGRAM]
#
# FOLDER: has both plugins; default build/release/tests/gpu.
set -u
folder=$(cd "${1:-build/release/tests/gpu}" && pwd) program=$(realpath "${2:-build/release/fp8lab}")
root=$(cd "$(dirname "$0")/../.." && pwd)
script=${TINY:-$root/tests/cli/tiny.lua} lib=${LIB:-$root/experiments/lib}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp "$program" "$scratch/fp8lab"
cp "$folder/fault_plugin.so" "$scratch/libfp8lab_cuda.so"
cp "$folder/libfp8lab_cuda.so" "$scratch/libfp8lab_cuda_real.so"
export NO_COLOR=1
"$scratch/fp8lab" run "$script" --lib "$lib" --runs "$scratch/runs" --backend cuda \
    >"$scratch/out" 2>&1
code=$? failed=0
fail() {
    echo "FAILED: $*"
    sed 's/^/    /' "$scratch/out" | tail -6
    failed=1
}
[ "$code" = 1 ] || fail "exit code $code, not 1"
grep -q "the device failed in .*embedding_fwd" "$scratch/out" || fail "the operator is not named"
bundle=$(ls "$scratch"/runs/*.tar.zst 2>/dev/null) || fail "there is no bundle"
"$scratch/fp8lab" verify "$bundle" >/dev/null 2>"$scratch/out" || fail "the bundle is damaged"
"$scratch/fp8lab" show "$bundle" >"$scratch/out" 2>&1
grep -qE "error +step [1-9][0-9]*: the device failed in" "$scratch/out" || fail "no step is named"
grep -m2 -i "failed" "$scratch/out"
exit "$failed"
