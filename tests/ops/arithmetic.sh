#!/bin/bash
# The recorded outputs of test_arithmetic are those of arithmetic.py, which adds exact fractions.
set -u
python3 tests/ops/arithmetic.py | diff - tests/ops/arithmetic.txt
