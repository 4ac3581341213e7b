#!/bin/bash
# long: 30
# tests/cli/exact.sh with all 20 steps.
set -u
STEPS=20 exec tests/cli/exact.sh
