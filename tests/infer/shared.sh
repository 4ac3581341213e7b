#!/bin/bash
# What a stranger does with a run's weights: a bundle copied without its checkpoint says what is
# missing; the tokenizer of a run on token shards serves eval and export.
set -u
. "$PWD/tests/cli/lib.sh"
tokenizer=$root/tests/ingest/recorded/gpt2.json
seq 3000 >a.txt
seq 7 3 2000 >held.txt
"$FP8LAB" data tokenise --tokenizer "$tokenizer" --to t a.txt >out 2>log || fail "data tokenise"
cat >x.lua <<LUA
local tiny = require "models.tiny"
return experiment {
  name = "x", model = tiny.llama { seq_len = 32, layers = 1, vocab = 704 }, recipe = bf16,
  data = tokens { path = "t.bin" }, sample = { every = 2, prompts = { "12 13" }, tokens = 2 },
  train = { steps = 2, global_batch = 2, micro_batch = 2 }, checkpoint = { every = 2, keep = 1 },
}
LUA
"$FP8LAB" run x.lua --lib "$lib" --backend cpu --threads 1 >out 2>log || fail "run"
bundle=$(newest runs)
run_as=(--backend cpu --threads 1)
mkdir sent && cp "$bundle" sent
sent=sent/$(basename "$bundle")
for verb in "eval $sent ${run_as[*]}" "export $sent --to e" "generate $sent ${run_as[*]} 12"; do
    # shellcheck disable=SC2086 # words of a command
    gives 2 $verb -- "it kept step 2 (last), but ${sent%.tar.zst}.ckpt is not there"
done
"$FP8LAB" list sent >out 2>log
says "last 2 (gone)" out
cp -r "${bundle%.tar.zst}.ckpt" sent
"$FP8LAB" list sent >out 2>log
grep -q "last 2$" out || fail "list does not say: last 2"
gives 0 eval "$sent" "${run_as[@]}" --data held.txt --
sed 's/.*/{"body": "&"}/' held.txt >held.jsonl
echo '{"body"' >>held.jsonl
lines=(eval "$sent" "${run_as[@]}" --data held.jsonl)
gives 2 "${lines[@]}" -- 'there is no field "text"; --field NAME names another'
gives 2 "${lines[@]}" --field body -- "--skip-bad N leaves out up to N such lines"
gives 0 "${lines[@]}" --field body --skip-bad 1 -- "left out: held.jsonl:"
gives 2 eval "$sent" "${run_as[@]}" --data t.bin --field body -- "t.bin has tokens"
gives 2 eval "$sent" "${run_as[@]}" --skip-bad 1 -- "say how to read the files of --data"
gives 0 export "$sent" --to e --
[ -f e/tokenizer.json ] || fail "export left the tokenizer out"
gives 0 eval e "${run_as[@]}" --data held.txt --seq-len 32 --
gives 0 generate e "${run_as[@]}" --tokens 2 12 --
exit $failed
