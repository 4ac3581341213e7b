#!/bin/bash
# The golden programs print the lines of their .txt, with one thread and with two.
set -u
failed=0
for golden in tests/golden/*.txt; do
    program=$(basename "$golden" .txt)
    for threads in 1 2; do
        if OMP_NUM_THREADS=$threads "$BUILD/golden/$program" >"$TEST_TMP/$program" &&
            diff -u "$golden" "$TEST_TMP/$program"; then
            echo "$program, $threads threads: $(wc -l <"$golden") lines equal"
        else
            echo "$program, $threads threads: other bits (-: golden, +: found), or it failed"
            failed=1
        fi
    done
done
exit "$failed"
