#!/bin/bash
# Errors of a device while its ways are tried. An error of one way is kept, and another way is used.
# One that says nothing about the way is not kept; the run says that it goes on without a
# certificate. The device is a stand-in.
set -u
. tests/cli/lib.sh
. "$root/tests/support/wrong_device.sh"

case_name="a product breaks the device"
device "device"
run broken 0
says "gemm e4m3 tensor x e4m3 tensor is not used on this device"
says "device error: matmul: an illegal memory access was encountered"
[ "$(count outcome failed)" -gt 0 ] || fail "the failure is not kept"

case_name="no memory for a certificate"
device "memory a cast"
run memory 0
says "ways in which this run computes on device 0 are not certified: memory for certify: a cast"
part memory logs/runner.log >out
says "not certified: cast bf16 to e4m3" out
expect "kept certificates of casts" 0 "$(count section cast)"
echo 0 >bin/mistake
run memory2 0
says "certifying how this device computes"
part memory2 logs/runner.log >log
says " 0 not certified"

case_name="a device that is broken for each way"
device "device a"
run gone 0
says "are not certified: memory for certify: a"
expect "kept" "0 0" "$(count outcome failed) $(count outcome passed)"

case_name="a device that does not open"
device closed
run closed 6
says "are not certified: device 0 does not open"

for when in kept dropped; do
    case_name="a producer writes wrong codes, its value is $when"
    device "fused $when"
    run "fused$when" 3
    says "computes wrong results here, and there is no other way: wrong codes: swiglu_fwd: codes: 1"
done
says "differ from those that it makes if it keeps the value"

case_name="absent"
device "absent a cast"
run absent 0
part absent logs/runner.log >log
says "absent on this device: cast bf16 to e4m3"
! grep -q " 0 ways absent" log || fail "absent ways are not counted"
exit $failed
