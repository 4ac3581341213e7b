#!/bin/bash
# long: 60
# timeout: 1800
# tests/infer/harness.jsonl is what lm-evaluation-harness gives. UPDATE=1 writes it anew. Makes a
# Python environment with torch, as weights.sh does.
set -u
. tests/cli/lib.sh
venv=$root/build/venv-torch
(cd "$root" && tests/support/venv.sh "$venv" requirements-torch.txt) || exit 1
python3 "$root/tests/infer/harness.py" models || fail "harness.py"
"$venv/bin/python" -W ignore "$root/tests/outside/lm_eval_answers.py" models >found 2>log ||
    fail "lm_eval"
[ -z "${UPDATE:-}" ] || cp found "$root/tests/infer/harness.jsonl"
python3 - "$root/tests/infer/harness.jsonl" found >log <<'PY' || fail "other answers"
import json, sys  # processors differ in the last digits
def numbers(value):
    return sum(map(numbers, value), []) if isinstance(value, list) else [value]
rows = [[json.loads(line) for line in open(path)] for path in sys.argv[1:]]
for wanted, found in zip(*rows, strict=True):
    assert wanted.keys() == found.keys(), (wanted.keys(), found.keys())
    for key in wanted:
        for a, b in zip(numbers(wanted[key]), numbers(found[key]), strict=True):
            print(wanted["model"], wanted["kind"], key, a, b)
            assert a == b or key == "nats" and abs(a - b) < 1e-5 + 2e-6 * abs(a)
PY
[ $failed = 0 ] && echo "the recorded answers are those of lm-evaluation-harness"
exit $failed
