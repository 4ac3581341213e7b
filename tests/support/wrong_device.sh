# Sourced after cli/lib.sh: makes bin/fp8lab with a stand-in for the CUDA backend beside it
# (stand_in/wrong_plugin.c), and what tests of certificates share. The file bin/mistake says what is
# wrong with the device.
mkdir bin && cp "$FP8LAB" bin/fp8lab
FP8LAB=$PWD/bin/fp8lab
. "$root/tests/support/plugin_kernels.sh"
${CC:-cc} -std=c11 -D_GNU_SOURCE -shared -fPIC -O1 -I"$root" -Wl,-Bsymbolic \
    -o bin/libfp8lab_cuda.so "$root/tests/support/stand_in/wrong_plugin.c" \
    "$root/tests/support/wrong_backend.c" "$kernels" -fopenmp -lm || exit 1
kept=$XDG_CACHE_HOME/fp8lab/certificates.json

# WRONG_NOTHING, WRONG_IGNORED and so on: the numbers of enum wrong_kind.
while read -r number kind; do readonly "$kind=$((number - 1))"; done < <(
    ${CC:-cc} -E -P -I"$root" "$root/tests/support/wrong_backend.h" | tr -d ' \n' |
        grep -o 'enumwrong_kind{[^}]*' | cut -d'{' -f2 | tr , '\n' | nl)
[ "${WRONG_NOTHING:-}" = 0 ] || exit 1

run() { # RUNS CODE ARGS...: the tiny experiment on the stand-in
    local runs=$1 wanted=$2
    shift 2
    run_tiny --runs "$runs" --backend cuda --set train.steps=4 "$@"
    expect "exit code" "$wanted" $code
}
device() { # MISTAKE: a device that has it, and no certificates yet
    echo "$1" >bin/mistake
    rm -f "$kept"
}
part() { tar -xOf "$(newest "$1")" --wildcards "*/data/$2"; } # RUNS FILE
value() { python3 -c 'import json, sys; o = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }
count() { # KEY WORD: kept certificates
    python3 -c 'import json, os, sys
tables = json.load(open(sys.argv[1]))["tables"] if os.path.exists(sys.argv[1]) else []
print(sum(c[sys.argv[2]] == sys.argv[3] for t in tables for c in t["certificates"]))' "$kept" "$@"
}
