#!/bin/bash
# A way that crashes its process costs that way alone: the kernel that does it is found and not
# used, and a report of doctor has all other ways. The device is a stand-in.
set -u
. tests/cli/lib.sh
. "$root/tests/support/wrong_device.sh"
readonly SIGNAL="crash: the process that asked the GPU was killed by signal 9"

case_name="a product crashes"
device crash
run gemm 0
says "gemm e4m3 tensor x e4m3 tensor is not used on this device"
says "$SIGNAL"
expect "forbidden" "['gemm e4m3 tensor x e4m3 tensor']" \
    "$(field "$(newest gemm)" 'run["forbidden"]')"
expect "the first of its ways" "['failed crash', 'passed emulated']" \
    "$(part gemm certificates.json | value '[c["outcome"] + " " + (c["fault"] or c["how"]) for c in
        o["certificates"] if c["way"].startswith("gemm e4m3 tensor")][:2]' 2>log)"
case_name="kept"
run again 0
! grep -q "certifying how" log || fail "it certifies again"
says "gemm e4m3 tensor x e4m3 tensor is not used on this device"

for kernel in wgmma cudnn all; do
    case_name="attention crashes in $kernel"
    device "crash $kernel"
    run "at$kernel" 0
    wanted="['attention $kernel']"
    [ $kernel != all ] || wanted="['attention cudnn', 'attention wgmma']"
    expect "forbidden" "$wanted" "$(field "$(newest "at$kernel")" 'run["forbidden"]')"
    says "$SIGNAL"
done

case_name="a product without another way crashes"
device "crash bf16"
run bf16 3 --set recipe=bf16
says "bf16, "
says "crashes here, and there is no other way: $SIGNAL"
expect "kept failures" 0 "$(count outcome failed)"

case_name="doctor on a device that crashes"
device "crash all"
"$FP8LAB" doctor --quick --backend cuda --report report.txt >out 2>log
says "report.txt: attach this file to an issue"
says "warning  ways" out
says "$SIGNAL" report.txt
tail -n +2 report.txt | sed -n '/^{/,$p' >report.json
expect "sections with certificates that pass" "['attention', 'cast', 'gemm']" "$(value \
    'sorted({c["section"] for c in o["ways"] if c["outcome"] == "passed"})' <report.json)"
expect "crashes of attention" "{'cudnn', 'wgmma'}" "$(value \
    '{c["forbid"] for c in o["ways"] if c.get("fault") == "crash"}' <report.json | tr -d '\n' |
    sed "s/{'wgmma', 'cudnn'}/{'cudnn', 'wgmma'}/")"

exit $failed
