#!/bin/bash
# long: 10
# The golden programs, compiled for aarch64 and run under an emulator, print the same bits as here.
# Of the losses only one recipe's; tests/long/aarch64.sh compares all, an H200's arithmetic too.
set -u
: "${RECIPES:=fp8.blockwise}"
failed=0
emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64)
for golden in tests/golden/*.txt; do
    program=$(basename "$golden" .txt)
    if [ -z "$emulator" ] || [ ! -x "build/aarch64/golden/$program" ]; then
        echo "SKIP: no cross compiler or emulator for aarch64 (containers/install.sh cross)"
        exit 77
    fi
    recipes=() wanted=$golden
    if [ "$program" = losses ] && [ "$RECIPES" != all ]; then
        recipes=("$RECIPES") wanted=$TEST_TMP/wanted
        grep "^$RECIPES " "$golden" >"$wanted" || { echo "$golden has no $RECIPES"; failed=1; }
    fi
    if OMP_NUM_THREADS=2 "$emulator" "build/aarch64/golden/$program" "${recipes[@]}" \
        >"$TEST_TMP/$program" && diff -u "$wanted" "$TEST_TMP/$program"; then
        echo "$program on aarch64: $(wc -l <"$wanted") lines equal"
    else
        echo "$program on aarch64: other bits (-: golden, +: found), or it failed"
        failed=1
    fi
done
exit "$failed"
