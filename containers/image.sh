#!/bin/bash
# Builds the image, or pins its base.
#
#   containers/image.sh build       with docker, podman or buildah, the first that works here
#   containers/image.sh pin         writes the digest of BASE_IMAGE into containers/versions
#   containers/image.sh tool        says which tool would be used
#
# From the environment, all optional:
#   BASE_IMAGE    the base (containers/versions has the default)
#   ARCH          amd64 or arm64 (default: this machine's); a foreign one is emulated, but not nvcc
#   TAG           the image's name (default: fp8lab, or fp8lab:ARCH for another architecture)
#   TOOL          docker, podman or buildah
#   CUDA          none: leave the GPU backend out
#   ARCHS         GPU architectures to compile for (default: all)
#   REQUIRE_CUDA  which driver the image asks for ("cuda>=13.0"; default: by the base's CUDA)
#   BUILD_FLAGS   more flags for the tool's build command, e.g. --isolation chroot
#   SOURCE_DATE_EPOCH   the time that files and the image carry (default: the commit's)
set -euo pipefail
cd "$(dirname "$0")/.."
asked=${BASE_IMAGE:-}
. containers/versions # sets BASE_IMAGE and BASE_DIGEST
base=$BASE_IMAGE
if [ -n "$BASE_DIGEST" ]; then # podman takes no tag beside a digest
    name=${BASE_IMAGE##*/}
    base=${BASE_IMAGE%"$name"}${name%%:*}@$BASE_DIGEST
fi
[ -z "$asked" ] || base=$asked

say() { echo "image.sh: $*" >&2; }
die() { say "$*"; exit 6; }

machine() {
    case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) die "images are for amd64 and arm64; this machine is $(uname -m)" ;;
    esac
}

# docker's client without its daemon does not count.
works() {
    case $1 in
    docker) docker version --format '{{.Server.Version}}' ;;
    podman) podman info ;;
    buildah) buildah info ;;
    *) false ;;
    esac >/dev/null 2>&1
}
find_tool() {
    local tool
    if [ -n "${TOOL:-}" ]; then
        works "$TOOL" || die "TOOL=$TOOL does not work here: docker needs its daemon running;" \
            "the values are docker, podman and buildah"
        echo "$TOOL"
        return
    fi
    for tool in docker podman buildah; do
        if command -v "$tool" >/dev/null && works "$tool"; then
            echo "$tool"
            return
        fi
    done
    die "neither docker (with its daemon), podman nor buildah works here; on Debian and Ubuntu:" \
        "apt-get install podman buildah (or docker.io)"
}

# ---- facts of the base --------------------------------------------------------------------------
have_base() { # for one platform; asks the registry only if the image is not on this machine
    case $tool in
    docker) docker image inspect "$base" >/dev/null 2>&1 ||
        docker pull --quiet --platform "linux/$arch" "$base" >&2 ;;
    podman) podman image exists "$base" ||
        podman pull --quiet --platform "linux/$arch" "$base" >&2 ;;
    buildah) buildah pull --quiet --policy missing --platform "linux/$arch" "$base" >&2 ;;
    esac
}
base_digest() {
    case $base in
    *@sha256:*) echo "${base##*@}"; return ;;
    esac
    case $tool in
    docker) docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$base" |
        sed -n 's/.*@//p' | head -1 ;;
    podman) podman image inspect --format '{{.Digest}}' "$base" ;;
    buildah) buildah inspect --type image --format '{{.FromImageDigest}}' "$base" ;;
    esac 2>/dev/null
}
base_cuda() { # CUDA_VERSION of the base's environment, as NVIDIA's images have it
    case $tool in
    docker | podman) "$tool" image inspect --format '{{range .Config.Env}}{{println .}}{{end}}' \
        "$base" ;;
    buildah) buildah inspect --type image \
        --format '{{range .OCIv1.Config.Env}}{{println .}}{{end}}' "$base" ;;
    esac 2>/dev/null | sed -n 's/^CUDA_VERSION=\([0-9]*\).*/\1/p'
}

