#!/bin/bash
# The two hashes that a run records of the program. `build` covers every source. `code` covers the
# sources that determine a run's results: a change elsewhere, in a comment of compare/ for example,
# must not refuse a resume.
# Model and runner read the steady clock in one place; heartbeat.c needs it as a struct timespec, to
# wait until then.
# Nothing changes the environment of its own process: other threads may read it meanwhile.
set -u
variable() { make -s --no-print-directory --eval "$1: ; @printf '%s\n' \$($2)" "$1" | sort; }
hashed=$(variable hashed SOURCES)
results=$(variable results RESULT_SOURCES)
there=$(find kernels model runner -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' \
    -o -name '*.cuh' -o -name '*.inc' -o -name '*.js' -o -name '*.css' \) | sort)
diff <(echo "$hashed") <(echo "$there") || { echo "FAILED: not all sources are hashed"; exit 1; }
generated="^(kernels_hash|sources)\.h$"
included() { grep -rhoE '^ *# *include "[^"]+"' kernels model runner | sed 's/.*"\(.*\)"/\1/'; }
others=$(included | sort -u | grep -vE "$generated" | grep -vxF "$there")
[ -z "$others" ] || { echo "FAILED: included, and not hashed: $others"; exit 1; }

missing=$(grep -E '^(kernels|model|runner/(script|worker))/' <<<"$there" | grep -vxF "$results")
[ -z "$missing" ] || { echo "FAILED: not part of the code hash: $missing"; exit 1; }
rooms='compare|bundle|bench|doctor|launch|repro|job|run'
extra=$(grep -E "^runner/($rooms)/|^runner/cmd_" <<<"$results")
[ -z "$extra" ] || { echo "FAILED: needlessly in the code hash: $extra"; exit 1; }
clocks=$(grep -rlE 'clock_gettime\(CLOCK_MONOTONIC' model runner | sort | tr '\n' ' ')
[ "$clocks" = "model/ground/clock.h runner/worker/heartbeat.c " ] ||
    { echo "FAILED: the clock of model/ground/clock.h, also read in: $clocks"; exit 1; }
changed=$(grep -rnE '\<(setenv|putenv|unsetenv|clearenv) *\(' kernels model runner)
[ -z "$changed" ] || { echo "FAILED: the environment is changed: $changed"; exit 1; }
