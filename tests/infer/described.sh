#!/bin/bash
# generate of a run on token shards: the tokenizer that PREFIX.json beside them names, as long as it
# is the file that made them, and they are the shards of the run.
set -u
. "$PWD/tests/cli/lib.sh"
. "$root/tests/support/text.sh"
"$FP8LAB" data tokenise -q --to shards --tokenizer tokenizer.json --eod 5 data/a.jsonl >out 2>&1 ||
    fail "tokenise"
sed 's|  data = text .*|  data = tokens { path = "shards.bin" },|' texts.lua >shards.lua
gives 0 run shards.lua --lib "$lib" --threads 1 --set checkpoint.every=6 -- "done  step 6"
run=$(bundle_in runs)

told="tokenizer tokenizer.json, which shards.json names"
"$FP8LAB" generate "$run" "the loss" --tokens 5 --backend cpu --json >given 2>log \
    --tokenizer tokenizer.json || fail "--tokenizer"
grep -q "shards.json" log && fail "--tokenizer needs no description"
"$FP8LAB" generate "$run" "the loss" --tokens 5 --backend cpu --json >own 2>log || fail "generate"
says "$told" log
ids() { python3 -c 'import json, sys
print(json.load(sys.stdin)["results"][0]["ids"])' <"$1"; }
expect "the same tokens" "$(ids given)" "$(ids own)"

# The file changed, went, or is another run's; --tokenizer is named each time.
another="--tokenizer names one: a file, a folder, or bytes, for a model of bytes"
cp tokenizer.json kept.json
echo >>tokenizer.json # the same content
gives 0 generate "$run" "the loss" --tokens 1 --backend cpu -- "$told"
python3 - <<'EOF'
import json
tokenizer = json.load(open("tokenizer.json", encoding="utf-8"))
tokenizer["model"]["merges"].pop()
json.dump(tokenizer, open("tokenizer.json", "w", encoding="utf-8"))
EOF
gives 2 generate "$run" x -- "tokenizer.json: its SHA-256 is" "but by shards.json one with" \
    "made the tokens" "$another"
rm tokenizer.json
gives 2 generate "$run" x -- "the tokenizer that shards.json names" "tokenizer.json" "$another"
mv kept.json tokenizer.json
mkdir other && cp shards.* other
rm shards.*
"$FP8LAB" data tokenise -q --to shards --tokenizer bytes data/a.jsonl >out 2>&1 || fail "bytes"
gives 2 generate "$run" x -- "shards.json describes other shards than those of the run" "$another"
rm shards.json
gives 2 generate "$run" x -- "shards.json, where \`data tokenise\` names their tokenizer, is not" \
    "$another"
rm -f shards.* && mv other/shards.* .
gives 0 generate "$run" "the loss" --tokens 1 --backend cpu -- "$told"

# Bytes have no file.
"$FP8LAB" data tokenise -q --to plain --tokenizer bytes data/a.jsonl >out 2>&1 || fail "bytes"
gives 0 run shards.lua --lib "$lib" --threads 1 --runs plain.d --set data.path=plain.bin \
    --set checkpoint.every=6 -- "done  step 6"
gives 0 generate "$(bundle_in plain.d)" "the loss" --tokens 1 --backend cpu -- \
    "tokenizer bytes, which plain.json names"

[ "$failed" = 0 ] && echo "a run on shards takes the tokenizer that made them"
exit "$failed"
