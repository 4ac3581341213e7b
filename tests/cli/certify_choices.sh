#!/bin/bash
# The child that certifies a device takes kept choices of algorithms, and hands back what it timed:
# the run times that no more. Nothing is handed back from a GPU that is slowed down, nor if a way
# fails; then the run times its own, and its bits are the same. The device is a stand-in
# (stand_in/chooser_plugin.c).
set -u
. tests/cli/lib.sh
mkdir bin && cp "$FP8LAB" bin/fp8lab
FP8LAB=$PWD/bin/fp8lab
. "$root/tests/support/plugin_kernels.sh"
${CC:-cc} -std=c11 -D_GNU_SOURCE -shared -fPIC -O1 -I"$root" -Wl,-Bsymbolic \
    -Wl,--wrap=cpu_backend_open -o bin/libfp8lab_cuda.so \
    "$root/tests/support/stand_in/chooser_plugin.c" "$root/tests/cli/chooser.c" \
    "$kernels" -fopenmp -lm || exit 1
choices=$XDG_CACHE_HOME/fp8lab/choices.json certificates=$XDG_CACHE_HOME/fp8lab/certificates.json

times() { echo "$*" >bin/chooser; } # VALUE: what timing finds now; an odd one computes wrong bits
run() { # RUNS CODE ARGS...: the tiny experiment on the stand-in; its runner.log goes to log
    local wanted=$2
    case_name=$1
    run_tiny --runs "$1" --backend cuda --set recipe=bf16 --set train.steps=2 "${@:3}"
    expect "exit code" "$wanted" $code
    [ "$wanted" != 0 ] ||
        tar -xOf "$(newest "$1")" --wildcards '*/data/logs/runner.log' >log
}
certified() { sed -n 's/.*ways not used, \([0-9]*\) shapes timed.*/\1/p' log; }
shapes() { # "ALL NEW": shapes of the run, and those that it timed itself
    sed -n 's/.*choice table: \([0-9]*\) shapes, \([0-9]*\) of them.*/\1 \2/p' log | head -1
}
results() { field "$(newest "$1")" 'run["results_sha256"]'; }
kept() { grep -o '"gemm [^"]*"' "$choices" | wc -l; }

# Without a cache of choices nothing is offered and nothing comes back.
times 2
run alone 0 --choices none
read -r all new <<<"$(shapes)"
expect "timed by the run" "$all" "$new"
expect "timed by the child" 0 "$(certified)"
[ ! -e "$choices" ] || fail "--choices none kept something"

# The stand-in knows the direction of a product, and certificates have the first one only.
rm "$certificates"
run first 0
read -r all new <<<"$(shapes)"
timed=$(certified)
[ "$new" -lt "$all" ] && [ "$timed" -ge $((all - new)) ] ||
    fail "the run timed $new of $all shapes after the child timed $timed"
expect "kept choices" "$((timed + new))" "$(kept)"
expect "results" "$(results alone)" "$(results first)"
ls first/*/offered.json >/dev/null 2>&1 && fail "offered.json is left"

# Timing would find something else now. The child, too, takes what is kept.
times 4
rm "$certificates"
before=$(sha256sum <"$choices")
run again 0
says "certificates made now"
expect "timed by the child" 0 "$(certified)"
expect "table" "$(field "$(newest first)" 'run["inputs"]["choices"]')" \
    "$(field "$(newest again)" 'run["inputs"]["choices"]')"
expect "the cache" "$before" "$(sha256sum <"$choices")"

# Certificates are there, choices are not: the run times.
rm "$choices"
run certified 0
expect "all and timed by the run" "$all $all" "$(shapes)"

# A slow GPU. The driver is a stand-in.
mkdir driver
cc -shared -fPIC -o driver/libnvidia-ml.so.1 "$root/tests/support/stand_in/nvml.c" || exit 1
rm "$choices" "$certificates"
LD_LIBRARY_PATH=$PWD/driver FAKE_PROCESSES=1 FAKE_THROTTLE=68 run hot 0
says "the algorithms that the certificates timed are not used: while GPU 0 was certified, it was"
expect "all and timed by the run" "$all $all" "$(shapes)"
[ ! -e "$choices" ] || fail "times of a slow GPU were kept"
expect "results" "$(results alone)" "$(results hot)"

# A way that fails, here one without another.
times 1
rm -f "$certificates"
run wrong 3
says "computes wrong results here, and there is no other way"
[ ! -e "$choices" ] || fail "choices were kept although a way failed"
exit $failed
