#!/bin/bash
# long: 20
# Small random models of each family, as transformers stores them: F32, F16, BF16, shards, tied,
# transposed. The loss of a text in f32 is the one that transformers gives (losses.txt;
# tests/long/weights.sh records it), to 1e-5.
set -u
. tests/cli/lib.sh
. "$root/tests/weights/lib.sh"
while read -r name wanted; do
    script "models/$name"
    run_x
    expect "$name: exit code" 0 $code
    near "$name" "$wanted" "$(loss_of)" 1e-5
done <"$root/tests/weights/losses.txt"
exit $failed
