#!/bin/bash
# A stand-in for llm.c's train_gpt2cu: accepts its flags, checks the token file, prints its lines.
#
# PEER_MODE: steady (ten steps of 500 ms, then 60, 50, 90 ms in turn; 1 ms less with -ge 1).
# Instead: dies, unfused (dies with -ge 1), garbage, nan, short (without the last step), hangs.
set -eu
declare -A flag
[ $(($# % 2)) = 0 ] || { echo "Usage:   ./train_gpt2cu [options]" >&2; exit 1; }
while [ $# -gt 0 ]; do flag[$1]=$2; shift 2; done
[ "${flag[-e]} ${flag[-v]} ${flag[-m]} ${flag[-s]}" = "d12 ${flag[-x]} 0 0" ]
[ $((flag[-b] * flag[-t])) = "${flag[-d]}" ]
[ "$PEER_MODE" != hangs ] || exec sleep 600 # before any child that would outlive it when killed

read -r magic version count <<<"$(od -An -td4 -N12 "${flag[-i]}")"
[ "$magic $version" = "20240520 1" ] || { echo "Bad magic in the data file"; exit 1; }
[ "$(stat -c %s "${flag[-i]}")" = $((1024 + 2 * count)) ] && [ "$count" -gt "${flag[-d]}" ] ||
    { echo "Error: file size is not as expected"; exit 1; }
largest=$(od -An -v -w2 -tu2 -j1024 -N20000 "${flag[-i]}" | sort -n | tail -1)
[ "$largest" -lt 50257 ] && [ "$largest" -gt 40000 ] || { echo "these are no tokens"; exit 1; }

case $PEER_MODE in
dies | unfused)
    [ "$PEER_MODE" = unfused ] && [ "${flag[-ge]}" != 1 ] || {
        echo "[CUDA ERROR] at file llmc/zero.cuh:459:"
        echo "CUDA driver version is insufficient for CUDA runtime version"
        exit 1
    } ;;
garbage) echo "it works"; exit 0 ;;
esac
echo "Multi-GPU support is disabled. Using a single GPU."
printf '| %-21s | %-50s |\n' device "NVIDIA stand-in" precision BF16
echo "val loss -nan"
steps=${flag[-x]} loss=10.987654
[ "$PEER_MODE" != nan ] || loss=nan
[ "$PEER_MODE" != short ] || steps=$((steps - 1))
for ((step = 1; step <= steps; step++)); do
    case $((step % 3)) in 0) ms=60 ;; 1) ms=50 ;; *) ms=90 ;; esac
    [ $step -gt 10 ] || ms=500
    [ "${flag[-ge]}" != 1 ] || ms=$((ms - 1))
    printf 'step %4d/%d | loss %s (+nanz)| norm 1.2345 (+nanz)| lr 3.00e-04 | %d.00 ms | ' \
        $step "${flag[-x]}" $loss $ms
    echo "-100.0% bf16 MFU | 566000 tok/s"
done
echo "total average iteration time: 60.000000 ms"
