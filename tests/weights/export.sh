#!/bin/bash
# long: 60
# `export`: import then export gives every tensor back to the bit, in the family's names and
# layouts, and a folder that can be imported again; f32 has the masters; fp8-block has the codes of
# the recipe. tests/long/weights.sh reads the folders back with transformers.
set -u
. tests/cli/lib.sh
. "$root/tests/weights/lib.sh"
equal() { # WHAT WANTED FOUND
    python3 "$root/tests/weights/compare_tensors.py" "$2" "$3" >out 2>log || fail "$1"
}

while read -r name wanted; do
    dtype=$(type_of "$name")
    untrained "$name" "$dtype"
    gives 0 export "$bundle" --to "e.$name" --dtype "$dtype" -- "e.$name" "$dtype"
    # GPT-2's table of positions has the rows that the run had.
    [ "$name" = gpt2 ] || equal "$name" "models/$name" "e.$name"
    script "e.$name"
    run_x
    near "$name again" "$wanted" "$(loss_of)" 1e-5
done <"$root/tests/weights/losses.txt"

# ---- files
untrained llama2 bf16
"$FP8LAB" export "$bundle" --to cut --shard-mb 1 >out 2>log || fail "--shard-mb"
gives 2 export "$bundle" --to cut -- "cut exists"
gives 2 export "$bundle" -- "--to DIR"
gives 2 export "$bundle" --to z --dtype int4 -- "expected bf16, f32 or fp8-block"
gives 2 export "$bundle" --to z --dtype fp8-block -- "fp8-block needs fp8.blockwise"
[ -z "$(ls -d z* 2>/dev/null)" ] || fail "a refused export left a folder"

# What is beside the new folder stays, under any name. Of two exports to one folder one fails.
mkdir y.partial y.partial.1
touch y.partial/mine y.partial.1/mine x.partial
for to in x y; do
    "$FP8LAB" export "$bundle" --to $to >out 2>log || fail "export beside $to.partial"
done
gives 2 export "$bundle" --to z --dtype fp8-block -- "fp8-block needs fp8.blockwise"
expect "what is beside" "x x.partial y y.partial y.partial.1" \
    "$(ls -d x x.p* y y.* | tr "\n" " " | sed "s, $,,")"
[ -e y.partial/mine ] && [ -e y.partial.1/mine ] || fail "export removed a user's file"
"$FP8LAB" export "$bundle" --to both >both.1 2>&1 &
other=$!
"$FP8LAB" export "$bundle" --to both >both.2 2>&1
second=$?
wait $other
first=$?
expect "two exports to one folder" 1 $(((first == 0) + (second == 0)))
expect "its files" "$(ls y)" "$(ls both)"
expect "what they left" "both" "$(ls -d both both.p* 2>/dev/null)"

"$FP8LAB" export "$bundle" --to shown --json >out 2>log || fail "--json"
python3 - "$root/runner/JSON.md" <<'END' || fail "--json: other keys than runner/JSON.md"
import json, re, sys
row = next(x for x in open(sys.argv[1]) if x.startswith("| `export` |")).split("|")[3]
assert set(re.findall("`(.*?)`", row)) == set(json.load(open("out"))) - {"schema"}
END

# ---- the ends of texts: generation_config.json is kept in the bundle, and exported as it is
echo '{"eos_token_id": [3, 5], "temperature": 0.6}' >models/llama2/generation_config.json
untrained llama2 bf16
rm models/llama2/generation_config.json
gives 0 export "$bundle" --to ends -- "ends"
expect "generation_config.json" '{"eos_token_id": [3, 5], "temperature": 0.6}' \
    "$(python3 -c 'import json; print(json.dumps(json.load(open("ends/generation_config.json"))))')"
gives 0 repro "$bundle" --exact -- "bitwise equal"
echo '[' >models/llama2/generation_config.json
gives 2 check x.lua -- "models/llama2/generation_config.json: line 2"
rm models/llama2/generation_config.json
untrained llama2 bf16

