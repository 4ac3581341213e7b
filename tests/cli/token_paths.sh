#!/bin/bash
# "t", "t.bin" and "t.idx" name the same token shards: one configuration, one run. A run whose
# configuration was recorded with another spelling differs from one without in nothing else.
set -u
. "$PWD/tests/cli/lib.sh"
seq 1 4000 >t.txt
"$FP8LAB" data tokenise t.txt --to t --tokenizer bytes >out 2>log || fail "data tokenise"
for end in bin idx json; do cp t.$end t.bin.$end && cp t.$end t.v12.$end; done
cat >t.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "t", model = tiny.llama { layers = 1, seq_len = 32 }, recipe = bf16,
  data = tokens { path = "t" }, train = { steps = 4, global_batch = 2 },
  checkpoint = { every = 2 },
}
LUA
resolved() { # SET...: the data of the configuration
    "$FP8LAB" check -q --resolved t.lua --lib "$lib" "$@" | python3 -c 'import json, sys
data = json.loads(sys.stdin.read())["data"]
print(data["path"], data["paths"], data["parts"] and [p["path"] for p in data["parts"]],
      data["eval_path"])'
}
expect "a prefix" "t None None None" "$(resolved)"
expect "a .bin" "t None None t" "$(resolved --set data.path=t.bin --set data.eval_path=t.idx)"
expect "a list" "None ['t', 't.v12'] None None" \
    "$(resolved --set data.path=null --set data.paths=t.idx,t.v12.bin)"
expect "a pattern" "None ['t', 't.bin.bin', 't.v12'] None None" \
    "$(resolved --set 'data.path=t*.bin')"
expect "another file" "t.bin.bin None None None" "$(resolved --set data.path=t.bin.bin)"
expect "llm.c's" "t.bin None None None" \
    "$(resolved --set data.path=t.bin --set data.format=llmc 2>log)"
cp t.lua one.lua
sed 's/tokens {.*}, train/tokens { { path = "t.bin" }, { path = "t.v12" } }, train/' one.lua >t.lua
expect "parts" "None None ['t', 't.v12'] None" "$(resolved)"
cp one.lua t.lua

go() { gives 0 run t.lua --lib "$lib" --threads 1 --runs runs "${@:2}" -- "$1"; } # WORDS ARGS...
go "done  step 4"
run=$(bundle_in runs)
for path in t.bin t.idx; do go "not run again" --set data.path=$path; done
gives 0 run t.lua --lib "$lib" --threads 1 --runs others --set data.path=t.v12 -- "done  step 4"
gives 0 compare "$run" "$(bundle_in others)" -- "A t · B t.v12" "=> no factor" # the same bytes

# The run, as a program of before recorded it.
"$FP8LAB" extract "$run" --to old >out 2>log || fail "extract"
python3 - "$("$FP8LAB" check -q --resolved t.lua --lib "$lib")" <<'PY' || fail "another spelling"
import hashlib, json, pathlib, sys
old = pathlib.Path("old")
for name in old.glob("*manifest*"):
    name.unlink()
text = sys.argv[1].replace('"path":"t"', '"path":"t.bin"')
assert text != sys.argv[1]
resolved = next(old.rglob("resolved.json"))
resolved.write_text(json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n")
run = next(old.rglob("run.json"))
record = json.loads(run.read_text())
record["inputs"]["config"] = hashlib.sha256(text.encode()).hexdigest()
inputs = json.dumps(record["inputs"], sort_keys=True, separators=(",", ":"))
record["inputs_sha256"] = hashlib.sha256(inputs.encode()).hexdigest()
run.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
script = next(old.rglob("main.lua"))
script.write_text(script.read_text().replace('path = "t"', 'path = "t.bin"'))
PY
gives 0 compare "$run" old -- "Bit by bit"
grep -q "data.path" out && fail "a spelling is a difference"
exit $failed
