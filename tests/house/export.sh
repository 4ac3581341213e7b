#!/bin/bash
# containers/export_text.sh: the same bytes twice, an existing file is kept, and a fallback where
# the package is missing.
set -u
failed=0
text=$TEST_TMP/text
containers/export_text.sh "$text/a.txt" && containers/export_text.sh "$text/b.txt" || failed=1
cmp "$text/a.txt" "$text/b.txt" || failed=1
[ "$(wc -c <"$text/a.txt")" -gt 200000 ] || { echo "only $(wc -c <"$text/a.txt") bytes"; failed=1; }

echo mine >"$text/mine.txt"
containers/export_text.sh "$text/mine.txt"
[ "$(cat "$text/mine.txt")" = mine ] || { echo "an existing file was replaced"; failed=1; }

# A `bible` without its data prints too little: the licence texts are used instead.
mkdir -p "$TEST_TMP/bin"
printf '#!/bin/sh\necho "cannot open data"\n' >"$TEST_TMP/bin/bible"
chmod +x "$TEST_TMP/bin/bible"
PATH=$TEST_TMP/bin:$PATH containers/export_text.sh "$text/licences.txt" || failed=1
grep -q "GNU GENERAL PUBLIC LICENSE" "$text/licences.txt" || { echo "no licence text"; failed=1; }
[ -z "$(ls "$text"/*.part.* 2>/dev/null)" ] || { echo "left-over parts"; failed=1; }
exit "$failed"
