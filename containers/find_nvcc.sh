#!/bin/sh
# Prints the path of the CUDA compiler to use, or nothing if there is none: containers/find_nvcc.sh
#
# The first of $NVCC, $CUDACXX, $CUDA_HOME and $CUDA_PATH that is set decides. It is wrong if it
# names no compiler, or a folder whose compiler is too old (CUDA_MIN in containers/versions). Then
# the exit code is 2 and stderr has the fix; no other compiler replaces it. A compiler named by
# $NVCC or $CUDACXX may have any version.
# If none is set, the script takes the first compiler that is new enough:
# PATH's, then those in the usual places of images and distributions, newest first. It names
# compilers that are too old on stderr.
set -eu
. "$(dirname "$0")/versions"
# The root of all searched places. Tests set another one.
root=${FIND_NVCC_ROOT:-}

version_of() { "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p'; }
at_least() { printf '%s\n%s\n' "$2" "$1" | sort -C -V; }

refuse() { # VARIABLE VALUE WHY
    echo "find_nvcc.sh: $1=$2: $3; correct $1 or unset it" \
        "(\`make NVCC=\` leaves the CUDA backend out)" >&2
    exit 2
}
compiler_named() { # VARIABLE VALUE
    command -v "$2" || refuse "$1" "$2" "there is no such program"
    exit 0
}
toolkit_named() { # VARIABLE FOLDER
    [ -x "$2/bin/nvcc" ] || refuse "$1" "$2" "there is no bin/nvcc in that folder"
    version=$(version_of "$2/bin/nvcc")
    [ -n "$version" ] || refuse "$1" "$2" "its bin/nvcc does not print a CUDA version"
    at_least "$version" "$CUDA_MIN" ||
        refuse "$1" "$2" "it is CUDA $version, and $CUDA_MIN is needed"
    echo "$2/bin/nvcc"
    exit 0
}
[ -z "${NVCC:-}" ] || compiler_named NVCC "$NVCC"
[ -z "${CUDACXX:-}" ] || compiler_named CUDACXX "$CUDACXX"
[ -z "${CUDA_HOME:-}" ] || toolkit_named CUDA_HOME "$CUDA_HOME"
[ -z "${CUDA_PATH:-}" ] || toolkit_named CUDA_PATH "$CUDA_PATH"

candidates() {
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
[ -z "$old" ] || echo "find_nvcc.sh: too old, $CUDA_MIN is needed:$old" >&2
