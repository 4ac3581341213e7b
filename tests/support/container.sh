# Container tools as the tests use them; sourced by the tests in tests/containers/. From the
# environment, all optional:
#   FP8LAB_CONTAINER_TOOL   docker, or podman (with or without buildah); default: one that works
#   FP8LAB_BUILD_FLAGS      further flags of its build; default: flags that work here
#   FP8LAB_RUN_FLAGS        further flags of its run; default: likewise
#   FP8LAB_TEST_BASE        a local base image, such as debian:12; default: mmdebstrap (as root, or
#                           with user namespaces) makes one
# If images cannot be built or started on a machine, these tests are skipped with a message.

skip() {
    printf '\n*** SKIP: %s\n' "$*"
    printf '*** tests of the image were NOT run: %s\n' "$*"
    exit 77
}

# The tools: `builder` makes images, `runner` starts containers; their flags in arrays.
find_tools() {
    local said
    case ${FP8LAB_CONTAINER_TOOL:-} in
    "") ! docker version >/dev/null 2>&1 || FP8LAB_CONTAINER_TOOL=docker
        : "${FP8LAB_CONTAINER_TOOL:=podman}" ;;
    esac
    runner=$FP8LAB_CONTAINER_TOOL builder=$FP8LAB_CONTAINER_TOOL
    said=$("$runner" info 2>&1) ||
        skip "neither docker nor podman works here (containers/install.sh image):" \
            "$(tail -1 <<<"$said")"
    [ "$runner" = docker ] || ! command -v buildah >/dev/null || builder=buildah
}

# find_run_flags IMAGE: the first set of flags with which a container starts. A machine that is
# itself a container may reject new limits and some runtimes.
find_run_flags() {
    local flags said
    if [ -n "${FP8LAB_RUN_FLAGS+set}" ]; then
        read -r -a run_flags <<<"$FP8LAB_RUN_FLAGS"
        return
    fi
    for flags in "" "--runtime runc" \
        "--runtime runc --ulimit nofile=1024:1024 --ulimit nproc=1024:1024"; do
        read -r -a run_flags <<<"$flags"
        said=$("$runner" run --rm --network=none "${run_flags[@]}" --entrypoint /bin/true \
            "$1" 2>&1) && return
    done
    skip "$runner starts no container here: $(tail -1 <<<"$said")"
}

find_build_flags() { # IMAGE
    local flags said
    if [ -n "${FP8LAB_BUILD_FLAGS+set}" ]; then
        BUILD_FLAGS=$FP8LAB_BUILD_FLAGS
        return
    fi
    [ "$builder" != docker ] || { BUILD_FLAGS=; return; }
    local name=localhost/fp8lab-try-$$
    printf 'FROM %s\nRUN true\n' "$1" >"$TEST_TMP/Dockerfile.try"
    # In a chroot first: otherwise buildah asks runc ten times a second whether a step has ended.
    for flags in "--isolation chroot" ""; do
        # shellcheck disable=SC2086  # a list of words
        said=$("$builder" build $flags -t "$name" -f "$TEST_TMP/Dockerfile.try" "$TEST_TMP" 2>&1) ||
            continue
        "$runner" rmi "$name" >/dev/null 2>&1 # each image left would slow down later builds
        BUILD_FLAGS=$flags
        return
    done
    skip "$builder builds no image here: $(tail -1 <<<"$said")"
}

# find_base ARCH: sets `base`. The stand-in is a minimal Debian, kept in build/ for the next time.
find_base() {
    local arch=$1 tar=build/standin-$1.tar
    base=${FP8LAB_TEST_BASE:-}
    [ -z "$base" ] || return 0
    base=localhost/fp8lab-standin:$arch
    exec 9>"build/standin-$arch.lock" # two tests may need it at the same time
    flock 9
    if "$runner" image inspect "$base" >/dev/null 2>&1; then
        exec 9>&-
        return 0
    fi
    if [ ! -s "$tar" ]; then
        command -v mmdebstrap >/dev/null ||
            skip "no base image: FP8LAB_TEST_BASE names one, or containers/install.sh image"
        mmdebstrap -q --format=tar --variant=minbase --architectures="$arch" bookworm "$tar.part" \
            >"$TEST_TMP/mmdebstrap.log" 2>&1 </dev/null ||
            skip "mmdebstrap makes no base: $(grep -v '^I:' "$TEST_TMP/mmdebstrap.log" | tail -1)"
        mv "$tar.part" "$tar"
    fi
    local how=(--arch "$arch")
    [ "$runner" != docker ] || how=(--platform "linux/$arch")
    "$runner" import "${how[@]}" "$tar" "$base" >/dev/null || skip "$runner cannot import $tar"
    exec 9>&-
}

# build TAG ARGS...: calls containers/image.sh with the tool and flags found above; ARGS go to its
# environment.
build_image() {
    local tag=$1
    shift
    env TOOL="$builder" BUILD_FLAGS="$BUILD_FLAGS" TAG="$tag" BASE_IMAGE="$base" "$@" \
        containers/image.sh build
}

# Tests that build the same steps wait for each other, so that the second finds them in the cache.
one_at_a_time() {
    exec 8>build/image.lock
    flock 8
}
next_one() { exec 8>&-; }

# in_image ARGS...: `docker run --rm` without a network.
in_image() { "$runner" run --rm --network=none "${run_flags[@]}" "$@"; }

# One name for the stand-ins of both architectures, as a registry's images have it; sets `base`.
find_both_bases() {
    local arch list=localhost/fp8lab-standin:both
    [ -z "${FP8LAB_TEST_BASE:-}" ] || { base=$FP8LAB_TEST_BASE; return; }
    [ "$runner" = podman ] || skip "docker has no list of local images: FP8LAB_TEST_BASE names one"
    for arch in amd64 arm64; do find_base "$arch"; done
    podman manifest rm "$list" >/dev/null 2>&1
    podman manifest create "$list" >/dev/null
    for arch in amd64 arm64; do
        podman manifest add "$list" "containers-storage:localhost/fp8lab-standin:$arch" \
            >/dev/null || skip "podman cannot list both architectures under one name"
    done
    base=$list
}
