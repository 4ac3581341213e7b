#!/bin/bash
# data = chats { ... }: conversations become tokens with loss by the tokenizer's template; what the
# bundle keeps; repro with the conversations alone; what is wrong.
set -u
. "$PWD/tests/cli/lib.sh"
. "$root/tests/support/text.sh"
templates=$root/tests/chat/templates
mkdir model && cp tokenizer.json "$templates/chatml.jinja" model
mv model/chatml.jinja model/chat_template.jinja
printf '{"eos_token": "<|im_end|>", "pad_token": null}\n' >model/tokenizer_config.json
python3 - <<'PY'
import json, random
draw = random.Random(5)
words = "the loss of a tensor scale is small and FP8 holds it".split()
say = lambda n: " ".join(draw.choices(words, k=n))
with open("talks.jsonl", "w") as f:
    for i in range(300):
        turns = [{"role": role, "content": say(draw.randint(1, 8))}
                 for _ in range(draw.randint(1, 2)) for role in ("user", "assistant")]
        f.write(json.dumps({"messages": turns}) + "\n")
PY
sed 's|  data = text .*|  data = chats { "talks.jsonl", tokenizer = "model/" },|
     s/seq_len = 32/seq_len = 128/' texts.lua >chats.lua
chat() { # CODE ARGUMENTS... -- WORDS...
    local code=$1
    shift
    gives "$code" run chats.lua --lib "$lib" --threads 1 "$@"
}

chat 0 -- "tokenising 1 file" "of the tokens carry loss" "done  step 6"
first=$(bundle_in runs)
chat 0 -- "text already tokenised" "not run again"
gives 0 data tokenise --chat --to by_hand --tokenizer model --max-tokens 128 talks.jsonl --
for end in bin idx loss; do
    cmp "by_hand.$end" runs/cache/*."$end" || fail "$end: other tokens"
done
expect "the configuration" "{'pack': True, 'loss': 'all', 'max_tokens': 128}" "$(field "$first" \
    '{k: resolved["data"][k] for k in ("pack", "loss", "max_tokens")}')"

# The bundle keeps what rendered them.
"$FP8LAB" extract "$first" --to bag >out 2>&1 || fail "extract"
for file in tokenizer.json tokenizer_config.json chat_template.jinja; do
    cmp "bag/data/experiment/$file" "model/$file" || fail "the bundle has no $file"
done
says "\"template_sha256\": \"$(sha256sum <model/chat_template.jinja | cut -d' ' -f1)\"" \
    bag/data/experiment/ingest.json

gives 0 show "$first" -- "chat template" "loss on each assistant turn"

# Loss and layout change the result; the loss is an input as the tokens are.
python3 - <<'PY' || fail "data.json does not list the loss"
import json
assert any(f["path"].endswith(".loss") for f in json.load(open("bag/data/experiment/data.json")))
PY
for set in data.pack=false data.loss=last; do
    chat 0 --set $set -- "done  step 6"
    [ "$(field "$first" 'run["results_sha256"]')" != \
        "$(field "$(newest runs)" 'run["results_sha256"]')" ] || fail "$set changes nothing"
done
key=$(grep -o '"prefix": "[^"]*' bag/data/experiment/ingest.json | cut -d'"' -f4).loss
printf 'X' | dd of="$key" bs=1 seek=60 conv=notrunc status=none
chat 0 -- ".* are damaged; the text is tokenised again" "not run again"
python3 -c 'import sys
with open(sys.argv[1], "r+b") as f:
    byte = f.read(1)
    f.seek(0)
    f.write(bytes([1 - byte[0]]))' "$key"
chat 0 -- ".loss is damaged" "tokenised again" "not run again"

# Each of these has other tokens; a file named explicitly gives the same ones.
for set in data.max_tokens=40 "data.template=$templates/smollm2.jinja"; do
    chat 0 --set "$set" --set steps=1 -- "tokenising 1 file"
done
chat 0 --cache cut --set data.max_tokens=40 --set steps=1 -- "cut to data.max_tokens"
chat 0 --set data.variables=a=1 --set steps=1 -- "tokenising 1 file"
chat 0 --set data.template=model/chat_template.jinja --set steps=1 -- "text already tokenised"
chat 0 --set data.pack=false --set steps=1 -- "text already tokenised"

# ---- repro ---------------------------------------------------------------------------------------
mkdir away && mv model talks.jsonl away
rm -r runs/cache
gives 3 repro "$first" --threads 1 --runs new -- "talks.jsonl"
gives 0 repro "$first" --threads 1 --runs new --data away --exact -- "tokenising" "bitwise equal"
mv away/* .

# ---- bytes, with a template that the script names: the bundle's own template serves --------------
chat 0 --set data.tokenizer=bytes --set data.template=model/chat_template.jinja --set steps=1 \
    --set checkpoint.every=1 --set checkpoint.keep=1 -- "done  step 1"
bytes=$(newest runs)
gives 0 generate "$bytes" "the loss" --chat --tokens 2 --backend cpu --
gives 0 eval "$bytes" --data talks.jsonl --batches 1 --backend cpu -- "nats"

# ---- an export names the tokens that end a turn and a document -----------------------------------
cp -r model marked && python3 - <<'PY'
import json
with open("marked/tokenizer.json") as f:
    t = json.load(f)
t["added_tokens"].append(dict(t["added_tokens"][0], id=700, content="<|im_end|>"))
with open("marked/tokenizer.json", "w") as f:
    json.dump(t, f)
PY
chat 0 --set data.tokenizer=marked --set model.vocab=704 --set steps=1 --set checkpoint.every=1 \
    --set checkpoint.keep=1 -- "done  step 1"
gives 0 export "$(newest runs)" --to exported -- "exported"
expect "the ends" "[700, 699]" "$(python3 -c 'import json
print(json.load(open("exported/generation_config.json"))["eos_token_id"])')"

# ---- what is wrong -------------------------------------------------------------------------------
chat 2 --set data.max_tokens=500 -- "data.max_tokens" "into a sequence, model.seq_len = 128"
chat 2 --set data.variables=none -- "data.variables 'none': expected NAME=JSON"
chat 2 --set data.loss=none -- "data.loss"
chat 2 --set data.template=missing.jinja -- "data.template" "missing.jinja"
chat 2 --set data.tokenizer=tokenizer.json -- "no chat template lies beside" "template = \"FILE\""
printf '{%% include "x" %%}' >bad.jinja
chat 2 --set data.template=bad.jinja -- "data.template" "bad.jinja" "include"
printf '{"messages": 5}\n' >>talks.jsonl
chat 2 -- "talks.jsonl:301" "data.skip_bad = N"
chat 0 --set data.skip_bad=1 --set steps=1 -- "1 bad line was left out"
sed 's/chats {/chats { field = "x",/' chats.lua >field.lua
gives 2 check field.lua --lib "$lib" -- "chats has no 'field'"

[ "$failed" = 0 ] && echo "conversations become tokens with loss, once"
exit "$failed"
