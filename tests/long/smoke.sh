#!/bin/bash
# Tries the shipped experiments for other machines.
set -u
experiments="gb10_gpt2 gh200_llama31_8b gpt2_optimised h200_loss h200_recipes llama3_small_1gpu"
export experiments
exec tests/cli/smoke.sh
