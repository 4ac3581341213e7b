#!/bin/bash
# An export that is stopped leaves nothing behind. One that is killed leaves TO.partial.N: the next
# export to TO names it, and removes no folder that it did not make.
set -u
. tests/cli/lib.sh

run_tiny --runs runs --set recipe=bf16 --set train.steps=1 --set model.width=512 \
    --set model.layers=6 --set model.ffn=2048
expect "exit code" 0 $code
bundle=$(bundle_in runs)

# interrupt SIGNAL: an export to x, as soon as it has its folder. Fails if it was done before.
interrupt() {
    env --default-signal=INT "$FP8LAB" export "$bundle" --to x --dtype f32 >out 2>log & # as Ctrl-C
    local pid=$!
    while kill -0 $pid 2>/dev/null && [ ! -d x.partial.1 ]; do :; done
    kill -s "$1" $pid 2>/dev/null
    wait $pid 2>/dev/null
    code=$?
    [ ! -d x ] || { rm -r x && return 1; }
}

for signal in INT TERM HUP KILL; do
    case_name="SIG$signal"
    for try in 1 2 3 4 5 6 7 8 9 10; do interrupt $signal && break; done
    expect "exit code" $((128 + $(kill -l $signal))) $code
    [ $signal = KILL ] || expect "what is left" "" "$(ls -d x* 2>/dev/null)"
done
case_name="after a kill"
expect "what is left" x.partial.1 "$(ls -d x*)"
"$FP8LAB" export "$bundle" --to x >out 2>log || fail "exit code $?"
says "x.partial.1 is there, and no export on this host writes it"
expect "what is there" "x x.partial.1" "$(echo x*)"

case_name="beside an export that lives"
rm -r x x.partial.1
mkdir x.partial.1
flock -x x.partial.1 "$FP8LAB" export "$bundle" --to x/ >out 2>log || fail "exit code $?"
! grep -q "is there" log || fail "it takes a live export for a dead one"
[ -d x.partial.1 ] || fail "the folder of another export is gone"
exit $failed
