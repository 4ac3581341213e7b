#!/bin/bash
# The hash of the code that a run records is of every source: of the device's kernels as well, and
# of whatever else a source includes by quotes, unless the build writes it.
set -u
hashed=$(make -s --no-print-directory --eval 'hashed: ; @printf "%s\n" $(SOURCES)' hashed | sort)
there=$(find kernels model runner -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' \
    -o -name '*.cuh' -o -name '*.inc' \) | sort)
diff <(echo "$hashed") <(echo "$there") || { echo "FAILED: not all sources are hashed"; exit 1; }
generated="^(kernels_hash|sources)\.h$"
included() { grep -rhoE '^ *# *include "[^"]+"' kernels model runner | sed 's/.*"\(.*\)"/\1/'; }
others=$(included | sort -u | grep -vE "$generated" | grep -vxF "$there")
[ -z "$others" ] || { echo "FAILED: included, and not hashed: $others"; exit 1; }
