#!/bin/bash
# tier: long
# A step of more operators than can be counted has no forecast. The advice says so and goes on.
set -u
. "$PWD/tests/cli/lib.sh"
gives 0 advise "$tests/tiny.lua" --lib "$lib" --set model.layers=420 \
    --facts "$root/tests/facts/h200.json" \
    --bench "$root/experiments/reference/figures/bench_h200.json" -- \
    "Use bf16: without times it is the safe choice" \
    "Times: none, since a step of more than 16380 operators cannot be timed."
exit $failed
