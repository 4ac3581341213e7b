#!/bin/bash
# The operator tests under compute-sanitizer: memory errors, races in shared memory, and reads of
# what nobody wrote. Each pair of tool and test is a process of its own, all at the same time.
#
#   tests/gpu/sanitize.sh [FOLDER] [TOOL...]
#
# FOLDER: as run.sh's. TOOL: memcheck, racecheck, initcheck.
#
# TESTS="test_ops ..." takes others than the four below; LIMIT=seconds bounds each process,
# and what it had checked by then is said. A line a process; exit code 0 only if all are clean
# and whole. cuDNN is kept away, so that attention is this project's own: racecheck reports
# hazards in cuDNN's kernels.
#
# racecheck has test_attention in its short form and in two processes: every kernel but the backward
# on wgmma, and that one alone, of which its reports are known as far as they are of the bulk copies
# of log-sum-exp and delta and the reads of them (kernels/cuda/README.md, "Known traps").
set -u
folder=$(cd "${1:-build/release/tests/gpu}" && pwd)
shift
tools=${*:-memcheck racecheck initcheck}
tests=${TESTS:-test_ops test_quantise test_fused test_attention}
command -v compute-sanitizer >/dev/null || { echo "skipped: no compute-sanitizer"; exit 77; }
scratch=${LOGS:-$(mktemp -d)}
[ -n "${LOGS:-}" ] || trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/away"
: >"$scratch/away/libcudnn.so.9"
export LD_LIBRARY_PATH="$scratch/away:$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
# Of the ten million that it keeps else, the first tell as much, and it comes to its end.
export NV_COMPUTE_SANITIZER_MAX_RACECHECK_HAZARDS=100000

# Whether the log's reports are the known ones and nothing else went wrong.
only_known() {
    local sites
    grep -q "^\[  FAILED" "$1" && return 1
    sites=$(grep -E "Race reported between|and (Read|Write) access at" "$1")
    [ -n "$sites" ] && ! grep -vqE "access at (copy_bytes|shared_pair)\(" <<<"$sites"
}

# One process: TOOL NAME ARGS..., where ARGS are further options, the test and its arguments.
check() {
    local tool=$1 name=$2 log=$scratch/$1.$2 begin=$SECONDS code found
    shift 2
    timeout "${LIMIT:-3600}" compute-sanitizer --tool "$tool" --error-exitcode 99 "$@" >"$log" 2>&1
    code=$?
    found=$(grep -m1 -E "ERROR SUMMARY|RACECHECK SUMMARY" "$log" | sed 's/=* *//')
    [ $code = 124 ] && found="out of time, $(grep -c '^\[       OK' "$log") tests clean so far"
    if [ "$code $name" = "99 hopper_bwd" ] && only_known "$log"; then
        code=0 found="$found, all known"
    fi
    [ $code = 0 ] ||
        grep -m4 -E "^========= (Invalid|Uninit|Error|Race|Warning|Program)| at |FAILED" "$log"
    printf '%-10s %-16s %4d s  exit %-3d %s\n' "$tool" "$name" $((SECONDS - begin)) $code "$found"
    return $code
}
failed=0 running=()
start() {
    check "$@" >"$scratch/$1.$2.line" &
    running+=("$! $1.$2")
}
for tool in $tools; do
    for test in $tests; do
        if [ "$tool $test" = "racecheck test_attention" ]; then
            start racecheck test_attention --kernel-name-exclude kns=hopper_bwd_kernel \
                "$folder/$test" short
            start racecheck hopper_bwd --kernel-name kns=hopper_bwd_kernel "$folder/$test" short
        else
            start "$tool" "$test" "$folder/$test"
        fi
    done
done
for one in "${running[@]}"; do
    wait "${one%% *}" || failed=1
    cat "$scratch/${one#* }.line"
done
exit $failed
