#!/bin/bash
# bench gemm: a figure for every dtype, one JSON object, and refusals that name what there is.
set -u
failed=0
fail() {
    echo "$1"
    failed=1
}
small="--m 64 --n 48 --k 32 --repeats 3 --threads 1 --backend cpu"

rows=$("$FP8LAB" bench gemm $small 2>/dev/null | grep -c 'GFLOP/s')
[ "$rows" = 3 ] || fail "wanted rows for f32, bf16 and e4m3, found $rows"

for scale in tensor row 1x128 1x32; do
    json=$("$FP8LAB" bench gemm $small --dtype e4m3 --scale "$scale" --json 2>/dev/null) ||
        fail "e4m3 $scale: exit code $?"
    for want in '"schema":"fp8lab.bench/1"' '"kind":"gemm"' '"backend":"cpu"' '"dtype":"e4m3"' \
        "\"scale\":\"$scale\"" '"m":64' '"gflops_median":'; do
        case $json in *"$want"*) ;; *) fail "e4m3 $scale: no $want in $json" ;; esac
    done
done

refused() { # words of the message, then arguments
    local words=$1 text
    shift
    text=$("$FP8LAB" bench "$@" 2>&1)
    [ $? = 2 ] || fail "bench $*: exit code is not 2"
    case $text in *"$words"*) ;; *) fail "bench $*: \"$words\" is not in \"$text\"" ;; esac
}
refused 'only gemm' attention
refused 'f32, bf16, e4m3 or e5m2, not "fp4"' gemm --dtype fp4
refused 'tensor, row, 1x128 or 1x32, not "2x2"' gemm --scale 2x2
refused '--m' gemm --m 0
exit "$failed"
