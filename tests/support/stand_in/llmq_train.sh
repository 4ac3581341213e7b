#!/bin/bash
# A stand-in for llmq's train: accepts its flags, checks the token file, prints the model, and
# writes its log line by line.
#
# PEER_MODE:
#   steady   steps of 500 ms by its own figure; they end 60, 50, 90 ms after each other in turn,
#            10 ms earlier in FP8; then it evaluates for ten minutes
#   ends     the same without the evaluation         unsaved   fails after its steps
#   short    without the last step                   other     half as many tokens
#   cut      the last line is incomplete             dies, garbage, nan, hangs
set -eu
declare -A flag
for word; do
    case $word in
    --model=* | --train-file=* | --eval-file=* | --batch-size=* | --seq-len=* | --steps=* | \
        --grad-accumulation=* | --model-dtype=* | --opt-m-dtype=* | --opt-v-dtype=* | \
        --matmul-dtype=* | --gradient-dtype=* | --learning-rate=* | --warmup=* | --beta-1=* | \
        --beta-2=* | --adam-epsilon=* | --weight-decay=* | --gpus=* | --log-gpu-util=* | \
        --eval-every-n-steps=* | --ckpt-interval=* | --out-dir=* | --checkpoint-dir=* | \
        --log-file=*) flag[${word%%=*}]=${word#*=} ;;
    --from-scratch) ;;
    *) echo "The following argument was not expected: $word" && exit 109 ;;
    esac
done
[ "${flag[--gpus]} ${flag[--eval-every-n-steps]} ${flag[--ckpt-interval]}" = "1 0 0" ]
dtypes="${flag[--model-dtype]} ${flag[--opt-m-dtype]} ${flag[--opt-v-dtype]}"
[ "$dtypes" = "bf16 bf16 bf16" ]
fp8="${flag[--matmul-dtype]:-} ${flag[--gradient-dtype]:-}"
[ "$fp8" = " " ] || [ "$fp8" = "e4m3 e5m2" ]
[ ! -e "${flag[--log-file]}" ] || { echo "the log of another run is there" && exit 1; }
[ "$PEER_MODE" != hangs ] || exec sleep 600 # before any child that would outlive it when killed

# ---- the model and its tokens --------------------------------------------------------------------
model=$(<"${flag[--model]}/config.json") tokens=${flag[--train-file]}
echo "model: $model"
vocab=$(sed 's/.*"vocab_size": \([0-9]*\),.*/\1/' <<<"$model")
[ "$(head -c 7 "$tokens")" = BIN.TOK ] || { echo "ERROR: Invalid token file"; exit 1; }
read -r version bytes count of masks <<<"$(od -An -w20 -td4 -j8 -N20 "$tokens")"
[ "$version $bytes $of $masks" = "2 4 $vocab 0" ] ||
    { echo "ERROR: Unsupported token file"; exit 1; }
[ "$(stat -c %s "$tokens")" = $((1024 + 4 * count)) ] || { echo "ERROR: File I/O error"; exit 1; }
step_tokens=$((flag[--batch-size] * flag[--grad-accumulation] * flag[--seq-len]))
# An epoch ends when only one step is left.
[ "$count" -gt $((flag[--steps] * step_tokens + flag[--seq-len])) ] ||
    { echo "an epoch is at its end"; exit 1; }
largest=$(od -An -v -w4 -td4 -j1024 -N40000 "$tokens" | sort -n | tail -1)
[ "$largest" -lt "$vocab" ] && [ "$largest" -gt $((vocab * 3 / 4)) ] ||
    { echo "these are no tokens"; exit 1; }

# ---- the steps -----------------------------------------------------------------------------------
case $PEER_MODE in
dies) echo "ERROR: Cuda error in global_norm.cu:61: invalid configuration argument"; exit 1 ;;
garbage) echo "it works"; echo "no log" >"${flag[--log-file]}"; exit 0 ;;
esac
entry() { # KIND FIELDS, at "now"
    printf '  {"log": "%s", "time": "2026-11-22 01:05:%02d.%03d456789", %s}' \
        "$1" $((now / 1000)) $((now % 1000)) "$2"
}
steps=${flag[--steps]} loss=12.553829 now=100 faster=0
[ "$PEER_MODE" != nan ] || loss=nan
[ "$PEER_MODE" != short ] || steps=$((steps - 1))
[ "$PEER_MODE" != other ] || step_tokens=$((step_tokens / 2))
[ "$fp8" = " " ] || faster=10
exec 3>"${flag[--log-file]}"
printf '[\n  {"log": "cmd", "cmd": ["train"]\n%s' \
    "$(entry gpu-model '"rank": 0, "id": 0, "name": "NVIDIA stand-in", "l2_size": 1')" >&3
for ((step = 0; step < steps; step++)); do
    case $((step % 3)) in 0) ms=60 ;; 1) ms=50 ;; *) ms=90 ;; esac
    now=$((now + ms - faster))
    line=$(entry step "\"step\": $step, \"step_tokens\": $step_tokens, \"duration_ms\": 500, \
\"norm\": 30.008226, \"loss\": $loss, \"lr\": 6.0000002e-05, \"loss_1k\": 12.583845")
    [ "$PEER_MODE $((step + 1))" != "cut $steps" ] || line=${line:0:120}
    printf ',\n%s' "$line" >&3
    echo "[T] step $(printf %5d $step) | time:   500 ms | loss $loss"
done
printf '\n]\n' >&3
case $PEER_MODE in
steady) exec sleep 600 ;;
unsaved) echo "ERROR: No space left on device"; exit 1 ;;
esac
