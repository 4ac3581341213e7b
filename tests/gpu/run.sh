#!/bin/bash
# Runs every operator test of the CUDA backend. Builds nothing, so that a folder built elsewhere can
# be copied to a machine with a GPU:
#
#   tests/gpu/run.sh [FOLDER]
#
# FOLDER: has test_* and libfp8lab_cuda.so; default build/release/tests/gpu.
#
# A FOLDER without tests is a failure.
#
# Libraries in FOLDER/lib come before the machine's. sanitize.sh runs tests under compute-sanitizer.
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
