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
not_certified() { part "$1" decisions.json | value 'o["certificates"]["not_certified"]'; }
expect "not certified in decisions.json" "$(grep -c ' not certified: cast ' out)" \
    "$(not_certified memory)"
echo 0 >bin/mistake
run memory2 0
says "certifying how this device computes"
part memory2 logs/runner.log >log
says " 0 not certified"
expect "not certified in decisions.json" 0 "$(not_certified memory2)"

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
expect "absent in decisions.json" "$(grep -c 'absent on this device: ' log)" \
    "$(part absent decisions.json | value 'o["certificates"]["absent"]')"

# stop_hanging SIGNAL NUMBER ARGS...: the command, whose certificate never ends, gets the signal
stop_hanging() {
    local signal=$1 wanted=$((128 + $2)) runner child='' i begin
    shift 2
    "$FP8LAB" "$@" --runs hangs --backend cuda --threads 1 >out 2>log &
    runner=$!
    for ((i = 0; i < 1500; i++)); do
        child=$(children_of $runner)
        grep -qsz -e --certify "/proc/${child% }/cmdline" && break
        sleep 0.02
    done
    [ $i -lt 1500 ] || fail "no certificate is made"
    begin=$(date +%s%N)
    kill -s "$signal" $runner
    wait $runner
    expect "exit code" $wanted $?
    i=$((($(date +%s%N) - begin) / 1000000))
    [ $i -lt 10000 ] || fail "it ended after $i ms" # under a second, on a machine without load
    says "stopped by signal $((wanted - 128)) ("
    [ ! -e "/proc/${child% }" ] || fail "the child lives on"
    ! find hangs -name offered.json | grep -q . || fail "offered.json is still there"
}

case_name="stopped while a certificate is made"
device hang
stop_hanging INT 2 run "$tests/tiny.lua" --lib "$lib"
stop_hanging INT 2 repro "$(newest absent)"
expect "run directories" "" "$(find hangs -name run.json)"
case_name="stopped before it went on"
device 0
run_tiny --runs hangs --backend cuda --set train.steps=100000 &
await_checkpoint hangs 5
kill "$(runner_of hangs)"
wait $!
stopped=$(newest hangs)
before=$(field "$stopped" '[run[k] for k in ("status", "exit_code", "ended", "checkpoint_step")]')
device hang
stop_hanging TERM 15 run --resume "$stopped"
expect "its record" "$before" \
    "$(field "$stopped" '[run[k] for k in ("status", "exit_code", "ended", "checkpoint_step")]')"
device 0
"$FP8LAB" run --resume "$stopped" --runs hangs --backend cuda --threads 1 >out 2>log &
await_words "$(basename "${stopped%.tar.zst}"): resuming" log
kill $!
wait $!
expect "exit code" 143 $?
exit $failed
