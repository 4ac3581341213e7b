#!/bin/bash
# eval and generate of a run whose recipe changes how it multiplies forward (forward_bf16_after).
# The step of the checkpoint decides. So the loss is that of the run's evaluation at this step, to
# the bit, and logits are BF16's behind that step only.
set -u
. "$PWD/tests/cli/lib.sh"

seq 999 | head -c 3000 >a.txt
cat >run.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "switches", model = tiny.llama { seq_len = 32, layers = 1, vocab = 256 },
  recipe = fp4.nvfp4 { forward_bf16_after = 3 },
  data = text { "a.txt", holdout = 0.2 },
  train = { steps = 6, global_batch = 4, micro_batch = 2, optimizer = adamw { lr = 1e-3 } },
  eval = { every = 3, batches = 4 }, checkpoint = { every = 6, keep = 1, milestones = { 3 } },
}
LUA
"$FP8LAB" run run.lua --lib "$lib" --threads 1 --backend cpu >out 2>log || fail "run"
bundle=$(newest runs)

bits() { # ARGS...: of eval
    "$FP8LAB" eval "$bundle" --json --threads 1 --backend cpu "$@" >out 2>log || fail "eval $*"
    python3 -c 'import json; print(json.load(open("out"))["loss_bits"])'
}
recorded() { # STEP
    tar --zstd -xOf "$bundle" --wildcards '*/data/metrics/eval.jsonl' |
        python3 -c 'import json, sys
print(*[o["loss_bits"] for o in map(json.loads, sys.stdin) if o["step"] == int(sys.argv[1])])' "$1"
}
logits() { # FILE ARGS...: of generate
    "$FP8LAB" generate "$bundle" 12 --logits "$1" --threads 1 --backend cpu "${@:2}" \
        >out 2>log || fail "generate ${*:2}"
}
case_name="before the switch"
expect loss_bits "$(recorded 3)" "$(bits --checkpoint 3)"
[ "$(recorded 3)" != "$(bits --checkpoint 3 --recipe bf16)" ] || fail "NVFP4 is BF16"
logits own.npy --checkpoint 3
logits bf16.npy --checkpoint 3 --recipe bf16
! cmp -s own.npy bf16.npy || fail "generate: NVFP4 is BF16"
case_name="after it"
expect loss_bits "$(recorded 6)" "$(bits)"
expect "forward in BF16" "$(bits --recipe bf16)" "$(bits)"
logits own.npy
logits bf16.npy --recipe bf16
cmp own.npy bf16.npy || fail "generate: not forward in BF16"

[ "$failed" = 0 ] && echo "eval and generate multiply as the run did at that step"
exit "$failed"
