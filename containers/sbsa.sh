#!/bin/bash
# Collects headers and libraries for compiling the CUDA backend for aarch64 servers (NVIDIA's name
# is sbsa): containers/sbsa.sh OUT NVCC
#
#   OUT/include    headers          OUT/lib    libcudart_static.a, libcublasLt.so, as far as found
#
# The sources are $SBSA (a folder targets/sbsa-linux, as NVIDIA's cross packages install it), the
# same folder of NVCC's toolkit, and NVIDIA's wheel of the runtime for aarch64. A missing library
# is left out: link_sbsa.sh makes a stub for it.
set -euo pipefail
out=$1
nvcc=$2
home=$("$nvcc" --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p' || true)
home=$(realpath "${home:-$(dirname "$nvcc")/..}")
version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')

from=
for place in "${SBSA:-}" "$home/targets/sbsa-linux"; do
    [ -z "$place" ] || [ ! -e "$place/include/cuda_runtime.h" ] || { from=$place; break; }
done
# Keep the result of an earlier call with the same toolkit.
key="$version $from"
[ "$(cat "$out/key" 2>/dev/null)" != "$key" ] || exit 0
rm -rf "$out"
mkdir -p "$out/lib"
wheel() { # of the runtime: 2 MB
    local name=nvidia-cuda-runtime
    [ "${version%%.*}" -ge 13 ] || name+=-cu${version%%.*}
    python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux2014_aarch64 \
        -d "$out" "$name==$version.*" >&2 && python3 -m zipfile -e "$out"/*.whl "$out/wheel"
}
if [ -n "$from" ]; then
    ln -s "$(realpath "$from/include")" "$out/include"
    cp -L "$from"/lib/libcudart_static.a "$out/lib/"
else
    # Headers are the same for every architecture.
    ln -s "$home/include" "$out/include"
    from="the toolkit's headers"
    if wheel; then
        cp "$out"/wheel/nvidia/*/lib/libcudart_static.a "$out/lib/"
        from="$from, $(basename "$out"/*.whl)"
    fi
fi
for library in "$from"/lib/stubs/libcublasLt.so "$from"/lib/libcublasLt.so; do
    [ -e "$out/lib/libcublasLt.so" ] || [ ! -e "$library" ] ||
        ln -s "$(realpath "$library")" "$out/lib/libcublasLt.so"
done
echo "$key" >"$out/key"
echo "sbsa.sh: CUDA $version for aarch64 from $from" >&2
