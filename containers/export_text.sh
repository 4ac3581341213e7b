#!/bin/sh
# Writes the text that the quick start trains on.
#
#   containers/export_text.sh FILE
#
# The King James text of the package bible-kjv (out of copyright, 4.4 MB, one verse a line), or,
# where that is not installed, the licence texts that every Debian and Ubuntu carries, each once
# and in the order of their names. The same packages give the same bytes. A file that is
# already there is kept: removing it is how to ask for a new one.
set -eu

out=${1:?"usage: export_text.sh FILE"}
if [ -s "$out" ]; then
    exit 0
fi
mkdir -p "$(dirname "$out")"
part=$out.part.$$
trap 'rm -f "$part"' EXIT

# -f: one verse a line behind its reference, so that no terminal width gets into the bytes. The
# program reads commands from stdin when it has no reference, hence /dev/null.
king_james() {
    command -v bible >/dev/null 2>&1 || return 1
    LC_ALL=C bible -f gen1:1-rev22:21 </dev/null >"$part" 2>/dev/null || return 1
    # A whole text has 31,102 verses; fewer means that the data file was not found.
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
