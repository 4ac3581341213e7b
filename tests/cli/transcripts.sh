#!/bin/bash
# Runs every tests/cli/transcripts/*.txt and compares: commands stand behind "$ ", then what they
# print on stdout (an empty line as "."), then on stderr behind "! ", then "? N" where the exit code
# N is not 0.
# UPDATE=1 writes the transcripts anew; read the difference before you commit it.
set -u
root=$PWD
failed=0

replay() { # transcript on stdin
    local line code out=$TEST_TMP/out err=$TEST_TMP/err
    while IFS= read -r line; do
        case $line in
        '$ '*) ;;
        '#'*) echo "$line"; continue ;;
        '') echo; continue ;;
        *) continue ;;
        esac
        echo "$line"
        (eval "${line#'$ '}") >"$out" 2>"$err" </dev/null
        code=$?
        sed 's/^$/./' "$out"
        sed 's/^/! /' "$err"
        if [ "$code" -ne 0 ]; then echo "? $code"; fi
    done
}

fp8lab() { "$FP8LAB" "$@"; }
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$root/build/release/fp8lab}"
export -f fp8lab
unset NO_COLOR FORCE_COLOR
for transcript in "$root"/tests/cli/transcripts/*.txt; do
    replay <"$transcript" >"$TEST_TMP/got"
    if [ -n "${UPDATE:-}" ]; then cp "$TEST_TMP/got" "$transcript"; continue; fi
    if ! diff -u "$transcript" "$TEST_TMP/got"; then
        echo "FAILED: ${transcript#"$root"/}"
        failed=1
    fi
done
exit $failed
