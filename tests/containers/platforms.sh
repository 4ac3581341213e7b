#!/bin/bash
# containers/repro.sh on each kind of machine: the reference that it uses, a machine without one,
# the summary and the exit code. A stand-in for fp8lab simulates the machine.
set -u
: "${TEST_TMP:=$(mktemp -d)}"
failed=0
fail() {
    echo "FAILED: $*"
    sed 's/^/    /' "$TEST_TMP/out" "$TEST_TMP/said" | tail -12
    failed=1
}
cat >"$TEST_TMP/fp8lab" <<'END'
#!/bin/bash
# $GPU: the product name; $VERDICT and $CODE: the result of repro if the bundle's name contains $OF
echo "$*" >>"$TEST_TMP/calls"
case $1 in
hw)
    query=${*: -1}
    case $query in
    'gpu.product_name~"'*) name=${query#*\"} && [[ $GPU == ${name%\"} ]] ;;
    'gpu.product_name="'*) name=${query#*\"} && [[ $GPU == "${name%\"}" ]] ;;
    'gpu.count>=1') [ -n "$GPU" ] ;;
    *) exit 2 ;;
    esac
    exit $((3 * $?)) ;;
run)
    folder=$4
    mkdir -p "$folder"
    for row in bf16 fp8.delayed; do
        echo "$row" >"$folder/20260101T000000Z-repro-gpu-$row-01234567.tar.zst"
    done ;;
repro)
    bundle=$4
    if [[ ${OF:+x} && $bundle == *"$OF"* ]]; then
        [ -z "$VERDICT" ] || echo "$VERDICT  ${bundle##*/}"
        exit "$CODE"
    fi
    echo "bitwise equal  ${bundle##*/}, 60 steps" ;;
esac
END
chmod +x "$TEST_TMP/fp8lab"
repro() { # [VARIABLE=VALUE...]: exit code in $code
    rm -rf "$TEST_TMP/calls" "$TEST_TMP/runs"
    env -u ARCH -u ONLY -u PLATFORM TEST_TMP="$TEST_TMP" GPU= OF= VERDICT= CODE=0 \
        FP8LAB="$TEST_TMP/fp8lab" RUNS="$TEST_TMP/runs" "$@" containers/repro.sh \
        >"$TEST_TMP/out" 2>"$TEST_TMP/said"
    code=$?
}
ends() { # CODE LAST-LINE
    [ "$code" = "$1" ] && [ "$(tail -1 "$TEST_TMP/out")" = "$2, $(uname -m), native" ] ||
        fail "exit code $code, not $1, or the last line is not: $2"
}
called() { grep -c -- "$1" "$TEST_TMP/calls"; }

# A reference: each of its bundles, once, and nothing else.
repro
ends 0 "6 of 6 bitwise equal: cpu"
[ "$(called '^repro .*reference/cpu/')" = 6 ] && [ "$(called ^run)" = 0 ] || fail "cpu: other calls"
repro GPU="NVIDIA H200"
ends 0 "5 of 5 bitwise equal: h200"
[ "$(called '^repro .*reference/h200/')" = 5 ] || fail "h200: other calls"
repro GPU="NVIDIA H200" ONLY=blockwise
ends 0 "1 of 1 bitwise equal: h200"
repro ONLY=nothing
[ "$code" = 2 ] || fail "ONLY names no bundle: exit code $code"

# The worst verdict is the exit code, and a bundle without a verdict is named.
repro OF=fp8.delayed VERDICT=different CODE=5
ends 5 "5 of 6 bitwise equal: cpu"
grep -q '^  different  repro-cpu-fp8.delayed' "$TEST_TMP/out" ||
    fail "no line for the different one"
repro OF=mxfp8 CODE=1
ends 1 "5 of 6 bitwise equal: cpu"
grep -q '^  no verdict *repro-cpu-fp8.mxfp8' "$TEST_TMP/out" ||
    fail "no line for the bundle without a verdict"

# No reference: the experiment runs twice with equal bits. The CPU's bundles run on the GPU within
# their tolerance. The new bundles stay as candidates.
for machine in "NVIDIA GH200 480GB:gh200" "NVIDIA GB10:gb10" "NVIDIA L4:gpu"; do
    name=${machine#*:}
    repro GPU="${machine%:*}" OF=reference/cpu VERDICT="within tolerance" CODE=0
    ends 0 "2 of 8 bitwise equal: $name"
    grep -q "there is no reference for $name:" "$TEST_TMP/said" || fail "$name: not reported"
    [ "$(called '^run experiments/repro_gpu.lua .*--anywhere')" = 1 ] || fail "$name: not run once"
    [ "$(called '^repro .*first-.*--exact --anywhere')" = 2 ] || fail "$name: not to the bit"
    [ "$(called '^repro .*reference/cpu/.*--backend cuda')" = 6 ] || fail "$name: no CPU reference"
    [ "$(cat "$TEST_TMP/runs/candidate-$name/repro-gpu-bf16.tar.zst")" = bf16 ] ||
        fail "$name: no candidates"
done
repro GPU="NVIDIA GB10" OF=first- VERDICT=different CODE=5
ends 5 "6 of 8 bitwise equal: gb10"
repro PLATFORM=gh200
ends 0 "8 of 8 bitwise equal: gh200"

# No native program of another architecture runs here.
other=arm64
[ "$(uname -m)" = x86_64 ] || other=amd64
env -u FP8LAB NATIVE=1 ARCH=$other RUNS="$TEST_TMP/runs" containers/repro.sh >"$TEST_TMP/out" \
    2>"$TEST_TMP/said"
[ $? = 6 ] && grep -q "this machine cannot run $other programs natively" "$TEST_TMP/said" ||
    fail "ARCH=$other NATIVE=1"
exit "$failed"
