#!/bin/bash
# Runs tests, one more at a time than there are cores, the longest first. The last line of the
# output: "N passed, N failed, N skipped".
#
#   tests/run.sh CONFIG:NAME...         from the repository root, after the build
#
# NAME is a cmocka program without its suffix (tests/unit/test_cli; build/CONFIG/NAME is run) or a
# shell test (tests/cli/suite.sh). A shell test passes with 0, is skipped with 77 (its last line
# says why), and fails with anything else.
#
# A test's environment; paths are absolute:
#   FP8LAB    the program of this configuration          CONFIG   release, debug, asan or tsan
#   BUILD     build/CONFIG                               VENV     Python environment, or empty
#   TEST_TMP  a directory of its own, empty at the start
#
# The caller may set JOBS and TEST_TIMEOUT. TEST_TIMEOUT is the limit of one program in seconds: it
# ends programs that hang, and does not measure slow ones. A line "# timeout: SECONDS" in a test is
# that test's own limit. Logs: build/CONFIG/test-log/.
#
# A line "# long: SECONDS" (in C: "/* long: SECONDS */") says about how long a test takes. Long
# tests start first, so that none runs by itself at the end. The line has no other effect.
# "# long: SECONDS, waits" marks a test that leaves the cores idle for most of its time. JOBS of
# these run beside the JOBS that work. Behind each verdict are the test's time and its core time.
set -u
: "${JOBS:=$(($(nproc) + 1))}" "${TEST_TIMEOUT:=600}"
root=$PWD

# Counts cmocka's own words. A test that began and neither passed nor was skipped has failed. So a
# crash half way is a failure too. Prints "passed failed skipped".
count_cmocka() {
    awk -v rc="$2" '
        /^\[ RUN      \]/ { run++ }
        /^\[       OK \]/ { ok++ }
        /^\[  SKIPPED \] .*[0-9]+ test\(s\)/ { # cmocka 1.1.7 puts the name of the group before
            sub(/ test\(s\).*/, "")
            skipped += $NF
        }
        END {
            failed = run - ok - skipped
            if (failed <= 0 && (rc != 0 || run == 0)) failed = 1
            print ok + 0, failed, skipped + 0
        }' "$1"
}

run_one() {
    local config=${1%%:*} name=${1#*:}
    local build=$root/build/$config slug log rc counts start seconds cores limit=
    slug=${name#tests/} slug=${slug//\//-}
    log=build/$config/test-log/$slug.log
    export XDG_CACHE_HOME=$build/test-tmp/$slug/cache
    export CONFIG=$config BUILD=$build FP8LAB=$build/fp8lab TEST_TMP=$build/test-tmp/$slug
    # Tests run beside each other: a thread that spins at a barrier would take the core that the
    # one it waits for needs.
    export OMP_WAIT_POLICY=passive
    if [ "$config" = tsan ]; then # libgomp is not instrumented: it must start no threads
        export OMP_THREAD_LIMIT=1
    fi
    if [ "$config" = asan ]; then
        # handle_*: the sanitizer reports a crash itself, where cmocka would only say that it was
        # one. Use after return stays off: gcc 12 places 64-byte vectors of its replaced stack
        # frames at 32-byte addresses, where aligned AVX-512 loads fault.
        ASAN_OPTIONS=detect_stack_use_after_return=0:handle_segv=2:handle_abort=2
        # A request for more memory than there is fails, as without the sanitizer.
        export ASAN_OPTIONS=$ASAN_OPTIONS:allocator_may_return_null=1
        export UBSAN_OPTIONS=print_stacktrace=1
        export OMP_NUM_THREADS=2
    fi
    chmod -R u+rwX "$TEST_TMP" 2>/dev/null
    rm -rf "$TEST_TMP"
    mkdir -p "$TEST_TMP" "$(dirname "$log")"
    start=$(date +%s%N)
    [ "${name%.sh}" = "$name" ] || limit=$(sed -n 's/^# timeout: //p' "$name" | head -1)
    : "${limit:=$TEST_TIMEOUT}"
    if [ "${name%.sh}" != "$name" ]; then
        timeout -k 10 "$limit" "./$name" >"$log" 2>&1 </dev/null
        rc=$?
        case $rc in
        0) counts="1 0 0" ;;
        77) counts="0 0 1" ;;
        *) counts="0 1 0" ;;
        esac
    else
        timeout -k 10 "$limit" "$build/$name" >"$log" 2>&1 </dev/null
        rc=$?
        counts=$(count_cmocka "$log" "$rc")
    fi
    seconds=$(awk -v ns="$(($(date +%s%N) - start))" 'BEGIN { printf "%.1f", ns / 1e9 }')
    echo "$counts" >"$log.count"
    times >"$log.times" # the second line is of what it waited for: "0m1.234s 0m0.567s"
    cores=$(awk -F '[ms ]+' 'NR == 2 { printf "%.1f", 60 * ($1 + $3) + $2 + $4 }' "$log.times")
    # shellcheck disable=SC2086  # three numbers
    report "$1" "$log" "$rc" "$limit" "$seconds" "$cores" $counts
}

