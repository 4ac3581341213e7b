#!/bin/bash
# experiments/peers/llmq.py: the speed that it reads out of llmq's log, and what it refuses to
# train. Also each way in which llmq can fail, and that nothing is left behind. A stand-in writes
# llmq's log.
set -u
peer=llmq public=llmq stand_in=llmq_train.sh experiment=bench_llama3_8b.lua
. tests/support/peer.sh
whole=("${peer_command[@]}")
peer_command+=(--set model.layers=1 --set model.width=64 --set model.heads=2 --set model.kv_heads=2
    --set model.ffn=96 --set model.vocab=256 --set model.seq_len=32
    --set train.global_batch=4 --set train.micro_batch=2)

# ---- the speed -----------------------------------------------------------------------------------
# Ten of its twelve steps count: 90, 60, 50 ms and so on. llmq is ended before it evaluates.
ready='lines[0]["event"] == "ready" and lines[0]["name"] == "llmq"
    and lines[0]["device"] == "NVIDIA stand-in" and lines[0]["tokens_per_step"] == 128'
bf16="--model-dtype=bf16 --opt-m-dtype=bf16 --opt-v-dtype=bf16"
printf 'measure\nmeasure\nquit\nmeasure\n' | measure --resident || fail "resident: exit code $?"
lines "($ready) and len(lines) == 3 and lines[1] == lines[2]"
lines "lines[0]['flags'] == '$bf16'"
lines '{**lines[1], **{key: round(value, 6) for key, value in lines[1].items() if "_" in key}} == {
    "event": "measured", "recipe": "bf16", "tokens_per_s": round(128 / 0.06, 6),
    "step_ms_median": 60, "step_ms_min": 50, "step_ms_max": 90, "loss": 12.553829}'
nothing_left resident
measure --recipe fp8.tensorwise --steps 14 || fail "tensorwise: exit code $?"
lines "($ready) and lines[0]['flags'] == '$bf16 --matmul-dtype=e4m3 --gradient-dtype=e5m2'"
lines 'lines[1]["recipe"] == "fp8.tensorwise" and round(lines[1]["step_ms_median"], 6) == 50'
measure --warmup 0 || fail "the first step counts: exit code $?"
lines 'lines[1]["step_ms_max"] == 500 and round(lines[1]["step_ms_median"], 6) == 60'
for PEER_MODE in ends unsaved; do
    measure || fail "$PEER_MODE: exit code $?"
    lines "($ready) and len(lines) == 2"
done
PEER_MODE=steady
for recipe in fp8.delayed fp8.blockwise; do
    measure --recipe $recipe || fail "$recipe: exit code $?"
    lines "lines == [{'event': 'lacks', 'name': 'llmq', 'recipe': '$recipe'}]"
done

# ---- the model, the batch and the optimizer are the experiment's ---------------------------------
LLMQ=$stand_in expect 0 '"hidden_size": 64, "intermediate_size": 96, "vocab_size": 256, ' --llmq ''
said() { grep -qF -- "$1" err || fail "not passed to llmq: $1"; }
said '"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1, '
said '"max_position_embeddings": 32, "rope_theta": 500000.0, "rms_norm_eps": 1e-05, '
said " --batch-size=2 --seq-len=32 --grad-accumulation=2 --steps=12 "
expect 0 " --learning-rate=0.002 --warmup=7 --beta-1=0.8 --beta-2=0.99 --adam-epsilon=1e-06 " \
    --set train.optimizer.lr=0.002 --set train.schedule.warmup=7 --set train.steps=30 \
    --set train.optimizer.betas=0.8,0.99 --set train.optimizer.eps=1e-6
"${whole[@]}" --steps 3 >out 2>err || fail "the whole model: exit code $?"
said '"hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256, '
said '"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, '
said " --batch-size=1 --seq-len=8192 --grad-accumulation=4 "
lines 'lines[0]["tokens_per_step"] == 32768'

# ---- experiments that it rejects -----------------------------------------------------------------
expect 2 "model.norm is 'layernorm'; all that llmq.py can train is 'rmsnorm'" \
    --set model.norm=layernorm
expect 2 "model.tied is True" --set model.tied=true
expect 2 "2 heads of 16 are not the width, 64" --set model.head_dim=16
expect 2 "train.optimizer.master is 'f32'" --set train.optimizer.master=f32
expect 2 "hardware.gpus is 2" --set hardware.gpus=2
expect 2 "no --device cpu" --device cpu
expect 2 "--warmup is at least 0, and less than" --warmup 3

# ---- failures of llmq ----------------------------------------------------------------------------
no_program LLMQ
PEER_MODE=dies expect 1 "    ERROR: Cuda error in global_norm.cu:61" # its last words
for PEER_MODE in garbage nan short cut; do
    expect 1 "not 3 steps, each with a loss and a time"
done
PEER_MODE=other expect 1 "its log has steps of 64 tokens, the experiment's have 128"
PEER_MODE=hangs expect 1 "not done within 0.3 s (--run-limit)" --run-limit 0.3
ends_by_signal
exit $failed
