#!/bin/bash
# --smoke --anywhere runs experiments for other machines. Each trains, evaluates, saves, stops and
# resumes. Its bundle is marked as a smoke run on another machine. tests/long/smoke.sh has more of
# them.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
export NO_COLOR=1
failed=0
: "${experiments:=gpt2_optimised h200_recipes}"
[ "${CONFIG:-release}" = asan ] && experiments=h200_blockwise
for name in $experiments; do
    runs=$TEST_TMP/$name
    if ! "$FP8LAB" run --smoke --anywhere --again -q --runs "$runs" "experiments/$name.lua" \
        >"$TEST_TMP/out" 2>"$TEST_TMP/log"; then
        echo "FAILED: $name"
        tail -5 "$TEST_TMP/log"
        failed=1
        continue
    fi
    "$FP8LAB" list --json "$runs" | python3 -c '
import json, sys
for row in json.load(sys.stdin)["runs"]:
    run, summary = row["run"], row["summary"]
    good = (run["smoke"] and run["status"] == "done" and len(run["attempts"]) == 2
            and run["mismatch"] and run["attempts"][1]["from_step"] > 0
            and summary["eval_loss_final"] is not None)
    if not good:
        sys.exit("FAILED: %s: %s" % (run["name"], run))' || failed=1
done
[ $failed = 0 ] && echo "smoke runs: $experiments"
exit $failed
