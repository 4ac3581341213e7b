#!/bin/sh
# Prints the path of the CUDA compiler to use, nothing where there is none: containers/find_nvcc.sh
#
# $NVCC and $CUDACXX are taken at their word. Else it is the first that is new enough (CUDA_MIN in
# containers/versions) of $CUDA_HOME, $CUDA_PATH, PATH, and the places where images and
# distributions put a toolkit without telling PATH, the newest first. One that is too old is named
# on stderr.
set -eu
. "$(dirname "$0")/versions"
# What the places are below; another root is for tests, which make one up.
root=${FIND_NVCC_ROOT:-}

version_of() { "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p'; }
at_least() { printf '%s\n%s\n' "$2" "$1" | sort -C -V; }

for given in "${NVCC:-}" "${CUDACXX:-}"; do
    if [ -n "$given" ] && command -v "$given"; then exit 0; fi
done

candidates() {
    for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}"; do
        [ -z "$home" ] || echo "$home/bin/nvcc"
    done
    command -v nvcc || true
    echo "$root/usr/local/cuda/bin/nvcc"
    for place in "$root"/usr/local/cuda-[0-9]* "$root"/opt/cuda* \
        "$root"/opt/nvidia/hpc_sdk/Linux_*/*/cuda/[0-9]* "$root"/usr/lib/nvidia-cuda-toolkit \
        "$root"/usr/lib/cuda; do
        echo "$place/bin/nvcc"
    done | sort -r -V
}

old=
for nvcc in $(candidates); do
    [ -x "$nvcc" ] || continue
    version=$(version_of "$nvcc")
    if [ -n "$version" ] && at_least "$version" "$CUDA_MIN"; then
        echo "$nvcc"
        exit 0
    fi
    old="$old $nvcc (${version:-no version})"
done
[ -z "$old" ] || echo "find_nvcc.sh: passed over, $CUDA_MIN is needed:$old" >&2
