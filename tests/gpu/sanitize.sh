#!/bin/bash
# The operator tests under compute-sanitizer: memory errors, races in shared memory, and reads of what
# nobody wrote. Each pair of tool and test is a process of its own, all at the same time.
#
#   tests/gpu/sanitize.sh [FOLDER] [TOOL...]     FOLDER as run.sh's; TOOL: memcheck racecheck initcheck
#
# TESTS="test_ops ..." takes others than the four below; LIMIT=seconds bounds each process, and what it
# had checked by then is said. A line a process; exit code 0 only if all are clean and whole. cuDNN is
# kept away, so that attention is this project's own: racecheck reports hazards in cuDNN's kernels.
set -u
folder=$(cd "${1:-build/release/tests/gpu}" && pwd)
shift
tools=${*:-memcheck racecheck initcheck}
tests=${TESTS:-test_ops test_quantise test_fused test_attention}
command -v compute-sanitizer >/dev/null || { echo "skipped: no compute-sanitizer"; exit 77; }
export LD_LIBRARY_PATH="$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
scratch=${LOGS:-$(mktemp -d)}
[ -n "${LOGS:-}" ] || trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/away"
: >"$scratch/away/libcudnn.so.9"
export LD_LIBRARY_PATH="$scratch/away:$LD_LIBRARY_PATH"

# One process.
check() {
    local tool=$1 test=$2 log=$scratch/$1.$2 begin=$SECONDS code found
    timeout "${LIMIT:-3600}" compute-sanitizer --tool "$tool" --error-exitcode 99 "$folder/$test" \
        >"$log" 2>&1
    code=$?
    found=$(grep -m1 -E "ERROR SUMMARY|RACECHECK SUMMARY" "$log" | sed 's/=* *//')
    [ $code = 124 ] && found="out of time, $(grep -c '^\[       OK' "$log") tests clean so far"
    [ $code = 0 ] || grep -m4 -E "^========= (Invalid|Uninit|Error|Race|Warning|Program)| at |FAILED" "$log"
    printf '%-10s %-16s %4d s  exit %-3d %s\n' "$tool" "$test" $((SECONDS - begin)) $code "$found"
    return $code
}
failed=0 running=()
for tool in $tools; do
    for test in $tests; do
        check "$tool" "$test" >"$scratch/$tool.$test.line" &
        running+=("$! $tool.$test")
    done
done
for one in "${running[@]}"; do
    wait "${one%% *}" || failed=1
    cat "$scratch/${one#* }.line"
done
exit $failed
