#!/bin/bash
# long: 20
# The host side of the CUDA backend that several threads use, under the thread sanitizer and without
# a GPU.
#   nccl.cu            a thread queues, or hangs, while another thread polls and aborts
#   cuda_progress.cu   a thread queues operators, the device marks them, the heartbeat reads them
# NCCL and the CUDA runtime are stand-ins. The sanitizer must report a poll beside the abort;
# otherwise it sees nothing.
set -u
nvcc=$(containers/find_nvcc.sh)
[ -n "${FP8LAB_TEST_IMAGE:-}" ] ||
    { echo "*** SKIP: FP8LAB_TEST_IMAGE=1, .ci/run or make test-threads runs this"; exit 77; }
[ -n "$nvcc" ] || { echo "skipped: there is no nvcc"; exit 77; }
include=$(dirname "$(dirname "$nvcc")")/include
echo '#include <nccl.h>' | gcc -E -I"$include" - >/dev/null 2>&1 ||
    { echo "skipped: there is no nccl.h"; exit 77; }
: "${TEST_TMP:=$(mktemp -d)}"
work=$TEST_TMP failed=0
c="gcc -O1 -g -fsanitize=thread -fPIC -std=c11 -D_GNU_SOURCE -I. -I$include"
cu="$nvcc -std=c++17 -arch=sm_90a -O1 -g -I. -Xcompiler -fsanitize=thread,-fPIC"
compile() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }
run() { # PROGRAM MODE: output in $work/MODE, exit code in $code
    TSAN_OPTIONS="exitcode=66 halt_on_error=1" LD_LIBRARY_PATH=$work setarch -R \
        "$work/$1" "$2" >"$work/$2" 2>&1
    code=$?
}
clean() { # PROGRAM MODE
    run "$1" "$2"
    [ $code = 0 ] && ! grep -q FAILED "$work/$2" && return
    head -40 "$work/$2"
    echo "FAILED: $1 $2: exit code $code"
    failed=1
}

# shellcheck disable=SC2086  # words
{
    echo 'int main(void) { return 0; }' >"$work/empty.c"
    compile $c -o "$work/empty" "$work/empty.c"
    run empty nothing
    [ $code = 0 ] ||
        { echo "skipped: no thread sanitizer runs here: $(head -1 "$work/nothing")"; exit 77; }
    compile $c -shared -o "$work/libnccl.so.2" tests/dist/nccl_stand_in.c
    for source in kernels/base.c kernels/link.c tests/dist/cudart_stand_in.c; do
        compile $c -c -o "$work/$(basename "$source" .c).o" "$source"
    done
    for source in kernels/cuda/nccl.cu tests/dist/nccl_threads.cu tests/dist/progress_threads.cu; do
        compile $cu -c -o "$work/$(basename "$source" .cu).o" "$source"
    done
    # The table of operators is wrapped there, and no operator is called.
    nm -u "$work/progress_threads.o" | awk '$2 ~ /^(cuda_|_Z.*cuda_)/ {
        print "void " $2 "(void) { __builtin_trap(); }" }' >"$work/absent.c"
    compile gcc -w -c -o "$work/absent.o" "$work/absent.c"
}
link() { # PROGRAM FLAGS OBJECTS...
    local program=$1 flags=$2
    shift 2
    # shellcheck disable=SC2086  # words
    (cd "$work" && compile "$nvcc" $flags -Xcompiler -fsanitize=thread -o "$program" "$@" \
        -ldl -lpthread) || exit 1
}
link nccl "" nccl_threads.o nccl.o base.o link.o
link progress "-cudart none" progress_threads.o cudart_stand_in.o absent.o base.o

clean nccl calls
clean nccl hang
clean progress marks
for _ in {1..10}; do # the sanitizer sees a race only if both threads arrive close together
    run nccl race
    [ $code != 66 ] || break
done
if [ $code != 66 ] || ! grep -q "ThreadSanitizer: .*\(race\|use-after-free\)" "$work/race"; then
    head -20 "$work/race"
    echo "FAILED: a poll beside the abort is not reported: exit code $code"
    failed=1
fi
[ $failed = 0 ] && cat "$work/calls" "$work/hang" "$work/marks"
exit $failed
