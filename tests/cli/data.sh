#!/bin/bash
# data: files of token ids are recognised and counted as tokens, whatever their bytes would say;
# what is neither text nor tokens is refused with what to do.
set -u
. "$PWD/tests/cli/lib.sh"
shown=out
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
# Megatron's u16 and i32, with 40 ids in 3 sequences and 2 documents; llm.c's shards; other files.
python3 - <<'PY' || exit 1
import struct
ids = [0, 1, 1, 2] * 10
def megatron(name, code, size, ids, lengths=(10, 10, 20), more=b""):
    pointers = [sum(lengths[:i]) * size for i in range(len(lengths))]
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), 3)
    head += struct.pack(f"<{len(lengths)}i{len(lengths)}q3q", *lengths, *pointers, 0, 2, 3)
    open(name + ".idx", "wb").write(head)
    open(name + ".bin", "wb").write(b"".join(struct.pack(f"<I", i)[:size] for i in ids) + more)
megatron("u16", 8, 2, [i + 65 + 256 * 66 for i in ids])  # bytes that read as text
megatron("i32", 4, 4, ids)
megatron("torn", 8, 2, ids[:-1])
megatron("far", 4, 4, ids[:-1] + [1 << 30])
def shard(name, magic, version, ids, size):
    head = struct.pack("<3i", magic, version, len(ids)).ljust(1024, b"\0")
    open(name, "wb").write(head + b"".join(struct.pack("<I", i)[:size] for i in ids))
shard("gpt2.bin", 20240520, 1, ids, 2)
shard("llama.bin", 20240801, 7, [i + 128000 for i in ids], 4)
shard("model.bin", 20240326, 3, ids, 4)
shard("model3.bin", 20240803, 3, ids, 4)
shard("eval.bin", 20240522, 1, ids, 2)
open("raw.bin", "wb").write(b"".join(struct.pack("<H", i) for i in ids * 9))
open("text.bin", "w").write("a text, whatever its name\n")
open("text.idx", "w").write("an index of something else\n")
PY
data() { gives "$1" data "${@:2}"; } # CODE ARGUMENTS... -- WORDS...
# p = 1/4, 1/2, 1/4: 1.5 ln 2 nats.
for name in u16.bin u16; do
    data 0 $name -- 'data = tokens { format = "megatron" }' \
        '40 of 2 bytes, 3 sequences, 2 documents' '3 different, the largest 16963' \
        'at least 16964' '1.0397 nats per token'
    grep -q 'per byte' out && fail "$name: entropies of bytes"
done
data 0 i32.bin -- '40 of 4 bytes, 3 sequences, 2 documents' '3 different, the largest 2:'
data 0 gpt2.bin -- 'format = "llmc"' '40 of 2 bytes' 'the largest 2:' '1.0397 nats per token'
data 0 llama.bin -- '40 of 4 bytes' 'the largest 128002:'
data 2 torn.bin -- 'torn.bin: 78 bytes, but torn.idx describes 80 (truncated?)'
data 2 far.bin -- 'far.bin' '1073741824'
data 2 u16.idx -- "u16.idx is an index of Megatron's; name the .bin beside it"
data 2 model.bin -- 'model.bin is a GPT-2 model of llm.c' 'magic 20240520 or 20240801'
data 2 model3.bin -- 'model3.bin is a Llama-3 model of llm.c'
data 2 eval.bin -- 'eval.bin is an evaluation set of llm.c'
data 2 raw.bin -- 'raw.bin is not text: 100.0 % of its bytes are control characters' \
    'need the .idx beside the .bin' '--bytes'
data 0 --bytes raw.bin -- '720 (3 different values)' 'bigram'
data 0 --bytes u16.bin -- '80 (3 different values)' 'bigram'
data 0 text.bin -- 'nats per byte'
"$FP8LAB" data --json u16.bin text.bin >out
python3 - <<'PY' || fail "data --json"
import json
tokens, text = json.load(open("out"))["files"]
assert (tokens["format"], tokens["tokens"], tokens["id_max"]) == ("megatron", 40, 16963), tokens
assert (tokens["sequences"], tokens["documents"], tokens["token_bytes"]) == (3, 2, 2), tokens
assert abs(tokens["unigram_nats"] - 1.0397207708) < 1e-9 and "bigram_nats" not in tokens, tokens
assert text["format"] == "text" and text["bigram_nats"] > 0, text
PY
exit $failed
