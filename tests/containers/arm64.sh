#!/bin/bash
# timeout: 7200
# The arm64 image, built and run in an emulator: the quick start gives this machine's bits. It takes
# more than half an hour, so it runs only if FP8LAB_TEST_ARM64 is set.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
. tests/support/container.sh
[ -n "${FP8LAB_TEST_ARM64:-}" ] ||
    skip "the image for arm64 takes half an hour in an emulator; FP8LAB_TEST_ARM64=1 runs this"
failed=0
fail() { echo "FAILED: $*"; failed=1; }
find_tools
grep -qs '^enabled' /proc/sys/fs/binfmt_misc/qemu-aarch64 ||
    skip "this kernel does not run aarch64 programs in qemu (update-binfmts --enable qemu-aarch64)"
find_both_bases
find_run_flags "localhost/fp8lab-standin:$(dpkg --print-architecture)"
find_build_flags "localhost/fp8lab-standin:$(dpkg --print-architecture)"
tag=localhost/fp8lab-test-arm64
build_image "$tag" ARCH=arm64 || exit 1
[ "$("$runner" image inspect --format '{{.Architecture}}' "$tag")" = arm64 ] || fail "not for arm64"

short=(--set train.steps=22 --set train.global_batch=2 --set train.micro_batch=2 --set eval.every=22
    --set checkpoint.every=22 --set eval.batches=1)
mkdir -p "$TEST_TMP/runs" "$TEST_TMP/native/data"
chmod 777 "$TEST_TMP/runs"
in_image --arch arm64 -v "$TEST_TMP/runs:/runs" "$tag" experiments/quickstart.lua "${short[@]}" ||
    fail "the quick start: exit code $?"
(containers/export_text.sh "$TEST_TMP/native/data/quickstart.txt" && cd "$TEST_TMP/native" &&
    "$FP8LAB" run "$OLDPWD/experiments/quickstart.lua" "${short[@]}") || fail "the native run fails"
"$FP8LAB" verify "$TEST_TMP"/runs/*.tar.zst || fail "bundles do not verify"
for native in "$TEST_TMP"/native/runs/*.tar.zst; do
    recipe=${native##*-quickstart-} recipe=${recipe%-*}
    "$FP8LAB" compare --assert-equal "$native" "$TEST_TMP"/runs/*-quickstart-"$recipe"-*.tar.zst ||
        fail "$recipe: the bits differ on aarch64"
done
exit "$failed"
