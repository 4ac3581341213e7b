#!/bin/bash
# No line of a source is longer than 100 characters. The bundles in experiments/reference are
# exempt: they hold sources as they ran.
set -u
export LC_ALL=C.UTF-8 # where a character may be several bytes
failed=0

# too_long PATH...: FILE:LINE:TEXT of each.
too_long() {
    grep -rnE --exclude-dir=reference --include='*.'{c,h,cu,cuh,lua,sh,py,js,css} '^.{101}' "$@"
}

# The check itself: of two lines, one with 100 characters in 200 bytes and one with 101, it finds
# the second.
for width in 100 101; do printf "%.s×" $(seq $width) && echo; done >"$TEST_TMP/two.c"
[ "$(too_long "$TEST_TMP" | cut -d: -f2)" = 2 ] || {
    echo "the check does not find a long line: is the locale C.UTF-8 missing?"
    failed=1
}

while IFS=: read -r file line text; do
    echo "$file:$line: ${#text} characters, at most 100: $text"
    failed=1
done < <(too_long containers experiments kernels model runner tests)
[ "$failed" = 0 ] && echo "every line of a source fits into 100 columns"
exit "$failed"
