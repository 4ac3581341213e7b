#!/bin/bash
# A small model learns the format of answers from chats (experiments/sft_quickstart.lua): of unseen
# questions at least 90 % are answered in it, before the training at most 5 %. The answers are
# decoded by another program.
set -u
. tests/outside/lib.sh
"$root/containers/export_chats.sh" data/chats.jsonl 2>log || fail "no conversations were written"
"$root/containers/export_chats.sh" unseen.jsonl unseen 2>log || fail "no questions were written"
ln -s "$root/experiments" experiments
mkdir open
"$FP8LAB" run experiments/sft_quickstart.lua --backend cpu >out 2>log || fail "exit code $?"
share() { # RECIPE STEP: percent of 40 answers in the format
    python "$root/tests/outside/greedy.py" "open/$1" "$2" unseen.jsonl 'Answer: [0-9]+\.' 40 >out \
        2>log || fail "$1, step $2: no answers" >&2
    cat out >&2
    sed 's/ .*//' out
}
for recipe in bf16 fp8.delayed; do
    "$FP8LAB" extract -q runs/*-"$recipe"-*.tar.zst --to "open/$recipe" >log 2>&1 ||
        fail "$recipe: extract"
    before=$(share "$recipe" 0) after=$(share "$recipe" 300)
    [ "${before:-100}" -le 5 ] || fail "$recipe: $before % in the format before the training"
    [ "${after:-0}" -ge 90 ] || fail "$recipe: $after % in the format after it"
done
exit $failed
