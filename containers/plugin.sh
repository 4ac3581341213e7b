#!/bin/bash
# Compiles the CUDA backend for the image's architecture, in the image's plugin stage. This stage
# runs on the machine that builds, without an emulator: emulated, nvcc would take hours. nvcc on
# x86-64 also compiles for aarch64.
#
#   containers/plugin.sh PARTS ARCH OUT     PARTS: the OUT/build of cuda_parts.sh from the base of
#                                           that architecture; ARCH: amd64 or arm64
#
# If PARTS has no CUDA, OUT stays empty.
set -euo pipefail
here=$(dirname "$0")
parts=$1
target=$2
out=$3
mkdir -p "$out"
[ -e "$parts/env" ] || exit 0
. "$parts/env"

die() { echo "plugin.sh: $*" >&2; exit 6; }

nvcc=$(CUDA_HOME='' "$here/find_nvcc.sh")
[ -n "$nvcc" ] || die "the base has CUDA $CUDA_VERSION for $target and none for this machine"
common=(NVCC="$nvcc" ARCHS="${ARCHS:-all}" CUDNN_INCLUDE="$parts/cudnn")
case $(uname -m)-$target in
x86_64-amd64 | aarch64-arm64)
    "$here/install.sh" plugin
    make -j"$(nproc)" "${common[@]}" cuda
    cp build/release/libfp8lab_cuda.so "$out/"
    ;;
x86_64-arm64)
    "$here/install.sh" plugin cross
    make -j"$(nproc)" "${common[@]}" CROSS=aarch64 SBSA="$parts/sbsa" cuda
    cp build/aarch64/libfp8lab_cuda.so "$out/"
    ;;
*)  die "the backend for $target is compiled on x86-64 or on a $target machine;" \
        "this machine is $(uname -m)" ;;
esac
