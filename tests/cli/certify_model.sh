#!/bin/bash
# eval, generate and bench step compute without the ways that failed on this device, also if the run
# that they open was made elsewhere; ways of their own sizes are certified first. The device is a
# stand-in.
set -u
. tests/cli/lib.sh
. "$root/tests/support/wrong_device.sh"
on() { "$FP8LAB" "$1" "${@:2}" --runs good --backend cuda >out 2>log; } # VERB ARGS...
losses() { grep -o 'loss  *[0-9.]*' out; }

device 0
run good 0 --set recipe=fp8.tensorwise
id=$(basename "$(newest good)" .tar.zst)
on eval "$id" || fail "eval: exit code $?"
says "certifying how this device computes"
right=$(losses)
on eval "$id" || fail "eval: exit code $?"
! grep -q "certifying how" log || fail "it certifies again"
on generate "$id" --tokens 4 --tokenizer bytes ab || fail "generate: exit code $?"

for mistake in $WRONG_IGNORED crash; do
    case_name="eval, mistake $mistake"
    device "$mistake"
    on eval "$id" || fail "exit code $?"
    says "gemm e4m3 tensor x e4m3 tensor is not used on this device, and another way is"
    expect "loss" "$right" "$(losses)"
    case_name="generate, mistake $mistake"
    on generate "$id" --tokens 4 --tokenizer bytes ab || fail "exit code $?"
    says "gemm e4m3 tensor x e4m3 tensor is not used on this device"
done

case_name="bench step" # it would go on for minutes on a CPU
echo plain >bin/mistake
"$FP8LAB" bench step "$tests/tiny.lua" --lib "$lib" --backend cuda --set recipe=fp8.tensorwise \
    >out 2>bench.log &
await_words "measuring whole steps" bench.log
kill $!
wait $! 2>/dev/null
says "gemm e4m3 tensor x e4m3 tensor is not used on this device, and another way is" bench.log
says "stand-in: without gemm e4m3 tensor x e4m3 tensor" bench.log

case_name="a run that avoided a way"
device $WRONG_IGNORED
run avoided 0 --set recipe=fp8.tensorwise
device 0
"$FP8LAB" eval "$(newest avoided)" --runs avoided --backend cuda >out 2>log || fail "exit code $?"
says "gemm e4m3 tensor x e4m3 tensor is not used on this device, as in the run before"

case_name="no other way"
device $WRONG_CAST_STALE
on eval "$id"
expect "exit code" 3 $?
says "computes wrong results here, and there is no other way"
exit $failed
