#!/bin/bash
# Multiple choice as JSON lines: the losses of llm.c's file of the same tokens, to the bit; answers
# that are known; another tokenizer than GPT-2's; errors.
set -u
. "$PWD/tests/cli/lib.sh"
yes "ab ab ab ab" | head -c 6000 >a.txt
cp "$root/tests/infer/choices.lua" .
"$FP8LAB" run choices.lua --lib "$lib" --threads 2 --backend cpu >out 2>log || fail "run"
bundle=$(bundle_in runs)
get() { # EXPRESSION ARGS...: of eval --json
    "$FP8LAB" eval "$bundle" --backend cpu --threads 1 --json "${@:2}" >out 2>log ||
        fail "eval ${*:2}"
    python3 -c 'import json, sys; o = json.load(open("out")); print(eval(sys.argv[1]))' "$1"
}

# ---- the same tokens, to the bit, and the same text in other forms
python3 - <<'PY'
import json, struct
contexts, files = ["ab a", "ab ab ", "q", "ab ab ab ab ab"], {}
rows, general, swag, labelled = [], [], [], []
for i in range(12):
    context, right = contexts[i % 4], i % 3
    texts = [("ab ab", "zz", " ab", "b\tab", "\nab a", "x")[(i + 2 * k) % 6] for k in range(3)]
    general.append({"context": context, "choices": texts, "answer": right})
    swag.append({"ctx": context, "endings": texts, "label": str(right), "ind": i})
    labelled.append({"question": context, "answerKey": "ABC"[right],
                     "choices": {"text": texts, "label": ["A", "B", "C"]}})
    head = context.rstrip()
    words = [right, 3, len(head), *head.encode()]
    for text in texts:
        space = context[len(head):] or ("" if text[0].isspace() else " ")
        words += [len(space + text), *(space + text).encode()]
    rows.append(struct.pack(f"<{len(words) + 3}H", 65535, 2 * len(words) + 6, i, *words))
head = struct.pack("<256i", 20240522, 1, len(rows), max(map(len, rows)), *[0] * 252)
open("same.bin", "wb").write(head + b"".join(rows))
for name, objects in ("same", general), ("swag", swag), ("labelled", labelled):
    open(name + ".jsonl", "w").write("".join(json.dumps(o) + "\n" for o in objects))
PY
figures='o["loss_bits"], o["right"], o["right_sum"], o["examples"], o["tokens"], o["seq_len"]'
for recipe in bf16 fp8.tensorwise; do
    wanted=$(get "$figures" --choices same.bin --recipe $recipe)
    for file in same swag labelled; do
        expect "$file.jsonl in $recipe" "$wanted" \
            "$(get "$figures" --choices $file.jsonl --recipe $recipe)"
    done
    expect "three processes" "$wanted" \
        "$(get "$figures" --choices same.jsonl --recipe $recipe --gpus 3)"
done
expect "bytes of a file of tokens" "(None, None, None)" \
    "$(get 'o["right_byte"], o["accuracy_byte"], o["accuracy_byte_error"]' --choices same.bin)"

# ---- answers that are known: the text has no letter but a and b
python3 - <<'PY'
import json
wrong = ["zz", "qx", "Q7"]
with open("known.jsonl", "w") as f:
    for i in range(8):
        texts = wrong[:i % 4] + ["ab"] + wrong[i % 4:]
        f.write(json.dumps({"context": "ab ab ab", "choices": texts, "answer": i % 4}) + "\n")
    # A sum never prefers the longer of two texts of which one begins with the other. Here all
    # tokens are as likely, so the loss per byte does: the space before is no byte of the text.
    f.write(json.dumps({"context": "ab ab ab", "choices": ["ab", "ab ab ab ab"],
                        "answer": 1}) + "\n")
    f.write(json.dumps({"context": "ab ab ab", "choices": ["ab", "ab ab ab ab"],
                        "answer": 0}) + "\n")
PY
expect "known answers" "(10, 9, 9)" "$(get 'o["examples"], o["right_sum"], o["right_byte"]' \
    --choices known.jsonl)"
expect "which of the last two" "(9, 8)" "$(head -9 known.jsonl >nine.jsonl
    get 'o["right_byte"], o["right_sum"]' --choices nine.jsonl)"
expect "standard error" 0.1 "$(get 'round(o["accuracy_sum_error"], 9)' --choices known.jsonl)"
expect "without a standard error" "(None, 1.0)" "$(head -1 known.jsonl >one.jsonl
    get 'o["accuracy_error"], o["accuracy"]' --choices one.jsonl)"
gives 0 eval "$bundle" --backend cpu --choices known.jsonl -- \
    "accuracy     90.00 % ± 10.00: 9 of 10 by the sum of its losses" \
    "accuracy     90.00 % ± 10.00: 9 of 10 by its loss per byte" "of 10 by its loss per token"

# ---- refused, and left out
{ head -2 known.jsonl && echo '{"context": "ab"}' && echo null && tail -1 known.jsonl; } >bad.jsonl
gives 2 eval "$bundle" --choices bad.jsonl -- 'bad.jsonl:3: it has none of "choices"' \
    "--skip-bad N leaves out up to N such lines"
gives 2 eval "$bundle" --choices bad.jsonl --skip-bad 1 -- "left out: bad.jsonl:3: it has none" \
    "bad.jsonl:4: no JSON object: "
expect "two left out" 3 "$(get 'o["examples"]' --choices bad.jsonl --skip-bad 2)"
gives 2 eval "$bundle" --choices same.bin --skip-bad 1 -- "same.bin has tokens, not JSON lines"
gives 2 eval "$bundle" --choices same.bin --tokenizer bytes -- "leave out --tokenizer and"
gives 2 eval "$bundle" --choices same.jsonl --seq-len 8 -- "--choices evaluates all of its file"
gives 2 eval "$bundle" --choices same.jsonl --field text -- "--field"
long() { # LETTERS: of a context
    printf '{"context": "%s", "choices": ["a", "b"], "answer": 0}\n' "$(printf "%${1}s" | tr ' ' x)"
}
long 31 >fits.jsonl # the last of its 33 tokens is not read
long 32 >long.jsonl
expect "a row of the model's length" 32 "$(get 'o["seq_len"]' --choices fits.jsonl)"
gives 2 eval "$bundle" --choices long.jsonl -- "long.jsonl:1: completion 0 and what is before it \
are 34 tokens; the model reads at most 33: shorten the context"
gives 2 eval "$bundle" --choices none.jsonl -- "none.jsonl: No such file"

# ---- another tokenizer than the model's, with a warning; one that the model cannot read
cp "$root/tests/ingest/recorded/llama3.json" .
gives 2 eval "$bundle" --choices same.jsonl --tokenizer llama3.json -- \
    "but the model has 256 tokens: it is another model's tokenizer"
[ $failed = 0 ] && echo "JSON lines give the losses of the same tokens"
exit $failed
