#!/bin/bash
# Prints what the build and the tests find on this machine, and what is skipped without it:
# containers/info.sh PKG-CONFIG-NAME...
set -u

row() { printf '  %s %-24s %s\n' "$1" "$2" "$3"; }
# found NAME VALUE CONSEQUENCE: a tick and VALUE, or, without VALUE, a cross and CONSEQUENCE.
found() {
    if [ -n "$2" ]; then row "✓" "$1" "$2"; else row "✗" "$1" "$3"; fi
}
version_of() { command -v "$1" >/dev/null 2>&1 && "$1" --version 2>/dev/null | head -1; }

echo "Machine"
row " " "architecture" "$(uname -m), $(nproc) processors"
row " " "system" "$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-unknown}")"
echo "Build"
found "compiler" "$(version_of "${CC:-gcc}")" "nothing can be built: make setup"
found "OpenMP" "$(echo 'int main(void){return 0;}' |
    "${CC:-gcc}" -fopenmp -x c -o /dev/null - 2>/dev/null && echo "-fopenmp")" "cannot be linked"
for package in "$@"; do
    found "$package" "$(pkg-config --modversion "$package" 2>/dev/null)" \
        "nothing can be built: make setup"
done
echo "Backends"
row "✓" "cpu" "the reference, always built"
nvcc=$("$(dirname "$0")/find_nvcc.sh")
found "cuda" "${nvcc:+$("$nvcc" --version | grep -o 'release [0-9.]*' | sed 's/^/nvcc, /')}" \
    "no nvcc was found, so the plugin is not built: runs use the CPU"
echo "Images"
found "container tool" "$("$(dirname "$0")/image.sh" tool 2>/dev/null)" \
    "make image needs docker, podman or buildah"
echo "Text of the quick start"
found "bible" "$(command -v bible)" "bible-kjv is not installed: the licence texts take its place"
echo "Tests"
found "cmocka" "$(pkg-config --modversion cmocka 2>/dev/null)" "no tests: make test installs it"
found "python packages" "$([ -x build/venv/bin/python ] && echo build/venv)" \
    "no comparisons with Python packages: make test-venv"
found "aarch64 compiler" "$(version_of aarch64-linux-gnu-gcc)" \
    "golden values are not checked on aarch64: containers/install.sh cross"
found "aarch64 emulator" "$(command -v qemu-aarch64-static || command -v qemu-aarch64)" \
    "golden values are not checked on aarch64: containers/install.sh cross"
