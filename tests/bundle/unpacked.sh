#!/bin/bash
# Bundles of a done, a failed and a killed run, unpacked and verified by tar, zstd and sha256sum.
# Their RO-Crates have the shapes that roc-validator accepted: tests/outside/bags.sh records them.
set -u
. tests/cli/lib.sh
command -v zstd python3 >/dev/null || { echo "skipped: there is no zstd or no python3"; exit 77; }
mkdir runs bags
"${BUILD:-$root/build/release}/tests/bundle/test_bundle" runs >list || fail "no bundles were made"
while read -r bundle; do zstd -qdc "$bundle" | tar -C bags -xf -; done <list
expect bags 3 "$(ls bags | wc -l)"
for bag in bags/*; do
    (cd "$bag" && sha256sum --quiet -c manifest-sha256.txt tagmanifest-sha256.txt) >log 2>&1 ||
        fail "$bag: sha256sum finds other bytes"
    found=$(find "$bag/data" -type f -printf '%s\n' | awk '{ n += $1 } END { print n "." NR }')
    expect Payload-Oxum "Payload-Oxum: $found" "$(grep Payload-Oxum "$bag/bag-info.txt")"
done
python3 "$root/tests/bundle/crate_shapes.py" bags/*/data >shapes
diff -u "$root/tests/bundle/crate_shapes.txt" shapes ||
    fail "shapes not recorded: UPDATE=1 TEST_TMP=NEW-FOLDER tests/outside/bags.sh validates them"
exit $failed
