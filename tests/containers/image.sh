#!/bin/bash
# long: 120
# timeout: 1800
# The image for this machine's architecture, built over a minimal Debian, without a network after
# its packages. Then the uses: any user, read-only root, no network, no GPU, no driver, a folder of
# another user, and a stop request to process 1.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
. tests/support/container.sh
failed=0
fail() {
    echo "FAILED: $*"
    [ ! -s "$TEST_TMP/said" ] || sed 's/^/    /' "$TEST_TMP/said" | tail -12
    failed=1
}
seconds() { awk -v ns="$(($(date +%s%N) - $1))" 'BEGIN { printf "%.1f", ns / 1e9 }'; }

[ -n "${FP8LAB_TEST_IMAGE:-}" ] ||
    skip "building and running the image takes minutes; FP8LAB_TEST_IMAGE=1 or .ci/run runs this"
find_tools
find_base "$(dpkg --print-architecture 2>/dev/null || echo amd64)"
find_run_flags "$base"
find_build_flags "$base"
tag=localhost/fp8lab-test-$$
echo "$builder builds [$BUILD_FLAGS], $runner runs [${run_flags[*]}] over $base"

# ---- the build ---------------------------------------------------------------------------------
# The packages stay on this machine for the next time.
begun=$(date +%s%N)
one_at_a_time
packages=localhost/fp8lab-test-packages
id_of() { "$runner" image inspect --format '{{.Id}}' "$1" 2>/dev/null; }
earlier=$(id_of "$packages")
BUILD_FLAGS="$BUILD_FLAGS --target packages" build_image "$packages" CUDA=none \
    >"$TEST_TMP/said" 2>&1 || { fail "the packages could not be installed"; exit 1; }
[ -z "$earlier" ] || [ "$earlier" = "$(id_of "$packages")" ] ||
    "$runner" rmi "$earlier" >/dev/null 2>&1
echo "packages: $(seconds "$begun") s"
begun=$(date +%s%N)
base=$packages
# Without layers nothing is left of the stages: buildah reads all images that were left, in each
# step of later builds.
[ "$builder" = docker ] || BUILD_FLAGS+=" --layers=false"
offline=(unshare -n) # the base has the packages
if [ "$builder" = docker ] || [ "$(id -u)" != 0 ]; then
    offline=() # its daemon uses the network, and each kind of network has its own cache
    echo "SKIP: a build without a network is tested only as root, with buildah or podman"
fi
quick="--build-arg MAKE_FLAGS=OPT_release=-O0"
"${offline[@]}" env TOOL="$builder" BUILD_FLAGS="$BUILD_FLAGS $quick" TAG="$tag" \
    BASE_IMAGE="$base" CUDA=none SOURCE_DATE_EPOCH=1700000000 \
    containers/image.sh build >"$TEST_TMP/said" 2>&1 ||
    { fail "the image could not be built (${offline[*]:-with a network})"; exit 1; }
echo "image: $(seconds "$begun") s (${offline[*]:-with a network})"
next_one
size=$("$runner" image inspect --format '{{.Size}}' "$tag")
echo "size: $((size / 1000000)) MB"
[ "$size" -lt 120000000 ] || fail "an image for CPUs has $size bytes"

