#!/bin/bash
# Every room of the runner, and model/ground, has a README that names all of its sources and no
# other file.
set -u
failed=0
fail() { echo "$1"; failed=1; }

for room in runner/*/ model/ground/; do
    page=${room}README.md
    [ -e "$page" ] || { fail "$room has no README.md"; continue; }
    for source in "$room"*.c; do
        grep -qF "\`${source##*/}\`" "$page" || fail "$page does not name ${source##*/}"
    done
    for named in $(grep -oE '^\| (`[a-z_]+\.[ch]` ?)+' "$page" | grep -oE '[a-z_]+\.[ch]'); do
        [ -e "$room$named" ] || fail "$page names $named, which is not there"
    done
done
[ "$failed" = 0 ] && echo "every room has its page"
exit "$failed"
