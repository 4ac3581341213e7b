#!/bin/bash
# A stand-in for experiments/peers/torch_train.py: the same lines, with fixed speeds.
#
#   torch_peer.sh MODE FILE.lua --recipe RECIPE...     TOKENS: the tokens of a step that it reports
#
# MODE: steady (100, 110, 120... in bf16, ten times that in FP8). Instead of measuring: dies,
# garbage, flood, hangs. Before it is ready: unfit. lacks: it has no FP8; nothing: it has no recipe.
# The processes that it starts must end with it.
mode=$1 speed=100
[[ $* != *"--recipe fp8.tensorwise"* ]] || speed=1000
sleep 600 &
[ "$mode" != unfit ] || { echo "there is no such GPU" >&2; exit 3; }
if [ "$mode" = nothing ] || { [ "$mode" = lacks ] && [ $speed = 1000 ]; }; then
    echo '{"event": "lacks"}'
    exit 0
fi
echo '{"event": "ready", "name": "stand-in", "tokens_per_step": '"$TOKENS"', "device": "none"}'
while read -r line && [ "$line" = measure ]; do
    case $mode in
    dies) echo "it broke" >&2; exit 9 ;;
    garbage) echo '{"event": "measured", "tokens_per_s": NaN}' ;;
    flood) head -c 200000 /dev/zero | tr '\0' x ;;
    hangs) wait ;;
    *) echo '{"event": "measured", "tokens_per_s": '"$speed"'}' ;;
    esac
    speed=$((speed + speed / 10))
done
