#!/bin/bash
# A debug build of an operator waits for the device after each launch. A release build never does:
# the wait would stall a step.
set -u
nvcc=$(containers/find_nvcc.sh 2>/dev/null)
[ -n "$nvcc" ] || { echo "there is no nvcc"; exit 77; }
command -v nm >/dev/null || { echo "there is no nm"; exit 77; }
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

waits() { # CONFIG: whether the object of an operator calls cudaDeviceSynchronize
    make -s --no-print-directory NVCC="$nvcc" CONFIG="$1" BUILD="$out/$1" ARCHS=compute_90a \
        "$out/$1/kernels/cuda/delayed.o" >"$out/$1.log" 2>&1 ||
        { cat "$out/$1.log"; echo "FAILED: delayed.cu does not compile with CONFIG=$1"; exit 1; }
    nm "$out/$1/kernels/cuda/delayed.o" | grep -q ' U cudaDeviceSynchronize$'
}
waits debug || { echo "FAILED: the debug build does not wait after a launch"; exit 1; }
if waits release; then echo "FAILED: the release build waits after each launch"; exit 1; fi
echo "only the debug build waits after each launch"
