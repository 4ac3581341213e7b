#!/bin/bash
# The folder of `make dist` runs from another place, with an empty environment and without this
# machine's libraries, except the C library. If the CUDA backend was built, it has machine code for
# the requested devices and finds NVIDIA's libraries in the places of the other machine.
set -u
out=$TEST_TMP/dist
plugin=$BUILD/libfp8lab_cuda.so
[ -e "$plugin" ] || plugin=
containers/dist.sh "$BUILD/fp8lab-relocatable" "$out" "$plugin" || exit 1
mv "$out" "$TEST_TMP/moved elsewhere" || exit 1
out="$TEST_TMP/moved elsewhere"
failed=0

said=$(cd / && env -i "$out/bin/fp8lab" --version) || failed=1
[ "$said" = "$("$FP8LAB" --version)" ] || { echo "--version says '$said'"; failed=1; }
(cd / && env -i "$out/bin/fp8lab" hw --json >"$TEST_TMP/hw.json") || failed=1

foreign=$(env -i ldd "$out/bin/fp8lab" | awk '$2 == "=>"' | grep -vF "=> $out/" |
    grep -vE '^\s*(libc|libm|libdl|libpthread|librt|libresolv)\.so' | grep -v '^\s*linux-vdso')
[ -z "$foreign" ] || { echo "libraries from outside the folder:"; echo "$foreign"; failed=1; }

[ -n "$(ls "$out/licenses")" ] || { echo "the licences are missing"; failed=1; }
for library in "$out"/lib/*; do
    [ -L "$library" ] && { echo "$library is a link, and may point nowhere elsewhere"; failed=1; }
done
if [ -e "$out/experiments/quickstart.lua" ]; then
    (cd "$TEST_TMP" && env -i "$out/bin/fp8lab" check "$out/experiments/quickstart.lua") || failed=1
fi

[ -n "$plugin" ] || { echo "without a CUDA backend, since none was built"; exit "$failed"; }
plugin=$out/lib/fp8lab/libfp8lab_cuda.so
dynamic=$(readelf -d "$plugin") || failed=1
needed=$(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$dynamic")
grep -qE '^libcublasLt\.so\.[0-9]+$' <<<"$needed" || { echo "cuBLASLt is not needed"; failed=1; }
system='lib(stdc\+\+|m|gcc_s|c|dl|pthread|rt)|ld-linux-[a-z0-9_-]+'
foreign=$(grep -vE "^(libcublasLt|$system)\.so\.[0-9]+$" <<<"$needed")
[ -z "$foreign" ] || { echo "the CUDA backend needs a local library: $foreign"; failed=1; }
grep -qE 'RUNPATH.*\[\$ORIGIN/\.\.:' <<<"$dynamic" ||
    { echo "the CUDA backend does not look for libraries in lib/"; failed=1; }
inside=$(find "$out" -name 'lib*.so*' | grep -E '/lib(cuda|cublas|cudnn|nccl|nvrtc|nvidia)')
[ -z "$inside" ] || { echo "the folder contains NVIDIA's own libraries: $inside"; failed=1; }
if [ ! -e /dev/nvidiactl ]; then # the backend is found and opens, but there is no driver
    said=$(cd / && env -i "$out/bin/fp8lab" bench gemm --backend cuda 2>&1)
    [[ $? = 3 && $said = *"no NVIDIA driver is installed"* ]] ||
        { echo "the CUDA backend does not open from its new place: $said"; failed=1; }
fi

# Its recorded compile command names the compiler and the devices.
nvcc=$(cut -d' ' -f1 "$BUILD/with.nvcc")
cuobjdump=$(command -v "$(dirname "$nvcc")/cuobjdump" || command -v cuobjdump)
if [ -n "$cuobjdump" ]; then
    asked=$(grep -oE 'code=sm_[0-9a-z]+' "$BUILD/with.nvcc" | cut -d= -f2)
    wanted=$(for source in kernels/cuda/*.cu; do
        for arch in $asked; do echo "$(basename "$source" .cu).$arch.cubin"; done
    done | sort)
    # Code under the name of the library itself belongs to the CUDA runtime.
    have=$("$cuobjdump" --list-elf "$plugin" | sed 's/.*: //' | grep -v 'libfp8lab_cuda\.' | sort)
    [ "$have" = "$wanted" ] || {
        echo "machine code for other devices than requested ($asked):"
        diff <(echo "$wanted") <(echo "$have") | head
        failed=1
    }
else
    echo "no cuobjdump: the devices of the machine code were not checked"
fi
exit "$failed"
