#!/bin/bash
# long: 15
# Whether cuDNN knows our graphs of attention, and which plans it lists, on described devices:
# cudnn_plans.cu. Needs nvcc and cuDNN, and no GPU.
set -u
nvcc=$(containers/find_nvcc.sh 2>/dev/null)
[ -n "$nvcc" ] || { echo "skipped: there is no nvcc"; exit 77; }
: "${TEST_TMP:=$(mktemp -d)}"
cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
# Engines that are compiled at run time load the driver's library; a machine without one has a stub.
if ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
    stub=$(ls "$cuda"/lib64/stubs/libcuda.so "$cuda"/lib/stubs/libcuda.so 2>/dev/null | head -n 1)
    [ -n "$stub" ] || { echo "skipped: there is neither a driver nor CUDA's stub of it"; exit 77; }
    ln -sf "$stub" "$TEST_TMP/libcuda.so.1"
fi
sources="tests/dist/cudnn_plans.cu kernels/cuda/cudnn_graph.cu"
# shellcheck disable=SC2086  # words
"$nvcc" -std=c++17 -arch=sm_90a -O1 -I. -I/usr/local/include -o "$TEST_TMP/plans" $sources -ldl \
    >"$TEST_TMP/log" 2>&1 || {
    grep -q 'cudnn_graph.h' "$TEST_TMP/log" && { echo "skipped: no headers of cuDNN"; exit 77; }
    cat "$TEST_TMP/log"
    exit 1
}
export LD_LIBRARY_PATH="$TEST_TMP:$cuda/lib64:$cuda/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
"$TEST_TMP/plans"
