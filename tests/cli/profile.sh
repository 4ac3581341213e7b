#!/bin/bash
# run --profile: a profiler that asks gets a range for each step, micro-batch, phase, layer and
# operator, which nest; the run has the same results. Without --profile a worker does not see the
# profiler. A library that lacks a function costs the ranges, not the run.
set -u
. tests/cli/lib.sh
mkdir lib broken
cc -shared -fPIC -o lib/libnvtx3interop.so.1 "$root/tests/support/stand_in/nvtx.c" || exit 1
cc -shared -fPIC -DWITHOUT_POP -o broken/libnvtx3interop.so.1 \
    "$root/tests/support/stand_in/nvtx.c" || exit 1
export NVTX_INJECTION64_PATH=/nowhere/tool.so NSYS_RANGES_FILE=$PWD/ranges

short() { run_tiny --runs "$@" --set train.steps=2 --set eval.every=2; }
results() { field "$(bundle_in "$1")" 'run["results_sha256"]'; }

case_name="without --profile"
LD_LIBRARY_PATH=$PWD/lib short plain
expect "exit code" 0 $code
[ -e ranges ] && fail "a worker saw the profiler"

case_name="a profiler asks"
LD_LIBRARY_PATH=$PWD/lib short profiled --profile
expect "exit code" 0 $code
expect "results" "$(results plain)" "$(results profiled)"
expect "attempts" "[True]" \
    "$(field "$(bundle_in profiled)" '[a["profile"] for a in run["attempts"]]')"
"$FP8LAB" log "$(bundle_in profiled)" >out 2>log
says "steps run without graphs; a profiler gets ranges by libnvtx3interop.so.1" out
python3 - ranges <<'PY' || fail "the ranges"
import sys
open_now, seen = [], set()
for line in open(sys.argv[1]).read().splitlines():
    if line[0] == "-":
        open_now.pop()
        continue
    open_now.append(line[1:])
    seen.add("/".join(open_now))
assert open_now == [], open_now
for path in """step 1/micro-batch 0/forward/embedding/embedding_fwd
step 1/micro-batch 1/forward/layers.0/matmul layers.0.qkv.weight fprop
step 1/micro-batch 1/forward/layers.0/attention_fwd
step 1/micro-batch 0/forward/head, chunk 0/cross_entropy
step 1/micro-batch 0/forward/head, chunk 0/backward/matmul head.weight dgrad
step 2/micro-batch 0/backward/layers.0/matmul layers.0.ffn_out.weight wgrad
step 2/micro-batch 1/backward/embedding/embedding_bwd
step 2/update/adamw
step 2/update/all_reduce
evaluation/layers.0/rmsnorm_fwd""".splitlines():
    assert path in seen, path
assert not any(path.startswith("step 3") for path in seen)
PY

case_name="the library lacks a function"
rm ranges
LD_LIBRARY_PATH=$PWD/broken short broken --profile
expect "exit code" 0 $code
expect "results" "$(results plain)" "$(results broken)"
"$FP8LAB" log "$(bundle_in broken)" >out 2>log
says "no ranges for the profiler: libnvtx3interop.so.1 lacks nvtxRangePushA or nvtxRangePop" out

case_name="no profiler"
unset NVTX_INJECTION64_PATH
"$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --only none --profile >out 2>log
says "--profile: no profiler asks for ranges (NVTX_INJECTION64_PATH is not set)"
exit "$failed"
