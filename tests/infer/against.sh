#!/bin/bash
# Two models on the same questions: better, worse, not shown, the same answers; files of answers
# that do not fit, and files that are no answers and stay as they are.
set -u
. "$PWD/tests/cli/lib.sh"
shown="out log"
yes "ab ab ab ab" | head -c 6000 >a.txt
cp "$root/tests/infer/choices.lua" .
for steps in 40 1; do
    "$FP8LAB" run choices.lua --lib "$lib" --threads 2 --backend cpu --runs runs$steps \
        --set train.steps=$steps --set checkpoint.every=$steps >out 2>log || fail "run"
    sed -i 's/lr = 3e-3/lr = 1e-9/' choices.lua # the other one learns nothing
done
trained=$(bundle_in runs40) fresh=$(bundle_in runs1)
python3 - <<'PY'
import json
wrong = ["zz", "qx", "Q7"]
rows = [{"context": "ab ab ab"[i % 3:], "choices": wrong[:i % 4] + ["ab"] + wrong[i % 4:],
         "answer": i % 4} for i in range(40)]
for name, objects in ("q", rows), ("other", rows[::-1]), ("few", rows[:5]):
    open(name + ".jsonl", "w").write("".join(json.dumps(o) + "\n" for o in objects))
open("bad.jsonl", "w").write(open("q.jsonl").read() + "{}\n" + json.dumps(rows[0]) + "\n{}\n")
PY
ask() { # RUN ARGUMENTS...
    "$FP8LAB" eval "$1" --backend cpu --threads 1 "${@:2}" >out 2>log || fail "eval ${*:2}"
}

# ---- one against another
ask "$trained" --choices q.jsonl --answers trained.jsonl
says "accuracy     100.00 % ± 0.00: 40 of 40 by its loss per byte" out
says "guessing     25.00 %" out
ask "$fresh" --choices q.jsonl --answers fresh.jsonl --against trained.jsonl
says "against      trained.jsonl: $(basename "$trained" .tar.zst), step 40, bf16 on cpu" out
grep -q "by byte: worse: .* points fewer right answers (95 %)$" out || fail "not worse"
ask "$trained" --choices q.jsonl --against fresh.jsonl
grep -q "by byte: better: .* points more right answers (95 %)$" out || fail "not better"
ask "$trained" --choices q.jsonl --against fresh.jsonl --json
python3 - <<'PY' || fail "--json of --against"
import json
o = json.load(open("out"))
a, rows = o["against"], [json.loads(line) for line in open("fresh.jsonl")]
assert a["verdict"] == "better" and a["rule"] == "byte" and a["path"] == "fresh.jsonl"
assert a["model"] == {k: v for k, v in rows[0].items() if k != "right"}
assert a["text"].startswith("better: ")
assert a["model"]["recipe"] == "bf16" and a["model"]["step"] == 1 and not a["other_tokenizer"]
assert a["other_weights"]
assert [r["rule"] for r in a["rules"]] == ["sum", "byte", "token"]
right = {r: sum(row["right_" + r] for row in rows[1:]) for r in ("sum", "byte", "token")}
assert rows[0]["right"] == right
for r in a["rules"]: # the trained model answers all
    assert r["both"] == right[r["rule"]] and r["only_this"] == 40 - r["both"] == r["changed"]
    assert r["only_that"] == r["neither"] == 0
    assert r["difference"] == r["only_this"] / 40 and r["low"] < r["difference"] <= r["high"]
    assert r["p"] == 2 * 0.5 ** r["only_this"], r
PY

