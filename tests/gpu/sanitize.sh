#!/bin/bash
# The operator tests under compute-sanitizer: memory errors, races in shared memory, and reads of
# uninitialised memory. Each pair of tool and test is a separate process; all run at the same time.
#
#   tests/gpu/sanitize.sh [FOLDER] [TOOL...]
#
# FOLDER: as for run.sh. TOOL: memcheck, racecheck, initcheck.
#
# TESTS="test_ops ..." replaces the six below. LIMIT=seconds bounds each process; its line then says
# how far it came. One line a process; exit code 0 only if all processes are clean and complete.
#
# racecheck excludes the libraries' kernels (it reports hazards in cuDNN's). It runs test_attention
# in its short form, and its backward on wgmma, the slowest part, in a separate process.
set -u
folder=$(cd "${1:-build/release/tests/gpu}" && pwd)
shift
tools=${*:-memcheck racecheck initcheck}
tests=${TESTS:-test_ops test_adamw test_quantise test_fused test_attention test_matmul}
command -v compute-sanitizer >/dev/null || { echo "skipped: no compute-sanitizer"; exit 77; }
scratch=${LOGS:-$(mktemp -d)}
[ -n "${LOGS:-}" ] || trap 'rm -rf "$scratch"' EXIT
export LD_LIBRARY_PATH="$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
libraries=(cudnn cublas nvjet cutlass xmma)

# One process: TOOL NAME ARGS..., where ARGS are further options, the test and its arguments.
check() {
    local tool=$1 name=$2 log=$scratch/$1.$2 begin=$SECONDS code found
    shift 2
    timeout "${LIMIT:-3600}" compute-sanitizer --tool "$tool" --error-exitcode 99 "$@" >"$log" 2>&1
    code=$?
    found=$(grep -m1 -E "ERROR SUMMARY|RACECHECK SUMMARY" "$log" | sed 's/=* *//')
    [ $code = 124 ] && found="out of time, $(grep -c '^\[       OK' "$log") tests clean so far"
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
    ours=()
    [ "$tool" != racecheck ] || ours=("${libraries[@]/#/--kernel-name-exclude=kns=}")
    for test in $tests; do
        if [ "$tool $test" = "racecheck test_attention" ]; then
            start racecheck hopper_bwd --kernel-name=kns=hopper_bwd_kernel "$folder/$test" short
            start racecheck "$test" "${ours[@]}" --kernel-name-exclude=kns=hopper_bwd_kernel \
                "$folder/$test" short
        else
            start "$tool" "$test" "${ours[@]}" "$folder/$test"
        fi
    done
done
for one in "${running[@]}"; do
    wait "${one%% *}" || failed=1
    cat "$scratch/${one#* }.line"
done
exit $failed
