#!/bin/sh
# Prints the path of the CUDA compiler to use, nothing where there is none: containers/find_nvcc.sh
#
# The first of $NVCC, $CUDACXX, $CUDA_HOME and $CUDA_PATH that is set decides. Where it names no
# compiler, or the folder's one is too old (CUDA_MIN in containers/versions), the exit code is 2 and
# stderr has the fix: no other compiler takes its place. A compiler that $NVCC or $CUDACXX names may
# have any version. Where none is set, it is the first that is new enough of PATH and of the places
# where images and distributions put a toolkit without telling PATH, the newest first. One that is
# too old is named on stderr.
set -eu
. "$(dirname "$0")/versions"
# What the places are below; another root is for tests, which make one up.
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
    [ -n "$version" ] || refuse "$1" "$2" "its bin/nvcc does not say which CUDA it is of"
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
[ -z "$old" ] || echo "find_nvcc.sh: passed over, $CUDA_MIN is needed:$old" >&2
