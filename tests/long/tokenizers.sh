#!/bin/bash
# More text and more random strings than in CI, through every tokenizer family.
set -u
amount="--mb 1 --strings 100000"
export amount
exec tests/outside/tokenizers.sh
