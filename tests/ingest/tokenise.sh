#!/bin/bash
# data tokenise from outside: shards of text, packed or not, the same for any number of threads.
# Also bad lines, an interrupted run, a full disk, and a run that trains on the shards.
set -u
. "$PWD/tests/cli/lib.sh"
shown=out
python=$(command -v python3) || python=${VENV:+$VENV/bin/python}
[ -n "$python" ] || { echo "skipped: there is no python3"; exit 77; }
recorded=$root/tests/ingest/recorded
data() { gives "$1" data "${@:2}"; } # CODE ARGUMENTS... -- WORDS...
tokenise() { # PREFIX TOKENIZER ARGUMENT...
    local prefix=$1 tokenizer=$2
    shift 2
    rm -f "$prefix".{bin,idx,json}
    data 0 tokenise --to "$prefix" --tokenizer "$tokenizer" "$@" --
}
same() { cmp "$1.bin" "$2.bin" && cmp "$1.idx" "$2.idx"; }

# 5 MB in some scripts: several batches, with lines of many lengths and a few empty texts.
"$python" - <<'PY' || exit 1
import json, random
draw = random.Random(3)
words = "the of and FP8 don't x1 12345 été 中文字 слово \U0001f600 \u0301 مرحبا if(x){ \n \n\n \t"
words = words.split(" ")
lines = [" ".join(draw.choices(words, k=draw.choice([0, 1, 30, 30, 3000]))) for _ in range(900)]
with open("text.jsonl", "w") as f:
    for i, text in enumerate(lines):
        f.write(json.dumps({"id": i, "meta": {"a": [1, "\"", {}]}, "text": text, "other": "o"},
                           ensure_ascii=bool(i % 2)) + ("\r\n" if i % 3 else "\n"))
with open("text.txt", "wb") as f:
    f.write("\n".join(lines).encode() + b"\xff\xc3 the end\n")
with open("a.txt", "w") as f:
    f.write("a" * 3000000)
PY
for tokenizer in qwen2 mistral deepseek; do
    for text in text.jsonl text.txt; do
        tokenise one "$recorded/$tokenizer.json" --threads 1 $text
        tokenise three "$recorded/$tokenizer.json" --threads 3 $text
        same one three || fail "$tokenizer, $text: threads change the shards"
        cmp one.json three.json || fail "$tokenizer, $text: threads change the description"
    done
done
grep -q '"replaced_bytes": 2' one.json || { cp one.json out; fail "two places are no UTF-8"; }

# A byte-order mark at the beginning of a file is no text; inside it is a character. A model of
# bytes trains on any bytes, so there it is kept.
mark=$'\xef\xbb\xbf'
printf 'the cat\nsat here' >cat.txt
printf '%sthe cat\nsat here' "$mark" >marked.txt
printf 'the cat\n%ssat here' "$mark" >inside.txt
printf '%s%sthe cat\nsat here' "$mark" "$mark" >twice.txt
gpt2=$recorded/gpt2.json
tokenise cat "$gpt2" cat.txt
tokenise marked "$gpt2" marked.txt
same cat marked || fail "a byte-order mark became tokens"
expect "text_bytes" "$(grep -o '"text_bytes": [0-9]*' cat.json)" \
    "$(grep -o '"text_bytes": [0-9]*' marked.json)"
for text in inside twice; do
    tokenise other "$gpt2" $text.txt
    same cat other >cmp.log && fail "$text: U+FEFF behind the beginning was dropped"
done
tokenise bytes bytes marked.txt
expect "ids of bytes" 19 "$(($(stat -c %s bytes.bin) / 2))"
gzip -k marked.txt
tokenise packed "$gpt2" marked.txt.gz
same cat packed || fail "a byte-order mark in gzip"
tokenise two "$gpt2" cat.txt cat.txt
tokenise tar "$gpt2" <(tar -cf - cat.txt marked.txt)
same two tar || fail "a byte-order mark in a tar"
tokenise one "$gpt2" --unique cat.txt marked.txt
same cat one || fail "--unique: the mark makes another document"
printf '%s' "$mark" >only.txt
tokenise one "$gpt2" cat.txt only.txt
same cat one || fail "a file of a mark alone is empty"
printf '%s{"text": "the cat\\nsat here"}\n' "$mark" >marked.jsonl
tokenise lines "$gpt2" marked.jsonl
same cat lines || fail "a byte-order mark before JSON lines"

