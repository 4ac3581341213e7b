#!/bin/bash
# long: 40
# data = text { ..., tokenizer = ... }: tokens are made once and kept by content; what the bundle
# says of them; other text and options; damage, missing permission, bad input; epochs.
set -u
. "$PWD/tests/cli/lib.sh"
. "$root/tests/support/text.sh"

# ---- made once, then found -----------------------------------------------------------------------
check_of() { gives 0 check texts.lua --lib "$lib" "$@"; } # ARGUMENTS... -- WORDS...
most=$((2 * $(cat data/*.jsonl | wc -c))) # a token of two bytes for each byte of text
room() { room_of check "$@"; }
room_of() { # VERB ARGUMENTS...
    "$FP8LAB" "$1" -q --json "${script:-texts.lua}" --lib "$lib" "${@:2}" 2>/dev/null |
        python3 -c 'import json, sys
tokens = json.load(sys.stdin)["tokens"]
print(tokens and (tokens["folder"], tokens["bytes_max"], tokens["free_bytes"] > 0))'
}
expect "room" "('runs/cache', $most, True)" "$(room)"
expect "room that plan finds" "$(room)" "$(room_of plan)"
mkdir aside
for verb in check plan; do
    expect "room that $verb finds with --data-root" "$(room)" \
        "$(cd aside && script=../texts.lua room_of $verb --data-root ..)"
done
expect "plan of another machine" None "$(room_of plan --facts "$root/tests/facts/laptop.json")"
expect "room for the tokens of bytes" "('runs/cache', $most, True)" \
    "$(room --set data.tokenizer=bytes)"
expect "room for bytes that are no tokens" None "$(room --set data.tokenizer=null)"
check_of -- "the tokens of the text need about" "of disk at most, in runs/cache"
gives 0 plan texts.lua --lib "$lib" -- "the tokens of the text need about"
run 0 -- "tokenising 2 files, 156 KiB, with" "tokens in 160 documents" "kept as $PWD/runs/cache/"
first=$(bundle_in runs)
expect "one set of shards" 1 "$(shards)"
run 0 -- "text already tokenised: $PWD/runs/cache/" "not run again"
check_of -- "the text is tokenised by \`run\`"
grep -q "the tokens of the text need" out && fail "room for tokens that are there"
expect "room for tokens that are there" None "$(room)"
expect "room for others" "('runs/cache', $most, True)" "$(room --set data.tokenizer=bytes)"
gzip -k data/a.jsonl
packed=$((8 * $(wc -c <data/a.jsonl.gz)))
expect "room for packed text" "('runs/cache', $packed, True)" \
    "$(room --set data.paths=data/a.jsonl.gz)"
rm data/a.jsonl.gz

# The shards are those that data tokenise makes.
gives 0 data tokenise --to by_hand --tokenizer tokenizer.json data/a.jsonl data/b.jsonl --
cmp by_hand.bin runs/cache/*.bin && cmp by_hand.idx runs/cache/*.idx || fail "other shards"

# What determines the result is in the hash; where the tokens are kept is not.
run 0 --cache elsewhere --again -- "kept as $PWD/elsewhere/"
expect "inputs with another cache" "$(field "$first" 'run["inputs_sha256"]')" \
    "$(field "$(newest runs)" 'run["inputs_sha256"]')"
expect "results with another cache" "$(field "$first" 'run["results_sha256"]')" \
    "$(field "$(newest runs)" 'run["results_sha256"]')"

# Tokens of text train as tokens of files do.
sed 's|  data = text .*|  data = tokens { path = "by_hand", holdout = 0.05 },|' texts.lua \
    >tokens.lua
gives 0 run tokens.lua --lib "$lib" --threads 1 --runs others --
expect "results of tokens" "$(field "$first" 'run["results_sha256"]')" \
    "$(field "$(bundle_in others)" 'run["results_sha256"]')"

# ---- the bundle ----------------------------------------------------------------------------------
"$FP8LAB" extract "$first" --to bag >out 2>&1 || fail "extract"
cmp bag/data/experiment/tokenizer.json tokenizer.json || fail "the bundle has no tokenizer"
python3 - bag/data/experiment <<'PY' || fail "ingest.json"
import hashlib, json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
record = json.loads((folder / "ingest.json").read_text())
digest = lambda path: hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
assert [s["path"] for s in record["sources"]] == ["data/a.jsonl", "data/b.jsonl"]
assert all(s["sha256"] == digest(s["path"]) for s in record["sources"])
assert record["tokenizer"]["sha256"] == digest("tokenizer.json")
assert record["files"]["bin"] == digest("by_hand.bin") == record["shards"]["sha256"]
files = {f["sha256"] for f in json.loads((folder / "data.json").read_text())}
assert files == {digest("by_hand.idx"), digest("by_hand.bin")}
PY

# ---- loss a byte, beside a run on bytes ----------------------------------------------------------
sed 's|  data = text .*|  data = text { "data/*.jsonl" },|' texts.lua >bytes.lua
gives 0 run bytes.lua --lib "$lib" --threads 1 --runs bytes --
gives 0 compare "$first" "$(bundle_in bytes)" -- "eval/byte" \
    "eval loss per byte of text, by the bytes per token of the run's whole text"
gives 0 compare "$first" "$(bundle_in bytes)" --html page.html --
grep -q 'Eval/byte: eval loss per byte' page.html || fail "the page does not say loss per byte"
gives 0 show "$first" -- "nats per byte of text"
"$FP8LAB" compare --json "$first" "$(bundle_in bytes)" >report.json
"$FP8LAB" show --json "$first" >shown.json
python3 - bag/data/experiment/ingest.json <<'PY' || fail "loss a byte"
import json, sys
a, b = json.load(open("report.json"))["runs"]
record, shown = json.load(open(sys.argv[1])), json.load(open("shown.json"))
ratio = record["text_bytes"] / record["shards"]["tokens"]
assert 1 < ratio == shown["bytes_a_token"]
assert abs(a["eval_loss_byte"] - a["eval_loss_final"] / ratio) < 1e-12, a
assert b["eval_loss_byte"] == b["eval_loss_final"], b
assert abs(b["ratio"]["eval_loss_byte"] - b["eval_loss_byte"] / a["eval_loss_byte"]) < 1e-12
PY
gives 0 compare "$(bundle_in bytes)" "$(bundle_in bytes)" --
grep -q "eval/byte" out && fail "runs on bytes alone need no loss a byte"

# ---- another text, another key -------------------------------------------------------------------
cp data/b.jsonl keep.jsonl
text data/b.jsonl 3 80
run 0 -- "tokenising 2 files"
expect "a changed source" 2 "$(shards)"
mv keep.jsonl data/b.jsonl
touch data/b.jsonl
run 0 -- "text already tokenised" "not run again"
run 0 --set data.eod=none --set steps=1 -- "tokenising 2 files"
run 0 --set data.field=title --set steps=1 -- "tokenising 2 files"
cp data/a.jsonl twice.jsonl
run 0 --set data.unique=true --set data.paths=data/a.jsonl,twice.jsonl --set steps=1 -- \
    "documents that came before were left out"
gives 0 data verify "$(ls -d runs/cache/*.idx | head -1 | sed 's/\.idx$//')" --
expect "other options" 5 "$(shards)"

# ---- what is wrong -------------------------------------------------------------------------------
run 2 --set model.vocab=512 -- "model.vocab is 512" "ids up to 699" "--set model.vocab=700"
run 6 --set data.tokenizer=missing.json -- "data.tokenizer" "missing.json"
run 2 --set data.eod=nothing -- "data.eod nothing: the tokenizer has no such token"
run 2 --set data.tokenizer=data/a.jsonl -- "data.tokenizer"
gives 2 check texts.lua --lib "$lib" --set data.skip_bad=-1 -- "data.skip_bad"
sed 's/, tokenizer = "tokenizer.json"/, field = "text"/' texts.lua >bytes.lua
gives 2 check bytes.lua --lib "$lib" -- "without a tokenizer is read as bytes and takes no field"
printf '{"text": "fine"}\nnot JSON\n' >data/c.jsonl
run 2 -- "data/c.jsonl:2" "data.skip_bad = N leaves out up to N such lines"
grep -e "--skip-bad" out && fail "run has no such flag"
run 2 --set data.field=body -- 'there is no field "body"; data.field names another'
grep -e "--field" out && fail "run has no such flag"
expect "nothing is left" 5 "$(shards)"
made "runs/cache/*.part" "runs/cache/*.lock" && fail "files are left"
run 0 --set data.skip_bad=1 --set steps=1 -- "1 bad line was left out"
rm data/c.jsonl

# A damaged file is found by its hash and made again.
for suffix in bin idx json; do
    file=$(ls -S elsewhere/*."$suffix" | head -1)
    before=$(sha256sum <"$file")
    if [ $suffix = json ]; then : >"$file"
    else printf 'X' | dd of="$file" bs=1 seek=60 conv=notrunc status=none; fi
    run 0 --cache elsewhere -- "tokenised again" "tokenising 2 files" "not run again"
    expect "$suffix is made again" "$before" "$(sha256sum <"$file")"
done
rm elsewhere/*.bin
run 0 --cache elsewhere -- "tokenising 2 files" "not run again"

# A cache that cannot be written is an error; one that has the tokens need not be.
if [ "$(id -u)" != 0 ]; then
    mkdir closed && chmod 555 closed
    run 2 --cache closed -- "the cache of tokens cannot be written" "--cache DIR names another"
    chmod 555 elsewhere
    run 0 --cache elsewhere -- "text already tokenised"
    chmod 755 elsewhere closed
fi
run 2 --cache tokenizer.json -- "the cache of tokens cannot be written" "--cache DIR names another"

# A container sees the tokenizer and the cache.
mkdir -p other/sub && cp tokenizer.json other/sub
gives 0 run texts.lua --lib "$lib" --launch docker --dry-run --cache cached --set \
    data.tokenizer="$PWD/other/sub" --set data.paths=../no/a.txt -- "target=$PWD/cached"
(cd other && "$FP8LAB" run ../texts.lua --lib "$lib" --launch docker --dry-run \
    --set data.tokenizer=../tokenizer.json --set data.paths=a.txt >../out 2>&1)
says "target=$PWD,readonly" out

# ---- what show says ------------------------------------------------------------------------------
gives 0 show "$first" -- "  data           text, data/a.jsonl and 1 more" \
    "  model          1 layer, width 128, 4 heads (2 of keys), ffn 384, vocab 700, sequences of 32"
gives 0 show "$first" -- "2 files of" "in 160 documents" "tokenizer.json $(sha256sum \
    <tokenizer.json | cut -c1-12), 700 tokens"
expect "show --json" fp8lab.ingest/1 "$("$FP8LAB" show --json "$first" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["ingest"]["schema"])')"

# ---- epochs --------------------------------------------------------------------------------------
epochs=(--set steps=null --set epochs=0.02)
gives 0 check texts.lua --lib "$lib" "${epochs[@]}" -- "how many steps its epochs are"
run 0 "${epochs[@]}" -- "done  step"
steps=$(field "$(newest runs)" 'resolved["train"]["steps"]')
gives 0 check tokens.lua --lib "$lib" "${epochs[@]}" --resolved -- "\"steps\":$steps"

[ "$failed" = 0 ] && echo "text becomes tokens once, by content"
exit "$failed"
