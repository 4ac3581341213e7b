# What the tests of text with a tokenizer share: sourced after cli/lib.sh. Makes two files of text,
# a tokenizer and a script.
shown="out log"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
recorded=$root/tests/ingest/recorded

text() { # FILE SEED DOCUMENTS: JSON lines
    python3 - "$@" <<'PY'
import json, random, sys
draw = random.Random(int(sys.argv[2]))
words = "the of and FP8 don't x1 12345 été 中文字 слово if(x){ loss gradient tensor".split(" ")
with open(sys.argv[1], "w") as f:
    for i in range(int(sys.argv[3])):
        text = " ".join(draw.choices(words, k=draw.choice([1, 30, 60, 300])))
        f.write(json.dumps({"id": i, "text": text, "title": text[:50]}) + "\n")
PY
}
mkdir data && text data/a.jsonl 1 80 && text data/b.jsonl 2 80
cp "$recorded/gpt2.json" tokenizer.json
cat >texts.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "texts",
  model = tiny.llama { layers = 1, seq_len = 32, vocab = 700 },
  recipe = bf16,
  data = text { "data/*.jsonl", tokenizer = "tokenizer.json" },
  train = { steps = 6, global_batch = 4, micro_batch = 2, seed = 1 },
  eval = { every = 6, batches = 1 },
}
LUA
run() { # CODE ARGUMENTS... -- WORDS...
    local code=$1
    shift
    gives "$code" run texts.lua --lib "$lib" --threads 1 "$@"
}
shards() { ls "${1:-runs/cache}"/*.bin 2>/dev/null | wc -l; }