# Each packed form is the same text.
tokenise plain "$recorded/gpt2.json" text.jsonl
gzip -k text.jsonl && tokenise packed "$recorded/gpt2.json" text.jsonl.gz
same plain packed || fail "gzip"
{ head -c 100000 text.jsonl | gzip; gzip </dev/null; tail -c +100001 text.jsonl | gzip
    head -c 1000 /dev/zero; } >members.jsonl.gz # members, and the zeros of a tape
tokenise packed "$recorded/gpt2.json" members.jsonl.gz
same plain packed || fail "gzip of several members"
mkfifo pipe.jsonl.gz && { cat text.jsonl.gz >pipe.jsonl.gz & }
tokenise packed "$recorded/gpt2.json" pipe.jsonl.gz
same plain packed || fail "gzip from a pipe"
head -c 20000000 /dev/zero | tr '\0' a | gzip >runs.gz # a block of it has many blocks of text
tokenise packed bytes runs.gz
expect "bytes of a little gzip" 20000000 "$(($(stat -c %s packed.bin) / 2))"
tar -czf text.tar.gz text.jsonl && tokenise packed "$recorded/gpt2.json" text.tar.gz
same plain packed || fail "a tar with gzip"
if command -v zstd >/dev/null; then
    zstd -q text.jsonl && tokenise packed "$recorded/gpt2.json" text.jsonl.zst
    same plain packed || fail "zstd"
    { printf '\x50\x2a\x4d\x18\4\0\0\0skip'; cat text.jsonl.zst; } >skips.jsonl.zst
    tokenise packed "$recorded/gpt2.json" skips.jsonl.zst
    same plain packed || fail "zstd behind a skippable frame"
fi
tokenise piped "$recorded/gpt2.json" --field text <(cat text.jsonl)
same plain piped || fail "a pipe"
cp text.jsonl text.list && tokenise named "$recorded/gpt2.json" --field text text.list
same plain named || fail "--field makes any file JSON lines"
tokenise other "$recorded/gpt2.json" --field other text.jsonl
cmp -s plain.bin other.bin && fail "another field has other text"
mkdir folder && cp "$recorded/gpt2.json" folder/tokenizer.json && tokenise dir folder text.jsonl
same plain dir || fail "a folder with a tokenizer.json"
head -c 300000 text.jsonl.gz >torn.jsonl.gz
data 2 tokenise --to torn --tokenizer bytes torn.jsonl.gz -- 'torn.jsonl.gz' 'truncated'
# gzip's own sums find what would pass as other text, and bytes behind the end.
damage() { # FROM_END WORDS: one byte changed
    "$python" -c 'import sys
data = bytearray(open("text.jsonl.gz", "rb").read())
data[-int(sys.argv[1])] ^= 1
open("torn.jsonl.gz", "wb").write(data)' "$1"
    data 2 tokenise --to torn --tokenizer bytes torn.jsonl.gz -- "torn.jsonl.gz: damaged gzip: $2"
}
damage 8 "incorrect data check" # the CRC-32
damage 4 "incorrect length check"
for kind in gz zst; do
    echo plain >named.txt.$kind
    data 2 tokenise --to torn --tokenizer bytes named.txt.$kind -- \
        "named.txt.$kind: it is not a" "as its name says" "rename it"
done
{ cat text.jsonl.gz && echo more; } >torn.jsonl.gz
data 2 tokenise --to torn --tokenizer bytes torn.jsonl.gz -- "damaged gzip: incorrect header check"

# --unique: each text once, also a plain text of several batches; the shards are those of the texts
# without their copies.
"$python" - <<'PY'
lines = open("text.jsonl", newline="\n").readlines()[:700]
open("once.jsonl", "w").writelines(lines)
open("copies.jsonl", "w").writelines(lines[:500] + lines[100:600] + lines[600:] + lines)
PY
cp text.txt copy.txt && printf 'x' >x.txt
tokenise twice "$recorded/gpt2.json" copies.jsonl text.txt copy.txt
tokenise once "$recorded/gpt2.json" --unique once.jsonl text.txt x.txt
for threads in 1 3; do
    tokenise copies "$recorded/gpt2.json" --unique --threads $threads copies.jsonl text.txt \
        copy.txt x.txt copy.txt
    same once copies || fail "--unique with $threads threads"
done
data 0 verify copies --
"$python" - <<'PY' || fail "the documents that are left out"
import json
rows = [json.loads(line)["text"] for line in open("copies.jsonl", newline="\n")]
once, copies, twice = (json.load(open(f"{name}.json")) for name in ("once", "copies", "twice"))
rows = [row for row in rows if row]
assert copies["duplicate_documents"] == len(rows) - len(set(rows)) + 2, copies
assert once["text_bytes"] == copies["text_bytes"], (once, copies)
assert copies["sources"][0]["documents"] == len(set(rows)), copies
assert [s["documents"] for s in copies["sources"][1:]] == [1, 0, 1, 0], copies
assert twice["shards"]["documents"] == len(rows) + 2 and "duplicate_documents" not in twice
PY

