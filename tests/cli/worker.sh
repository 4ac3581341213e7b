#!/bin/bash
# A worker resumes from the step and with the choice table that its runner names. If it finds
# others, it exits without a step. Skipped checkpoints of later steps are deleted with the next
# save.
set -u
. tests/cli/lib.sh
mkdir -p run/data/checkpoints run/data/metrics
"$FP8LAB" check "$tests/tiny.lua" --lib "$lib" --json --set checkpoint.every=3 \
    --set checkpoint.keep=1 | python3 -c 'import json, sys
print(json.dumps(json.load(sys.stdin)["runs"][0]["config"]))' >config.json

work() { # WANTED ARGS...: the exit code that it must have
    local wanted=$1 code
    shift
    "$FP8LAB" worker --config config.json --run run --backend cpu --threads 1 --events-fd 3 "$@" \
        3>events >log 2>&1
    code=$?
    [ $code = "$wanted" ] || fail "worker $*: exit code $code, not $wanted"
}
no_step() { # WORDS
    says "$1"
    grep -q '"event":"step"' events && fail "a step was made"
}
stand() { # FOLDER...
    local found
    found=$(ls run/data/checkpoints | tr '\n' ' ')
    [ "$found" = "$* " ] || fail "checkpoints: $found, not $*"
}

work 0 --stop-after 6
stand step-000006
cp -r run/data/checkpoints/step-000006 kept
work 6 --from 3
no_step "open run/data/checkpoints/step-000003/checkpoint.json: No such file or directory"
work 6 --from 6 --choices 0123456789abcdef
no_step "run/data/choices.txt is not the run's choice table (hash none, wanted 0123456789ab)"
truncate -s -1 run/data/checkpoints/step-000006/model.safetensors
work 4 --from 6
no_step "(truncated?)"

rm -r run/data/checkpoints/step-000006
mv kept run/data/checkpoints/step-000006
mkdir run/data/checkpoints/step-00001{0,1}
work 0 --from 6 --stop-after 9
stand step-000009
exit $failed
