#!/bin/bash
# The folder of `make dist` runs from another place, with an empty environment and with no library
# of this machine but the C library.
set -u
out=$TEST_TMP/dist
containers/dist.sh "$BUILD/fp8lab-relocatable" "$out" || exit 1
mv "$out" "$TEST_TMP/moved elsewhere" || exit 1
out="$TEST_TMP/moved elsewhere"
failed=0

said=$(cd / && env -i "$out/bin/fp8lab" --version) || failed=1
[ "$said" = "$("$FP8LAB" --version)" ] || { echo "--version says '$said'"; failed=1; }
(cd / && env -i "$out/bin/fp8lab" hw --json >"$TEST_TMP/hw.json") || failed=1

foreign=$(env -i ldd "$out/bin/fp8lab" | awk '$2 == "=>"' | grep -vF "=> $out/" |
    grep -vE '^\s*(libc|libm|libdl|libpthread|librt|libresolv)\.so' | grep -v '^\s*linux-vdso')
[ -z "$foreign" ] || { echo "libraries from outside the folder:"; echo "$foreign"; failed=1; }

[ -n "$(ls "$out/licenses")" ] || { echo "no licence came along"; failed=1; }
for library in "$out"/lib/*; do
    [ -L "$library" ] && { echo "$library is a link, and may point nowhere elsewhere"; failed=1; }
done
if [ -e "$out/experiments/quickstart.lua" ]; then
    (cd "$TEST_TMP" && env -i "$out/bin/fp8lab" check "$out/experiments/quickstart.lua") || failed=1
fi
exit "$failed"
