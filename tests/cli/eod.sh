#!/bin/bash
# The token behind each document: the eos_token of tokenizer_config.json, else a known spelling;
# check, run and show say which. A bundle without that file gives the tokens of its run again.
set -u
. "$PWD/tests/cli/lib.sh"
. "$root/tests/support/text.sh"
mkdir model && python3 - <<'PY'
import json
with open("tokenizer.json") as f:
    t = json.load(f)
t["added_tokens"].append(dict(t["added_tokens"][-1], id=700, content="<|stop|>"))
with open("model/tokenizer.json", "w") as f:
    json.dump(t, f)
PY
sed -i 's|tokenizer = "tokenizer.json"|tokenizer = "model"|; s/vocab = 700/vocab = 701/' texts.lua
ends() { # RUNS: the ids that stand before each end of a document in its tokens
    python3 - runs/cache "$1" <<'PY'
import glob, json, sys
for name in glob.glob(sys.argv[1] + "/*.json"):
    with open(name) as f:
        d = json.load(f)
    if d["end_of_document"] == int(sys.argv[2]):
        print(d["shards"]["documents"])
PY
}
known="each document ends with <|endoftext|>, 699: a known end of text"
eos="each document ends with <|stop|>, 700: the eos_token of tokenizer_config.json"
gives 0 check texts.lua --lib "$lib" -- "texts: $known"
here=$PWD
mkdir elsewhere && cd elsewhere # the paths are those of --data-root
gives 0 check ../texts.lua --lib "$lib" --data-root .. -- "texts: $known"
cd "$here"
run 0 -- "$known" "done  step 6"
old=$(bundle_in runs)
expect "documents" 160 "$(ends 699)"
gives 0 show "$old" -- "documents      each ends with <|endoftext|>"

# With the file the same script has other tokens, under another key; the bundle has its own.
echo '{"eos_token": {"content": "<|stop|>", "__type": "AddedToken"}}' >model/tokenizer_config.json
case_name="an old bundle"
rm -r runs/cache
gives 0 repro "$old" --threads 1 --runs again --exact -- "$known" "bitwise equal"
gives 0 repro "$(bundle_in again)" --threads 1 --runs third --exact -- "bitwise equal"
case_name="the eos_token"
gives 0 check texts.lua --lib "$lib" -- "texts: $eos"
gives 0 data model/tokenizer.json -- "documents with <|stop|>, 700"
run 0 -- "$eos" "done  step 6"
new=$(newest runs)
[ "$new" != "$old" ] || fail "a run of other tokens is taken for the old one"
expect "documents" 160 "$(ends 700)"
gives 0 show "$new" -- "documents      each ends with <|stop|>"
rm -r runs/cache model/tokenizer_config.json
gives 0 repro "$new" --threads 1 --runs fourth --exact -- "$eos" "bitwise equal"
echo '{"eos_token": "<|stop|>"}' >model/tokenizer_config.json

case_name="eod"
run 0 --set "data.eod=<|endoftext|>" --set steps=1 -- "ends with <|endoftext|>, 699: data.eod"
run 0 --set data.eod=none --set steps=1 -- "no token ends a document: data.eod"
gives 0 show "$(newest runs)" -- "documents      no token ends one"
case_name="no such token"
echo '{"eos_token": "<|nothing|>"}' >model/tokenizer_config.json
gives 0 check texts.lua --lib "$lib" -- \
    "$known; the tokenizer lacks the eos_token that" "<|nothing|>"
echo '[' >model/tokenizer_config.json
gives 0 check texts.lua --lib "$lib" -- "$known"
gives 0 check texts.lua --lib "$lib" --set data.tokenizer=bytes -- \
    "no token ends a document: the tokenizer names none"

[ "$failed" = 0 ] && echo "each document ends with the token that the messages name"
exit "$failed"
