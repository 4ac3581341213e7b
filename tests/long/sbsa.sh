#!/bin/bash
# timeout: 1800
# The CUDA backend for aarch64 servers compiles and links here, with NVIDIA's runtime for aarch64
# or, without a network, with stubs. The result is a library that an aarch64 machine can load.
set -u
failed=0
nvcc=$(containers/find_nvcc.sh)
if [ -z "$nvcc" ] || ! command -v aarch64-linux-gnu-g++ >/dev/null; then
    echo "*** SKIP: the CUDA backend for aarch64 was NOT compiled: that needs nvcc and" \
        "aarch64-linux-gnu-g++ (containers/install.sh cross)"
    exit 77
fi
fail() { echo "FAILED: $*"; failed=1; }

# The device code is that of the x86-64 plugin, which another test builds in full. Only the host
# code differs, so here the device code is PTX, compiled quickly.
quick=
"$nvcc" --help | grep -q -- --Ofast-compile && quick="--Ofast-compile max"
make --no-print-directory CROSS=aarch64 ARCHS=compute_90a NVCC_QUICK="$quick" cuda || exit 1
plugin=build/aarch64/libfp8lab_cuda.so
read_elf() { aarch64-linux-gnu-readelf "$@" "$plugin"; }
header=$(read_elf -h)
grep -q 'Machine: *AArch64' <<<"$header" || fail "not for aarch64: $header"
grep -q 'Type: *DYN' <<<"$header" || fail "not a shared library: $header"
grep -q 'Class: *ELF64' <<<"$header" || fail "not 64 bits: $header"

dynamic=$(read_elf -d)
needed=$(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$dynamic")
echo "$plugin needs: $(tr '\n' ' ' <<<"$needed")"
major=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\).*/\1/p')
grep -qx "libcublasLt.so.$major" <<<"$needed" || fail "libcublasLt.so.$major is not needed"
cuda="lib(cublasLt|cudart)\.so\.$major"
system='lib(stdc\+\+|m|gcc_s|c|dl|pthread|rt)\.so\.[0-9]|ld-linux-aarch64\.so\.1'
foreign=$(grep -vE "^($cuda|$system)$" <<<"$needed")
[ -z "$foreign" ] || fail "needs a library that target machines lack: $foreign"
grep -q 'RUNPATH.*\$ORIGIN/\.\.:' <<<"$dynamic" || fail "does not look for libraries beside itself"
exports=$(aarch64-linux-gnu-nm -D --defined-only "$plugin" | awk '{ print $3 }')
[ "$exports" = cuda_backend_open ] || fail "does not export cuda_backend_open alone"
read_elf -S | grep -q '\.nv_fatbin' || fail "holds no code for GPUs"
# Segments are aligned to 64 KiB, the page size of GH200 kernels.
read_elf -lW | awk '$1 == "LOAD" && $NF != "0x10000" { bad = 1 } END { exit bad }' ||
    fail "a segment is not aligned to 64 KiB: does not load where pages are that large"
file "$plugin" 2>/dev/null || true
exit "$failed"