# ---- build -------------------------------------------------------------------------------------
build() {
    local tool arch here tag epoch digest require commit dirty version created major
    tool=$(find_tool)
    here=$(machine)
    arch=${ARCH:-$here}
    case $arch in
    amd64 | arm64) ;;
    *) die "ARCH=$arch: the values are amd64 and arm64" ;;
    esac
    tag=${TAG:-fp8lab}
    [ -n "${TAG:-}" ] || [ "$arch" = "$here" ] || tag=fp8lab:$arch
    if [ "$arch" != "$here" ] && ! can_emulate "$arch"; then
        die "this machine does not run $arch programs: on Debian and Ubuntu apt-get install" \
            "qemu-user-static binfmt-support, then update-binfmts --enable (as root)"
    fi
    have_base || die "there is no $base here, and it cannot be fetched"
    digest=$(base_digest)
    major=$(base_cuda)
    require=${REQUIRE_CUDA-${major:+cuda>=$major.0}}
    [ "${CUDA:-}" != none ] || require=
    commit=$(git -c safe.directory='*' rev-parse HEAD 2>/dev/null || echo unknown)
    dirty=$(git -c safe.directory='*' status --porcelain 2>/dev/null | grep -c . || true)
    epoch=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct 2>/dev/null ||
        date +%s)}
    created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
    version=$(sed -n 's/.*FP8LAB_VERSION "\(.*\)"/\1/p' runner/base/version.h)
    say "$tool builds $tag for $arch on $base ${digest:+($digest)}"

    local command=(docker build) flags=()
    case $tool in
    docker) export DOCKER_BUILDKIT=1 SOURCE_DATE_EPOCH=$epoch ;;
    podman) command=(podman build) flags=(--layers --timestamp "$epoch" --format docker) ;;
    buildah) command=(buildah bud) flags=(--layers --timestamp "$epoch" --format docker) ;;
    esac
    # docker sets BUILDPLATFORM itself; podman and buildah of Debian 12 do not.
    [ "$tool" = docker ] || flags+=(--build-arg "BUILDPLATFORM=linux/$here")
    # shellcheck disable=SC2086  # BUILD_FLAGS is a list of words
    "${command[@]}" "${flags[@]}" ${BUILD_FLAGS:-} --platform "linux/$arch" --tag "$tag" \
        --build-arg BASE_IMAGE="$base" --build-arg BASE_DIGEST="$digest" \
        --build-arg CUDA="${CUDA:-auto}" --build-arg ARCHS="${ARCHS:-all}" \
        --build-arg REQUIRE_CUDA="$require" --build-arg COMMIT="$commit" \
        --build-arg DIRTY="$dirty" --build-arg SOURCE_DATE_EPOCH="$epoch" \
        --build-arg VERSION="$version" --build-arg CREATED="$created" -f Dockerfile .
    say "$tag is built: $(size "$tag")"
}

# Whether this machine executes programs of the other architecture: the kernel passes them to qemu.
can_emulate() {
    local name=qemu-aarch64
    [ "$1" = arm64 ] || name=qemu-x86_64
    # docker may run on another machine (Docker Desktop has its own emulators).
    [ "$tool" = docker ] || grep -qs '^enabled' "/proc/sys/fs/binfmt_misc/$name"
}

size() {
    local bytes
    case $tool in
    buildah) bytes=$(buildah images --format '{{.Size}}' "$1" | head -1) ;;
    *) bytes="$(($("$tool" image inspect --format '{{.Size}}' "$1") / 1000000)) MB" ;;
    esac
    echo "$bytes"
}

# ---- pin ---------------------------------------------------------------------------------------
# The digest of a multi-architecture image is the hash of the list that the registry serves.
pin() {
    local image=${asked:-$BASE_IMAGE} digest
    if command -v skopeo >/dev/null; then
        # shellcheck disable=SC2086  # PIN_FLAGS is a list of words
        digest=sha256:$(skopeo inspect ${PIN_FLAGS:-} --raw "docker://$image" | sha256sum |
            cut -d' ' -f1) || die "the registry did not answer for $image"
    elif works docker; then
        digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image")
    else
        die "skopeo, or docker with its daemon, asks a registry: apt-get install skopeo"
    fi
    [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || die "'$digest' is not a digest; nothing was written"
    sed -i -e "s|^BASE_IMAGE=.*|BASE_IMAGE=$image|" -e "s|^BASE_DIGEST=.*|BASE_DIGEST=$digest|" \
        containers/versions
    say "containers/versions: $image is $digest"
}

case ${1:-build} in
build) build ;;
pin) pin ;;
tool) find_tool ;;
*) die "image.sh $1: the commands are build, pin and tool" ;;
esac