# The index and the description, read independently.
tokenise two bytes text.jsonl a.txt
"$python" - <<'PY' || fail "the files of two"
import hashlib, json, struct
idx, bin = open("two.idx", "rb").read(), open("two.bin", "rb").read()
assert idx[:9] == b"MMIDIDX\0\0" and struct.unpack_from("<QB", idx, 9) == (1, 8)
s, d = struct.unpack_from("<QQ", idx, 18)
lengths = struct.unpack_from(f"<{s}i", idx, 34)
pointers = struct.unpack_from(f"<{s}q", idx, 34 + 4 * s)
assert struct.unpack_from(f"<{d}q", idx, 34 + 12 * s) == tuple(range(d)) and d == s + 1
assert len(idx) == 34 + 12 * s + 8 * d and sum(lengths) * 2 == len(bin)
texts = [json.loads(line)["text"].encode() for line in open("text.jsonl", newline="\n")]
texts = [t for t in texts if t] + [b"a" * 3000000]
for text, n, at in zip(texts, lengths, pointers, strict=True):
    assert bytes(bin[at:at + 2 * n:2]) == text, (at, text[:50])
j = json.load(open("two.json"))
assert j["shards"]["sha256"] == hashlib.sha256(bin).hexdigest(), j
assert [x["sha256"] for x in j["sources"]] == [hashlib.sha256(open(f, "rb").read()).hexdigest()
                                                for f in ("text.jsonl", "a.txt")]
assert (j["shards"]["documents"], j["sources"][1]["documents"]) == (s, 1), j
assert j["empty_documents"] == 900 - (s - 1) and j["tokenizer"]["kind"] == "bytes", j
PY
data 2 tokenise --to two --tokenizer bytes a.txt -- 'two.idx exists already'
data 0 two -- 'format = "megatron"' ' documents'

# The end of a document: known, named, none; not twice where the post-processor sets it.
printf 'one\n' >one.txt && printf 'two\n' >two.txt
last() { od -An -tu2 "$1.bin" | tr -s ' \n' '  ' | sed 's/ $//; s/.* //'; }
tokenise end "$recorded/llama3.json" one.txt two.txt
end=$(grep -o '"id":[0-9]*,"content":"<|end_of_text|>"' "$recorded/llama3.json" | tr -cd '0-9')
[ "$(last end)" = "$end" ] || fail "the last token is not <|end_of_text|>"
tokenise end "$recorded/llama3.json" --eod '<|eot_id|>' one.txt
[ "$(last end)" = $((end + 1)) ] || fail "--eod by its text"
tokenise end "$recorded/llama3.json" --eod 7 one.txt
[ "$(last end)" = 7 ] || fail "--eod by its id"
tokenise end "$recorded/llama3.json" --eod none one.txt
[ "$(last end)" -lt "$((end - 1))" ] || fail "--eod none"
data 2 tokenise --to x --tokenizer "$recorded/gpt2.json" --eod nothing one.txt -- '--eod nothing'

# What the user can mend is said, with exit code 2, and nothing is left under a final name.
printf '%s\n' '{"text": "a"}' '{"text": 5}' '{"txt": "b"}' '' '{"text": "c"' '{"text": "d"}' \
    >bad.jsonl
data 2 tokenise --to bad --tokenizer bytes bad.jsonl -- '--skip-bad' \
    'bad.jsonl:2: the field "text" is not text'
data 2 tokenise --to bad --tokenizer bytes --skip-bad 2 bad.jsonl -- 'bad.jsonl:5: no JSON object'
[ ! -e bad.bin ] && [ ! -e bad.bin.part ] || fail "files are left of a failed run"
data 0 tokenise --to bad --tokenizer bytes --skip-bad 3 bad.jsonl -- '2 in 2 documents' \
    'bad.jsonl:3: there is no field "text"; --field NAME' 'bad lines  3 left out'
cp bad.jsonl lines.json
data 0 tokenise --to asis --tokenizer bytes lines.json -- 'lines.json is taken as plain text' \
    '--field text'
