#!/bin/bash
# timeout: 1800
# An image with CUDA on a machine without a GPU: every library opens, nothing is missing, and the
# image names the missing driver. FP8LAB_CUDA_IMAGE names the image (make image TAG=...), because a
# test does not build one of this size.
set -u
: "${TEST_TMP:=$(mktemp -d)}"
. tests/support/container.sh
image=${FP8LAB_CUDA_IMAGE:-}
[ -n "$image" ] || skip "FP8LAB_CUDA_IMAGE names no image with CUDA (make image builds one)"
failed=0
fail() {
    echo "FAILED: $*"
    [ ! -s "$TEST_TMP/said" ] || sed 's/^/    /' "$TEST_TMP/said" | tail -12
    failed=1
}
find_tools
find_run_flags "$image"
run() { # exit code in $code
    in_image --read-only "$@" >"$TEST_TMP/said" 2>&1
    code=$?
}
size=$("$runner" image inspect --format '{{.Size}}' "$image")
echo "$image: $((size / 1000000)) MB"

run --entrypoint open-libraries "$image" /opt/fp8lab/lib /opt/fp8lab/lib/fp8lab/libfp8lab_cuda.so
[ "$code" = 0 ] || fail "a library does not open"
for library in libcublasLt.so libcudnn.so.9 libcudnn_graph.so.9 libcudnn_heuristic.so.9 \
    libcudnn_engines_precompiled.so.9 libcudnn_engines_runtime_compiled.so.9 libnvrtc.so \
    libnvrtc-builtins.so libnccl.so.2 libfp8lab_cuda.so; do
    grep -q "^opens .*/$library" "$TEST_TMP/said" || fail "$library is not in the image"
done
in_image --entrypoint /bin/cat "$image" /usr/share/fp8lab/image.json >"$TEST_TMP/said"
python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
at_least = lambda text, least: [int(n) for n in text.split(".")] >= least
assert at_least(r["cuda"], [12, 9]) and at_least(r["cudnn"], [9, 18, 1]), (r["cuda"], r["cudnn"])
for name, size in r["libraries"]: print("  %-44s %5d MB" % (name, size // 1000000))' \
    "$TEST_TMP/said" || fail "the record of the image"

run "$image" bench gemm --backend cuda
[ "$code" = 3 ] && grep -q "no NVIDIA driver is installed" "$TEST_TMP/said" ||
    fail "without a driver: exit code $code"
cc -shared -fPIC -w -o "$TEST_TMP/libcuda.so" tests/containers/driver_stand_in.c || exit 1
driver=/usr/lib/$(gcc -print-multiarch)/libcuda.so.1
run -v "$TEST_TMP/libcuda.so:$driver:ro" -e FAKE_VERSION=11080 "$image" bench gemm --backend cuda
[ "$code" = 3 ] && grep -q "the driver supports CUDA 11.8, this build needs 1[0-9].0 or later" \
    "$TEST_TMP/said" || fail "with a driver that is too old: exit code $code"
run "$image" hw
[ "$code" = 0 ] || fail "hw without a driver: exit code $code"
exit "$failed"
