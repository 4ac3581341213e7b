#!/bin/bash
# In an image's plugin stage, which runs on the machine that builds: compiles the CUDA backend for the
# image's architecture. nvcc under an emulator would take hours, and it compiles for aarch64 from
# x86-64 as well as for itself.
#
#   containers/plugin.sh TARGET OUT         TARGET: the root of the base of the image's architecture
#
# Does nothing where TARGET/cuda says that there is no CUDA.
set -euo pipefail
here=$(dirname "$0")
target=$1
out=$2
mkdir -p "$out"
[ -e "$target/cuda/env" ] || exit 0
. "$target/cuda/env"

nvcc=$("$here/find_nvcc.sh")
[ -n "$nvcc" ] || { echo "plugin.sh: the base of this machine's architecture has no nvcc" >&2; exit 6; }
machine() { od -An -tx1 -j18 -N1 "$1" | tr -d ' '; } # the ELF header's e_machine: 3e, b7
here_is=$(machine /bin/sh)
there_is=$(machine "$target/cuda/lib/libnccl.so.2")
common=(NVCC="$nvcc" ARCHS="${ARCHS:-all}" CUDNN_INCLUDE="$target/cuda/include")
if [ "$here_is" = "$there_is" ]; then
    "$here/install.sh" plugin
    make "${common[@]}" cuda
    cp build/release/libfp8lab_cuda.so "$out/"
elif [ "$here_is $there_is" = "3e b7" ]; then
    "$here/install.sh" plugin cross
    make "${common[@]}" CROSS=aarch64 SBSA="$target$CUDA_HOME/targets/sbsa-linux" \
        SBSA_LIBS="$target/cuda/lib" cuda
    cp build/aarch64/libfp8lab_cuda.so "$out/"
else
    echo "plugin.sh: nvcc on this machine cannot compile for the image's architecture; build the" \
        "image on a machine of that architecture, or on x86-64" >&2
    exit 6
fi