data 2 tokenise --to x --tokenizer bytes nowhere.txt -- 'open nowhere.txt'
command='fp8lab data tokenise FILE... --to PREFIX --tokenizer FILE'
data 2 tokenise --to x one.txt -- 'needs --tokenizer: a tokenizer.json' "$command"
data 2 tokenise --tokenizer bytes one.txt -- 'needs --to PREFIX' "$command"
data 2 tokenise --to x --tokenizer bytes -- 'needs a file of text' "$command"
data 2 tokenise -- 'needs a file of text; --to PREFIX, of the files that it makes; --tokenizer: a'
data 2 tokenise --to x --tokenizer byte one.txt -- 'did you mean "bytes"?'
data 2 tokenise --out x --tokenizer bytes one.txt -- 'no flag --out; did you mean --to?'
data 2 tokenise --to x --tokeniser bytes one.txt -- 'did you mean --tokenizer?'
for word in tokenize sampel verfy; do
    case $word in s*) meant=sample ;; v*) meant=verify ;; *) meant=tokenise ;; esac
    data 2 $word --to x one.txt -- "there is no file '$word'; did you mean 'fp8lab data $meant'?"
done
cp one.txt samples && data 0 samples -- 'samples' && rm samples
data 2 tokenise --to x --tokenizer one.txt one.txt -- 'one.txt is not a tokenizer' 'bytes'
data 2 tokenise --to x --tokenizer "$recorded/ranks.tiktoken" one.txt -- 'Add --pattern'
data 2 tokenise --to x --tokenizer "$recorded/ranks.tiktoken" --pattern gtp2 one.txt -- 'gpt2?'
data 2 --to x one.txt -- '--to is a flag of'
: >empty.txt
data 2 tokenise --to x --tokenizer bytes empty.txt -- 'no document with text'
# libarchive takes a block of zeros for the end of a tar. The text behind it is not lost silently.
(head -c 1024 /dev/zero && cat one.txt) >zeros.txt
data 2 tokenise --to x --tokenizer bytes one.txt zeros.txt -- 'zeros.txt begins with 512 zero bytes'
gzip -c zeros.txt >packed.gz
data 2 tokenise --to x --tokenizer bytes packed.gz -- 'packed.gz begins with 512 zero bytes'
mkdir hollow && tar -cf hollow.tar hollow && rmdir hollow
data 2 tokenise --to gone --tokenizer gpt2 one.txt -- \
    'open gpt2: No such file or directory; name a tok'
data 0 tokenise --to beside --tokenizer bytes one.txt hollow.tar empty.txt -- 'in 1 document'
printf 'PAR1xxxxPAR1' >table.parquet
data 2 tokenise --to x --tokenizer bytes table.parquet -- 'Parquet' 'to_json'
# Archives that are not unpacked would pass as plain text.
printf 'PK\3\4 and more' >a.zip && gzip -k one.txt && tar -cf inner.tar one.txt
tar -cf outer.tar inner.tar && tar -cf gz.tar one.txt.gz
data 2 tokenise --to x --tokenizer bytes a.zip -- 'a.zip is a zip file, which is not unpacked here'
data 2 tokenise --to x --tokenizer bytes outer.tar -- 'outer.tar: inner.tar is a tar file'
data 2 tokenise --to x --tokenizer bytes gz.tar -- 'gz.tar: one.txt.gz is a gzip file'
data 6 tokenise --to nowhere/x --tokenizer bytes one.txt -- 'create nowhere/x.idx.part'

# A source that the output would overwrite is kept.
cp one.txt mine.bin.part
data 2 tokenise --to mine --tokenizer bytes mine.bin.part -- \
    'mine.bin.part is to be read, and --to mine would overwrite it'
cmp one.txt mine.bin.part || fail "a source was overwritten"

# A full disk, as a limit on the size of a file: no final name, and the error says which file.
(trap '' XFSZ; ulimit -f 1000; "$FP8LAB" data tokenise --to full --tokenizer bytes a.txt >out 2>&1)
[ $? = 6 ] && grep -q 'full.bin.part' out || fail "a full disk"
[ -z "$(ls full.* 2>/dev/null)" ] || fail "files are left on a full disk"
# A killed run leaves its parts; the next takes them over. A second run at once is refused.
"$python" - <<'PY' || fail "killed runs"
import fcntl, filecmp, glob, os, resource, signal, subprocess
fp8lab = os.environ.get("FP8LAB") or "fp8lab"
command = [fp8lab, "data", "tokenise", "-q", "--to", "kill", "--tokenizer", "bytes", "a.txt"]
with open("kill.idx.part", "wb") as f:  # as another process that writes
    fcntl.flock(f, fcntl.LOCK_EX)
    f.write(b"half")
    f.flush()
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 6 and "another process writes kill.idx.part" in run.stderr, run
    assert glob.glob("kill.*") == ["kill.idx.part"], glob.glob("kill.*")
