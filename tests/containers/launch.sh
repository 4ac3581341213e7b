#!/bin/bash
# run --launch and repro --launch in a real container: a bare base image with the folder of `make
# dist` mounted. The bundle belongs to us, a stop request writes a checkpoint, and the bits are the
# same.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${BUILD:=$PWD/build/release}"
: "${FP8LAB:=$BUILD/fp8lab}"
. tests/support/container.sh
find_tools
find_base "$(dpkg --print-architecture)"
find_run_flags "$base"
failed=0
fail() {
    echo "FAILED: $*"
    sed 's/^/    /' log | tail -8
    failed=1
}
containers/dist.sh "$BUILD/fp8lab-relocatable" "$TEST_TMP/dist" >/dev/null || exit 1
cp tests/cli/tiny.lua "$TEST_TMP"
lib=$PWD/experiments/lib
cd "$TEST_TMP" || exit 1
inside=(--launch "$runner" --program dist --backend cpu)
for flag in "${run_flags[@]}"; do inside+=("--launch-arg=$flag"); done

"$FP8LAB" run tiny.lua --lib "$lib" --set image="$base" "${inside[@]}" >out 2>log ||
    fail "run: exit code $?"
bundle=$(ls runs/*.tar.zst)
[ -O "$bundle" ] || fail "the bundle is not ours"
"$FP8LAB" show --json "$bundle" >show
grep -q '"container.runtime":"'"$runner" show ||
    fail "the bundle does not record $runner"
"$FP8LAB" run tiny.lua --lib "$lib" --backend cpu --set image="$base" --runs out-here -q >out 2>log
"$FP8LAB" compare --assert-equal "$bundle" out-here/*.tar.zst >out 2>log ||
    fail "the bits differ from a run outside"

"$FP8LAB" repro "$bundle" --image "${inside[@]}" --exact >out 2>log || fail "repro: exit code $?"
grep -q "^bitwise equal" out || fail "repro is not bitwise equal"

"$FP8LAB" run tiny.lua --lib "$lib" --set train.steps=1000000 --set image="$base" "${inside[@]}" \
    --runs stopped >out 2>log.stopped &
pid=$!
for _ in $(seq 1200); do grep -qs "step [1-9]" log.stopped && break; sleep 0.1; done
kill -TERM $pid
wait $pid
code=$?
cp log.stopped log
[ $code = 143 ] || fail "stopped: exit code $code"
grep -q "run --resume" log || fail "no checkpoint after a stop request"
exit $failed
