#!/bin/bash
# tests/gpu/run.sh fails if it finds no test, and if a test fails.
set -u
failed=0
wanted() { # CODE FOLDER
    tests/gpu/run.sh "$2" >"$TEST_TMP/out" 2>"$TEST_TMP/log"
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
exit $failed