# What ended a program that failed, by the exit code of timeout(1). 124: the time limit. 137: a
# SIGKILL after the time limit. 128 + N, as in a shell: signal N.
ending() { # EXIT-CODE LIMIT SECONDS
    if [ "$1" = 124 ] || { [ "$1" = 137 ] && [ "${3%.*}" -ge "$2" ]; }; then
        echo "stopped after $2 s"
    elif [ "$1" -gt 128 ]; then
        echo "ended by SIG$(kill -l $(($1 - 128)))"
    else
        echo "exit code $1"
    fi
}

# The test of a cmocka program that began and never ended.
unfinished() {
    awk '/^\[ RUN      \]/ { name = $NF } /^\[ +(OK|FAILED|SKIPPED) / { name = "" }
         END { if (name) print ", in " name }' "$1"
}

# One line a program; of a failure also the lines that say why.
report() {
    local verdict=ok detail
    local item=$1 log=$2 rc=$3 limit=$4 seconds=$5 cores=$6 passed=$7 failed=$8 skipped=$9
    detail="$passed passed"
    [ "$skipped" = 0 ] || { verdict=skip detail+=", $skipped skipped"; }
    [ "$passed" = 0 ] || [ "$failed" != 0 ] || verdict=ok
    [ "$failed" = 0 ] || { verdict=FAIL detail+=", $failed failed"; }
    {
        printf '%-5s %-52s %s (%s s, cores %s s)\n' "$verdict" "$item" "$detail" "$seconds" "$cores"
        if [ "$failed" != 0 ]; then
            echo "      $(ending "$rc" "$limit" "$seconds")$(unfinished "$log"); log $log:"
            grep -v -E '^\[( RUN |       OK |=+\]|-+\]|  PASSED )' "$log" | tail -40 |
                sed 's/^/      | /'
        elif [ "$skipped" != 0 ]; then
            grep -i skip "$log" | grep -v -E '^\[ RUN' | sort -u | tail -3 | sed 's/^/      | /'
        fi
    } >"$log.report"
    cat "$log.report"
}

# The tests in the order in which they start: "SECONDS works|waits TEST".
in_order() {
    local test name long kind
    for test; do
        name=${test#*:}
        [ "${name%.sh}" != "$name" ] || name+=.c
        read -r long kind < <(
            sed -n -E '1,15s!^(#|/\*) long: ([0-9]+)(, (waits))?( \*/)?$!\2 \4!p' "$name")
        # What computes takes four to five times as long under the sanitizers.
        [ "$test" = "${test#asan:}" ] || [ -n "$kind" ] || long=$((4 * ${long:-0}))
        echo "${long:-0} ${kind:-works} $test"
    done | sort -s -k1,1nr
}

# Those of the order that KIND matches, JOBS at a time.
run_all() { # KIND JOBS
    awk -v kind="$1" '$2 ~ kind { print $3 }' <<<"$order" | xargs -r -n 1 -P "$2" "$0" --one
}

if [ "${1:-}" = --one ]; then
    run_one "$2"
    exit 0
fi

VENV=
[ ! -x build/venv/bin/python ] || VENV=$root/build/venv
# Programs share the machine: a thread that waits must not spin while another has work.
export OMP_WAIT_POLICY=passive
# The same order of names and the same words everywhere.
export LC_ALL=C.UTF-8
export VENV JOBS TEST_TIMEOUT
# A version manager puts a script before python3 that takes five times as long to start, and tests
# start it hundreds of times. So its interpreter goes first.
python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null) || python=
[ -z "$python" ] || [ "$python" -ef "$(command -v python3)" ] ||
    export PATH=${python%/*}:$PATH
for config in release debug asan tsan; do
    rm -rf "build/$config/test-log"
done
started=$(date +%s)
order=$(in_order "$@")
broken=
if [ "$JOBS" -gt 1 ]; then
    run_all waits "$JOBS" &
    run_all works "$JOBS" || broken=1
    wait $! || broken=1
else
    run_all . 1 || broken=1
fi
if [ -n "$broken" ]; then
    echo "tests/run.sh: the harness itself failed" >&2
    exit 2
fi
# What failed once more, where a log that is cut to its end still has it.
grep -lsZ '^FAIL' build/*/test-log/*.report | xargs -0 -r cat
echo "$(($(date +%s) - started)) s"
cat build/*/test-log/*.count | awk -v programs=$# '
    { passed += $1; failed += $2; skipped += $3 }
    END {
        if (NR != programs) failed += programs - NR # a program that left no count
        printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
        exit failed > 0 || passed == 0
    }'
