#!/bin/bash
# experiments/peers/llmc.py: the speed that it reads out of llm.c's lines, and what it refuses to
# train. Also each way in which llm.c can fail, and that nothing is left behind. A stand-in prints
# llm.c's lines.
set -u
peer=llmc public=llm.c stand_in=train_gpt2cu.sh experiment=bench_gpt2_124m.lua
. tests/support/peer.sh

# ---- the speed -----------------------------------------------------------------------------------
ready='lines[0]["event"] == "ready" and lines[0]["name"] == "llm.c"
    and lines[0]["device"] == "NVIDIA stand-in" and lines[0]["tokens_per_step"] == 32768'
printf 'measure\nmeasure\nquit\nmeasure\n' | measure --resident || fail "resident: exit code $?"
lines "($ready) and len(lines) == 3 and lines[1] == lines[2]"
lines 'lines[0]["flags"] == "-w 0 -r 0 -ge 1"'
lines '{**lines[1], "tokens_per_s": round(lines[1]["tokens_per_s"])} == {"event": "measured",
    "recipe": "bf16", "tokens_per_s": round(32768 / 0.059), "step_ms_median": 59.0,
    "step_ms_min": 49.0, "step_ms_max": 89.0, "loss": 10.987654}'
nothing_left resident
PEER_MODE=unfused measure --steps 13 || fail "unfused: exit code $?"
lines "($ready)"' and lines[0]["flags"] == "-w 0 -r 0 -ge 0" and len(lines) == 2'
lines 'lines[1]["step_ms_median"] == 60'
grep -qF "llmc: -w 0 -r 0 -ge 1: it ended with exit code 1" err ||
    fail "unfused: the first failure is not reported"
LLMC=$stand_in expect 0 "-e d12" --llmc ''
measure --recipe fp8.tensorwise || fail "another recipe: exit code $?"
lines 'lines == [{"event": "lacks", "name": "llm.c", "recipe": "fp8.tensorwise"}]'

# ---- experiments that it rejects -----------------------------------------------------------------
expect 2 "model.layers is 6; all that llmc.py can train is 12" --set model.layers=6
expect 2 "train.optimizer.master is 'f32'" --set train.optimizer.master=f32
expect 2 "hardware.gpus is 4" --set hardware.gpus=4 --set train.global_batch=128
expect 2 "model.norm is 'rmsnorm'" --set model.norm=rmsnorm
expect 2 "no --device cpu" --device cpu
expect 2 "--warmup is at least 0, and less than" --warmup 40

# ---- failures of llm.c ---------------------------------------------------------------------------
no_program LLMC
PEER_MODE=dies expect 1 "    CUDA driver version is insufficient" # its last words
PEER_MODE=garbage expect 1 "not 20 steps, each with a loss and a time"
PEER_MODE=nan expect 1 "not 20 steps, each with a loss and a time"
PEER_MODE=short expect 1 "not 20 steps, each with a loss and a time"
PEER_MODE=hangs expect 1 "not done within 0.3 s (--run-limit)" --run-limit 0.3
echo stop | measure --resident
[ $? = 2 ] && grep -qF "measure or quit, not 'stop'" err || fail "stop is accepted as a request"
nothing_left stop
ends_by_signal
exit $failed
