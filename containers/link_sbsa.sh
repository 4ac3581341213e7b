#!/bin/bash
# Links the CUDA backend for aarch64: containers/link_sbsa.sh SBSA CUDA-MAJOR OUT.so OBJECTS...
#
# SBSA is the output folder of sbsa.sh. A stub replaces a missing library: a shared library of its
# name that defines the symbols that the objects need from it. So the link is checked, and the
# plugin finds the real library on the machine where it runs.
set -euo pipefail
sbsa=$1
major=$2
out=$3
shift 3
: "${CROSS_PREFIX:=aarch64-linux-gnu-}"

stub() { # SONAME PATTERN OBJECTS...
    local soname=$1 pattern=$2
    shift 2
    mkdir -p "$sbsa/stubs"
    "${CROSS_PREFIX}nm" -u "$@" | awk '{ print $NF }' | grep -E "$pattern" | sort -u |
        sed 's/.*/void &(void) {}/' >"$sbsa/stubs/$soname.c"
    "${CROSS_PREFIX}gcc" -shared -fPIC -w -Wl,-soname,"$soname" -o "$sbsa/stubs/$soname" \
        "$sbsa/stubs/$soname.c"
    echo "link_sbsa.sh: $soname is a stub of $(wc -l <"$sbsa/stubs/$soname.c") symbols" >&2
}

libraries=()
if [ -e "$sbsa/lib/libcublasLt.so" ]; then
    libraries+=("$sbsa/lib/libcublasLt.so")
else
    stub "libcublasLt.so.$major" '^cublasLt' "$@"
    libraries+=("$sbsa/stubs/libcublasLt.so.$major")
fi
if [ -e "$sbsa/lib/libcudart_static.a" ]; then
    libraries+=("$sbsa/lib/libcudart_static.a")
else
    stub "libcudart.so.$major" '^(cuda|__cuda)' "$@"
    libraries+=("$sbsa/stubs/libcudart.so.$major")
fi
"${CROSS_PREFIX}g++" -shared -o "$out" "$@" "${libraries[@]}" -ldl -lrt -lpthread \
    -Wl,--exclude-libs,ALL -Wl,-rpath,'$ORIGIN/..:/usr/local/cuda/lib64'
