#!/bin/sh
# Writes the text that the quick start trains on.
#
#   containers/export_text.sh FILE
#
# The text is the King James text of the package bible-kjv (out of copyright, 4.4 MB, one verse a
# line). Without that package it is the licence texts of Debian and Ubuntu, each once, in the order
# of their names. The same packages give the same bytes. An existing file is kept; remove it to get
# a new one.
set -eu

out=${1:?"usage: export_text.sh FILE"}
if [ -s "$out" ]; then
    exit 0
fi
mkdir -p "$(dirname "$out")"
part=$out.part.$$
trap 'rm -f "$part"' EXIT

# -f: one verse a line behind its reference, whatever the terminal's width. Without a reference the
# program reads commands from stdin, hence /dev/null.
king_james() {
    command -v bible >/dev/null 2>&1 || return 1
    LC_ALL=C bible -f gen1:1-rev22:21 </dev/null >"$part" 2>/dev/null || return 1
    # The whole text has 31,102 verses. Fewer mean that `bible` did not find its data file.
    [ "$(wc -l <"$part")" -ge 31102 ]
}

# Links (GPL -> GPL-3) are left out, so that no text appears twice.
licences() {
    directory=/usr/share/common-licenses
    [ -d "$directory" ] || return 1
    find "$directory" -type f | LC_ALL=C sort | while read -r file; do cat "$file"; done >"$part"
    [ -s "$part" ]
}

if king_james; then
    what="the King James text (package bible-kjv)"
elif licences; then
    what="the licence texts in /usr/share/common-licenses (package bible-kjv is not installed)"
else
    echo "export_text.sh: neither the program 'bible' (package bible-kjv) nor" \
        "/usr/share/common-licenses is here; name your own text files in the experiment" >&2
    exit 6
fi
mv "$part" "$out"
echo "$out: $what, $(wc -c <"$out") bytes" >&2
