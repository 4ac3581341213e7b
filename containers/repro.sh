#!/bin/bash
# make repro: runs this platform's reference bundles again and compares them to the bit.
#
#   containers/repro.sh             from anywhere; exit code: the worst of the verdicts
#
# From the environment, all optional:
#   NATIVE=1    use no container tool: build and run on this machine
#   ARCH        amd64 or arm64: in the image of that architecture; a foreign one is emulated, a
#               hundred times slower
#   BASE_IMAGE, BUILD_FLAGS...   for the image, see containers/image.sh; without a GPU the base is
#               debian:12 and the image for CPUs
#   RUN_FLAGS   more flags for the tool's run command
#   FP8LAB      the program to use, already built (implies NATIVE=1)
#   ONLY        only the bundles whose name contains this text, e.g. ONLY=fp8.delayed
#   RUNS        where the new runs go (default: runs/repro)
#   PLATFORM    cpu, h200, gh200, gb10 or gpu, instead of the platform that the facts show
#
# A platform without a reference runs its experiment twice; both runs must agree to the bit. Its
# losses on the CPU's reference must be within tolerance. Its bundles stay as candidates for a
# reference.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 6
reference=experiments/reference
runs=${RUNS:-runs/repro}
only=${ONLY:-}
tool=native worst=0
image=localhost/fp8lab-repro # --pull=never: no registry is asked
foreign=
case ${ARCH:-} in
amd64) [ "$(uname -m)" = x86_64 ] || foreign=amd64 ;;
arm64) [ "$(uname -m)" = aarch64 ] || foreign=arm64 ;;
esac
[ -z "$foreign" ] || image=$image:$foreign
summary=()

say() { echo "repro: $*" >&2; }
loud() { printf '\n*** repro: %s\n\n' "$*" >&2; }

# ---- the program -------------------------------------------------------------------------------
gpu_here() { [ -z "$foreign" ] && [ -e /dev/nvidiactl ]; }

# Inside a container podman may not grant its own default limits.
starts() {
    (tool=$1 && fp8lab --version >/dev/null) && return
    RUN_FLAGS="${RUN_FLAGS:-} --ulimit nofile=1024:1024 --ulimit nproc=1024:1024"
    (tool=$1 && fp8lab --version >/dev/null) && say "started with lower limits"
}

# An image if a tool can build and start one; sets `tool`.
build_image() {
    local found builder settings=(TAG="$image")
    gpu_here || settings+=(BASE_IMAGE="${BASE_IMAGE:-debian:12}" CUDA=none)
    found=$(containers/image.sh tool 2>/dev/null) || found=
    builder=$found
    # podman and buildah share their images; buildah recognises one that it has built before.
    [ "$found" != podman ] || ! command -v buildah >/dev/null || builder=buildah
    if [ -z "$found" ]; then
        loud "no container tool works here: building and running natively"
    elif [ "$found" = buildah ]; then
        loud "buildah builds images and does not run them: building and running natively"
    elif ! env "${settings[@]}" TOOL="$builder" containers/image.sh build >&2; then
        loud "$found could not build the image: building and running natively"
    elif ! starts "$found"; then
        loud "$found built the image and could not start it: building and running natively"
    else
        tool=$found
    fi
}

build_native() {
    [ -z "$foreign" ] || { say "this machine cannot run $foreign programs natively"; exit 6; }
    containers/install.sh build >&2 || exit 6
    local target=build/release/fp8lab
    if gpu_here; then target=all; fi
    make --no-print-directory -j"$(nproc)" "$target" >&2 || exit 6
    FP8LAB=$PWD/build/release/fp8lab
}

