#!/bin/bash
# long: 20
# Small random models of each family, as transformers stores them: F32, F16, BF16, shards, tied,
# transposed. In f32 the loss of a text, in a run and by `eval`, and the logits of a prompt are
# those of transformers (losses.txt, logits.txt; tests/long/weights.sh records them), to 1e-5.
set -u
. tests/cli/lib.sh
. "$root/tests/weights/lib.sh"
while read -r name wanted; do
    script "models/$name"
    run_x
    expect "$name: exit code" 0 $code
    near "$name" "$wanted" "$(loss_of)" 1e-5
    "$FP8LAB" eval "models/$name" --data models/text.txt --tokenizer bytes --recipe f32 \
        --seq-len 32 --threads 1 >out 2>log || fail "$name: eval"
    near "$name: eval" "$wanted" "$(sed -n 's/^  loss *\([0-9.]*\) .*/\1/p' out)" 1e-5
done <"$root/tests/weights/losses.txt"
# Some logits of a prompt beside those of transformers, relative to the largest one.
while read -r name largest wanted; do
    write_logits "$name"
    python3 - "$name" "$largest" $wanted <<'PY' || fail "$name: other logits"
import struct, sys
name, largest, *wanted = sys.argv[1:]
data = open(f"models/{name}/logits.npy", "rb").read()
found = struct.unpack("<8f", data[128 + 31 * 260 * 4:][:32]) # behind the last of 32 bytes
off = max(abs(a - float(b)) for a, b in zip(found, wanted, strict=True))
sys.exit(off > 1e-5 * float(largest))
PY
done <"$root/tests/weights/logits.txt"
exit $failed
