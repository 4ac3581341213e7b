#!/bin/bash
# Each part that a GPU machine can lack has its own error and exit code. Devices are hidden or need
# other machine code, libraries are missing or too old, memory is too small.
#
#   tests/gpu/unfit.sh [PROGRAM] [FOREIGN]
#
# PROGRAM: its plugin is beside it or in ../lib/fp8lab; default build/release/fp8lab.
# FOREIGN: a plugin with machine code for another device only (`make test-gpu` builds it in
# build/release/foreign); without it that case is skipped.
set -u
program=$(realpath "${1:-build/release/fp8lab}") foreign=${2:+$(realpath "$2")}
root=$(cd "$(dirname "$0")/../.." && pwd)
tiny=${TINY:-$root/tests/cli/tiny.lua} lib=${LIB:-$root/experiments/lib}
scratch=$(mktemp -d) failed=0
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
export NO_COLOR=1

fail() {
    echo "FAILED: $*"
    sed 's/^/    /' out | tail -6
    failed=1
}
says() { grep -qF -- "$1" out || fail "no message: $1"; }

# expect WHAT CODE [VARIABLE=VALUE...] -- ARGS...: a run with these must exit with CODE; `out` has
# its output.
expect() {
    local what=$1 wanted=$2 code
    shift 2
    local setting=()
    while [ "$1" != -- ]; do setting+=("$1"); shift; done
    shift
    rm -rf runs
    env "${setting[@]}" "${PROGRAM:-$program}" run --lib "$lib" --runs runs --backend cuda "$@" \
        >out 2>&1
    code=$?
    [ $code = "$wanted" ] || fail "$what: exit code $code, not $wanted"
    echo "$what: exit code $code: $(grep -m1 -E 'fp8lab:|needs|done' out | cut -c1-200)"
}
# The bundle that `expect` left is complete and has so many steps.
left_bundle() {
    local bundle steps
    bundle=$(ls runs/*.tar.zst 2>/dev/null) || { fail "no bundle"; return; }
    "$program" verify "$bundle" >out 2>&1 || fail "the bundle is damaged"
    steps=$("$program" show --json "$bundle" | grep -o '"step_last": *[0-9]*' | grep -o '[0-9]*$')
    [ "${steps:-0}" = "$1" ] || fail "${steps:-0} steps, not $1"
}

expect "a good run" 0 -- "$tiny"
left_bundle 12

expect "no device" 3 CUDA_VISIBLE_DEVICES= -- "$tiny"
says "no CUDA device is visible"
left_bundle 0

if [ -n "$foreign" ]; then
    mkdir -p foreign/bin foreign/lib/fp8lab
    cp "$program" foreign/bin/fp8lab
    ln -s "$(dirname "$program")"/../lib/*.so* foreign/lib/ # of a relocatable folder
    cp "$foreign" foreign/lib/fp8lab/libfp8lab_cuda.so
    PROGRAM=$PWD/foreign/bin/fp8lab expect "no machine code" 3 -- "$tiny"
    says "this build has no machine code for it: make ARCHS=sm_"
    left_bundle 0
else
    echo "no machine code: skipped, no plugin for another device was given"
fi

# ---- libraries that are found but do not work ----------------------------------------------------
plugin=$(ls "$(dirname "$program")"/{,../lib/fp8lab/}libfp8lab_cuda.so 2>/dev/null | head -1)
found=${LD_LIBRARY_PATH:-}
compiler=$(command -v cc || command -v gcc)
[ -n "$compiler" ] || echo "no compiler here: old libraries are skipped," \
    "those without functions are empty files"

# stand_in FOLDER LIBRARY SOURCE: builds SOURCE as FOLDER/LIBRARY.
stand_in() {
    mkdir "$1"
    if [ -z "$compiler" ]; then : >"$1/$2"; return; fi
    "$compiler" -shared -fPIC -w -o "$1/$2" -Wl,-soname,"$2" -DHERE="\"$PWD\"" "$3" || exit 1
}
first() { echo "LD_LIBRARY_PATH=$PWD/$1${found:+:$found}"; }
# functions PREFIX BUT...: the functions that the plugin needs of a library; each does nothing.
functions() {
    local prefix=$1
    shift
    grep -aoE "$prefix[A-Z][A-Za-z]+" "$plugin" | sort -u | grep -vxF "$(printf '%s\n' "$@")" |
        sed 's/.*/int &(void) { return 0; }/'
}

echo 'int nothing;' >empty.c
stand_in no_cublaslt libcublasLt.so.13 empty.c
if env "$(first no_cublaslt)" ldd "$plugin" 2>&1 | grep -q no_cublaslt; then
    expect "no cuBLASLt" 6 "$(first no_cublaslt)" -- "$tiny"
    says "it needs the libraries of the CUDA"
else
    echo "no cuBLASLt: skipped, the plugin has its own path to the library"
fi

# Long enough for cuDNN to be considered; `took` reads how attention's forward was computed, and
# why.
asks_cudnn="--set model.seq_len=256 --set model.heads=2 --set model.kv_heads=1 $tiny"
took() {
    why=$("$program" show --json runs/*.tar.zst | grep -oE '"forward": *"[^"]+' | head -1)
    why=${why##*\"} way=${why%%:*}
    echo "    attention by ${why:-an unknown kernel}"
    [ -n "$way" ] || fail "the bundle does not say how attention was computed"
}
# shellcheck disable=SC2086  # words
expect "the cuDNN of this machine" 0 -- $asks_cudnn
took
[[ $why == *"cudnn "*" us"* ]] || fail "cuDNN was not timed"
stand_in no_cudnn libcudnn.so.9 empty.c
# shellcheck disable=SC2086
expect "a cuDNN without functions" 0 "$(first no_cudnn)" -- $asks_cudnn
left_bundle 12
took
[ "$way" != cudnn ] || fail "cuDNN was used"
if [ -n "$compiler" ]; then # it makes one file when its version is read, another when it is used
    {
        functions cudnn cudnnGetVersion cudnnCreate
        cat <<'C'
#include <stdio.h>
static int mark(const char *path) { FILE *f = fopen(path, "w"); return f ? fclose(f) : 1; }
size_t cudnnGetVersion(void) { mark(HERE "/asked"); return 91000; }
int cudnnCreate(void **handle) { *handle = handle; return mark(HERE "/used"); }
C
    } >old_cudnn.c
    stand_in old_cudnn libcudnn.so.9 old_cudnn.c
    # shellcheck disable=SC2086
    expect "cuDNN 9.10, which is too old" 0 "$(first old_cudnn)" -- $asks_cudnn
    left_bundle 12
    took
    [ "$way" != cudnn ] || fail "cuDNN was used"
    [ -e asked ] || fail "this cuDNN's version was not read"
    [ ! -e used ] || fail "a cuDNN that is too old was used"
fi

gpus=$("$program" hw --json | grep -oE '"gpu.count": *[0-9]+' | grep -oE '[0-9]+$')
if [ "${gpus:-0}" -lt 2 ]; then
    echo "no NCCL, or an old NCCL: skipped, needs two GPUs"
else
    two="--set hardware.gpus=2 $tiny"
    mkdir no_nccl
    : >no_nccl/libnccl.so.2
    # shellcheck disable=SC2086
    expect "no NCCL" 6 "$(first no_nccl)" -- $two
    says "several GPUs need NCCL: "
    says "libnccl.so.2: file too short"
    left_bundle 0
    if [ -n "$compiler" ]; then
        stand_in part_of_nccl libnccl.so.2 empty.c
        # shellcheck disable=SC2086
        expect "NCCL without functions" 6 "$(first part_of_nccl)" -- $two
        says "several GPUs need NCCL: libnccl.so.2 lacks a function"
        left_bundle 0
        {
            functions nccl ncclGetVersion
            echo 'int ncclGetVersion(int *version) { *version = 21703; return 0; }'
        } >old_nccl.c
        stand_in old_nccl libnccl.so.2 old_nccl.c
        # shellcheck disable=SC2086
        expect "NCCL 2.17, which is too old" 6 "$(first old_nccl)" -- $two
        says "several GPUs need NCCL 2.18 or later; libnccl.so.2 is 2.17"
        left_bundle 0
    fi
fi

# ---- memory --------------------------------------------------------------------------------------
# 8 B parameters with f32 state: rejected before a run begins. With --anywhere the run begins, and
# the first allocation that fails ends it before its first step.
cat >big.lua <<'LUA'
local llama3 = require "models.llama3"
return experiment { name = "big", model = llama3["8b"], recipe = bf16, data = synthetic {},
                    train = { steps = 2, global_batch = 8, micro_batch = 8 } }
LUA
expect "too little memory" 3 -- big.lua
says "less memory: --set train.micro_batch=1 --set train.recompute=block"
[ -e runs ] && fail "a run was begun"
expect "the same with --anywhere" 6 -- --anywhere big.lua
says "out of memory before step 0;"
says "less memory: --set train.micro_batch=1"
left_bundle 0
exit $failed
