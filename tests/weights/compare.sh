#!/bin/bash
# compare: first weights and data count by their content. A file that was replaced at its path is a
# factor; the same bytes at another path are none. The rule: tests/bundle/test_compare_content.c.
set -u
. tests/cli/lib.sh
. "$root/tests/weights/lib.sh"
row() { # NAME RECIPE ARGS...: one run in a folder of its own
    sed "s/recipe = f32/recipe = $2/; s/steps = 1,/steps = 2,/" base.lua >x.lua
    run_x --runs "$1" "${@:3}"
    expect "$1: exit code" 0 $code
}
factors() { # WANTED A B [ARGS...]: what compare says of the two folders' runs
    "$FP8LAB" compare "$(bundle_in "$2")" "$(bundle_in "$3")" "${@:4}" >out 2>log
    says "  => $1" out
}
cp -r models/llama2 wm && cp -r wm wm2 && seq 1 400 >t.txt
script wm models/llama2 'eval = { every = 1, batches = 2 }, checkpoint = { every = 1 }'
sed 's/models.text.txt", holdout = 0 /t.txt", holdout = 0.3 /' x.lua >base.lua

case_name="weights"
row one bf16
row two fp8.delayed --set init.from=wm2
factors "one factor: recipe" one two
says "init.from" out
python3 - wm/model.safetensors <<'END' # a byte of the last tensor
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-2, 2)
    byte = f.read(1)
    f.seek(-2, 2)
    f.write(bytes([byte[0] ^ 1]))
END
row three bf16
row four fp8.delayed
factors "one factor: weights" one three
factors "many factors (2): recipe, weights" one four
says "no verdict on B: it differs from A, which is BF16, in more than its recipe: weights" out
factors "many factors (2): init.from, recipe" three two # the paths tell the weights apart
exit $failed
