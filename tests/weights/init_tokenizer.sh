#!/bin/bash
# The initial weights have one tokenizer and the text another: check, plan and run warn, name both
# and say what to write. They say nothing if both are the same, or one is not known.
set -u
. tests/cli/lib.sh
. "$root/tests/support/text.sh"
tr -d '{}' <data/a.jsonl >b.txt
base() { # NAME DATA [KEYS]: writes NAME.lua
    sed "s|  data = .*|  data = $2, ${3:-}|; s|  eval = .*|  checkpoint = { every = 6 },|" \
        texts.lua >"$1.lua"
}
warns() { # WORDS...: check, plan and run of x.lua
    local verb
    for verb in "check x.lua --json" "plan x.lua --backend cpu" \
        "run x.lua --backend cpu --threads 1 --again"; do
        # shellcheck disable=SC2086  # a verb with its arguments
        gives 0 $verb --lib "$lib" -- "unless both give the same ids" "$@"
    done
}
silent() { # ARGS...
    "$FP8LAB" check x.lua --lib "$lib" "$@" >out 2>&1 || fail "check $*"
    ! grep -q "unless both give the same ids" out || fail "a warning without a reason"
}

# ---- a run's weights
mkdir own && mv tokenizer.json own
base first 'text { "data/a.jsonl", tokenizer = "own" }'
gives 0 run first.lua --lib "$lib" --threads 1 --backend cpu -- "done  step 6"
run=$(bundle_in runs)
case_name="a run, and bytes"
base x 'text { "b.txt" }' "init = \"$run\","
warns "init = \"$run\" have the tokenizer own, but data has no tokenizer, so each byte" \
    'Write tokenizer = "own" in data'
id=$(basename "$run" .tar.zst)
base x 'text { "b.txt" }' "init = \"$id\","
warns "the weights of init = \"$id\" have the tokenizer own"

case_name="a run, and another tokenizer"
mkdir other && cp "$recorded/qwen2.json" other/tokenizer.json
base x 'text { "data/b.jsonl", tokenizer = "other/tokenizer.json" }' "init = \"$run\","
warns "have the tokenizer own, but data.tokenizer is \"other/tokenizer.json\", another one"
mv own moved # then the bundle has it
gives 0 check x.lua --lib "$lib" -- 'Write tokenizer = "PATH" in data' \
    "fp8lab extract $run --to DIR"

case_name="the same file elsewhere"
base x 'text { "data/b.jsonl", tokenizer = "moved" }' "init = \"$run\","
silent
base x 'text { "b.txt" }'
silent # random weights
mv moved own

# What another program wrote again gives the same ids: other white space, another order of keys,
# merges as pairs, null for what is absent. Each other part that determines ids makes another one.
case_name="the same content"
python3 - own/tokenizer.json <<'PY'
import copy, json, os, sys
t = json.load(open(sys.argv[1]))
def write(name, change):
    new = copy.deepcopy(t)
    change(new)
    os.makedirs(name, exist_ok=True)
    with open(name + "/tokenizer.json", "w") as f:
        json.dump(new, f, indent=3, ensure_ascii=False)
def again(new):
    for part in (new, new["model"]):
        for key in reversed(list(part)): part[key] = part.pop(key)
    new["model"]["vocab"] = dict(sorted(new["model"]["vocab"].items()))
    new["model"]["merges"] = [m.split(" ") if isinstance(m, str) else " ".join(m)
                              for m in new["model"]["merges"]]
    new["truncation"] = None
def merges(new): new["model"]["merges"].reverse()
def vocab(new):
    v = new["model"]["vocab"]
    a, b = list(v)[300:302]
    v[a], v[b] = v[b], v[a]