# ---- the same model; the same bits with several processes; another recipe
ask "$trained" --choices q.jsonl --against trained.jsonl
says "verdict      the same answers: all losses are equal to the bit" out
ask "$trained" --choices q.jsonl --gpus 3 --answers three.jsonl
cmp trained.jsonl three.jsonl || fail "three processes write other answers"
ask "$trained" --choices q.jsonl --against trained.jsonl --recipe fp8.tensorwise
says "verdict      by byte: no difference shown: fewer than 8.8 points either way (95 %)." out
says "With 40 questions a smaller difference cannot be seen" out
! grep -q "several seeds" out || fail "the same weights in another recipe are called others"
ask "$trained" --choices few.jsonl --answers few.out
ask "$fresh" --choices few.jsonl --against few.out
says "weights      are others there: two seeds of one recipe differ, too" out
says "Too few questions: with 5 no difference can be shown" out
ask "$fresh" --choices few.jsonl --answers few.out # an earlier file of answers is replaced
says '"step":1' few.out

# ---- refused before the model is asked
no() { # WORDS... -- ARGUMENTS
    local words=()
    while [ "$1" != -- ]; do words+=("$1") && shift; done
    gives 2 eval "$trained" --backend cpu "${@:2}" -- "${words[@]}"
    ! grep -q accuracy out || fail "asked all the same: ${*:2}"
}
no "trained.jsonl: it has the answers to other questions: q.jsonl with SHA-256" \
    "ask both models the same file" -- --choices other.jsonl --against trained.jsonl
ask "$trained" --choices bad.jsonl --skip-bad 2 --answers skipped.jsonl
no "bad.jsonl:41: it has none of" -- --choices bad.jsonl --against skipped.jsonl --skip-bad 0
sed 's/"nats":\[\([0-9]\)/"nats":[9\1/' trained.jsonl >edited.jsonl
no "edited.jsonl: it was changed or cut after eval wrote it" -- --choices q.jsonl \
    --against edited.jsonl
head -30 trained.jsonl >cut.jsonl
no "cut.jsonl: it was changed or cut" -- --choices q.jsonl --against cut.jsonl
no "q.jsonl: no file of answers: its first line has no schema" -- --choices q.jsonl \
    --against q.jsonl
no "none.jsonl: No such file" -- --choices q.jsonl --against none.jsonl
cp a.txt mine.txt
no "--answers mine.txt: the file holds other data, and stays as it is" -- --choices q.jsonl \
    --answers mine.txt
cmp a.txt mine.txt || fail "a file that is no answers was replaced"
no "--answers q.jsonl: the file holds other data" -- --choices q.jsonl --answers q.jsonl
no "would replace the answers that --against reads" -- --choices q.jsonl --answers few.out \
    --against few.out
no "would replace the answers that --against reads" -- --choices q.jsonl --answers ./few.out \
    --against few.out
no "--answers and --against are about the answers to --choices FILE" -- --data a.txt \
    --against few.out

# ---- what was found is printed, also if the answers cannot be kept
for json in "" --json; do
    (trap '' XFSZ; ulimit -f 4; gives 6 eval "$trained" --backend cpu --choices q.jsonl $json \
        --answers full.jsonl -- "the answers are not kept: write full.jsonl: File too large" \
        && exit $failed) || failed=1
    grep -qE 'accuracy     100.00 % ± 0.00: 40 of 40 by its loss per byte|"right_byte":40' out ||
        fail "the answers are lost"
done

# ---- another tokenizer: allowed, and said
. "$root/tests/support/text.sh"
sed 's|eval = .*|checkpoint = { every = 6 },|' texts.lua >t.lua
"$FP8LAB" run t.lua --lib "$lib" --threads 1 --backend cpu --runs texts >out 2>log || fail "run"
words=$(bundle_in texts)
ask "$words" --choices q.jsonl --answers words.jsonl
cp "$recorded/smollm2.json" other.json
ask "$words" --choices q.jsonl --against words.jsonl --tokenizer other.json
says "the model was trained on ids of the tokenizer tokenizer.json, not other.json"
says "tokenizer    another one there: a loss per token is of other tokens" out
ask "$words" --choices q.jsonl --against words.jsonl
! grep -q "another one there" out || fail "the same tokenizer is another"
[ $failed = 0 ] && echo "two models are compared on the same questions"
exit $failed
