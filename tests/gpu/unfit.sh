#!/bin/bash
# What a GPU machine can lack, each with its own sentence and exit code: devices hidden, a device
# without our machine code, libraries missing, memory that does not suffice.
#
#   tests/gpu/unfit.sh [PROGRAM] [FOREIGN]
#
# PROGRAM: with its plugin beside it or in ../lib/fp8lab; default build/release/fp8lab.
# FOREIGN: a plugin made for other devices than this machine's (make ARCHS=sm_80); without it
# that case is left out.
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
says() { grep -qF -- "$1" out || fail "nobody says: $1"; }

# expect WHAT CODE [VARIABLE=VALUE...] -- ARGS...: a run with these ends so; its words are in `out`.
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
# The bundle that `expect` left is whole, and made so many steps.
left_bundle() {
    local bundle steps
    bundle=$(ls runs/*.tar.zst 2>/dev/null) || { fail "no bundle"; return; }
    "$program" verify "$bundle" >out 2>&1 || fail "the bundle is damaged"
    steps=$("$program" show --json "$bundle" | grep -o '"step_last": *[0-9]*' | grep -o '[0-9]*$')
    [ "${steps:-0}" = "$1" ] || fail "${steps:-0} steps, not $1"
}

expect "a run as it should be" 0 -- "$tiny"
left_bundle 12

expect "no device" 3 CUDA_VISIBLE_DEVICES= -- "$tiny"
says "no CUDA device is visible"
left_bundle 0

if [ -n "$foreign" ]; then
    mkdir foreign
    cp "$program" foreign/fp8lab
    cp "$foreign" foreign/libfp8lab_cuda.so
    PROGRAM=$PWD/foreign/fp8lab expect "no machine code" 3 -- "$tiny"
    says "this build has no machine code for it: make ARCHS=sm_"
    left_bundle 0
fi

# Libraries that are found, and are not what they are called.
echo 'int nothing;' >empty.c
for library in cublasLt.so.13 cudnn.so.9; do
    mkdir "without_$library"
    cc -shared -fPIC -o "without_$library/lib$library" -Wl,-soname,"lib$library" empty.c || exit 1
done
found=${LD_LIBRARY_PATH:-}
plugin=$(ls "$(dirname "$program")"/{,../lib/fp8lab/}libfp8lab_cuda.so 2>/dev/null | head -1)
if LD_LIBRARY_PATH="$PWD/without_cublasLt.so.13:$found" ldd "$plugin" |
    grep -q without_cublasLt; then
    expect "no cuBLASLt" 6 LD_LIBRARY_PATH="$PWD/without_cublasLt.so.13:$found" -- "$tiny"
    says "it needs the libraries of the CUDA"
else
    echo "no cuBLASLt: left out, the plugin has a path of its own to it"
fi
expect "no cuDNN" 0 LD_LIBRARY_PATH="$PWD/without_cudnn.so.9:$found" -- "$tiny"
left_bundle 12

# 8 B parameters with f32 state: refused before anything is begun; and where the user insists, the
# first memory that is not there ends the run before its first step.
cat >big.lua <<'LUA'
local llama3 = require "models.llama3"
return experiment { name = "big", model = llama3["8b"], recipe = bf16, data = synthetic {},
                    train = { steps = 2, global_batch = 8, micro_batch = 8 } }
LUA
expect "more memory than there is" 3 -- big.lua
says "less memory: --set train.micro_batch=1 --set train.recompute=block"
[ -e runs ] && fail "a run was begun"
expect "the same, all the same" 6 -- --anywhere big.lua
says "no memory before step 0, for"
says "less memory: --set train.micro_batch=1"
left_bundle 0
exit $failed
