#!/bin/bash
# containers/cuda_parts.sh in stand-ins of bases: NGC's hidden nvcc, cuDNN and NCCL; a cuDNN that is
# too old; a package manager without cuDNN; PIP_CONSTRAINT; no CUDA. The libraries are text files
# that name their origin.
set -u
: "${TEST_TMP:=$(mktemp -d)}"
failed=0
fail() {
    echo "FAILED: $*"
    sed 's/^/    /' "$TEST_TMP/said" | tail -8
    failed=1
}
bin=$TEST_TMP/bin root=$TEST_TMP/root
mkdir -p "$bin"
for tool in bash sh cat cp cut dirname basename du env grep ln ls mkdir mktemp mv printf realpath \
    rm sed sort stat tr head uname touch; do
    path=$(type -P "$tool") && ln -s "$path" "$bin/$tool"
done
# gcc -print-multiarch, in Debian's spelling.
printf '#!/bin/sh\necho x86_64-linux-gnu\n' >"$bin/gcc"
printf '#!/bin/sh\necho x86_64\n' >"$bin/uname.sh"
rm "$bin/uname" && mv "$bin/uname.sh" "$bin/uname"
# apt-get has the packages that $APT names; pip has those that $PIP allows, unless a constraint pins
# one.
cat >"$bin/apt-get" <<'END'
#!/bin/sh
case " $* " in *" update "*) exit 0 ;; esac
for word; do
    case $word in
    libcudnn9-cuda-*) name=cudnn ;;
    libnccl2=*) name=nccl ;;
    *) continue ;;
    esac
    case " ${APT:-} " in *" $name "*) ;; *) exit 100 ;; esac
    version=${word#*=} folder=$FIND_NVCC_ROOT/usr/lib/x86_64-linux-gnu
    mkdir -p "$folder" "$FIND_NVCC_ROOT/usr/include"
    [ $name = nccl ] && { echo apt >"$folder/libnccl.so.${version%%-*}"
        ln -sf "libnccl.so.${version%%-*}" "$folder/libnccl.so.2"; continue; }
    for part in "" _graph _engines_precompiled _engines_runtime_compiled _heuristic; do
        echo apt >"$folder/libcudnn$part.so.${version%-*}"
        ln -sf "libcudnn$part.so.${version%-*}" "$folder/libcudnn$part.so.9"
    done
    touch "$FIND_NVCC_ROOT/usr/include/cudnn_graph.h"
done
END
cat >"$bin/python3" <<'END'
#!/bin/bash
case "$*" in
"-m pip --version") exit 0 ;;
"-m pip download"*) [ -z "${PIP_CONSTRAINT:-}" ] && touch "${*: -2:1}/${*: -1}.whl"; exit ;;
esac
into=${*: -1} wheel=$(basename "${*: -2:1}" .whl) # -m zipfile -e WHEEL INTO
case $wheel in
nvidia-cudnn-*)
    mkdir -p "$into"/nvidia/cudnn/{lib,include}
    for part in "" _graph _engines_precompiled _engines_runtime_compiled _heuristic; do
        echo "$wheel" >"$into/nvidia/cudnn/lib/libcudnn$part.so.9"
    done
    IFS=. read -r major minor patch rest <<<"${wheel#*==}"
    printf '#define CUDNN_%s %s\n' MAJOR "$major" MINOR "$minor" PATCHLEVEL "$patch" \
        >"$into/nvidia/cudnn/include/cudnn_version.h"
    touch "$into"/nvidia/cudnn/include/{cudnn.h,cudnn_graph.h} ;;
nvidia-nccl-*)
    mkdir -p "$into"/nvidia/nccl/{lib,include}
    echo "$wheel" >"$into/nvidia/nccl/lib/libnccl.so.2" ;;
