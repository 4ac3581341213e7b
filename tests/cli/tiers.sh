#!/bin/bash
# Which checkpoints a run saves and keeps: epochs, milestones, minutes, the best by either end. They
# outlive a kill and a resume; check and plan announce them; wrong settings are refused.
set -u
. tests/cli/lib.sh
head -c 700 "$lib/models/tiny.lua" >a.txt # 19 windows of 32 bytes are for training
cat >x.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "x", model = tiny.llama { seq_len = 32, layers = 1, vocab = 256 }, recipe = bf16,
  data = text { "a.txt", holdout = 0.1 },
  train = { epochs = 3, global_batch = 4, micro_batch = 2, optimizer = adamw { lr = 1e-3 } },
  eval = { every = 5, batches = 1 },
  checkpoint = { every = 4, keep = 1, epoch = true, milestones = { 2, 8, 15, 99 } },
}
LUA
run() { # RUNS ARGS...: exit code in $code
    "$FP8LAB" run x.lua --lib "$lib" --backend cpu --threads 1 --runs "$@" >out 2>log
    code=$?
}
names() { # BUNDLE: "2 milestone, 15 last epoch"
    field "$1" '", ".join(" ".join([str(row["step"])] + row["as"]) for row in run["kept"])'
}
folders() { (cd "$1" && ls -d ./*.ckpt/step-* 2>/dev/null | sed 's|.*/step-0*||' | tr '\n' ' '); }

case_name="epochs and milestones"
# Of 19 sequences, 4 a step: epochs end in steps 5 (20), 10 (40) and 15 (60). 99 is after the end.
all="2 milestone, 5 epoch, 8 milestone, 10 epoch, 15 last epoch milestone"
run tiers
expect "exit code" 0 $code
says "kept: the last checkpoint, those of 3 epochs and 3 milestones of the run, once it is done"
says "a step of checkpoint.milestones is after train.steps: it is saved only if the run is extended"
expect kept "$all" "$(names tiers/*.tar.zst)"
expect folders "2 5 8 10 15 " "$(folders tiers)"
"$FP8LAB" verify tiers/*.tar.zst >out 2>log || fail "the checkpoints do not verify"
expect "checkpoints that verify" 5 "$(grep -c "is intact" log)"
reference=$(field tiers/*.tar.zst 'run["results_sha256"]')

case_name="check and plan"
for verb in check plan; do
    "$FP8LAB" $verb x.lua --lib "$lib" >out 2>log
    says "kept: the last checkpoint, those of 3 epochs and 3 milestones of the run" out
    "$FP8LAB" $verb --json x.lua --lib "$lib" >out 2>log
    expect "$verb --json" "(True, 3, 3)" "$(python3 -c 'import json
keeps = json.load(open("out"))["runs"][0]["keeps"]
print((keeps["last"], keeps["epochs"], keeps["milestones"]))')"
done

case_name="killed, and resumed"
"$FP8LAB" run x.lua --lib "$lib" --backend cpu --threads 1 --runs killed --retries 0 \
    --set train.epochs=40 >out 2>log & # 190 steps
await_step killed 20
kill -KILL "$(runner_of killed)"
wait $! 2>/dev/null
"$FP8LAB" run --resume last --runs killed --threads 1 >out 2>log || fail "the resume fails"
wanted=$(python3 -c '
ends = {(19 * epoch + 3) // 4 for epoch in range(1, 41)}
print(" ".join(map(str, sorted(ends | {2, 8, 15, 99}))))')
expect folders "$wanted " "$(folders killed)"

case_name="in the bundle"
run packed --set archive=full
expect kept "$all" "$(names packed/*.tar.zst)"
expect "files in the bundle" 15 "$(tar --zstd -tf packed/*.tar.zst |
    grep -c 'data/checkpoints/step-[0-9]*/[a-z]')"
expect "beside it" "" "$(folders packed)"
expect "results" "$reference" "$(field packed/*.tar.zst 'run["results_sha256"]')"

case_name="the best, by either end"
steady="--set checkpoint.epoch=false --set checkpoint.every=1000 --set train.optimizer.lr=0.03
    --set checkpoint.best=eval.loss"
for end in min max; do
    # shellcheck disable=SC2086
    run $end $steady --set checkpoint.best_is=$end
    best=$(tar --zstd -xOf $end/*.tar.zst --wildcards '*/data/metrics/eval.jsonl' | python3 -c '
import json, sys
rows = [json.loads(line) for line in sys.stdin]
print('$end'(rows, key=lambda row: row["loss"])["step"])')
    expect "the step of the $end" "[$best]" \
        "$(field $end/*.tar.zst '[r["step"] for r in run["kept"] if "best" in r["as"]]')"
done

case_name="the best by accuracy"
# shellcheck disable=SC2086
run right ${steady/--set checkpoint.best=eval.loss/} --set eval.accuracy=true \
    --set checkpoint.best.metric=eval.accuracy --set checkpoint.best.mode=max
records=$(tar --zstd -xOf right/*.tar.zst --wildcards '*/data/metrics/eval.jsonl')
expect "the first with the largest share" "$(python3 -c '
import json, sys
rows = [json.loads(line) for line in sys.argv[1].splitlines()]
assert 0 < max(row["accuracy"] for row in rows) < 1
assert all(round(row["accuracy"] * row["tokens"], 6) % 1 == 0 for row in rows)
print([max(rows, key=lambda row: row["accuracy"])["step"]])' "$records")" \
    "$(field right/*.tar.zst '[r["step"] for r in run["kept"] if "best" in r["as"]]')"
expect "no bit of the run changes" "$(field min/*.tar.zst 'run["results_sha256"]')" \
    "$(field right/*.tar.zst 'run["results_sha256"]')"
"$FP8LAB" show right/*.tar.zst >out 2>log
says "of the evaluated tokens" out
"$FP8LAB" eval right/*.tar.zst --checkpoint last --backend cpu --json >out 2>log || fail "eval"
accuracy() { sed 's/.*"accuracy":\([0-9.]*\).*/\1/'; }
expect "eval says the last record's" "$(tail -1 <<<"$records" | accuracy)" \
    "$(accuracy <out)"

case_name="by time"
# Any time has passed after a step; the checkpoint follows one step later.
run minutes --set checkpoint.every=false --set checkpoint.minutes=1e-9 --set checkpoint.keep=100 \
    --set checkpoint.epoch=false --keep-dir
expect "exit code" 0 $code
grep -c "checkpoint of step" minutes/*Z-x-????????/data/logs/runner.log >count
[ "$(cat count)" -ge 7 ] || fail "$(cat count) checkpoints of 15 steps"
expect "results do not depend on the time" "$reference" \
    "$(field minutes/*.tar.zst 'run["results_sha256"]')"

case_name="refused"
refuses() { # WORDS ARGS...
    local words=$1
    shift
    run never "$@"
    expect "exit code of $*" 2 $code
    says "$words"
}
refuses "checkpoint: give every = N steps, or minutes = M" --set checkpoint.every=false
refuses "checkpoint.milestones: steps must ascend, found 8 before 2" \
    --set checkpoint.milestones=8,2
refuses "checkpoint.milestones[1]: expected an integer from 1 to 1000000000, found \"few\"" \
    --set checkpoint.milestones=few
refuses "checkpoint.best_is: says which value is the best; add best" --set checkpoint.best_is=max
refuses "checkpoint.best: the evaluations have no accuracy; add accuracy = true to eval" \
    --set checkpoint.best=eval.accuracy
refuses "by eval.accuracy needs evaluations; add eval = { every = ..., accuracy = true }" \
    --set checkpoint.best.metric=eval.accuracy --set eval=false
refuses "there is no \"eval.perplexity\": it is smallest where eval.loss is; write eval.loss" \
    --set checkpoint.best.metric=eval.perplexity
refuses "expected \"eval.loss\" or \"eval.accuracy\", found \"eval.bleu\"" \
    --set checkpoint.best=eval.bleu
refuses "checkpoint.best.metric: 'metric' is missing" --set checkpoint.best.mode=max
refuses "checkpoint.best_is: the table of checkpoint.best has mode instead" \
    --set checkpoint.best.metric=eval.loss --set checkpoint.best_is=max
refuses "checkpoint.epoch: the length of the run is in steps" --set train.steps=9
refuses "checkpoint.milestones: 65 steps; at most 64" \
    --set checkpoint.milestones="$(seq -s, 65)"
[ ! -e never ] || fail "a run began"

case_name="the page"
"$FP8LAB" help checkpoints >out 2>log || fail "there is no page"
for key in init every keep best epoch milestones; do says "checkpoint.$key" out; done

[ $failed = 0 ] && echo "every tier keeps its checkpoints"
exit $failed