# ---- labels and size ---------------------------------------------------------------------------
config=$("$runner" image inspect --format \
    '{{.Config.User}} {{.Config.Entrypoint}} {{json .Config.Volumes}} {{.Created}}
{{range .Config.Env}}{{println .}}{{end}}{{json .Config.Labels}}' "$tag")
for wanted in '10001:10001' '/opt/fp8lab/bin/fp8lab' '"/runs"' '"/data"' '2023-11-14' \
    'NVIDIA_VISIBLE_DEVICES=all' 'NVIDIA_DRIVER_CAPABILITIES=compute,utility' \
    'NVIDIA_REQUIRE_CUDA=' '"org.opencontainers.image.licenses":"Apache-2.0"' \
    '"org.opencontainers.image.revision":' '"org.opencontainers.image.base.name":' \
    '"org.opencontainers.image.created":"2023-11-14T22:13:20Z"'; do
    grep -qF -- "$wanted" <<<"$config" || fail "the image's configuration lacks $wanted: $config"
done
newer=$(in_image --entrypoint /bin/sh "$tag" -c 'ls -lR --time-style=+%Y /opt /usr/share /work' |
    awk '$6 > 2023' | wc -l)
[ "$newer" = 0 ] || fail "$newer files are newer than SOURCE_DATE_EPOCH"

# ---- without arguments -------------------------------------------------------------------------
in_image "$tag" >"$TEST_TMP/said" 2>&1 || fail "without arguments it fails"
grep -q 'docker run --rm fp8lab experiments/quickstart.lua' "$TEST_TMP/said" ||
    fail "without arguments it prints no help"
in_image --entrypoint open-libraries "$tag" /opt/fp8lab/lib >"$TEST_TMP/said" 2>&1 ||
    fail "a library in the image does not open"
[ "$(grep -c ^opens "$TEST_TMP/said")" -ge 10 ] || fail "too few libraries"

# run ARGS...: exit code in $code, output in $TEST_TMP/said. No network, no GPU, nothing writable.
run() {
    in_image --read-only "$@" >"$TEST_TMP/said" 2>&1
    code=$?
}
run "$tag" doctor
[ "$code" = 0 ] && grep -q "container  *$runner" "$TEST_TMP/said" || fail "doctor: exit code $code"
run -e container= "$tag" doctor --quick # a runtime that does not name itself
[ "$runner" = docker ] || grep -q "container  *yes, of an unknown runtime" "$TEST_TMP/said" ||
    fail "doctor does not detect that our image runs in a container"

# ---- no GPU ------------------------------------------------------------------------------------
run "$tag" experiments/h200_loss.lua
[ "$code" = 3 ] || fail "h200_loss.lua: exit code $code"
command=$(grep -oE '(docker|podman) run --rm .*' "$TEST_TMP/said")
for wanted in --ipc=host '--stop-timeout 180' 'FP8LAB_STOP_GRACE=180' '"$PWD/data:/data"' \
    '"$PWD/runs:/runs"' '--ulimit memlock=-1' ' experiments/h200_loss.lua'; do
    [[ $command == *"$wanted"* ]] || fail "the command that would work lacks $wanted"
done
grep -qE -- '--gpus all|--device nvidia.com/gpu=all' <<<"$command" || fail "it names no GPUs"
grep -q 'slimpajama_text_document.bin and .idx.*--set data=synthetic' "$TEST_TMP/said" ||
    fail "the error does not say where the data come from"
run "$tag" experiments/h200_blockwise.lua
[ "$code" = 3 ] && grep -qE "(docker|podman) run --rm .* experiments/h200_blockwise.lua$" \
    "$TEST_TMP/said" || fail "h200_blockwise.lua: exit code $code"
grep -q 'data are made up as it runs: none need to be brought' "$TEST_TMP/said" ||
    fail "no message that the data are synthetic"
run "$tag" experiments/gpt2_loss.lua
grep -q 'Its data are data/corpus.txt: ' "$TEST_TMP/said" || fail "the error does not name the text"
run "$tag" check experiments/h200_loss.lua --set data=synthetic
[ "$code" = 0 ] || fail "--set data=synthetic does not work"

# ---- a driver that is too old ------------------------------------------------------------------
library=/usr/lib/$(gcc -print-multiarch)/libnvidia-ml.so.1
gcc -shared -fPIC -o "$TEST_TMP/nvml.so" tests/containers/nvml_stand_in.c || exit 1
run -v "$TEST_TMP/nvml.so:$library:ro" "$tag" experiments/h200_blockwise.lua
[ "$code" = 3 ] && grep -q 'built without CUDA' "$TEST_TMP/said" ||
    fail "eight H200 and an image for CPUs: exit code $code"
run "$tag" experiments/quickstart.lua --backend cuda
[ "$code" = 2 ] && grep -q 'there is no cuda backend' "$TEST_TMP/said" ||
    fail "--backend cuda in an image for CPUs: exit code $code"
run -v "$TEST_TMP/nvml.so:$library:ro" -e FAKE_DRIVER=535.104.05 -e FAKE_CUDA=12020 "$tag" \
    hw --query 'gpu.product_name="NVIDIA H200" and cuda.driver>=13.0'
[ "$code" = 3 ] && grep -q 'cuda.driver *wanted >= 13.0, found.*12.2' "$TEST_TMP/said" ||
    fail "a driver that is too old is not named: exit code $code"

# ---- the quick start: another user, read-only, no network --------------------------------------
mkdir -p "$TEST_TMP/runs" "$TEST_TMP/taken"
chmod 777 "$TEST_TMP/runs"
short=(--set train.steps=6 --set train.global_batch=4 --set train.micro_batch=2
    --set train.schedule.warmup=2 --set eval.every=6
    --set checkpoint.every=6 --set eval.batches=1)
begun=$(date +%s%N)
run -u 4242:4242 -v "$TEST_TMP/runs:/runs" "$tag" experiments/quickstart.lua "${short[@]}"
[ "$code" = 0 ] || fail "the quick start: exit code $code"
echo "quick start of 6 steps in four recipes: $(seconds "$begun") s"
[ "$(stat -c %u "$TEST_TMP"/runs/*.tar.zst | sort -u)" = 4242 ] || fail "bundles of another user"
mkdir -p "$TEST_TMP/native/data"
(containers/export_text.sh "$TEST_TMP/native/data/quickstart.txt" && cd "$TEST_TMP/native" &&
    "$FP8LAB" run "$OLDPWD/experiments/quickstart.lua" "${short[@]}" >said 2>&1) ||
    fail "the quick start of this machine itself fails"
results() { # RUNS: the hashes of the results, by recipe
    local bundle
    for bundle in "$1"/*.tar.zst; do
        "$FP8LAB" show --json "$bundle" | python3 -c 'import json, sys
run = json.load(sys.stdin)["run"]; print(run["name"], run["results_sha256"])'
    done | sort
}
"$FP8LAB" verify "$TEST_TMP"/runs/*.tar.zst >"$TEST_TMP/said" 2>&1 || fail "bundles do not verify"
cmp -s "$TEST_TMP/native/data/quickstart.txt" \
    <(in_image --entrypoint /bin/cat "$tag" /opt/fp8lab/data/quickstart.txt) &&
    { [ "$(results "$TEST_TMP/runs")" = "$(results "$TEST_TMP/native/runs")" ] ||
        fail "the bits differ from this machine's: $(results "$TEST_TMP/runs")"; }

# ---- the record of the image -------------------------------------------------------------------
record_of() { tar --zstd -xOf "$1" --wildcards '*/data/system/image.json'; }
record_of "$(ls "$TEST_TMP"/runs/*.tar.zst | head -1)" | python3 -c 'import json, sys
r = json.load(sys.stdin)
assert r["schema"] == "fp8lab.image/1" and r["inside"] is True, r
base = r["base"] # docker knows no digest of an image that came from no registry
assert base["name"] and (base["digest"] or "sha256:").startswith("sha256:"), base
assert r["platform"].startswith("linux/") and r["commit"] and r["created"] == "2023-11-14T22:13:20Z"
assert {"libc6", "liblua5.4-0"} <= {name for name, version in r["packages"]}, r["packages"]
assert r["cuda"] is None' || fail "the bundle lacks the record of its image"
record_of "$(ls "$TEST_TMP"/native/runs/*.tar.zst | head -1)" | python3 -c 'import json, sys
r = json.load(sys.stdin); assert r == {"schema": "fp8lab.image/1", "inside": False}, r' ||
    fail "a run outside of an image has a record of an image"

# ---- a data folder without the text ------------------------------------------------------------
mkdir -p "$TEST_TMP/data"
run -v "$TEST_TMP/data:/data:ro" "$tag" experiments/quickstart.lua "${short[@]}"
[ "$code" = 2 ] && grep -q 'this image has its own: run --data-root /opt/fp8lab' "$TEST_TMP/said" ||
    fail "/data is mounted over, and the error does not name the text: exit code $code"
run -v "$TEST_TMP/data:/data:ro" "$tag" experiments/quickstart.lua "${short[@]}" --only '*-bf16' \
    --data-root /opt/fp8lab
[ "$code" = 0 ] || fail "--data-root /opt/fp8lab does not work: exit code $code"

# ---- a folder of another user ------------------------------------------------------------------
chmod 755 "$TEST_TMP/taken"
run -u 4242:4242 -v "$TEST_TMP/taken:/runs" "$tag" experiments/quickstart.lua "${short[@]}"
if [ "$(id -u)" = 4242 ]; then echo "SKIP: this is user 4242 itself"
elif [ "$code" != 6 ] || ! grep -q 'mkdir.*Permission denied.*-u "$(id -u):$(id -g)"' \
    "$TEST_TMP/said"; then
    fail "a folder that is not ours: exit code $code"
fi

# ---- process 1 ---------------------------------------------------------------------------------
# start NAME ARGS...: in the background, as process 1
start() {
    local name=$1
    shift
    "$runner" rm -f "$name" >/dev/null 2>&1
    "$runner" run -d --name "$name" --network=none "${run_flags[@]}" \
        -v "$TEST_TMP/stopped:/runs" "$@" >/dev/null || fail "$name does not start"
}
mkdir -p "$TEST_TMP/stopped" && chmod 777 "$TEST_TMP/stopped"
name=fp8lab-test-$$
begun=$(date +%s%N)
start "$name" "$tag" experiments/quickstart.lua --set train.steps=100000 --set eval=false
for ((i = 0; i < 3600; i++)); do
    grep -qs '"step":3,' "$TEST_TMP"/stopped/*/data/metrics/train.jsonl && break
    [ "$i" != 0 ] && sleep 0.05
    [ ! -s "$TEST_TMP/first" ] &&
        grep -qs '"step":1,' "$TEST_TMP"/stopped/*/data/metrics/train.jsonl &&
        seconds "$begun" >"$TEST_TMP/first"
done
echo "from run to the first step: $(cat "$TEST_TMP/first") s"
"$runner" exec "$name" /bin/sh -c '(sleep 0.2 & sleep 0.2 &) ; exit 0'
sleep 1 # until they have exited
for ((i = 0; i < 100; i++)); do
    zombies=$("$runner" exec "$name" /bin/sh -c 'cat /proc/[0-9]*/stat' 2>/dev/null |
        grep -c ') Z ')
    [ "$zombies" != 0 ] || break
    sleep 0.1
done
[ "$zombies" = 0 ] || fail "$zombies orphans are not reaped"
begun=$(date +%s%N)
"$runner" stop -t 60 "$name" >/dev/null || fail "cannot be stopped"
echo "stop: $(seconds "$begun") s of 60"
code=$("$runner" inspect --format '{{.State.ExitCode}}' "$name")
"$runner" logs "$name" >"$TEST_TMP/said" 2>&1
"$runner" rm -f "$name" >/dev/null
[ "$code" = 143 ] || fail "stopped with exit code $code, wanted 143"
"$FP8LAB" verify "$TEST_TMP"/stopped/*.tar.zst >>"$TEST_TMP/said" 2>&1 ||
    fail "no bundle after a stop, or a damaged one"
"$FP8LAB" show --json "$TEST_TMP"/stopped/*.tar.zst | python3 -c 'import json, sys
run = json.load(sys.stdin)["run"]
assert run["status"] == "interrupted" and run["checkpoint_step"] > 0, run' ||
    fail "no checkpoint after a stop"

# A command without a handler for SIGTERM also ends at SIGTERM.
start "$name" "$tag" bench gemm --m 4096 --n 4096 --k 4096 --repeats 1000
for ((i = 0; i < 100; i++)); do # process 1, and the child that does the work
    processes=$("$runner" exec "$name" /bin/sh -c 'cat /proc/[0-9]*/comm' 2>/dev/null)
    [ "$(grep -cxE 'fp8lab|exe' <<<"$processes")" -lt 2 ] || break # /proc/self/exe was executed
    sleep 0.1
done
begun=$(date +%s%N)
"$runner" stop -t 60 "$name" >/dev/null
code=$("$runner" inspect --format '{{.State.ExitCode}}' "$name")
"$runner" rm -f "$name" >/dev/null
[ "$code" = 143 ] || fail "bench, stopped: exit code $code after $(seconds "$begun") s, wanted 143"
# Without -f, which breaks other builds: it removes the containers of all images that share a layer.
"$runner" rmi "$tag" >/dev/null 2>&1
exit "$failed"