# ---- masters: f32 has every bit of what was imported, though the weights are bf16
gives 0 export "$bundle" --to masters --dtype f32 -- "of the master weights"
equal "masters" models/llama2 masters

# ---- llm.c: the file that make_models.py makes of the same folder, but for the padding
sed -i 's/"n_positions": 64/"n_positions": 32/' models/gpt2/config.json
untrained gpt2 f32
for dtype in f32 bf16; do
    gives 0 export "$bundle" --to "llmc.$dtype" --format llmc --dtype $dtype -- "$dtype"
    script "llmc.$dtype/model.bin" models/gpt2
    run_x
    bound=1e-5
    [ $dtype = f32 ] || bound=0.02
    near "llm.c in $dtype" "$(sed -n 's/^gpt2 //p' "$root/tests/weights/losses.txt")" \
        "$(loss_of)" $bound
done
untrained llama2 f32
gives 2 export "$bundle" --to z --format llmc -- "llm.c's file has a GPT-2"
gives 2 export "$bundle" --to z --format onnx -- "expected hf or llmc"

# ---- fp8-block: the codes that were trained with, in blocks cut off by an edge. An import of them
# has the same codes, so the same loss to the bit.
python3 "$root/tests/weights/make_models.py" models blocks || fail "make_models.py"
untrained blocks "fp8.blockwise"
wanted=$(loss_of)
gives 0 export "$bundle" --to fp8 --dtype fp8-block -- "fp8-block"
equal "fp8-block" models/blocks fp8
expect "quantised tensors" "5 7" "$(cat out)"
script fp8
sed -i "s/recipe = f32/recipe = fp8.blockwise/" x.lua
run_x
expect "the loss of imported codes" "$wanted" "$(loss_of)"
cp -r fp8 wide
python3 - <<'END'
import json, struct
path = "wide/model.safetensors"
raw = open(path, "rb").read()
end = 8 + struct.unpack("<Q", raw[:8])[0]
head, at, data = json.loads(raw[8:end]), 0, b""
head.pop("__metadata__")
for name, x in head.items():
    begin, stop = x["data_offsets"]
    twice = 2 if name == "model.layers.0.mlp.down_proj.weight_scale_inv" else 1
    x["shape"] = x["shape"][:-1] + [twice * x["shape"][-1]]
    x["data_offsets"] = [at, at + twice * (stop - begin)]
    at, data = x["data_offsets"][1], data + twice * raw[end + begin:end + stop]
text = json.dumps(head).encode()
open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)
END
script wide
gives 2 run x.lua --backend cpu -- "without an F32 tensor" \
    "down_proj.weight_scale_inv of one factor"
script fp8
sed -i "s/recipe = f32/recipe = fp8.blockwise/" x.lua
python3 - <<'END'
import json
with open("fp8/config.json") as f:
    c = json.load(f)
c["quantization_config"]["weight_block_size"] = [64, 64]
with open("fp8/config.json", "w") as f:
    json.dump(c, f)
END
gives 2 check x.lua -- "weight_block_size of [128, 128]"
untrained llama2 "fp8.blockwise"
gives 2 export "$bundle" --to z --dtype fp8-block -- "in the middle of a block"

# ---- weights that only the bundle has, and the run's tokenizer
. "$root/tests/support/text.sh"
sed -i 's/  eval = /  archive = "weights", checkpoint = { every = 6 },\n  eval = /' texts.lua
run 0 --runs packed -- "done  step 6"
bundle=$(newest packed)
rm -rf packed/*.checkpoints
gives 0 export "$bundle" --runs packed --to with -- "step 6"
cmp tokenizer.json with/tokenizer.json || fail "the tokenizer"
grep -q PreTrainedTokenizerFast with/tokenizer_config.json || fail "tokenizer_config.json"
script "$bundle" with
sed -i 's/"models.text.txt", holdout = 0/"data\/*.jsonl", tokenizer = "tokenizer.json"/' x.lua
run_x
expect "a run from a bundle's weights" 0 $code
rm "$bundle" && rm -rf packed
gives 2 export "$bundle" --to z -- "$bundle"
exit $failed
