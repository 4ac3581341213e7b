#!/bin/bash
# Runs are killed at four random moments; what is resumed has the bits of an undisturbed run.
set -u
MOMENTS=
for i in 1 2 3 4; do MOMENTS+=" 0.$((RANDOM % 900 + 100))"; done
echo "moments:$MOMENTS"
every=100
export MOMENTS every
exec tests/cli/run_control.sh
