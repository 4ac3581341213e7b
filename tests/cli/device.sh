#!/bin/bash
# Machines that cannot run the CUDA backend, each with its own message and exit code. This runs
# without a GPU: libraries made here replace the driver and cuBLASLt.
set -u
. tests/cli/lib.sh
: "${BUILD:=$root/build/release}"
shown=out
plugin=$BUILD/libfp8lab_cuda.so
[ -e "$plugin" ] || {
    echo 'skipped: the CUDA backend was not built (`make` does, where nvcc is)'
    exit 77
}
stand_ins=$root/tests/containers

# refused CODE WORDS VARIABLE=VALUE...: opening the backend prints WORDS.
refused() {
    local code=$1 words=$2
    shift 2
    env "$@" "$FP8LAB" bench gemm --backend cuda >out 2>&1
    local got=$?
    [ "$got" = "$code" ] || fail "exit code $got, not $code: $*"
    says "$words" out
}

mkdir driver empty old
cc -shared -fPIC -w -o driver/libcuda.so.1 "$stand_ins/driver_stand_in.c" || exit 1
echo 'int nothing;' >empty.c
cc -shared -fPIC -o empty/libcublasLt.so.13 -Wl,-soname,libcublasLt.so.13 empty.c || exit 1
{
    nm -D "$plugin" |
        awk '/ U cublasLt/ { sub(/@.*/, "", $2); print "long " $2 "(void) { return 120805; }" }'
} >old.c
echo 'libcublasLt.so.13 { global: *; };' >old.map
cc -shared -fPIC -o old/libcublasLt.so.13 -Wl,-soname,libcublasLt.so.13 \
    -Wl,--version-script=old.map old.c || exit 1

refused 3 "the driver supports CUDA 12.4, this build needs 13.0 or later: update it" \
    LD_LIBRARY_PATH="$PWD/driver" FAKE_VERSION=12040
refused 3 "no CUDA device is visible" LD_LIBRARY_PATH="$PWD/driver" FAKE_INIT=100
refused 3 "the driver (CUDA 13.0) failed to initialise: system has unsupported display driver" \
    LD_LIBRARY_PATH="$PWD/driver" FAKE_INIT=803
refused 6 "cannot be loaded" LD_LIBRARY_PATH="$PWD/empty"
grep -qF "it needs the libraries of the CUDA" out || fail "the error lacks the fix"
refused 6 "cuBLASLt 12.8 was loaded, this build needs 13.0 or later" LD_LIBRARY_PATH="$PWD/old"

if [ ! -e /dev/nvidiactl ]; then # a run reports the same error, and makes nothing
    "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --runs runs --backend cuda >out 2>&1
    [ $? = 3 ] || fail "a run without a driver does not exit with 3"
    grep -qF "no NVIDIA driver is installed on this machine" out ||
        fail "the error does not name the missing driver"
    [ ! -e runs ] || fail "the refused run left $(find runs)"
    "$FP8LAB" check "$tests/tiny.lua" --lib "$lib" --backend cuda >out 2>&1 || fail "check"
    says "It may not run here: there is no /dev/nvidiactl" out
    "$FP8LAB" check "$tests/tiny.lua" --lib "$lib" --backend cuda --caps sm_90 >out 2>&1 ||
        fail "check --caps"
    grep -q "may not run" out && fail "check of a named GPU speaks of this machine"
fi
exit $failed
