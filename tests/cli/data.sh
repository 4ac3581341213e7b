#!/bin/bash
# data: files of token ids are recognised and counted as tokens, even if their bytes look like text.
# A file that is neither text nor tokens is rejected, and the error says what to do.
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
cp raw.bin raw.dat
data 2 raw.dat -- 'raw.dat is not text: 100.0 % of its bytes are control characters. --bytes'
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

# JSON lines: what they hold. A folder of a model, or of a tokenizer. Packed files and tables.
printf '\n{"id": 1, "text": "a"}\n\n{"id": 2, "text": "b"}' >some.list
data 0 some.list -- 'JSON lines, 2; the first has id, text' 'holds     text: data' 'per byte'
printf '\357\273\277the cat sat\n' >mark.txt
data 0 mark.txt -- 'mark.txt begins with a byte-order mark' "1s/^\\xef\\xbb\\xbf//"
sed -i '1s/^\xef\xbb\xbf//' mark.txt && data 0 mark.txt -- 'per byte'
grep -q 'byte-order mark' out && fail "the mark is removed"
printf '{"messages": [{"role": "user", "content": "x"}]}\n' >chats.jsonl
data 0 chats.jsonl -- 'holds     conversations: data sample, data tokenise --chat'
printf '{"a\\u001b[31mb": 1}\n' >other.jsonl
data 0 other.jsonl -- 'the first has a?[31mb' '--field NAME'
printf '{\n  "text": "no line"\n}\n' >object.json
data 0 object.json -- 'nats per byte'
grep -q 'JSON lines' out && fail "an object of several lines"
printf '%s' '{"a": 1} {"b": 2}' >two.json
data 0 two.json -- 'nats per byte'
grep -q 'JSON lines' out && fail "two objects in a line"
: >empty.txt
data 2 empty.txt -- 'empty.txt is empty'
data 2 empty.txt --bytes -- 'empty.txt is empty'
# Bad files among good ones: all are described, in the order given.
data 2 some.list empty.txt absent.txt two.json raw.bin object.json -- "empty.txt is empty" \
    "3 of 6 files cannot be described"
expect "the order" "some.list empty.txt absent.txt two.json raw.bin object.json" "$(sed -n \
    's/^\(some.list\|two.json\|object.json\)$/\1/p; s/^fp8lab: \(empty.txt\) is empty$/\1/p
        s/^fp8lab: .*\(absent.txt\): No such file.*/\1/p
        s/^fp8lab: \(raw.bin\) .*/\1/p' out | tr '\n' ' ' | sed 's/ $//')"
"$FP8LAB" data --json empty.txt two.json absent.txt >out 2>log
expect "exit code of --json" 2 $?
python3 - <<'PY' || fail "data --json with bad files"
import json
empty, text, absent = json.load(open("out"))["files"]
assert empty == {"path": "empty.txt", "error": {"code": "ERR_CONFIG", "text": "empty.txt is empty"}}
assert text["path"] == "two.json" and text["bytes"] == 17 and absent["error"]["code"] == "ERR_IO"
PY
mkdir model empty
printf '%s' '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 700,
"intermediate_size": 128, "max_position_embeddings": 256}' >model/config.json
printf '%s' '{"model_max_length": 1000000000000000019884624838656, "chat_template": "x"}' \
    >model/tokenizer_config.json
printf '12345' >model/model-00001-of-00001.safetensors
data 0 model -- 'a model' 'llama, LlamaForCausalLM: 2 layers, width 64, 4 heads (2 of keys)' \
    'vocab     700' '1 file .safetensors' 'tokenizer none' 'template in tokenizer_config.json'
cp "$root/tests/ingest/recorded/gpt2.json" empty/tokenizer.json
data 0 empty -- 'a tokenizer without a model' 'no template'
rm empty/tokenizer.json
data 2 empty -- 'neither config.json nor tokenizer.json'
printf '{' >model/config.json
data 2 model -- 'model/config.json:1'
gzip -k some.list
data 0 some.list.gz -- 'packed    by gzip, ' ' bytes; figures of the text in it' 'JSON lines, 2' \
    'holds     text: data tokenise' "sha256    $(sha256sum <some.list.gz | cut -c1-64) (packed)"
figures() { grep -E 'format|holds|bytes  |gram' out; }
figures >packed
data 0 some.list -- 'JSON lines' && figures | diff packed - || fail "figures of a packed text"
printf '{"text": "c"}\n' >more.list
tar --format=ustar -cf two.tar some.list more.list && gzip -k two.tar
data 0 two.tar -- 'by tar, 10240 bytes, tar: 2 files; figures of the text' 'JSON lines, 3;'
data 0 two.tar.gz -- 'by gzip, ' ' bytes, tar: 2 files; ' 'JSON lines, 3; the first has id'
data 0 --json two.tar.gz -- '"packed_by":"gzip"' '"files":2' '"whole":true' '"lines":3'
head -c 30 some.list.gz >cut.gz
data 2 cut.gz -- 'read cut.gz: ' 'truncated'
yes '{"text": "a text that is longer than its bound"}' | head -c 67108865 | gzip -1 >long.gz
data 0 long.gz -- 'figures of the first 64 MiB in it' 'bytes     67108864 (' 'holds     text'
head -c 3000 /dev/zero | tr '\0' '\1' | gzip >ones.gz
data 2 ones.gz -- 'ones.gz is not text: 100.0 % of its unpacked bytes'
printf 'PAR1PAR1' >table
data 2 table -- 'is a Parquet file, which is not read as text; make JSON lines of it: python3'
# Shards of data tokenise: what is beside them.
data 0 tokenise --tokenizer bytes --field text --to made some.list --
data 0 made -- 'text      0.00 MB of 1 file, 1.00 bytes per token' 'tokenizer bytes, 256 tokens' \
    '0.8 % occur'
exit $failed
