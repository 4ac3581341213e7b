#!/bin/bash
# long: 12
# Multiple choice: as many right answers, and the same loss, as the rule in Python gives
# (tests/outside/choices.sh), and more than by chance.
set -u
. "$PWD/tests/cli/lib.sh"
. "$root/tests/support/questions.sh"
for recipe in f32 fp8.blockwise; do
    "$FP8LAB" eval "$bundle" --choices questions.bin --recipe $recipe --json \
        --backend cpu >out 2>log || fail "eval in $recipe"
    python3 - "$root/tests/infer/choices.txt" $recipe <<'PY' || fail "$recipe: other answers"
import json, sys
right, loss = open(sys.argv[1]).read().split()
o, bound = json.load(open("out")), 2e-5 if sys.argv[2] == "f32" else 0.05
print(f"{right} right, loss {loss}", file=sys.stderr)
assert o["examples"] == 60 and int(right) > 36
assert abs(o["loss"] - float(loss)) < bound, o["loss"]
assert abs(o["right"] - int(right)) <= (0 if sys.argv[2] == "f32" else 3), o["right"]
PY
done
[ $failed = 0 ] && echo "the answers are those of the rule in Python"
exit $failed
