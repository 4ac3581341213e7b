#!/bin/bash
# compare: initial weights and data count by their content. A file that was replaced at its path is
# a factor; the same bytes at another path are none. The rule: tests/bundle/test_compare_content.c.
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

case_name="other commands"
mkdir both alike && cp one/*.zst four/*.zst both && cp three/*.zst four/*.zst alike
gives 0 list --runs both -- "Next: fp8lab show"
gives 0 list --runs alike -- "Next: fp8lab compare"
gives 3 repro "$(bundle_in one)" --threads 1 -- "has other weights than those"
sed 's/recipe = f32/recipe = bf16/; s/steps = 1,/steps = 2,/' base.lua >x.lua
gives 0 run x.lua --backend cpu --threads 1 --runs three -- "not run again"
gives 0 run x.lua --backend cpu --threads 1 --runs one -- "done  step 2"

case_name="data"
cp t.txt u.txt && seq 2 401 >v.txt
row five f32
row six f32 --set data.paths=u.txt
factors "no factor that is known to change results" five six
says "data.paths" out
says "equal bit for bit" out
row seven f32 --set data.paths=v.txt
factors "one factor: data" five seven
row eight f32 --set data.paths=u.txt --set data.holdout=0.2
factors "one factor: data" five eight
row nine f32 --set data.paths=t.txt,u.txt
row ten f32 --set data.paths=u.txt,t.txt
factors "no factor that is known to change results" nine ten
row eleven f32 --set data.paths=t.txt,v.txt
row twelve f32 --set data.paths=v.txt,t.txt # another order, so other text is held out
factors "one factor: data" eleven twelve

case_name="tokens"
mkdir tok tok2 && cp "$root/tests/ingest/recorded/ranks.tiktoken" tok/r.tiktoken &&
    cp tok/r.tiktoken tok2/
python3 -c 'print("\n".join("{\"text\": \"%d more words\"}" % i for i in range(300)))' >t.jsonl
cp t.jsonl w.txt
sed -i -e 's/"t.txt",/"t.jsonl", tokenizer = "tok\/r.tiktoken", pattern = "gpt2",/' \
    -e 's/init = "wm",//' base.lua
row a f32 --set model.vocab=699
row b f32 --set model.vocab=699 --set data.tokenizer=tok2/r.tiktoken
factors "no factor that is known to change results" a b
says "data.tokenizer" out
row c f32 --set model.vocab=699 --set data.paths=w.txt # the same bytes, by its name not JSON
factors "one factor: data" a c
row d f32 --set model.vocab=699 --set data.eod=none
factors "one factor: data" a d
exit $failed
