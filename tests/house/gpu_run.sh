#!/bin/bash
# tests/gpu/run.sh fails if it finds no test, and if a test fails; `make test-gpu T=` chooses tests.
set -u
failed=0
wanted() { # CODE FOLDER [TEST]
    tests/gpu/run.sh "${@:2}" >"$TEST_TMP/out" 2>"$TEST_TMP/log"
    local code=$?
    [ $code = "$1" ] || { echo "FAILED: $2: wanted $1, found $code"; failed=1; }
}
test_of() { # FOLDER NAME CODE
    mkdir -p "$TEST_TMP/$1"
    printf '#!/bin/sh\nexit %s\n' "$3" >"$TEST_TMP/$1/$2"
    chmod +x "$TEST_TMP/$1/$2"
}
wanted 1 "$TEST_TMP/missing"
mkdir "$TEST_TMP/empty"
wanted 1 "$TEST_TMP/empty"
grep -qF "no test in $TEST_TMP/empty" "$TEST_TMP/log" ||
    { echo "FAILED: the error has no reason"; failed=1; }
test_of good test_a 0
wanted 0 "$TEST_TMP/good"
test_of bad test_a 3
test_of bad test_b 0
wanted 1 "$TEST_TMP/bad"
wanted 0 "$TEST_TMP/bad" test_b
wanted 1 "$TEST_TMP/good" test_b
wanted 1 "$TEST_TMP/good" test_a test_b
grep -qF "there is no test $TEST_TMP/good/test_b" "$TEST_TMP/log" ||
    { echo "FAILED: the missing test is not named"; failed=1; }
make -n test-gpu T=test_comm >"$TEST_TMP/out" 2>&1
grep -q 'run.sh .*/gpu test_comm$' "$TEST_TMP/out" ||
    { echo "FAILED: T=test_comm chooses no test"; failed=1; }
! grep -q 'fault\.sh' "$TEST_TMP/out" || { echo "FAILED: T=test_comm runs fault.sh"; failed=1; }
for target in test test-gpu; do
    make $target T=there/is/none >"$TEST_TMP/out" 2>&1
    grep -q "no test's path contains" "$TEST_TMP/out" ||
        { echo "FAILED: make $target runs without a test"; failed=1; }
done
exit $failed