def added(new): new["added_tokens"][-1]["content"] = "<|renamed|>"
def special(new): new["added_tokens"][-1]["lstrip"] = True
def normal(new): new["normalizer"] = {"type": "NFC"} if not new.get("normalizer") else None
def split(new):
    new["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}
write("again", again)
for change in (merges, vocab, added, special, normal, split): write(change.__name__, change)
PY
cmp -s own/tokenizer.json again/tokenizer.json && fail "the copy has the same bytes"
base x 'text { "data/b.jsonl", tokenizer = "again" }' "init = \"$run\","
silent
for part in merges vocab added special normal split; do
    base x "text { \"data/b.jsonl\", tokenizer = \"$part\" }" "init = \"$run\","
    gives 0 check x.lua --lib "$lib" -- "data.tokenizer is \"$part\", another one"
done
gives 0 eval "$run" --data b.txt --tokenizer again --backend cpu --threads 1 --
! grep -q "unless both" out || fail "eval: its own tokenizer, written again"
again=$(sha256sum <again/tokenizer.json | cut -d' ' -f1)
base y 'text { "data/b.jsonl", tokenizer = "again" }' 'name = "again",'
gives 0 run y.lua --lib "$lib" --threads 1 --backend cpu --runs again.runs --
gives 0 show "$(bundle_in again.runs)" --json -- "$again" # the file's own hash is recorded

# ---- --tokenizer: the model has 700 tokens
case_name="--tokenizer"
warned="trained on ids of the tokenizer own, not"
says_other() { # VERB... -- WORDS...
    gives 0 "${@:1:$#-1}" --tokenizer "${!#}" --backend cpu --threads 1 -- "$warned ${!#}: unless"
}
says_other eval "$run" --data b.txt bytes
says_other generate "$run" "the loss" --tokens 2 bytes
says_other generate "$run" "the loss" --tokens 2 other
for verb in "eval $run --data b.txt" "generate $run x --tokens 2"; do
    # shellcheck disable=SC2086  # words
    gives 0 $verb --tokenizer own/tokenizer.json --backend cpu --threads 1 --
    ! grep -q "unless both" out || fail "$verb: its own tokenizer"
done
python3 - own/tokenizer.json big.json <<'PY'
import json, sys
t = json.load(open(sys.argv[1]))
t["added_tokens"].append(dict(t["added_tokens"][-1], id=700, content="<|more|>"))
json.dump(t, open(sys.argv[2], "w"))
PY
refused="the tokenizer big.json has ids up to 700, but the model has 700 tokens: it is another"
gives 2 eval "$run" --data b.txt --tokenizer big.json --backend cpu -- "$refused"
gives 2 generate "$run" x --tokenizer big.json --backend cpu -- "$refused"

# ---- token shards
case_name="shards"
"$FP8LAB" data tokenise -q --to plain --tokenizer bytes b.txt >out 2>&1 || fail "tokenise"
"$FP8LAB" data tokenise -q --to good --tokenizer own data/b.jsonl >out 2>&1 || fail "tokenise"
base x 'tokens { path = "plain" }' "init = \"$run\","
warns "the tokens of data are those of bytes, as plain.json says" "--tokenizer own"
base x 'tokens { path = "good" }' "init = \"$run\","
silent
gives 0 data sample good --tokenizer again/tokenizer.json --
gives 2 data sample good --tokenizer merges/tokenizer.json -- "name the right one"
mv good.json hidden.json # then nothing names their tokenizer
silent
mv hidden.json good.json
gives 0 run x.lua --lib "$lib" --threads 1 --backend cpu --runs second -- "done  step 6"
base x 'text { "b.txt" }' "init = \"$(bundle_in second)\","
warns "have the tokenizer own/tokenizer.json, but data has no tokenizer"
rm -f good.*
"$FP8LAB" data tokenise -q --to good --tokenizer bytes b.txt >out 2>&1 || fail "anew"
silent # other shards lie where the run's did

# ---- a folder's weights
case_name="a folder"
gives 0 export "$run" --to folder -- "folder"
base x 'text { "b.txt" }' 'init = "folder",'
warns "have the tokenizer folder/tokenizer.json, but data has no tokenizer" \
    'Write tokenizer = "folder/tokenizer.json" in data'
base x 'text { "data/b.jsonl", tokenizer = "own" }' 'init = "folder",'
silent
gives 0 generate folder x --tokens 1 --tokenizer bytes --backend cpu -- \
    "trained on ids of the tokenizer folder/tokenizer.json, not bytes: unless"
mkdir away && cp -r folder b.txt away
base x 'text { "b.txt" }' 'init = "folder",'
mv folder elsewhere
gives 0 run x.lua --lib "$lib" --threads 1 --backend cpu --again --data-root away -- \
    "the tokenizer away/folder/tokenizer.json" 'Write tokenizer = "folder/tokenizer.json" in data'
rm away/folder/tokenizer.json
"$FP8LAB" run x.lua --lib "$lib" --threads 1 --backend cpu --again --data-root away >out 2>&1
! grep -q "unless both give the same ids" out || fail "a folder without a tokenizer"

[ "$failed" = 0 ] && echo "weights and text of two tokenizers give a warning"
exit "$failed"
