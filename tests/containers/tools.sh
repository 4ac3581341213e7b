#!/bin/bash
# containers/image.sh takes the first of docker, podman and buildah that works. Each gets the same
# arguments in its own syntax. docker's client without its daemon does not count. The tools are
# stand-ins.
set -u
: "${TEST_TMP:=$(mktemp -d)}"
failed=0
fail() { echo "FAILED: $*"; failed=1; }
bin=$TEST_TMP/bin
mkdir -p "$bin"
for tool in bash sh env dirname git grep sed date uname cat head cut; do
    path=$(type -P "$tool") && ln -s "$path" "$bin/$tool"
done
here=amd64
[ "$(uname -m)" = x86_64 ] || here=arm64

# A tool that records its arguments, one call a line; `docker` answers only while its daemon runs.
stand_in() {
    cat >"$bin/$1" <<END
#!$(type -P sh)
tool=$1
END
    cat >>"$bin/$1" <<'END'
[ "$tool $1" != "docker version" ] || [ -e "$TEST_TMP/daemon" ] || exit 1
echo "$tool $*" >>"$TEST_TMP/calls"
case "$*" in
*"image inspect"*Env* | *inspect*OCIv1*) printf 'PATH=/bin\nCUDA_VERSION=12.9.1\n' ;;
*"image inspect"*RepoDigests*) echo "base@sha256:0123" ;;
*"image inspect"*Digest* | *FromImageDigest*) echo "sha256:0123" ;;
*"image inspect"*Size*) echo 77000000 ;;
*images*) echo "77 MB" ;;
esac
END
    chmod +x "$bin/$1"
}
image() { # ARGS... [VARIABLE=VALUE]: exit code in $code
    rm -f "$TEST_TMP/calls"
    said=$(env -u TOOL PATH="$bin" TEST_TMP="$TEST_TMP" BASE_IMAGE=base \
        SOURCE_DATE_EPOCH=1700000000 "${@:2}" bash containers/image.sh "$1" 2>&1)
    code=$?
}
expect_tool() { # WANTED: the chosen tool
    image tool
    [ "$said" = "$1" ] || fail "chosen: $said, wanted $1"
}
built_with() { # WORDS...: the build command has each of them
    local command word
    command=$(grep -E '^(docker|podman) build|^buildah bud' "$TEST_TMP/calls")
    for word in "$@"; do
        [[ $command == *"$word"* ]] || fail "the command lacks '$word': $command"
    done
}

image tool
[ "$code" = 6 ] && [[ $said == *"apt-get install podman buildah"* ]] || fail "no tool at all: $said"
stand_in docker
image tool
[ "$code" = 6 ] || fail "docker without its daemon was taken"
stand_in buildah
expect_tool buildah
stand_in podman
expect_tool podman
touch "$TEST_TMP/daemon"
expect_tool docker
image tool TOOL=buildah
[ "$said" = buildah ] || fail "TOOL=buildah is ignored: $said"
rm "$TEST_TMP/daemon"
image tool TOOL=docker
[ "$code" = 6 ] && [[ $said == *"docker needs its daemon running"* ]] || fail "TOOL=docker: $said"

touch "$TEST_TMP/daemon"
for tool in docker podman buildah; do
    image build TOOL=$tool TAG=mine BUILD_FLAGS="--one --two=2"
    [ "$code" = 0 ] || fail "$tool: exit code $code: $said"
    built_with "--platform linux/$here" "--tag mine" "--one --two=2" "BASE_IMAGE=base" \
        "BASE_DIGEST=sha256:0123" "REQUIRE_CUDA=cuda>=12.0" "CUDA=auto" "ARCHS=all" \
        "SOURCE_DATE_EPOCH=1700000000" "CREATED=2023-11-14T22:13:20Z" "-f Dockerfile ."
    [[ $said == *"mine is built: 77 MB"* ]] || fail "$tool: no size is printed: $said"
done
built_with "BUILDPLATFORM=linux/$here" "--timestamp 1700000000" # buildah, the last one
image build TOOL=podman CUDA=none
built_with "CUDA=none" "REQUIRE_CUDA= "
image build TOOL=docker ARCH=riscv64
[ "$code" = 6 ] && [[ $said == *"the values are amd64 and arm64"* ]] || fail "ARCH=riscv64: $said"
other=arm64
[ "$here" = amd64 ] || other=amd64
image build TOOL=docker ARCH=$other
built_with "--platform linux/$other" "--tag fp8lab:$other"

# make pin-base: the digest is the hash of the registry's answer; no other line is written.
mkdir -p "$TEST_TMP/tree/runner/base"
cp -r containers "$TEST_TMP/tree"
cp runner/base/version.h "$TEST_TMP/tree/runner/base"
ln -s "$(type -P sha256sum)" "$bin/sha256sum"
pin() { # VARIABLE=VALUE...: in the copy
    said=$(cd "$TEST_TMP/tree" && env -u BASE_IMAGE PATH="$bin" TEST_TMP="$TEST_TMP" "$@" \
        bash containers/image.sh pin 2>&1)
    code=$?
}
printf '#!/bin/sh\necho "skopeo $*" >"$TEST_TMP/asked"\n[ -z "$DOWN" ] && printf manifest\n' \
    >"$bin/skopeo"
chmod +x "$bin/skopeo"
before=$(cat "$TEST_TMP/tree/containers/versions")
pin DOWN=1
[ "$code" = 6 ] && [ "$before" = "$(cat "$TEST_TMP/tree/containers/versions")" ] ||
    fail "a registry that does not answer: exit code $code: $said"
pin BASE_IMAGE=nvcr.io/nvidia/cuda:13.1.0-devel-ubuntu24.04
hash=$(printf manifest | sha256sum | cut -d' ' -f1)
[ "$code" = 0 ] && grep -qx "BASE_DIGEST=sha256:$hash" "$TEST_TMP/tree/containers/versions" &&
    grep -qx 'BASE_IMAGE=nvcr.io/nvidia/cuda:13.1.0-devel-ubuntu24.04' \
        "$TEST_TMP/tree/containers/versions" || fail "pin: exit code $code: $said"
[ "$(diff <(echo "$before") "$TEST_TMP/tree/containers/versions" | grep -c '^>')" = 2 ] ||
    fail "pin wrote more than two lines"
# The next build uses that digest.
said=$(cd "$TEST_TMP/tree" && rm -f "$TEST_TMP/calls" && env -u BASE_IMAGE PATH="$bin" \
    TEST_TMP="$TEST_TMP" TOOL=podman TAG=mine bash containers/image.sh build 2>&1)
built_with "BASE_IMAGE=nvcr.io/nvidia/cuda@sha256:$hash" "BASE_DIGEST=sha256:$hash"

# `versions` has only the name of the base; its digest comes from a registry.
. containers/versions
[[ $BASE_IMAGE == nvcr.io/nvidia/cuda:13.* ]] || fail "the default base is $BASE_IMAGE"
[[ $BASE_DIGEST =~ ^(sha256:[0-9a-f]{64})?$ ]] || fail "'$BASE_DIGEST' is no digest"
exit "$failed"
