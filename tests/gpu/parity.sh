#!/bin/bash
# Our BF16 steps against PyTorch: 16 seeds each of a Llama-like and a GPT-2-like model; see
# parity_check.py.
#
#   tests/gpu/parity.sh [FOLDER]
#
# FOLDER: has parity_dump and the plugin; default build/release/tests/gpu. With SPOIL=delta or
# SPOIL=lse in the environment the check should fail: parity_check.py's --spoil.
#
# Needs a GPU, a python3 with PyTorch for it, and 4 GiB in TMPDIR. Without PyTorch it exits with 77.
# Takes about a minute.
set -u
folder=${1:-build/release/tests/gpu} here=$(dirname "$0")
python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || {
    echo "skipped: no PyTorch with a GPU"
    exit 77
}
scratch=$(mktemp -d) failed=0
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch"/{llama,gpt2}.{1..16}
# Eight at a time: most of a run of this size is process start-up.
for model in llama gpt2; do
    for seed in {1..16}; do printf '%s\n' "$model $scratch/$model.$seed $seed"; done
done | xargs -P 8 -L 1 "$folder/parity_dump" || failed=1
for model in llama gpt2; do
    python3 "$here/parity_check.py" ${SPOIL:+--spoil "$SPOIL"} "$model" "$scratch/$model".* ||
        failed=1
done
exit "$failed"
