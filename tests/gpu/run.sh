#!/bin/bash
# Runs every operator test of the CUDA backend. Builds nothing, so that a folder made elsewhere can
# be carried to a machine with a GPU:
#
#   tests/gpu/run.sh [FOLDER]
#
# FOLDER: holds test_* and libfp8lab_cuda.so; default build/release/tests/gpu.
#
# A FOLDER without a test is a failure, since nothing would be tested.
#
# Libraries in FOLDER/lib are preferred to the machine's. Under compute-sanitizer: sanitize.sh.
set -u
folder=${1:-build/release/tests/gpu}
export LD_LIBRARY_PATH="$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
failed=0 ran=0
for test in "$folder"/test_*; do
    [ -f "$test" ] && [ -x "$test" ] || continue
    echo "== ${test##*/}"
    ran=$((ran + 1))
    "$test" || failed=1
done
if [ $ran = 0 ]; then
    echo "FAILED: no test in $folder; build them: make test-gpu-build" >&2
    exit 1
fi
exit "$failed"
