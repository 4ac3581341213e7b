#!/bin/bash
# long: 12
# A run on GPUs of several products is certified on each of them; what one forbids, none uses. Of
# GPUs of one product the first is tried. The driver and the devices are stand-ins.
set -u
. tests/cli/lib.sh
. "$root/tests/support/wrong_device.sh"
mkdir driver
cc -shared -fPIC -o driver/libnvidia-ml.so.1 "$root/tests/support/stand_in/nvml.c" || exit 1
export LD_LIBRARY_PATH=$PWD/driver FAKE_GPUS=2 FAKE_PROCESSES=1 FAKE_THROTTLE=4
tried() { part "$1" logs/runner.log | grep -o '[0-9]* of [0-9]* devices tried'; } # RUNS
tables() { # kept tables, by device
    python3 -c 'import json, sys
print([t["key"].get("device") for t in json.load(open(sys.argv[1]))["tables"]][::-1])' "$kept"
}

case_name="one product"
device $WRONG_NOTHING
echo $WRONG_IGNORED >bin/mistake1
run same 0 --set hardware.gpus=2
expect "tried" "1 of 2 devices tried" "$(tried same)"
expect "forbidden" "[]" "$(field "$(newest same)" 'run["forbidden"]')"
expect "tables" "[None]" "$(tables)"

case_name="two products"
export FAKE_MIXED=1
device $WRONG_NOTHING
run mixed 0 --set hardware.gpus=2
expect "tried" "2 of 2 devices tried" "$(tried mixed)"
says "gemm e4m3 tensor x e4m3 tensor is not used on this device, and another way is"
expect "forbidden" "True" \
    "$(field "$(newest mixed)" '"gemm e4m3 tensor x e4m3 tensor" in run["forbidden"]')"
expect "tables" "[0, 1]" "$(tables)"
# Both devices have certificates without the way that one of them forbids.
expect "devices with the other way" 2 "$(part mixed certificates.json | value \
    'sum(c["way"] == next(x["way"] for x in o["certificates"] if x["fault"] == "ignored scale")
         and c["outcome"] == "passed" and c["without"] != [] for c in o["certificates"])')"

case_name="kept"
run again 0 --set hardware.gpus=2
! grep -q "certifying how" log || fail "it certifies again"

case_name="the second has no other way"
device $WRONG_NOTHING
echo $WRONG_CAST_STALE >bin/mistake1
run none 3 --set hardware.gpus=2
says "computes wrong results here, and there is no other way"
exit $failed
