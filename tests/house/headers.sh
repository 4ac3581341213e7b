#!/bin/bash
# Every header compiles alone, as C11, without a warning. The build shows it of a header that its
# own source includes first; the others are compiled here. Headers of the operator interface also
# compile as C++, because the CUDA backend includes them. Headers without an include guard are
# bodies that other files include after some definitions. They are listed here, so a forgotten guard
# is found.
set -u
failed=0
flags=(-I. -I"${BUILD:-build/release}/gen" -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unused-parameter
    -fsyntax-only)
# shellcheck disable=SC2046  # a list of flags
flags+=($(pkg-config --cflags lua5.4 libarchive jansson libcrypto oniguruma zlib))
: "${CC:=gcc}" "${CXX:=g++}"

alone() { # HEADER COMPILER...
    local header=$1 said
    shift
    if ! said=$(echo "#include \"$header\"" | "$@" "${flags[@]}" - 2>&1); then
        echo "$header does not compile alone with: $*"
        head -5 <<<"$said"
        failed=1
    fi
}

first_in_its_source() { # HEADER
    [ -e "${1%.h}.c" ] && [ "$(grep -m1 '^#' "${1%.h}.c")" = "#include \"$1\"" ]
}

for header in kernels/*.h kernels/cpu/*.h model/*.h model/*/*.h runner/*.h runner/*/*.h \
    tests/support/*.h; do
    [ -e "$header" ] || continue
    if ! grep -q '^#ifndef FP8LAB_' "$header"; then
        echo "$header has no include guard: compiled where it is included"
        continue
    fi
    first_in_its_source "$header" && continue
    # shellcheck disable=SC2086  # it may have words of its own: ccache gcc
    alone "$header" $CC -std=c11 -fopenmp -x c
done
if command -v "$CXX" >/dev/null 2>&1; then
    for header in kernels/*.h; do
        alone "$header" "$CXX" -std=c++17 -x c++
    done
else
    echo "no C++ compiler ($CXX): the headers of kernels/ were compiled as C only"
fi
[ "$failed" = 0 ] && echo "headers compile alone"
exit "$failed"
