#!/bin/bash
# What the CUDA backend hands to cuBLASLt for MXFP8 and NVFP4, and to our kernel on mma.sync,
# without a GPU: cublaslt_calls.cu has the stand-in that reads it as documented, and compares
# products with the CPU backend's.
set -u
nvcc=$(containers/find_nvcc.sh 2>/dev/null)
[ -n "$nvcc" ] || { echo "skipped: there is no nvcc"; exit 77; }
: "${TEST_TMP:=$(mktemp -d)}" "${BUILD:=build/release}"
work=$TEST_TMP
compile() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }
cu="$nvcc -std=c++17 -arch=sm_90a -O1 -I. -I$BUILD/gen -fmad=false"
# No kernel runs: their compilation may be quick.
! "$nvcc" --help | grep -q -- --Ofast-compile || cu="$cu --Ofast-compile max"
# shellcheck disable=SC2086  # words
{
    compile gcc -O1 -std=c11 -D_GNU_SOURCE -c -o "$work/cudart_launch.o" tests/dist/cudart_launch.c
    for source in kernels/cuda/gemm.cu kernels/cuda/gemm_class.cu kernels/cuda/gemm_trial.cu \
        kernels/cuda/matmul.cu kernels/cuda/check.cu \
        kernels/cuda/gemm_sync.cu \
        tests/dist/cublaslt_calls.cu; do
        compile $cu -c -o "$work/$(basename "$source" .cu).o" "$source"
    done
    compile $nvcc -cudart none -o "$work/calls" "$work/cudart_launch.o" \
        "$work"/{cublaslt_calls,gemm,gemm_class,gemm_trial,gemm_sync,matmul,check}.o \
        "$BUILD/libkernels.a" -lgomp -lm -lpthread
}
"$work/calls"
