#!/bin/bash
# containers/find_nvcc.sh finds a compiler outside PATH, takes the newest one that is new enough,
# and names compilers that are too old.
set -u
: "${TEST_TMP:=$(mktemp -d)}"
failed=0
root=$TEST_TMP/root
nvcc() { # PATH VERSION
    mkdir -p "$(dirname "$root$1")"
    printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V%s.1"\n' "$2" "$2" >"$root$1"
    chmod +x "$root$1"
}
# expect WANTED [VARIABLE=VALUE...]: a path below $root; stderr goes to $said
expect() {
    local wanted=${1:+$root}$1 found
    shift
    found=$(env -u NVCC -u CUDACXX -u CUDA_HOME -u CUDA_PATH PATH="$TEST_TMP/bin" \
        FIND_NVCC_ROOT="$root" "$@" "$TEST_TMP/bin/sh" \
        containers/find_nvcc.sh 2>"$TEST_TMP/said")
    said=$(cat "$TEST_TMP/said")
    [ "$found" = "$wanted" ] || { echo "wanted '$wanted', found '$found' ($*)"; failed=1; }
}
# Not this machine's PATH, which may have an nvcc.
mkdir -p "$TEST_TMP/bin"
for tool in sh dirname sed sort ls; do ln -s "$(command -v $tool)" "$TEST_TMP/bin/$tool"; done
mkdir -p "$root"
expect ""
nvcc /usr/local/cuda-12.4/bin/nvcc 12.4
expect ""
[[ $said == *"12.9 is needed: $root/usr/local/cuda-12.4/bin/nvcc (12.4)"* ]] ||
    { echo "the old one is not named: $said"; failed=1; }
nvcc /usr/local/cuda-12.9/bin/nvcc 12.9 # no link /usr/local/cuda, and not in PATH
expect /usr/local/cuda-12.9/bin/nvcc
nvcc /usr/local/cuda-13.0/bin/nvcc 13.0
expect /usr/local/cuda-13.0/bin/nvcc
nvcc /usr/local/cuda/bin/nvcc 13.1
expect /usr/local/cuda/bin/nvcc
nvcc /opt/nvidia/hpc_sdk/Linux_x86_64/26.1/cuda/13.2/bin/nvcc 13.2
expect /usr/local/cuda/bin/nvcc
nvcc /elsewhere/bin/nvcc 13.0
expect /elsewhere/bin/nvcc PATH="$root/elsewhere/bin:$TEST_TMP/bin"
expect /elsewhere/bin/nvcc CUDA_HOME="$root/elsewhere"
expect /elsewhere/bin/nvcc CUDACXX="$root/elsewhere/bin/nvcc"
nvcc /old/bin/nvcc 11.8 # PATH's is too old, so a newer one elsewhere is taken
expect /usr/local/cuda/bin/nvcc PATH="$root/old/bin:$TEST_TMP/bin"
expect /old/bin/nvcc NVCC="$root/old/bin/nvcc" # a named compiler may be old

# A setting that names no compiler, or a toolkit that is too old, is rejected with the fix. No other
# compiler replaces it.
refused() { # VARIABLE VALUE WHY
    expect "" "$1=$2"
    [[ $said == *"$1=$2: $3; correct $1 or unset it"* ]] || { echo "$1=$2: $said"; failed=1; }
    # make stops, from the environment and from the command line; `make NVCC=` builds without CUDA.
    local make=(env -u MAKEFLAGS -u MFLAGS -u NVCC -u CUDACXX -u CUDA_HOME -u CUDA_PATH -u ARCHS)
    for words in "$1=$2 make" "make $1=$2"; do
        # shellcheck disable=SC2086  # two words
        said=$("${make[@]}" $words -n all 2>&1) && { echo "$words: exit code 0"; failed=1; }
        [[ $said == *"$1=$2: $3"* ]] || { echo "$words: $said"; failed=1; }
    done
    [ $1 = NVCC ] || "${make[@]}" $1="$2" make -n NVCC= all >/dev/null ||
        { echo "$1=$2 make NVCC= fails"; failed=1; }
    "${make[@]}" $1="$2" make -n help >/dev/null || { echo "$1=$2 make help fails"; failed=1; }
}
refused NVCC /nosuch "there is no such program"
refused CUDACXX /nosuch/nvcc "there is no such program"
refused CUDA_HOME "$root/nosuch" "there is no bin/nvcc in that folder"
refused CUDA_PATH "$root/nosuch" "there is no bin/nvcc in that folder"
refused CUDA_HOME "$root/usr/local/cuda-12.4" "it is CUDA 12.4, and 12.9 is needed"

# The environment of CUDA images does not replace variables of the Makefile.
env -u MAKEFLAGS -u MFLAGS CUDA_VERSION=13.0.1 CUDA_HOME="$root/elsewhere" \
    make -s NVCC= BUILD="$TEST_TMP/build" "$TEST_TMP/build/kernels/base.o" \
    >"$TEST_TMP/out" 2>"$TEST_TMP/said" || { echo "it does not build"; failed=1; }
[ ! -s "$TEST_TMP/said" ] || { echo "a CUDA image's environment:"; cat "$TEST_TMP/said"; failed=1; }
exit "$failed"
