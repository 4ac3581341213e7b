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
choosing() { sed -n 's/.*; choosing algorithms took \([0-9.]*\) of it.*/\1/p' log; }
shapes() { # "ALL NEW": shapes of the run, and those that it timed itself
    sed -n 's/.*choice table: \([0-9]*\) shapes, \([0-9]*\) of them.*/\1 \2/p' log | head -1
}
results() { field "$(newest "$1")" 'run["results_sha256"]'; }
kept() { grep -o '"gemm [^"]*"' "$choices" | wc -l; }

# --choices none: what the child timed serves this run, and nothing is kept.
times 2
run alone 0 --choices none
read -r all new <<<"$(shapes)"
timed=$(certified)
[ "$timed" -gt 0 ] && [ "$new" -gt 0 ] && [ "$new" -le "$all" ] &&
    [ $((new + timed)) -ge "$all" ] || fail "the run timed $new of $all, the child $timed"
expect "half a second a shape" "$((timed / 2)).$((timed % 2 * 5))" "$(choosing)"
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
expect "time of choosing" 0.0 "$(choosing)"
expect "table" "$(field "$(newest first)" 'run["inputs"]["choices"]')" \
    "$(field "$(newest again)" 'run["inputs"]["choices"]')"
expect "the cache" "$before" "$(sha256sum <"$choices")"

# The run's own table comes before all: the child certifies its algorithms and times nothing, though
# timing would find some that are wrong. The file has the shapes of certificates too.
python3 - "$choices" >table.txt <<'P'
import json, sys
table = json.load(open(sys.argv[1]))["tables"][0]
print("fp8lab choices 1", "device " + table["device"], "libraries " + table["libraries"],
      *table["choices"], sep="\n")
P
mv "$choices" kept.json
own() { # RUNS: its certificates were made now, and neither it nor the child timed anything
    says " certificates made now"
    grep -q " 0 certificates made now" log && fail "nothing was certified"
    expect "timed by the child" 0 "$(certified)"
    [ ! -e "$choices" ] || fail "something was timed"
    expect "results" "$(results alone)" "$(results "$1")"
}
times 1
rm "$certificates"
run table 0 --choices table.txt
own table
case_name=repro
rm "$certificates"
"$FP8LAB" repro table/*.zst --exact --backend cuda --threads 1 --runs repro >out 2>log
expect "exit code" 0 $?
tar -xOf "$(newest repro)" --wildcards '*/data/logs/runner.log' >log
own repro

# Resumed: its table, not the kept one, which is right here.
case_name=resume
run_tiny --runs stop --backend cuda --set recipe=bf16 --set train.steps=1000000 \
    --choices table.txt &
await_step stop 2
kill -TERM "$(runner_of stop)"
wait
rm "$certificates"
"$FP8LAB" run --resume stop/*/ --backend cuda --threads 1 >out 2>log &
resumed=$!
await_words ": resuming" log
kill -TERM $resumed
wait
grep "certificates made now" stop/*/data/logs/runner.log | tail -1 >log
expect "timed by the resumed run's child" 0 "$(certified)"
grep -q " 0 certificates made now" log && fail "nothing was certified"
[ ! -e "$choices" ] || fail "the resumed run timed something"

# A table whose algorithms compute wrong bits fails, though timing would find good ones.
times 2
sed 's/ : ..$/ : 01/' table.txt >wrong.txt
rm "$certificates"
run odd 3 --choices wrong.txt
says "computes wrong results here, and there is no other way"
rm "$certificates"
"$FP8LAB" run --resume stop/*/ --backend cuda --threads 1 --choices wrong.txt >out 2>log
expect "exit code" 3 $?
grep -q " : 01" stop/*/data/choices.txt && fail "a table that fails was taken over"

# Certificates are there, choices are not: the run times.
times 4
rm -f "$certificates" "$choices"
run certify 0
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
