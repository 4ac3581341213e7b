#!/bin/bash
# train.epochs becomes the steps that the data need. A run that reads data more than once says how
# often. --set of steps or epochs replaces the other. repro and --extend keep a bundle's steps.
set -u
. "$PWD/tests/cli/lib.sh"
head -c 700 "$lib/models/tiny.lua" >a.txt # 19 windows of 32 bytes are for training
cat >x.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "x", model = tiny.llama { seq_len = 32, layers = 2, vocab = 256 }, recipe = bf16,
  data = text { "a.txt", holdout = 0.1 },
  train = { epochs = 2.5, global_batch = 4, micro_batch = 2, schedule = cosine { warmup = 2 } },
  checkpoint = { every = 100 },
}
LUA
run() { # ARGS...: exit code in $code
    "$FP8LAB" run x.lua --lib "$lib" --backend cpu --threads 1 "$@" >out 2>log
    code=$?
}
train() { # BUNDLE EXPRESSION over train
    field "$1" "(lambda train: ($2))(resolved['train'])"
}

case_name="counted"
run
expect "exit code" 0 $code
first=$(bundle_in runs)
# 2.5 * 19 / 4 = 11.875 steps, rounded up.
expect "epochs, steps, decay" "(2.5, 12, 10)" \
    "$(train "$first" 'train["epochs"], train["steps"], train["schedule"]["decay"]')"
expect "the last step" 12 "$(field "$first" 'summary["step_last"]')"
says "x: reads a.txt 2.53 times"
grep -q "same bytes" log && fail "one file is no copy"

case_name="copies"
cp a.txt copy.txt && : >none.txt && : >none2.txt
run --runs copies --set data.paths=a.txt,none.txt,none2.txt,copy.txt --set train.epochs=1
expect "exit code" 0 $code
says "x: copy.txt has the same bytes as a.txt: the run reads them twice, and may evaluate on text"
expect "one warning" 1 "$(grep -c "same bytes" log)"
run --runs copies --set data.paths=a.txt,a.txt --set data.tokenizer=bytes --set train.epochs=1
says "x: a.txt has the same bytes as a.txt"
run --runs copies --set data.paths=a.txt,a.txt --set data.tokenizer=bytes --set data.unique=true \
    --set train.epochs=1
grep -q "same bytes" log && fail "unique leaves copies out"

case_name="--set"
run --runs steps --set train.steps=4
expect "steps for epochs" "(None, 4)" \
    "$(train "$(bundle_in steps)" 'train["epochs"], train["steps"]')"
grep -q " times$" log && fail "four steps read no text twice"
run --runs epochs --set train.epochs=1
expect "other epochs" "(1.0, 5)" "$(train "$(bundle_in epochs)" 'train["epochs"], train["steps"]')"

case_name="a warm-up as a share of the steps"
run --runs ratio --set train.schedule.warmup=0 --set train.schedule.warmup_ratio=0.1
expect "12 steps, a tenth rounded up, the rest" "(12, 2, 10)" \
    "$(train "$(bundle_in ratio)" \
        'train["steps"], train["schedule"]["warmup"], train["schedule"]["decay"]')"
run --runs ratio --set train.schedule.warmup=0 --set train.schedule.warmup_ratio=0.25 \
    --set train.steps=9
expect "of 9 steps" "(9, 3, 6)" \
    "$(train "$(newest ratio)" \
        'train["steps"], train["schedule"]["warmup"], train["schedule"]["decay"]')"
run --runs none --set train.schedule.warmup_ratio=0.1
expect "exit code of both" 2 $code
says "warmup already says how long the warm-up is; leave one of the two out"

case_name="repro and --extend"
"$FP8LAB" repro "$first" --exact >out 2>log
expect "exit code of repro" 0 $?
"$FP8LAB" run --extend "$first" --runs runs --threads 1 --set train.steps=14 >out 2>log
expect "exit code of --extend" 0 $?
expect "steps" 14 "$(train "$(newest runs)" 'train["steps"]')"

case_name="data that cannot be counted"
run --runs none --set data.paths=gone.txt
expect "exit code without the data" 6 $code
says "train.epochs needs the data, to count their sequences (train.steps does not)"
says "gone.txt"
run --runs none --set data=synthetic
expect "exit code with generated data" 2 $code
says "train.epochs: generated data have no end; give train.steps"
run --runs none --set train.global_batch=1024 --set train.micro_batch=1
expect "exit code of an epoch of less than one step" 2 $code
says "are less than one step of 1024; give a smaller train.global_batch, more epochs, or"
run --runs none --set train.schedule.warmup=30
expect "exit code of a long warm-up" 2 $code
says "train.schedule.warmup: 30 is longer than the run; train.epochs is 12 steps here"
after=recipe.forward_bf16_after
run --runs none --set recipe=fp4.nvfp4 --set $after=12
expect "exit code of a change after the last step" 2 $code
says "forward_bf16_after: no step would multiply forward in BF16, since train.epochs is 12 steps"
run --runs after --set recipe=fp4.nvfp4 --set $after=11 --set model.layers=1
expect "exit code of a change before the last step" 0 $code
[ ! -e none ] || [ -z "$(ls none)" ] || fail "something was run"

[ $failed = 0 ] && echo "epochs are counted"
exit $failed
