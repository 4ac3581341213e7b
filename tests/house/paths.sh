#!/bin/bash
# Each path of a run's files stands once: in record/documents.h, or in the table of streams.
set -u
tables="runner/record/documents.h runner/record/streams.c"
# shellcheck disable=SC2086  # two files
paths=$(grep -ohE '"data/[a-z_./-]+\.[a-z]+"|"data/checkpoints"' $tables | sort -u)
[ "$(wc -l <<<"$paths")" -ge 15 ] || {
    echo "FAILED: only $(wc -l <<<"$paths") paths were found in $tables"
    exit 1
}
failed=0
while read -r path; do
    elsewhere=$(grep -rnF --include='*.[ch]' -- "$path" runner |
        grep -vE '^runner/record/(documents\.h|streams\.c):')
    [ -z "$elsewhere" ] || { echo "FAILED: $path is in a table, and here: $elsewhere"; failed=1; }
done <<<"$paths"
exit $failed
