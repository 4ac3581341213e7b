#!/bin/bash
# Token shards with a .loss: packed documents give the same loss for each micro-batch and number of
# ranks. Records count the tokens with loss. A step without one has no loss, and is in the log; a
# run without one is refused before step 0.
set -u
. "$PWD/tests/cli/lib.sh"
python3 - <<'PY'
import struct
length = [7, 0, 25, 31, 1, 9, 32, 14, 5, 29, 3, 20, 30, 28, 27, 8]
starts = [4 * sum(length[:i]) for i in range(len(length))]
open("s.bin", "wb").write(b"".join(struct.pack("<i", i * 7919 % 96) for i in range(sum(length))))
open("s.idx", "wb").write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, len(length), len(length) + 1)
                          + struct.pack("<16i16q17q", *length, *starts, *range(17)))
open("good", "wb").write(bytes(i * 7 % 3 > 0 for i in range(sum(length))))
open("none", "wb").write(bytes(sum(length)))
open("first", "wb").write(bytes(2 <= i < 7 for i in range(sum(length)))) # of document 0 alone
PY
cat >x.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "x", model = tiny.llama { seq_len = 32, layers = 2, vocab = 96 }, recipe = f32,
  data = tokens { path = "s", layout = "packed", mask = "document", positions = "document",
                  loss = true, holdout = 0.4 },
  train = { steps = 3, global_batch = 4, micro_batch = 4 }, eval = { every = 1, batches = 9 },
}
LUA
run() { # LOSS RUNS ARGS...: exit code in $code
    cp "$1" s.loss
    "$FP8LAB" run x.lua --lib "$lib" --backend cpu --threads 1 --runs "$2" "${@:3}" >out 2>log
    code=$?
}

case_name="ways"
for way in "micro_batch=4" "micro_batch=1" "micro_batch=2 --set hardware.gpus=2"; do
    # shellcheck disable=SC2086  # several arguments
    run good "runs-${way:12:1}" --set train.$way
    expect "exit code" 0 $code
    field "$(bundle_in "runs-${way:12:1}")" \
        '"%.4f %.4f" % (summary["loss_final"], summary["eval_loss_final"])' >>losses
done
expect "lines of losses, kinds of them" "3 1" "$(wc -l <losses) $(sort -u losses | wc -l)"

case_name="loss tokens" # of each step and evaluation, for each micro-batch the same; and their sum
for way in 4 1 2; do
    tar -xOf "$(bundle_in "runs-$way")" --wildcards '*/data/metrics/train.jsonl' \
        '*/data/metrics/eval.jsonl' | grep -o '"loss_tokens":[0-9]*' | tr '\n' ' ' >>counts
    echo >>counts
done
expect "lines of counts, kinds of them" "3 1" "$(wc -l <counts) $(sort -u counts | wc -l)"
expect "counts of 3 evaluations and 3 steps" 6 "$(head -1 counts | wc -w)"
one=$(bundle_in runs-4)
field "$one" '"%d %d" % (summary["loss_tokens"], summary["eval_loss_tokens"])' >sums
expect "sums" "$(head -1 counts | tr -c '0-9\n' ' ' | awk '{print $4 + $5 + $6, $3}')" "$(cat sums)"
"$FP8LAB" show "$one" >log
says "% of the tokens; about"
[ "$(sed 's/ .*//' sums)" -lt "$(field "$one" 'summary["tokens"]')" ] || fail "all tokens have loss"

case_name="no loss"
run none runs-none
expect "exit code" 2 $code
says "s.loss: no token of the training data carries loss"
[ -d runs-none ] && fail "there is a run"
run first runs-first
expect "exit code" 2 $code
says "no token of the 5 held-out sequences that eval reads has loss"
[ -d runs-first ] && fail "there is a run"

case_name="no loss in the steps of the run, though others have it"
one=(--set eval=false --set train.global_batch=1 --set train.micro_batch=1 --set train.seed=1)
run first runs-few "${one[@]}" --set train.steps=2
expect "exit code" 2 $code
says "no token of the 2 sequences that the 2 steps read has loss"
[ -d runs-few ] && fail "there is a run"

case_name="no loss, as each document has one token"
python3 - <<'PY'
import struct
open("ones.bin", "wb").write(struct.pack("<256i", *(i % 96 for i in range(256))))
open("ones.idx", "wb").write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 256, 257)
                             + struct.pack("<256i256q257q", *[1] * 256, *range(0, 1024, 4),
                                           *range(257)))
PY
sed 's/"s"/"ones"/; s/loss = true, //' x.lua >ones.lua
"$FP8LAB" run ones.lua --lib "$lib" --backend cpu --runs runs-ones --set eval=false >out 2>log
expect "exit code" 2 $?
says "ones.bin: no token of the training data carries loss: each document has one token"
[ -d runs-ones ] && fail "there is a run"

case_name="some steps without" # the third of four has some
run first runs-some "${one[@]}" --set train.steps=4
expect "exit code" 0 $code
says "step 4/4  no token with loss"
some=$(bundle_in runs-some)
tar -xOf "$some" --wildcards '*/data/logs/runner.log' >steps 2>/dev/null
expect "lines of steps without loss" 1 "$(grep -c 'none of its 32 tokens has loss' steps)"
says "step 4 of 4: no token with loss, " steps
expect "losses" "null null number null " "$(tar -xOf "$some" --wildcards \
    '*/data/metrics/train.jsonl' | grep -o '"loss":[^,]*' |
    sed 's/"loss"://; s/[0-9].*/number/' | tr '\n' ' ')"
"$FP8LAB" show "$some" >log
says "none: no token of the last step has loss"
gives 0 verify "$some" --
gives 0 repro "$some" --backend cpu --runs runs-again -- "bitwise equal"
gives 0 compare --json "$some" "$(bundle_in runs-again)" --
! grep -q "not finite" out || fail "the run counts as diverged"
exit $failed
