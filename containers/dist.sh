#!/bin/bash
# Lays out a folder that runs on another machine of the same architecture with an equal or newer C
# library: containers/dist.sh PROGRAM OUT [PLUGIN]
#
#   OUT/bin/fp8lab   OUT/lib/*.so*   OUT/experiments/   OUT/licenses/   OUT/README.md
#   OUT/lib/fp8lab/ with PLUGIN, the CUDA backend, which finds NVIDIA's libraries by itself
#
# PROGRAM is fp8lab linked with DT_RPATH, as `make dist` links it. OUT gets every library that it
# loads, directly or not, with its licence. The C library stays behind.
set -eu

program=$1
out=$2
rm -rf "$out"
mkdir -p "$out"/{bin,lib,licenses}
cp "$program" "$out/bin/fp8lab"
strip --strip-debug "$out/bin/fp8lab"

# The C library and its loader must be of one version, so both are the target machine's.
of_the_c_library='^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv)\.so'
ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' |
    while read -r name path; do
        if [[ $name =~ $of_the_c_library ]]; then continue; fi
        cp -L "$path" "$out/lib/$name"
        # dpkg may know the path from before the merge of /lib into /usr/lib.
        package=$(dpkg -S "$(realpath "$path")" 2>/dev/null ||
            dpkg -S "${path#/usr}" 2>/dev/null || dpkg -S "$path" 2>/dev/null || true)
        package=${package%%:*}
        if [ -n "$package" ] && [ -e "/usr/share/doc/$package/copyright" ]; then
            cp -L "/usr/share/doc/$package/copyright" "$out/licenses/$package"
        fi
    done
[ -z "${3:-}" ] || install -D "$3" "$out/lib/fp8lab/$(basename "$3")"
cp -r experiments "$out/"
cp README.md "$out/"
cp LICENSE "$out/licenses/fp8lab"
echo "$out: $(du -sh "$out" | cut -f1), $(find "$out/lib" -name '*.so*' | wc -l) libraries"
