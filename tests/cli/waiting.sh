#!/bin/bash
# Commands that compute in their own process wait as a run's worker does: threads look a thousand
# times and then sleep, unless the user's variables say otherwise. libgomp prints its settings when
# it is loaded: how often it looks.
set -u
. "$PWD/tests/cli/lib.sh"
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
export OMP_DISPLAY_ENV=verbose
cat >x.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "x", model = tiny.llama { seq_len = 32, layers = 1, vocab = 256 }, recipe = bf16,
  data = synthetic { seed = 1 },
  train = { steps = 1, global_batch = 2, micro_batch = 2 }, archive = "weights",
}
LUA
looks() { # ARGS...: the last that it printed
    "$FP8LAB" "$@" >out 2>log && sed -n "s/.*GOMP_SPINCOUNT = '\([0-9]*\)'.*/\1/p" log | tail -1
}
"$FP8LAB" run x.lua --lib "$lib" --backend cpu --threads 1 >out 2>log || fail "run"
bundle=$(newest runs)
expect "bench step" 1000 "$(looks bench step x.lua --lib "$lib" --backend cpu --steps 1)"
expect eval 1000 "$(looks eval "$bundle" --backend cpu --threads 1 --batches 1)"
expect generate 1000 \
    "$(looks generate "$bundle" --tokenizer bytes --backend cpu --tokens 1 a)"
expect "a count of the user's" 7 \
    "$(GOMP_SPINCOUNT=7 looks eval "$bundle" --backend cpu --threads 1 --batches 1)"
expect "OMP_WAIT_POLICY of the user's" 0 \
    "$(OMP_WAIT_POLICY=passive looks eval "$bundle" --backend cpu --threads 1 --batches 1)"
exit $failed
