#!/bin/sh
# Writes a text that is large enough for one pass of a small model: source code and documentation
# from packages installed here.
#
#   containers/export_corpus.sh FILE
#
# The text is every Python module below /usr/lib/python3* and every Perl module, program and manual
# below /usr/share/perl and the architecture's perl folders; each content once. It is cut into
# pieces of 4096 bytes in an order that mixes all files, so that a held-out end is like the rest.
# The order depends on names and sizes only. On Debian 12 the packages libpython3.11-stdlib,
# perl-base, perl-modules-5.36 and perl-doc make some 29 MB. The same packages give the same bytes;
# a run records their hash. An existing file is kept.
set -eu

out=${1:?"usage: export_corpus.sh FILE"}
least=22000000 # bytes: 20 million for training, 1 million for evaluation, and a reserve
if [ -s "$out" ]; then
    exit 0
fi
mkdir -p "$(dirname "$out")"
part=$out.part.$$
trap 'rm -rf "$part"' EXIT
mkdir -p "$part/pieces"

# A mixed order that is the same on every machine.
mixed() { LC_ALL=C sort | LC_ALL=C sort -R --random-source=/dev/zero; }

for folder in /usr/lib/python3* /usr/share/perl /usr/lib/*/perl-base /usr/lib/*/perl; do
    [ ! -d "$folder" ] || find "$folder" -type f \
        \( -name '*.py' -o -name '*.pm' -o -name '*.pl' -o -name '*.pod' \) -size +1k
done | grep -v /dist-packages/ | LC_ALL=C sort | tr '\n' '\0' | xargs -0 sha256sum |
    awk '!seen[$1]++' | cut -c67- >"$part/names"
tr '\n' '\0' <"$part/names" | xargs -0 cat | split -b 4096 -a 4 - "$part/pieces/"
(cd "$part/pieces" && find . -type f | mixed | tr '\n' '\0' | xargs -0 cat) >"$part/text"
bytes=$(wc -c <"$part/text")
if [ "$bytes" -lt "$least" ]; then
    echo "export_corpus.sh: $bytes bytes of Python and Perl are installed here, $least are" \
        "needed; install perl-doc and the standard library of Python (libpython3-stdlib)" >&2
    exit 6
fi
mv "$part/text" "$out"
echo "$out: $(wc -l <"$part/names") files, $bytes bytes," \
    "SHA-256 $(sha256sum "$out" | cut -c1-16)" >&2