run = subprocess.run(command, capture_output=True, text=True)  # it is gone, as after a kill
assert run.returncode == 0 and os.path.getsize("kill.bin") == 6000000, run
assert sorted(glob.glob("kill.*")) == ["kill.bin", "kill.idx", "kill.json"]
assert "an earlier run was killed" in run.stderr, run
# Killed by a signal as it writes.
limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
command[5] = "kill2"
run = subprocess.run(command, capture_output=True, preexec_fn=limit, restore_signals=True)
assert run.returncode == -signal.SIGXFSZ, run
assert "kill2.bin.part" in glob.glob("kill2.*") and "kill2.bin" not in glob.glob("kill2.*")
run = subprocess.run(command, capture_output=True, text=True)
assert run.returncode == 0 and "tokenised again" in run.stderr, run
assert filecmp.cmp("kill.bin", "kill2.bin", False) and filecmp.cmp("kill.json", "kill2.json", False)
# Killed while it renamed: the index is not there yet.
os.rename("kill2.idx", "kill2.idx.part")
os.rename("kill2.json", "kill2.json.part")
open("kill2.loss.part", "wb").write(b"of a run with --chat")
run = subprocess.run(command, capture_output=True, text=True)
assert run.returncode == 0 and "tokenised again" in run.stderr, run
assert sorted(glob.glob("kill2.*")) == ["kill2.bin", "kill2.idx", "kill2.json"]
assert filecmp.cmp("kill.idx", "kill2.idx", False)
# A .bin of somebody else stays.
open("theirs.bin", "wb").write(b"theirs")
command[5] = "theirs"
run = subprocess.run(command, capture_output=True, text=True)
assert run.returncode == 2 and "theirs.bin exists already" in run.stderr, run
assert open("theirs.bin", "rb").read() == b"theirs" and glob.glob("theirs.*") == ["theirs.bin"]
PY

# fp8lab data says what a tokenizer is.
data 0 "$recorded/qwen2.json" -- 'tokenizer.json of Hugging Face' 'splits    qwen2' '5 added' \
    'documents with <|endoftext|>'
data 0 --pattern llama3 "$recorded/ranks.tiktoken" -- 'tiktoken' 'splits    llama3'
data 2 "$recorded/ranks.tiktoken" -- 'Add --pattern'

# A run trains on the shards.
tokenise corpus "$recorded/gpt2.json" text.jsonl
cat >train.lua <<'LUA'
return experiment {
  name = "train", about = "Does a run train on shards that data tokenise made?",
  model = preset { vocab = 704, seq_len = 32, layers = 1, width = 32, heads = 2, ffn = 64,
                   norm = "rmsnorm", activation = "swiglu", positions = "rope",
                   rope = { theta = 10000 } },
  recipe = bf16, data = tokens { path = "corpus", format = "megatron" },
  train = { steps = 3, global_batch = 2, micro_batch = 2, optimizer = adamw { lr = 1e-3 } },
}
LUA
"$FP8LAB" run --backend cpu train.lua >out 2>&1 || fail "the run does not train"
# A pattern for Oniguruma: its \s is white space by Unicode, in and outside a class.
# U+180E is none, so "a" merges with its first byte; U+2003 is white space. The file's truncation
# does not apply.
for regex in '\s' '[\s]' '[\s-]'; do
    "$python" - "$regex" <<'PY'
import json, sys
shown = {0x61: "a", 0x62: "b", 0xE1: "á", 0xA0: "ł", 0x8E: "İ", 0xE2: "â", 0x80: "Ģ", 0x83: "ĥ"}
vocab = {c: i for i, c in enumerate([*shown.values(), "aá", "aâ"])}
byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": False}
split = {"type": "Split", "pattern": {"Regex": sys.argv[1]}, "behavior": "Isolated",
         "invert": False}
truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
json.dump({"version": "1.0", "truncation": truncation, "padding": None, "added_tokens": [],
           "normalizer": None, "post_processor": None,
           "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
           "decoder": byte_level,
           "model": {"type": "BPE", "vocab": vocab, "merges": ["a á", "a â"]}},
          open("splits.json", "w"))
open("space.txt", "w").write("a\u180eb a\u2003b".replace(" ", ""))
PY
    tokenise space splits.json --eod none space.txt
    found=$("$python" -c 'import array
ids = array.array("H", open("space.bin", "rb").read())
print(*ids)')
    [ "$found" = "8 3 4 1 0 5 6 7 1" ] || fail "$regex: U+180E or U+2003 is split wrongly: $found"
done

[ "$failed" = 0 ] && echo "text becomes shards"
exit $failed
