#!/bin/bash
# tier: long
# run --side-by-side on a host with GPUs: each row on its own, which the run records; numbers that
# do not fit; GPUs that are not what the rows ask for. Driver and devices are stand-ins.
set -u
. tests/cli/lib.sh
. "$root/tests/support/wrong_device.sh"
mkdir driver
cc -shared -fPIC -o driver/libnvidia-ml.so.1 "$root/tests/support/stand_in/nvml.c" || exit 1
export LD_LIBRARY_PATH=$PWD/driver FAKE_GPUS=4 FAKE_PROCESSES=1 FAKE_THROTTLE=4
unset CUDA_VISIBLE_DEVICES
device $WRONG_NOTHING

pair() { # RUNS CODE ARGS...: the two rows at once
    local runs=$1 wanted=$2
    shift 2
    "$FP8LAB" run "$tests/suite.lua" --lib "$lib" --runs "$runs" --backend cuda --side-by-side 2 \
        --set train.steps=4 --set eval=false "$@" >out 2>log
    expect "exit code" "$wanted" $?
}
gpus() { # RUNS: "RECORDED VISIBLE" of each run
    for bundle in "$1"/*.tar.zst; do
        echo "$(field "$bundle" 'run["attempts"][0].get("side_by_side", {}).get("gpus")')" \
            "$(tar --zstd -xOf "$bundle" --wildcards '*/data/system/environment.json' |
                value 'o["kept"].get("CUDA_VISIBLE_DEVICES")')"
    done | sort
}

case_name="each row has a GPU"
pair one 0
expect "GPUs" "[0] GPU-...
[1] GPU-..." "$(gpus one)"
says "gpu 0: "
says "gpu 1: "
expect "GPUs that a run's machine has" 1 \
    "$(tar --zstd -xOf "$(newest one)" --wildcards '*/data/system/facts.json' |
        value 'o["gpu.count"]')"
"$FP8LAB" show "$(newest one)" >shown
grep -qE "2 rows at once; this was slot [01], on GPU [01]$" shown || fail "show does not say it"
tar --zstd -xOf "$(newest one)" --wildcards '*/data/logs/runner.log' |
    grep -qE "side by side: slot [01] of 2 rows at once, on GPU [01]$" || fail "nor does the log"

case_name="two GPUs each"
pair two 0 --set hardware.gpus=2
expect "GPUs" "[0, 1] GPU-...,GPU-...
[2, 3] GPU-...,GPU-..." "$(gpus two)"
says "gpus 2,3: "

case_name="those that the user leaves"
CUDA_VISIBLE_DEVICES=3,1 pair left 0
expect "GPUs" "[1] 1
[3] 3" "$(gpus left)"

case_name="too few"
CUDA_VISIBLE_DEVICES=2 pair few 3
says "2 rows at once, on 1 GPU each (hardware.gpus), need 2 GPUs, and this process sees 1"
FAKE_GPUS=2 pair few 3 --set hardware.gpus=2
says "2 GPUs each (hardware.gpus), need 4 GPUs, and this process sees 2"
CUDA_VISIBLE_DEVICES=2,2 pair few 2
says "names GPU 2 twice"
expect "folders" "" "$(ls few 2>/dev/null)"

# A query that the whole host matches, and a row's part of it does not.
case_name="the hardware query"
pair query 3 --set 'hardware.query=gpu.count >= 4'
says "found 1"
! grep -q "takes no row" log || fail "it starts processes first"
expect "folders" "" "$(ls query 2>/dev/null)"

# One GPU is not what the rows ask for: the other runs both. None is: nothing runs.
case_name="an unfit GPU"
export FAKE_MIXED=1 FAKE_GPUS=2
pair unfit 0 --set 'hardware.query=gpu.product_name ~ "NVIDIA H200*"'
says "gpu 1: its part of this machine is not what the rows ask for; it takes no row"
expect "rows at once" 1 "$(gpus unfit | sort -u | grep -c "^None GPU-\.\.\.$")"
expect bundles 2 "$(gpus unfit | wc -l)"
pair none 3 --set 'hardware.query=gpu.product_name ~ "* + *"'
grep -q "none of the 2 processes takes a row: gpu [01]: its part of this machine" log ||
    fail "it does not say why no row runs"
expect "folders" "" "$(ls none 2>/dev/null | grep -v cache)"

[ $failed = 0 ] && echo "rows have GPUs of their own"
exit $failed
