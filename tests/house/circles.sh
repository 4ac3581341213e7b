#!/bin/bash
# No two files of model/ call each other, directly or through others. nm lists what each object
# defines and uses; tsort reports a loop.
set -u
library=$BUILD/libmodel.a

# Lines "FILE D SYMBOL" and "FILE U SYMBOL", from nm's "archive:member:... TYPE SYMBOL".
symbols() {
    nm -A "$1" | awk '{ split($1, at, ":"); type = $(NF - 1)
        if (type == "U" || type ~ /^[TRDBV]$/) print at[2], type == "U" ? "U" : "D", $NF }'
}
# Lines "CALLER CALLEE", for tsort.
calls() {
    awk '$2 == "D" { file[$3] = $1 } $2 == "U" { user[++n] = $1; used[n] = $3 }
        END { for (i = 1; i <= n; i++) {
            callee = file[used[i]]
            if (callee != "" && callee != user[i]) print user[i], callee } }' | sort -u
}

printf 'a.o D one\na.o U two\nb.o D two\nb.o U one\n' | calls | tsort >/dev/null 2>&1 &&
    { echo "the check does not notice two files that call each other"; exit 1; }
count=$(symbols "$library" | calls | wc -l)
[ "$count" -gt 50 ] || { echo "only $count calls between files found in $library"; exit 1; }
loops=$(symbols "$library" | calls | tsort 2>&1 >/dev/null) ||
    { echo "files of model/ that call each other:"; echo "$loops"; exit 1; }
echo "$count calls between files of model/, no loop"
