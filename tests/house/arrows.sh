#!/bin/bash
# Fails on an include against the arrows, and on a call outside runner/main.c that ends the process.
# Without ROOT also on file-scope mutable state in the built objects, and on a cycle of calls in the
# schema.
#
#   tests/house/arrows.sh [ROOT]        ROOT: a tree with these rooms, whose sources alone are read
#
#   experiments -> runner -> model -> model/ground -> kernels/*.h <- kernels/cpu, kernels/cuda
set -u
cd "${1:-.}" || exit 2
failed=0

fail() {
    echo "$1"
    failed=1
}

# Every #include of the sources under $1 (given as a list of files) as "file:line:target", where
# target keeps its quotes or angle brackets.
includes() {
    grep -nHE '^[[:space:]]*#[[:space:]]*include' "$@" /dev/null |
        sed -E 's/^([^:]*:[0-9]+):[ \t]*#[ \t]*include[ \t]*([<"][^>"]*[>"]).*/\1:\2/'
}

# room NAME GLOBS... -- ALLOWED-REGEX: all quoted includes of the files must match the regex.
room() {
    local name=$1 files=() line target
    shift
    while [ "$1" != -- ]; do
        [ ! -e "$1" ] || files+=("$1")
        shift
    done
    [ ${#files[@]} -gt 0 ] || return 0
    while IFS= read -r line; do
        target=${line#*:*:}
        if ! [[ $target =~ ^\"$2\"$ ]]; then fail "${line%:*}: $name may not include $target"; fi
    done < <(includes "${files[@]}" | grep ':"')
}

# kernels/*.h and *.inc are the interface; a backend's private headers are in its folder.
iface='kernels/[a-z0-9_]+\.(h|inc)'
room "the kernel interface" kernels/*.[ch] -- "$iface"
room "kernels/cpu" kernels/cpu/*.[ch] -- \
    "($iface|kernels/cpu/[a-z0-9_]+\.(h|inc)|kernels_hash\.h)"
room "kernels/certify" kernels/certify/*.[ch] -- "($iface|kernels/certify/[a-z0-9_]+\.h)"
room "kernels/cuda" kernels/cuda/*.{c,h,cu,cuh} -- \
    "($iface|kernels/cuda/[a-z0-9_]+\.(h|cuh)|kernels_hash\.h)"
room "model/ground" model/ground/*.[ch] -- "(model/ground/[a-z0-9_]+\.h|kernels/base\.h)"
model='model/(ground/)?[a-z0-9_]+\.h'
room "model" model/*.[ch] -- "($model|$iface)"
shopt -s extglob nullglob

# The rooms of the runner, from the bottom up: each may include the rooms before it, the verbs all.
below=""
for part in base ingest chat cache hardware plan profile weights script record certify tensorboard \
    bundle health live generate job worker run infer compare bench doctor advise launch repro; do
    below+="${below:+|}$part"
    room "runner/$part" runner/$part/!(backends).[ch] -- \
        "(runner/($below)/[a-z0-9_]+\.h|$model|$iface|kernels/certify/[a-z0-9_]+\.h|sources\.h)"
done
room "runner/plan/backends.c" runner/plan/backends.c -- \
    "((runner/base|runner/plan|kernels|kernels/cpu)/[a-z0-9_]+\.h|$model|kernels_hash\.h)"
room "the verbs" runner/*.[ch] -- "((runner|runner/($below)|kernels)/[a-z0-9_]+\.h|$model)"
for folder in runner/*/; do
    [[ $folder =~ ^runner/($below)/$ ]] || fail "$folder has no place among the rooms above"
done

# Within a room the sources form no circle of includes; x.c and x.h count as one.
for folder in kernels kernels/*/ model model/ground runner runner/*/; do
    folder=${folder%/}
    circle=$(grep -oHE "^#include \"$folder/[a-z0-9_]+\.h" "$folder"/*.* /dev/null 2>/dev/null |
        sed -E 's@^[^:]*/([a-z0-9_]+)\.[^:]*:.*/([a-z0-9_]+)\.h@\1 \2@' | tsort 2>&1 >/dev/null)
    circle=$(sed -n 's/^tsort: \([a-z0-9_]*\)$/\1/p' <<<"$circle" | tr '\n' ' ')
    [ -z "$circle" ] || fail "$folder: these include each other in a circle: ${circle% }"
done

# Libraries by their headers. $1: the room; $2: a regex of angle-bracket targets; the rest: files
# that may not include them.
forbid() {
    local what=$1 pattern=$2 line
    shift 2
    [ $# -gt 0 ] || return 0
    while IFS= read -r line; do
        fail "${line%:*}: $what may not include ${line#*:*:}"
    done < <(includes "$@" | grep -E ":<($pattern)>")
}
lua='lua[^>]*|lauxlib\.h|lualib\.h'
others='archive[^>]*|oniguruma\.h|zlib\.h|openssl/[^>]*|jansson\.h'
gpu='cuda[^>]*|cublas[^>]*|nccl\.h|cudnn[^>]*|nvml\.h'
forbid "kernels" "$lua|$others" kernels/*.[ch] kernels/*/*
forbid "the kernel interface" "$gpu|immintrin\.h|arm_neon\.h|omp\.h" kernels/*.h
forbid "the CPU backend" "$gpu" kernels/cpu/*
forbid "model" "$lua|$gpu|archive[^>]*|oniguruma\.h|zlib\.h" model/*.[ch] model/*/*.[ch]
forbid "runner" "$gpu|immintrin\.h|arm_neon\.h" runner/*.[ch] runner/*/*.[ch]

# Ending the process: main.c alone, and it returns. _exit is for the child between fork and exec.
while IFS= read -r line; do
    fail "$line only runner/main.c ends the process"
done < <(awk '{ line = $0
                gsub(/\/\*.*\*\/|\/\/.*|^ \* .*/, "", line)
                if (line ~ /(^|[^_[:alnum:].>])(exit|abort|quick_exit)[[:space:]]*\(/)
                    print FILENAME ":" FNR ":" line }' \
    kernels/*.[ch] kernels/*/*.[ch] model/*.[ch] model/*/*.[ch] runner/!(main).[ch] runner/*/*.[ch])

# State: a named object in .data, .bss, .tdata, .tbss or COMMON. .data.rel.ro is constant once the
# program is loaded (tables of pointers). Names that compilers make are no state. They contain a dot
# or begin with "__". nvcc registers kernels with __device_stub__ and __cudaFatCubinHandle.
# <iostream>, which CUB includes, adds the initialiser _ZStL8__ioinit.
if [ -z "${1:-}" ]; then
    build=${BUILD:-build/release}
    [ -e "$build/runner/main.o" ] || fail "$build has no objects; build first"
    while IFS= read -r line; do
        fail "$line"
    done < <(find "$build"/{kernels,model,runner} -name '*.o' -exec objdump -t {} + |
        awk -v build="$build/" '
            $2 == "file" && $3 == "format" { object = substr($1, length(build) + 1) }
            NF >= 4 && $(NF-2) ~ /^(\.data|\.bss|\.tdata|\.tbss|\*COM\*)/ &&
            $(NF-2) !~ /^\.data\.rel\.ro/ &&
            $NF !~ /^\./ && $NF !~ /^__/ &&
            $NF !~ /__device_stub__|__cudaFatCubinHandle|^_ZStL8__ioinit$/ {
                print object " \x27" $NF "\x27 is file-scope mutable state (" $(NF-2) ")" }')

    # The files of the schema call each other in one direction (runner/script/README.md): tsort
    # fails on a cycle, and names its members.
    objects=(runner/script/schema*.c)
    objects=("${objects[@]/#/$build/}")
    cycle=$(nm -A "${objects[@]/%.c/.o}" | sed 's@^[^ :]*/@@; s@:@ @' |
        awk '$2 == "U" { user[++n] = $1; used[n] = $3 }
             $3 ~ /^[TRD]$/ { owner[$4] = $1 }
             END { for (i = 1; i <= n; i++)
                       if (used[i] in owner) print user[i], owner[used[i]] }' |
        tsort 2>&1 >/dev/null) || fail "runner/script: $(tr '\n' ' ' <<<"$cycle")"
fi

[ "$failed" = 0 ] && echo "arrows hold"
exit "$failed"