# fp8lab ARGS...: natively or in the image, with the same paths.
fp8lab() {
    if [ "$tool" = native ]; then
        $FP8LAB "$@" # unquoted: it may be several words
        return
    fi
    # shellcheck disable=SC2206  # RUN_FLAGS is a list of words
    local flags=(run --rm --pull=never --network=none --ipc=host --stop-timeout=180
        --workdir="$PWD" --mount="type=bind,source=$PWD,target=$PWD,readonly"
        --mount="type=bind,source=$(realpath "$runs"),target=$(realpath "$runs")" ${RUN_FLAGS:-})
    if [ "$tool" = docker ] || [ "$(id -u)" = 0 ]; then flags+=(--user "$(id -u):$(id -g)")
    else flags+=(--userns=keep-id --security-opt=label=disable); fi
    [ -z "$foreign" ] || flags+=(--platform="linux/$foreign")
    if gpu_here && [ "$tool" = docker ]; then flags+=(--gpus=all); fi
    if gpu_here && [ "$tool" = podman ]; then flags+=(--device=nvidia.com/gpu=all); fi
    "$tool" "${flags[@]}" "$image" "$@"
}

# ---- the platform ------------------------------------------------------------------------------
platform() {
    if fp8lab hw -q --query 'gpu.product_name="NVIDIA H200"' >/dev/null; then echo h200
    elif fp8lab hw -q --query 'gpu.product_name~"NVIDIA GH200*"' >/dev/null; then echo gh200
    elif fp8lab hw -q --query 'gpu.product_name="NVIDIA GB10"' >/dev/null; then echo gb10
    elif fp8lab hw -q --query 'gpu.count>=1' >/dev/null; then echo gpu
    else echo cpu; fi
}

# ---- verdicts ----------------------------------------------------------------------------------
# again BUNDLE FLAGS...: one verdict. Keeps its first line for the summary and the worst exit code.
again() {
    local out code
    out=$(fp8lab repro --runs "$runs" "$@")
    code=$?
    printf '%s\n' "$out"
    [ "$code" -le "$worst" ] || worst=$code
    summary+=("${out%%$'\n'*}")
    [ -n "$out" ] || summary[-1]="no verdict      ${1##*/}"
}

bundles_of() { # FOLDER: its bundles that match ONLY
    local bundle
    for bundle in "$1"/*.tar.zst; do
        [[ -e $bundle && ${bundle##*/} == *"$only"* ]] && echo "$bundle"
    done
}

with_reference() {
    local bundle
    while read -r bundle; do again "$bundle"; done < <(bundles_of "$reference/$1")
}

# The platform's own experiment, twice; the CPU's reference on its GPU; the bundles as candidates.
without_reference() {
    local first=$runs/first-$1-$$ candidate=$runs/candidate-$1 bundle name
    loud "there is no reference for $1: its experiment runs twice, and must agree to the bit"
    fp8lab run experiments/repro_gpu.lua --runs "$first" --anywhere || worst=$?
    rm -rf "$candidate" && mkdir -p "$candidate"
    while read -r bundle; do
        again "$bundle" --exact --anywhere
        name=${bundle##*/} name=${name#*Z-}
        cp "$bundle" "$candidate/${name%-????????.tar.zst}.tar.zst"
    done < <(bundles_of "$first")
    while read -r bundle; do again "$bundle" --backend cuda; done < <(bundles_of "$reference/cpu")
    say "candidates for a reference of $1: $candidate"
    say "$reference/README.md says how to record them as the reference"
}

# ---- main --------------------------------------------------------------------------------------
mkdir -p "$runs" || exit 6
if [ -z "${FP8LAB:-}" ]; then
    if [ -z "${NATIVE:-}" ]; then build_image; fi
    if [ "$tool" = native ]; then build_native; fi
fi
here=${PLATFORM:-$(platform)}
machine=${foreign:-$(uname -m)}
say "platform $here on $machine, $tool"
if [ -n "$(only='' bundles_of "$reference/$here")" ]; then with_reference "$here"
else without_reference "$here"; fi

echo
equal=0
for line in "${summary[@]}"; do
    echo "  $line"
    [[ $line != "bitwise equal"* ]] || equal=$((equal + 1))
done
[ "${#summary[@]}" -gt 0 ] || { say "no reference bundle's name contains '$only'"; exit 2; }
echo "$equal of ${#summary[@]} bitwise equal: $here, $machine, $tool"
exit $worst
