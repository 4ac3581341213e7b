#!/bin/bash
# long: 60
# timeout: 1800
# The losses and logits of tests/weights/*.txt are those of transformers. UPDATE=1 writes them anew.
# Makes a Python environment with torch of its own (5 GB in build/), because nothing else needs it.
set -u
. tests/cli/lib.sh
venv=$root/build/venv-torch
(cd "$root" && tests/support/venv.sh "$venv" requirements-torch.txt) || exit 1
. "$root/tests/weights/lib.sh"
# shellcheck disable=SC2086  # words
"$venv/bin/python" -W ignore "$root/tests/weights/hf_losses.py" models $names >losses 2>log ||
    fail "transformers"
[ -z "${UPDATE:-}" ] || cp losses "$root/tests/weights/losses.txt"
while read -r name wanted; do
    near "$name" "$wanted" "$(sed -n "s/^$name //p" losses)" 1e-6
done <"$root/tests/weights/losses.txt"

# All logits of a prompt.
for name in $names; do write_logits "$name"; done
# shellcheck disable=SC2086  # words
"$venv/bin/python" -W ignore "$root/tests/weights/hf_logits.py" models "$prompt" $names >logits \
    2>log || fail "logits: $(cat logits)"
cut -d' ' -f1,2 logits
[ -z "${UPDATE:-}" ] || cut -d' ' -f1,3- logits >"$root/tests/weights/logits.txt"
python3 - "$root/tests/weights/logits.txt" logits >log <<'PY' || fail "other logits"
import sys  # processors differ in the last digit
rows = [[line.split() for line in open(path)] for path in sys.argv[1:]]
for wanted, (name, _, *found) in zip(*rows, strict=True):
    print(wanted, found)
    assert wanted[0] == name
    assert all(abs(float(a) - float(b)) < 3e-6 for a, b in zip(wanted[1:], found, strict=True))
PY

# Exported folders, read back by transformers without a tensor missing or too many.
mkdir exports && cp models/text.txt exports
for name in $names; do
    untrained "$name" "$(type_of "$name")"
    "$FP8LAB" export "$bundle" --to "exports/$name" --dtype "$(type_of "$name")" >out 2>log ||
        fail "export $name"
done
# shellcheck disable=SC2086  # words
"$venv/bin/python" -W ignore "$root/tests/weights/hf_losses.py" exports $names >again 2>log ||
    fail "transformers on exported folders"
cmp losses again || fail "transformers gives other losses after import and export"
exit $failed
