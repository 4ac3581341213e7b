#!/bin/bash
# In an image's plugin stage, which runs on the machine that builds: compiles the CUDA backend for
# the image's architecture. nvcc under an emulator would take hours, and it compiles for aarch64
# from x86-64 as well as for itself.
#
#   containers/plugin.sh PARTS ARCH OUT     PARTS: what cuda_parts.sh left in its OUT/build, in the
#                                           base of that architecture; ARCH: amd64 or arm64
#
# Makes an empty OUT where PARTS says that there is no CUDA.
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
*) die "nvcc compiles for $target on x86-64 and on machines of that kind; this is a $(uname -m)" ;;
esac
