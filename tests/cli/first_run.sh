#!/bin/bash
# The next command that `doctor` and an empty `list` suggest works as it is typed: in a fresh clone,
# beside the text of the quick start, and in a folder without experiments.
set -u
. "$PWD/tests/cli/lib.sh"
shown="out log"
fp8lab() { "$FP8LAB" "$@"; }

# next_of COMMAND...: in $next, the command behind "Next: ".
next_of() {
    fp8lab "$@" >out 2>log || fail "$*"
    next=$(sed -n 's/^Next: //p' log)
}
type_it() { # The words, with less to compute
    eval "$next --set train.steps=21 --set train.global_batch=1 --set train.micro_batch=1 \
        --set eval=false --threads 1 --only '*-bf16'" >out 2>log || fail "as typed: $next"
}

mkdir clone && cd clone || exit 1
ln -s "$root/experiments" experiments
mkdir containers && touch containers/export_text.sh
next_of doctor --quick
expect "without the text" "fp8lab run experiments/quickstart.lua --set data=synthetic" "$next"
says "\`make demo\` trains on a real text"
type_it
mkdir empty
next_of list empty
expect "an empty list" "fp8lab run experiments/quickstart.lua --set data=synthetic" "$next"

mkdir data && seq 99999 >data/quickstart.txt
next_of doctor --quick
expect "beside the text" "fp8lab run experiments/quickstart.lua" "$next"
type_it

mkdir ../other && cd ../other || exit 1
next_of doctor --quick
type_it
grep -q "make demo" log && fail "there is nothing to make here"

[ "$failed" = 0 ] && echo "the first command works"
exit "$failed"
