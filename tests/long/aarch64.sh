#!/bin/bash
# The golden losses of every recipe on aarch64, under an emulator.
set -u
RECIPES=all exec tests/golden/aarch64.sh
