#!/bin/bash
# Two GPUs, and one blocks the other without an error: its device hangs in the middle of a run
# (fault_plugin.c), or its process is stopped. The error names rank 1, as with the CPU backend
# (tests/dist/faults.sh), and the run can be resumed without it. If its process is killed, a resumed
# run with both has the bits of an undisturbed run.
#
#   tests/gpu/hang.sh [FOLDER] [PROGRAM]
#
# FOLDER: has both plugins; default build/release/tests/gpu.
set -u
folder=$(cd "${1:-build/release/tests/gpu}" && pwd) program=$(realpath "${2:-build/release/fp8lab}")
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
if [ "$gpus" -lt 2 ]; then
    echo "hang.sh: $gpus GPUs, needs two: skipped"
    exit 0
fi
TEST_TMP=$(mktemp -d)
trap 'rm -rf "$TEST_TMP"' EXIT
FP8LAB=$TEST_TMP/fp8lab
cp "$program" "$FP8LAB"
cp "$folder/fault_plugin.so" "$TEST_TMP/libfp8lab_cuda.so"
cp "$folder/libfp8lab_cuda.so" "$TEST_TMP/libfp8lab_cuda_real.so"
cd "$(dirname "$0")/../.." || exit 1
every=100 # a GPU makes many steps in the time that it takes to disturb the run
. tests/dist/lib.sh

cuda="--backend cuda --hang-after 15"
echo 1 >hang

named() { # FOLDER: the error names rank 1 and its position
    local bundle
    bundle=$(bundle_in "$1")
    expect rank 1 "$(field "$bundle" 'error["rank"]')"
    expect host "$(hostname)" "$(field "$bundle" 'error["host"]')"
    expect "the operation" True \
        "$(field "$bundle" 'all(w in error["operation"] for w in ("step ", " (collective "))')"
    echo "$case_name: $(field "$bundle" 'run["status"], error["text"]')"
}

case_name="a device hangs"
run 2 --runs hang2 $endless $cuda
expect status failed "$(field "$(bundle_in hang2)" 'run["status"]')"
named hang2
expect "the text" True "$(field "$(bundle_in hang2)" '"all others wait for it" in error["text"]')"

case_name="a device hangs, one retry on fewer"
run 2 --runs fewer $long $cuda --set checkpoint.every=3 --retries 1 --fewer-gpus
expect status done "$(field "$(bundle_in fewer)" 'run["status"]')"
expect "ranks of the attempts" "[2, 1]" \
    "$(field "$(bundle_in fewer)" '[a["ranks"] for a in run["attempts"]]')"

echo -1 >hang # no rank
case_name="a process is stopped"
run 2 --runs still $endless $cuda &
await_step still 50
kill -STOP "$(rank_of "$(runner_of still)" 1)"
wait
named still
expect "the text" True "$(field "$(bundle_in still)" '"is frozen" in error["text"]')"

case_name="a process is killed, one retry on both"
run 2 --runs kill $long $cuda --retries 1 &
await_step kill $((every * 3 / 2))
kill -KILL "$(rank_of "$(runner_of kill)" 1)"
wait
expect status done "$(field "$(bundle_in kill)" 'run["status"]')"
expect "attempts from" "[0, $every]" \
    "$(field "$(bundle_in kill)" '[a["from_step"] for a in run["attempts"]]')"
run 2 --runs whole $long $cuda
expect results "$(field "$(bundle_in whole)" 'run["results_sha256"]')" \
    "$(field "$(bundle_in kill)" 'run["results_sha256"]')"
exit $failed
