#!/bin/bash
# tier: long
# long: 35
# Worker processes over 2 and 4 ranks, in each recipe, with gradients accumulated and reduced in f32
# or BF16, or sent as codes. All ways of sharding give the results of tests/dist/sharding.txt, with
# the optimizer's state on the device or on the host. A run that was stopped and resumed gives the
# same results.
# Here most of these combinations; all with TEST_CASES=all (tests/long/sharding.sh).
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
export NO_COLOR=1
golden=$PWD/tests/dist/sharding.txt
lib="--backend cpu --threads 1 --lib $PWD/experiments/lib"
suite="$PWD/tests/dist/sharding.lua $lib"
cd "$TEST_TMP" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }

results() { # BUNDLE: its recipe and how it ended
    "$FP8LAB" show --json "$1" | python3 -c 'import json, sys
d = json.load(sys.stdin)
r = d["resolved"]
print(r["hardware"]["gpus"], r["recipe"]["kind"], r["train"]["grad_dtype"], d["run"]["status"],
      d["run"]["results_sha256"])'
}

# Rows of the suite by number of ranks, and how many of their names match.
if [ "${TEST_CASES:-}" = all ]; then
    rows=([2]='*' [4]='*') bf16='*' offloaded='*delayed*' wanted=$golden counts="8 4 4"
else
    rows=([2]='*parameters' [4]='*delayed*') bf16='*gradients' offloaded='*delayed-optimizer'
    grep -E '^(2|4 (fp8.delayed|bf16 (bf16|fp8))) ' "$golden" >wanted
    wanted=wanted counts="2 4 1"
fi
for ranks in 2 4; do
    "$FP8LAB" run -q $suite --runs "runs$ranks" --set hardware.gpus=$ranks --only "${rows[ranks]}" \
        --set train.micro_batch=$((4 / ranks)) >out 2>log || { fail "$ranks ranks"; tail -5 log; }
    "$FP8LAB" run -q $suite --runs "runs$ranks" --set hardware.gpus=$ranks --set recipe=bf16 \
        --set train.micro_batch=$((4 / ranks)) --set train.grad_dtype=bf16 --only "$bf16" \
        >out 2>log || { fail "$ranks ranks, BF16 gradients"; tail -5 log; }
    "$FP8LAB" run -q $suite --runs "runs$ranks" --set hardware.gpus=$ranks --set recipe=bf16 \
        --set train.micro_batch=$((4 / ranks)) --set train.grad_dtype=fp8 --only "$bf16" \
        >out 2>log || { fail "$ranks ranks, gradients sent as codes"; tail -5 log; }
    [ $ranks = 4 ] || "$FP8LAB" run -q $suite --runs "runs$ranks" --set hardware.gpus=$ranks \
        --set train.micro_batch=$((4 / ranks)) --set train.optimizer.offload=true \
        --only "$offloaded" >out 2>log || { fail "optimizer state on the host"; tail -5 log; }
    for bundle in "runs$ranks"/*.tar.zst; do results "$bundle"; done
done | sort | uniq -c >got
awk '{ print $2, $3, $4, $5, $6 }' got | diff "$wanted" - || fail "results differ from $golden"
# shellcheck disable=SC2086  # three numbers: 2 ranks, delayed; 4 ranks, delayed; the others
set -- $counts
awk -v two=$1 -v four=$2 -v other=$3 \
    '$1 != ($3 != "fp8.delayed" ? other : $2 == 2 ? two : four)' got | grep . &&
    fail "not all ways of sharding ran, or they have different results"
for bundle in runs4/*.tar.zst; do # a CPU hides no communication
    "$FP8LAB" show --json "$bundle" | python3 -c 'import json, sys
s = json.load(sys.stdin)["summary"]
assert 0 <= s["wait_share_median"] < s["exposed_share_median"] <= 1, s
assert s["ranks_steps_missing"] == 0, s
' || fail "shares of communication in $bundle"
done

# ---- stopped and resumed ----
cat >one.lua <<'END'
local tiny = require "models.tiny"
return experiment {
  name = "one", model = tiny.llama { layers = 2, seq_len = 32 }, recipe = fp8.delayed {},
  data = synthetic { seed = 7 }, hardware = { gpus = 2 }, checkpoint = { every = 1000 },
  train = { steps = 100, global_batch = 4, micro_batch = 1, seed = 1, shard = "parameters" },
}
END
"$FP8LAB" run -q one.lua $lib --runs whole >out 2>log || { fail "the whole run"; cat log; }
"$FP8LAB" run one.lua $lib --runs cut >out 2>log &
pid=$!
for ((i = 0; i < 6000; i++)); do
    grep -qs '"step":5,' cut/*/data/metrics/train.jsonl && break
    sleep 0.02
done
kill -TERM $pid
wait $pid
[ $? = 143 ] || { fail "exit code of the stopped run"; tail -5 log; }
"$FP8LAB" run --resume last --runs cut >out 2>log || { fail "resuming"; tail -5 log; }
[ "$(results whole/*.tar.zst)" = "$(results cut/*.tar.zst)" ] ||
    fail "resumed: $(results cut/*.tar.zst), undisturbed: $(results whole/*.tar.zst)"
[ $failed = 0 ] && echo "sharding: passed"
exit $failed
