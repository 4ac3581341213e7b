#!/bin/bash
# Runs in an image's base. Finds CUDA, installs cuDNN and NCCL if they are missing or too old, and
# lays out the libraries that the program uses.
#
#   containers/cuda_parts.sh OUT            as root; needs a network only for missing libraries
#
#   OUT/lib/*.so.N       every CUDA library that the program opens, by that name; a link if the
#                        base has the library
#   OUT/licenses/        their licences
#   OUT/build/           the files that plugin.sh needs to compile the backend:
#     env                CUDA_HOME, CUDA_VERSION, CUDNN_VERSION, NCCL_VERSION, as sh reads them
#     cudnn/             headers of cuDNN
#     sbsa/              on aarch64: the toolkit's headers and static runtime
#
# If the base has no CUDA, OUT/build stays empty and the image is for CPUs. CUDA=none in the
# environment does the same on any base.
set -euo pipefail
here=$(dirname "$0")
. "$here/versions"
out=$1
# The root of all searched places. Tests set another one.
root=${FIND_NVCC_ROOT:-}
mkdir -p "$out/build"
triplet=$(gcc -print-multiarch 2>/dev/null || echo "$(uname -m)-linux-gnu")

say() { echo "cuda_parts.sh: $*" >&2; }
die() { say "$*"; exit 6; }
at_least() { printf '%s\n%s\n' "$2" "$1" | sort -C -V; }

[ "${CUDA:-}" != none ] || { say "CUDA=none: an image for CPUs"; exit 0; }
nvcc=$("$here/find_nvcc.sh" 2>"$out/too_old") || true # printed below if it found none
too_old=$(cat "$out/too_old")
rm "$out/too_old"
if [ -z "$nvcc" ]; then
    [ -z "$too_old" ] ||
        die "$too_old; take another base, or CUDA=none for an image for CPUs"
    say "the base has no CUDA toolkit: an image for CPUs"
    exit 0
