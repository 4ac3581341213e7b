#!/bin/bash
# eval --data reads text with the tokenizer that a run kept. It unpacks the bundle for that, and no
# message or file may name the folder, which is gone when the command ends.
set -u
. "$PWD/tests/cli/lib.sh"
. "$root/tests/support/text.sh"
export TMPDIR=$TEST_TMP/unpacked
mkdir "$TMPDIR"
"$FP8LAB" data tokenise --to shards --tokenizer tokenizer.json data/a.jsonl >out 2>log ||
    fail "data tokenise"
sed 's|  eval = .*|  checkpoint = { every = 6 },|' texts.lua >text.lua
sample='sample = { prompts = { "the" }, every = 6 },'
sed "s|  data = .*|  data = tokens { path = \"shards\" }, $sample|" text.lua >tokens.lua
for data in text tokens; do
    case_name=$data
    "$FP8LAB" run $data.lua --lib "$lib" --threads 1 --runs $data >out 2>log || fail "run"
    mv tokenizer.json moved.json # so it is the bundle's
    rm -rf $data/cache
    gives 0 eval last --runs $data --data data/b.jsonl --threads 1 --backend cpu -- \
        "tokenising 1 file, 81.3 KiB, with the run's own tokenizer.json" "nats per token"
    loss=$(grep "^  loss" out)
    grep -rlF "$TMPDIR" out $data/cache && fail "a folder is named that is gone"
    expect "the tokenizer of the tokens" tokenizer.json "$(python3 -c 'import glob, json, sys
print(json.load(open(glob.glob(sys.argv[1])[0]))["tokenizer"]["path"])' "$data/cache/*.json")"
    mv moved.json tokenizer.json
    rm -rf $data/cache
    gives 0 eval last --runs $data --data data/b.jsonl --tokenizer tokenizer.json --threads 1 \
        --backend cpu -- "tokenising 1 file, 81.3 KiB, with tokenizer.json"
    expect "the loss" "$loss" "$(grep "^  loss" out)"
done
exit $failed
