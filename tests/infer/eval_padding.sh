#!/bin/bash
# eval of a file that ends in the middle of a sequence: padding changes neither the loss nor the
# number of tokens that is printed.
set -u
. "$PWD/tests/cli/lib.sh"

seq 999 | head -c 3000 >a.txt
cat >run.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "bytes", model = tiny.llama { seq_len = 32, layers = 1, vocab = 256 }, recipe = bf16,
  data = text { "a.txt", holdout = 0.2 },
  train = { steps = 2, global_batch = 4, micro_batch = 2, optimizer = adamw { lr = 1e-3 } },
  checkpoint = { every = 2, keep = 1 },
}
LUA
"$FP8LAB" run run.lua --lib "$lib" --threads 1 --backend cpu >out 2>log || fail "run"
eval_of() { gives 0 eval last --threads 1 --backend cpu --data "$@"; } # FILE ARGS... -- WORDS...
loss() { sed -n 's/^  loss  *\([0-9.]*\) .*/\1/p' out; }

seq 500 | head -c 41 >short.txt # 40 targets: a sequence of 32 and one of 8
eval_of short.txt -- "  tokens       40 with loss, in 2 sequences of 32; the other 24 are padding" \
    "tokens/s of all 64"
padded=$(loss)
eval_of short.txt --seq-len 8 -- "  tokens       40 with loss, in 5 sequences of 8"
! grep -q "padding\|of all" out || fail "padding in sequences that are full"

# Nothing follows the target, so the loss of the second sequence is that of its bytes alone.
head -c 33 short.txt >first.txt
tail -c 9 short.txt >second.txt
eval_of first.txt -- "32 with loss, in 1 sequence of 32"
first=$(loss)
eval_of second.txt -- "8 with loss, in 1 sequence of 32; the other 24"
expect "the mean over targets" True \
    "$(python3 -c "print(abs((32 * $first + 8 * $(loss)) / 40 - $padded) < 2e-6)")"

[ $failed = 0 ] && echo "padding is not counted"
exit $failed
