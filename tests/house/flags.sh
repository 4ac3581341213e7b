#!/bin/bash
# Objects are compiled again if the compiler, its flags or the devices changed, and only then. A
# stand-in for nvcc writes an empty object.
set -u
failed=0
build=$TEST_TMP/build c=$TEST_TMP/build/kernels/base.o cuda=$TEST_TMP/build/kernels/cuda/nccl.o
for nvcc in nvcc other; do
    printf '#!/bin/sh\nfor last; do [ "$out" = -o ] && : >"$last"; out=$last; done\n' \
        >"$TEST_TMP/$nvcc"
    chmod +x "$TEST_TMP/$nvcc"
done
# Settings of the calling make, such as CI's warnings, are removed.
make_() { # TARGET SETTING...
    env -u MAKEFLAGS -u MFLAGS -u MAKEOVERRIDES -u CFLAGS -u WERROR -u ARCHS -u CUDNN_INCLUDE \
        make -s BUILD="$build" CC=gcc NVCC="$TEST_TMP/nvcc" "$@"
}
# expect CODE TARGET SETTING...: make -q, which exits with 0 if nothing must be made, else with 1
expect() {
    local wanted=$1 got
    shift
    make_ -q "$@"
    got=$?
    [ "$got" = "$wanted" ] || { echo "make -q ${*#"$TEST_TMP/"}: $got, not $wanted"; failed=1; }
}
expect 1 "$c"
make_ "$c" "$cuda" || { echo "it does not build"; exit 1; }
expect 0 "$c" "$cuda"
expect 0 "$c" CC="ccache gcc" ARCHS=all
expect 0 "$cuda" WERROR=-Werror
expect 1 "$c" CC=cc
expect 1 "$c" WERROR=-Werror
expect 1 "$c" WERROR="-DIT='1'"
expect 1 "$cuda" NVCC="$TEST_TMP/other"
expect 1 "$cuda" CUDNN_INCLUDE=/elsewhere
expect 1 "$cuda" ARCHS="sm_80 sm_90a"

# A setting applies to the next make: all devices, then one again.
for archs in all sm_90a; do
    expect 1 "$cuda" ARCHS=$archs
    make_ "$cuda" ARCHS=$archs || failed=1
    expect 0 "$cuda" ARCHS=$archs
done
make_ "$c" WERROR="-DIT='1'" || failed=1 # a word with quotes is kept as it is
expect 0 "$c" WERROR="-DIT='1'"
# Every object of the plugin is out of date, and no object of C.
again=$(make_ -n ARCHS=all "$build/libfp8lab_cuda.so" | grep -c -- '-gencode .*-o .*\.o ')
[ "$again" = "$(ls kernels/cuda/*.cu | wc -l)" ] || { echo "ARCHS=all: $again objects"; failed=1; }

# nvcc compiles a kernel in a source of the host's compiler without a word, to a call that fails.
hosts=$(make_ -n ARCHS=all "$build/libfp8lab_cuda.so" | sed -n 's/.* -x c++ .* //p')
[ -n "$hosts" ] || { echo "no source is left to the host's compiler"; failed=1; }
# shellcheck disable=SC2086  # words
kernels=$(grep -l '__global__' $hosts) && { echo "HOST_CU, with a kernel: $kernels"; failed=1; }

# The next make records another commit, and whether files differ from it.
sources=$build/gen/sources.h
make_ "$sources" COMMIT=one DIRTY=0 || failed=1
expect 0 "$sources" COMMIT=one DIRTY=0
expect 1 "$sources" COMMIT=two DIRTY=0
expect 1 "$sources" COMMIT=one DIRTY=3
make_ "$sources" COMMIT=two DIRTY=3 || failed=1
[ "$(grep -cE '_COMMIT "two"|_DIRTY 1' "$sources")" = 2 ] || { cat "$sources"; failed=1; }

# ARCHS: an unknown device stops make before nvcc runs; the error suggests the right word.
archs() { # ARCHS WORDS...
    local said
    said=$(make_ -n "$cuda" ARCHS="$1" 2>&1) && { echo "ARCHS=$1: exit code 0"; failed=1; }
    [[ $said == *"ARCHS=$1: each word must be one of sm_80 sm_89 sm_90a"*"$2"* ]] ||
        { echo "ARCHS=$1: $said"; failed=1; }
}
archs 90 "for 90 write sm_90a"
archs "sm_80 9.0" "for 9.0 write sm_90a"
archs sm_121 "for sm_121 write sm_121a"
archs sm_103 "for sm_103 write sm_103a"
archs sm_86 "for sm_86 write sm_80"
# nvcc's names of families: one word each for devices that have machine code of their own here.
archs sm_120f "for sm_120f write sm_120a sm_121a"
archs 100f "for 100f write sm_100a sm_103a"
archs sm_121f "for sm_121f write sm_121a"
archs sm_75 "or all."
archs "" "or all."
make_ -n "$cuda" ARCHS=compute_90a >/dev/null || { echo "PTX alone is rejected"; failed=1; }

# If T asks for one shell test alone, the build also makes the programs of tests that it runs.
for shell in cli/doctor.sh:cli/test_hardware bundle/verbs.sh:bundle/test_bundle; do
    make_ -n T="${shell%:*}" test-build 2>&1 | grep -q "LINK .*/tests/${shell#*:}\"" ||
        { echo "T=${shell%:*} does not build tests/${shell#*:}"; failed=1; }
done
exit "$failed"
