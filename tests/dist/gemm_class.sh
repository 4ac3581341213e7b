#!/bin/bash
# Which algorithms of a GEMM are of its class, without a GPU: gemm_class.cu multiplies on the host.
set -u
nvcc=$(containers/find_nvcc.sh 2>/dev/null)
[ -n "$nvcc" ] || { echo "skipped: there is no nvcc"; exit 77; }
: "${TEST_TMP:=$(mktemp -d)}" "${BUILD:=build/release}"
work=$TEST_TMP
compile() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }
compile gcc -O1 -std=c11 -D_GNU_SOURCE -c -o "$work/cudart_launch.o" tests/dist/cudart_launch.c
compile "$nvcc" -std=c++17 -arch=sm_90a -O1 -I. "-I$BUILD/gen" -fmad=false -c -o "$work/test.o" \
    tests/dist/gemm_class.cu
compile "$nvcc" -cudart none -o "$work/test" "$work/cudart_launch.o" "$work/test.o" \
    "$BUILD/libkernels.a" -lgomp -lm -lpthread
"$work/test"
