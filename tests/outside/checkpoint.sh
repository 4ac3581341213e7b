#!/bin/bash
# The package safetensors reads a checkpoint. tests/train/checkpoint.txt records what it reads, and
# tests/train/test_checkpoint compares with that.
set -u
. tests/outside/lib.sh
"$BUILD/tests/train/test_checkpoint" "$TEST_TMP/checkpoint" >log || fail "no checkpoint was written"
python "$root/tests/outside/read_checkpoint.py" checkpoint/*/{model,state}.safetensors >out 2>log ||
    fail "safetensors does not read it"
recorded tests/train/checkpoint.txt out
exit $failed