fi
# nvcc may be a link or a script of the distribution; nvcc itself prints where its toolkit is.
home=$("$nvcc" --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p' || true)
home=$(realpath "${home:-$(dirname "$nvcc")/..}")
cuda=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
major=${cuda%%.*}
say "CUDA $cuda in $home"
mkdir -p "$out"/{lib,licenses,build/cudnn}
fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT

# ---- finding -----------------------------------------------------------------------------------
# Fetched files take precedence over the base's.
library() { # NAME: the first file of that name
    local place
    for place in "$fetched"/nvidia/*/lib "$home/lib64" "$home"/targets/*/lib "$home/lib" \
        "$root/usr/lib/$triplet" "$root/usr/lib64" "$root/usr/local/lib"; do
        [ ! -e "$place/$1" ] || { echo "$place/$1"; return; }
    done
    return 1
}
header_folder() { # HEADER: where it is
    local place
    for place in "$fetched"/nvidia/*/include "$home/include" "$root/usr/include/$triplet" \
        "$root/usr/include"; do
        [ ! -e "$place/$1" ] || { echo "$place"; return; }
    done
    return 1
}
macro() { sed -n "s/^#define $2  *\([0-9]*\).*/\1/p" "$1" | head -1; }
# The version is in the file's name, or in the header beside it.
version_of() { # LIBRARY HEADER MACRO-PREFIX
    local file folder name
    file=$(realpath "$(library "$1")" 2>/dev/null) || return 0
    name=${file##*.so.}
    if [[ $name == *.*.* ]]; then echo "$name"; return; fi
    folder=$(header_folder "$2") || return 0
    echo "$(macro "$folder/$2" "$3_MAJOR").$(macro "$folder/$2" "$3_MINOR").$(
        macro "$folder/$2" "$3_PATCH[A-Z]*")"
}
cudnn_version() { version_of libcudnn.so.9 cudnn_version.h CUDNN; }
nccl_version() { version_of libnccl.so.2 nccl.h NCCL; }

# ---- fetching ----------------------------------------------------------------------------------
updated=
apt_install() { # PACKAGE[=VERSION]...
    command -v apt-get >/dev/null || return 1
    [ -n "$updated" ] || apt-get -q update >&2 || return 1
    updated=yes
    DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
        --allow-change-held-packages --allow-downgrades install "$@" >&2
}
# Bases without NVIDIA's package repository get the library from NVIDIA's wheel. Only its files are
# used, not Python. PIP_CONSTRAINT, by which NGC's images pin packages, must not apply.
wheel_fetch() { # NAME==VERSION
    python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip || return 1
    env -u PIP_CONSTRAINT python3 -m pip download -q --no-deps --only-binary=:all: \
        -d "$fetched" "$1" >&2 || return 1
    python3 -m zipfile -e "$fetched"/*.whl "$fetched" && rm "$fetched"/*.whl
}

cudnn=$(cudnn_version)
if ! { [ -n "$cudnn" ] && at_least "$cudnn" "$CUDNN_MIN" && header_folder cudnn_graph.h; } \
    >/dev/null; then
    say "cuDNN: found ${cudnn:-none}, $CUDNN_MIN is needed; installing $CUDNN_VERSION"
    package=libcudnn9-cuda-$major
    apt_install "$package=$CUDNN_VERSION-1" "libcudnn9-dev-cuda-$major=$CUDNN_VERSION-1" \
        "libcudnn9-headers-cuda-$major=$CUDNN_VERSION-1" ||
        wheel_fetch "nvidia-cudnn-cu$major==$CUDNN_VERSION" ||
        die "no cuDNN $CUDNN_VERSION from apt ($package) nor as a wheel: is there a network?"
    cudnn=$(cudnn_version)
    at_least "$cudnn" "$CUDNN_MIN" ||
        die "after the installation cuDNN is $cudnn; $CUDNN_MIN is needed"
fi
nccl=$(nccl_version)
if [ -z "$nccl" ]; then
    say "NCCL: none found; installing $NCCL_VERSION"
    apt_install "libnccl2=$NCCL_VERSION-1+cuda$cuda" ||
        wheel_fetch "nvidia-nccl-cu$major==$NCCL_VERSION" ||
        die "no NCCL $NCCL_VERSION from apt (libnccl2) nor as a wheel: is there a network?"
    nccl=$(nccl_version)
fi

# ---- laying out --------------------------------------------------------------------------------
# cuDNN opens its parts by name when a graph needs them; its engines open the compiler (NVRTC), and
# NVRTC opens its built-ins. Attention on an H200 opens the parts below and none of the others
# (_ops, _cnn, _adv). There it is as fast without _engines_precompiled, but other devices were not
# tried.
take() {
    local file
    file=$(library "$1") || die "$1 is neither in the base nor in an installed package"
    case $file in
    "$fetched"/*) mv "$(realpath "$file")" "$out/lib/$1" ;;
    *) ln -s "$(realpath "$file")" "$out/lib/$1" ;;
    esac
    printf '  %-44s %5d MB\n' "$1" "$(($(stat -L -c %s "$out/lib/$1") / 1000000))" >&2
}
take "libcublasLt.so.$major"
for part in "" _graph _engines_precompiled _engines_runtime_compiled _heuristic; do
    take "libcudnn$part.so.9"
done
take "libnvrtc.so.$major"
take "libnvrtc-builtins.so.$cuda"
take libnccl.so.2
folder=$(header_folder cudnn_graph.h)
for header in "$folder"/cudnn*.h; do # NVIDIA's packages have a cudnn_graph_v9.h as well
    name=$(basename "$header")
    cp -L "$header" "$out/build/cudnn/$name"
    [ "$name" = "${name%_v9.h}" ] || cp -L "$header" "$out/build/cudnn/${name%_v9.h}.h"
done
if [ "$(uname -m)" = aarch64 ]; then
    static=$(library libcudart_static.a) || die "the toolkit has no libcudart_static.a"
    folder=$(header_folder cuda_runtime.h) || die "the toolkit has no cuda_runtime.h"
    mkdir -p "$out/build/sbsa/lib"
    cp -rL "$folder" "$out/build/sbsa/include"
    cp -L "$static" "$out/build/sbsa/lib/"
fi
for text in /NGC-DL-CONTAINER-LICENSE "$home/EULA.txt" "$home"/dist-info/*/licenses/* \
    "$fetched"/*.dist-info/licenses/* /usr/share/doc/libcudnn9-cuda-*/copyright \
    /usr/share/doc/libnccl2/copyright; do
    [ ! -e "$text" ] || cp -L "$text" "$out/licenses/$(tr / _ <<<"${text#/}")"
done
cat >"$out/build/env" <<END
CUDA_HOME=$home
CUDA_VERSION=$cuda
CUDNN_VERSION=$cudnn
NCCL_VERSION=${nccl:-unknown}
END
say "$(du -smL "$out/lib" | cut -f1) MiB of CUDA libraries: $(tr '\n' ' ' <"$out/build/env")"