esac
END
chmod +x "$bin"/*

toolkit() { # HOME VERSION: a CUDA toolkit, its libraries named as NVIDIA names them
    local home=$root$1 major=${2%%.*}
    mkdir -p "$home"/{bin,include,lib64}
    cat >"$home/bin/nvcc" <<END
#!/bin/sh
case "\$*" in *--dryrun*) echo '#\$ TOP=$home/bin/..' >&2 ;;
*) echo 'Cuda compilation tools, release $2, V$2.1' ;; esac
END
    chmod +x "$home/bin/nvcc"
    touch "$home/lib64/libcublasLt.so.$major" "$home/lib64/libnvrtc.so.$major" \
        "$home/lib64/libnvrtc-builtins.so.$2"
}
cudnn() { # VERSION: beside the system's libraries, as in NGC's images
    local folder=$root/usr/lib/x86_64-linux-gnu
    mkdir -p "$folder" "$root/usr/include/x86_64-linux-gnu"
    for part in "" _graph _engines_precompiled _engines_runtime_compiled _heuristic; do
        echo base >"$folder/libcudnn$part.so.$1"
        ln -sf "libcudnn$part.so.$1" "$folder/libcudnn$part.so.9"
    done
    touch "$root/usr/include/x86_64-linux-gnu/cudnn_graph.h"
}
nccl() {
    mkdir -p "$root/usr/lib/x86_64-linux-gnu"
    echo base >"$root/usr/lib/x86_64-linux-gnu/libnccl.so.$1"
    ln -s "libnccl.so.$1" "$root/usr/lib/x86_64-linux-gnu/libnccl.so.2"
}
parts() { # [VARIABLE=VALUE...]: exit code in $code
    rm -rf "$TEST_TMP/out"
    env -u NVCC -u CUDACXX -u CUDA_HOME -u CUDA_PATH -u CUDA -u PIP_CONSTRAINT PATH="$bin" \
        FIND_NVCC_ROOT="$root" "$@" bash containers/cuda_parts.sh "$TEST_TMP/out" \
        >"$TEST_TMP/said" 2>&1
    code=$?
}
# expect CUDA CUDNN NCCL BY-CUDNN BY-NCCL: the recorded versions, and the origin of both
expect() {
    [ "$code" = 0 ] || { fail "exit code $code"; return; }
    local CUDA_VERSION='' CUDNN_VERSION='' NCCL_VERSION='' CUDA_HOME=''
    . "$TEST_TMP/out/build/env"
    [ "$CUDA_VERSION $CUDNN_VERSION $NCCL_VERSION" = "$1 $2 $3" ] ||
        fail "recorded: CUDA $CUDA_VERSION cuDNN $CUDNN_VERSION NCCL $NCCL_VERSION, not $1 $2 $3"
    [ "$(cat "$TEST_TMP/out/lib/libcudnn_graph.so.9")" = "$4" ] || fail "cuDNN is not from: $4"
    [ "$(cat "$TEST_TMP/out/lib/libnccl.so.2")" = "$5" ] || fail "NCCL is not from: $5"
    [ -e "$TEST_TMP/out/build/cudnn/cudnn_graph.h" ] || fail "no headers of cuDNN"
    [ "$(ls "$TEST_TMP/out/lib" | wc -l)" = 9 ] || fail "not nine libraries in out/lib"
}
. containers/versions
mkdir -p "$root"

parts
[ "$code" = 0 ] && grep -q "no CUDA toolkit: an image for CPUs" "$TEST_TMP/said" || fail "no CUDA"
toolkit /usr/local/cuda-12.4 12.4
parts
[ "$code" = 6 ] && grep -q "12.9 is needed.*cuda-12.4/bin/nvcc (12.4).*CUDA=none" \
    "$TEST_TMP/said" || fail "a toolkit that is too old: exit code $code"
parts CUDA=none
[ "$code" = 0 ] || fail "CUDA=none: exit code $code"
parts CUDA_HOME="$root/gone"
[ "$code" = 6 ] && grep -q "CUDA_HOME=$root/gone: there is no bin/nvcc.*CUDA=none" \
    "$TEST_TMP/said" || fail "a wrong CUDA_HOME: exit code $code"

# NGC 25.04: CUDA 12.9, not in PATH; cuDNN 9.9 beside the system's libraries; packages pinned.
toolkit /usr/local/cuda-12.9 12.9
cudnn 9.9.0
nccl 2.26.3
parts PIP_CONSTRAINT=/etc/pip/constraint.txt
# A wheel's file name has no version; its header has the first three numbers.
expect 12.9 "${CUDNN_VERSION%.*}" 2.26.3 "nvidia-cudnn-cu12==$CUDNN_VERSION" base
parts APT=cudnn
expect 12.9 "$CUDNN_VERSION" 2.26.3 apt base

# The base has a newer one: nothing is fetched.
rm -rf "$root"
toolkit /usr/local/cuda-13.0 13.0
cudnn 9.19.1
nccl 2.29.2
parts
expect 13.0 9.19.1 2.29.2 base base
rm "$root"/usr/lib/x86_64-linux-gnu/libnccl*
parts APT=nccl
expect 13.0 9.19.1 "$NCCL_VERSION" base apt

# Neither a package repository nor PyPI has it.
rm -rf "$root"/usr/lib
printf '#!/bin/sh\nexit 1\n' >"$bin/python3"
parts
[ "$code" = 6 ] && grep -q "no cuDNN .* from apt (libcudnn9-cuda-13) nor as a wheel: is there a " \
    "$TEST_TMP/said" || fail "no cuDNN anywhere: exit code $code"
exit "$failed"
