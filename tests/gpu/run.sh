#!/bin/bash
# Runs every operator test of the CUDA backend. Builds nothing, so that a folder built elsewhere can
# be copied to a machine with a GPU:
#
#   tests/gpu/run.sh [FOLDER [TEST...]]
#
# FOLDER: holds test_* and libfp8lab_cuda.so; default build/release/tests/gpu. TEST: only these, for
# example test_comm. It is a failure if one of them is missing, or if FOLDER has no test.
#
# Libraries in FOLDER/lib come before the machine's. sanitize.sh runs tests under compute-sanitizer.
set -u
folder=${1:-build/release/tests/gpu}
export LD_LIBRARY_PATH="$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
failed=0 ran=0
named=$#
[ $# -gt 1 ] || set -- "$folder" "$folder"/test_*
for test in "${@:2}"; do
    test=$folder/${test##*/}
    if ! [ -f "$test" ] || ! [ -x "$test" ]; then
        [ "$named" = 1 ] && continue # such as an object of the test
        echo "FAILED: there is no test $test; build it: make test-gpu-build" >&2
        exit 1
    fi
    echo "== ${test##*/}"
    ran=$((ran + 1))
    "$test" || failed=1
done
if [ $ran = 0 ]; then
    echo "FAILED: no test in $folder; build them: make test-gpu-build" >&2
    exit 1
fi
exit "$failed"
