#!/bin/bash
# BF16 steps of ours beside PyTorch, of four seeds of a Llama-like and a GPT-2-like model each; see
# parity_check.py.
#
#   tests/gpu/parity.sh [FOLDER]
#
# FOLDER: holds parity_dump and the plugin; default build/release/tests/gpu.
#
# Needs a GPU and a python3 with PyTorch for it; without PyTorch it says so and leaves with 77.
set -u
folder=${1:-build/release/tests/gpu} here=$(dirname "$0")
python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || {
    echo "skipped: no PyTorch that sees a GPU"
    exit 77
}
scratch=$(mktemp -d) failed=0
trap 'rm -rf "$scratch"' EXIT
for model in llama gpt2; do
    samples=()
    for seed in 1 2 3 4; do
        mkdir -p "$scratch/$model.$seed"
        "$folder/parity_dump" "$model" "$scratch/$model.$seed" "$seed" || failed=1
        samples+=("$scratch/$model.$seed")
    done
    python3 "$here/parity_check.py" "$model" "${samples[@]}" || failed=1
done
exit "$failed"
