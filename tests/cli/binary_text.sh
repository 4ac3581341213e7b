#!/bin/bash
# `text` of files that are no text: other formats are refused, with what to use instead. Others with
# many control characters are refused if a tokenizer reads them, by each verb with the same words;
# as bytes they are a warning, as are bytes of zero.
set -u
. "$PWD/tests/cli/lib.sh"
. "$root/tests/support/text.sh"

sed 's|  data = text .*|  data = text { "data/x.bin" },|' texts.lua >bytes.lua

# refused FORMAT INSTEAD: data/x.bin, which is made already
refused() {
    local script
    for script in bytes.lua "texts.lua --set data.paths=data/x.bin"; do
        # shellcheck disable=SC2086  # a script and its flags
        gives 2 check $script --lib "$lib" -- "data/x.bin is $1" "$2" "1 error"
        # shellcheck disable=SC2086
        gives 2 run $script --lib "$lib" --runs none -- "data/x.bin is $1" "$2"
    done
}
# A header and 4,000 bytes behind it.
file() { # PRINTF-FORMAT
    # shellcheck disable=SC2059  # a format
    { printf "$1"; head -c 4000 /dev/zero | tr '\0' a; } >data/x.bin
}

file '\x88\xd8\x34\x01\x01\0\0\0'
refused "a token shard of llm.c" 'data = tokens { path = "FILE", format = "llmc" }'
file '\xa1\xd9\x34\x01\x07\0\0\0'
refused "a token shard of llm.c" 'data = tokens { path = "FILE", format = "llmc" }'
file 'MMIDIDX\0\0\x01'
refused "an index of token shards" 'data = tokens { path = "FILE.bin" }'
mv data/x.bin data/x.idx
file 'token ids'
refused "a token shard, with the index data/x.idx" 'data = tokens { path = "data/x.bin" }'
rm data/x.idx
file '\x40\0\0\0\0\0\0\0{"a":{}}'
refused "a safetensors file" "init = \"FOLDER\""
file '\x93NUMPY\x01\0v\0{}'
refused "a NumPy array" "write its text"
file 'PK\x03\x04'
refused "a zip file" "unpack it"
file '\xfd7zXZ\0'
refused "an xz file" "unpack it"
file 'PAR1'
refused "a Parquet file" "to_json"

rm data/x.bin && mkdir data/x.bin
refused "a folder; name the files in it" 'by a pattern such as "data/x.bin/*.txt"'
gives 2 data tokenise --tokenizer bytes --to x data/x.bin -- "data/x.bin is a folder; name the"
rmdir data/x.bin

file 'PAR1'
gives 2 check bytes.lua --lib "$lib" --json -- '"ok":false' "a Parquet file"

# Text in UTF-16 and UTF-32, also for a tokenizer and as JSON lines; without a zero byte in it, too.
for encoding in UTF-16LE UTF-16BE UTF-32LE UTF-32BE; do
    name=${encoding%?E}
    wide="text in $name, which is not read as text; make UTF-8 of it: "
    wide+="iconv -f $name -t UTF-8 IN >OUT"
    for text in $'a\nb\n' 中文字 $'\U1F600\U1F601'; do
        printf '\ufeff%s' "$text" | iconv -f UTF-8 -t $encoding >data/x.bin
        refused "$wide" "iconv"
        gives 2 data data/x.bin -- "data/x.bin is $wide"
        gives 2 data tokenise --tokenizer tokenizer.json --to x data/x.bin -- "data/x.bin is $wide"
    done
done
utf16="text in UTF-16, which is not read as text; make UTF-8 of it: "
utf16+="iconv -f UTF-16 -t UTF-8 IN >OUT"
{ printf '\ufeff' && cat data/a.jsonl; } | iconv -f UTF-8 -t UTF-16LE >data/x.jsonl
gives 2 check texts.lua --lib "$lib" --set data.paths=data/x.jsonl -- "data/x.jsonl is $utf16"
gives 2 run texts.lua --lib "$lib" --runs none --set data.paths=data/x.jsonl -- \
    "data/x.jsonl is $utf16"
echo '{{ messages }}' >t.jinja
gives 2 data sample --template t.jinja data/x.jsonl -- "data/x.jsonl is $utf16"
iconv -f UTF-16 -t UTF-8 data/x.jsonl >data/y.jsonl
expect "what iconv makes" "data/a.jsonl" "$(cmp data/y.jsonl data/a.jsonl && echo data/a.jsonl)"
rm data/[xy].jsonl
made "none/*" && fail "a run was begun"

# gzip, zstd and tar: only without a tokenizer, since ingestion unpacks them.
for pack in "gzip -c" "zstd -qc" "tar -cf -"; do
    $pack data/a.jsonl >data/x.bin
    gives 2 check bytes.lua --lib "$lib" -- "unpack it, or name the tokenizer \"bytes\""
    gives 2 run bytes.lua --lib "$lib" --runs none -- "unpack it, or name the tokenizer \"bytes\""
    run 0 --set data.paths=data/x.bin --set data.field=text --set steps=1 -- "done  step"
    grep -q "bytes of zero" out && fail "a packed text is no binary file"
done

# Bytes of zero in a file of an unknown format.
warning=": bytes of zero in the first 64 KiB, so it may be no text; all of it is read as text"
file 'a\0b'
gives 0 check bytes.lua --lib "$lib" -- "data/x.bin$warning"
gives 0 run bytes.lua --lib "$lib" --threads 1 --set steps=1 -- "data/x.bin$warning" "done  step"
expect "warnings" 1 "$(grep -c "bytes of zero" out)"
run 0 --set data.paths=data/x.bin --set steps=1 -- "data/x.bin$warning"
gives 0 check texts.lua --lib "$lib" --set data.paths=data/x.bin -- "data/x.bin$warning"
cp data/x.bin data/y.bin
gives 0 check bytes.lua --lib "$lib" --set data.paths=data/x.bin,data/a.jsonl,data/y.bin -- \
    "data/x.bin, and 1 more of 3 files$warning"
head -c 70000 data/a.jsonl >data/x.bin && file_size=$(stat -c %s data/x.bin)
while [ "$file_size" -lt 65536 ]; do
    cat data/a.jsonl >>data/x.bin && file_size=$(stat -c %s data/x.bin)
done
printf 'a\0b' >>data/x.bin
gives 0 check bytes.lua --lib "$lib" --
grep -q "bytes of zero" out && fail "bytes of zero behind the first 64 KiB"

# Many control characters, of an unknown format: a program, or UTF-16 without a byte-order mark.
control() { # BYTES: 5 % of them
    python3 -c "print('abcdefghijklmnopqr\\1\\n' * ($1 // 20), end='')"
}
asis="; its bytes are read as they are"
other() { # FINDING: of data/x.bin, which is made already
    local finding="data/x.bin is not text: $1" refusal
    refusal="$finding. Make text in UTF-8 of it, or leave it out; "
    refusal+='the tokenizer "bytes" takes any bytes'
    gives 2 data data/x.bin -- "$finding. " "--bytes"
    gives 2 data tokenise --tokenizer tokenizer.json --to x data/x.bin -- "$refusal"
    gives 2 check texts.lua --lib "$lib" --set data.paths=data/x.bin -- "texts: $refusal" "1 error"
    run 2 --set data.paths=data/x.bin --runs none -- "texts: $refusal"
    made "x.*" "none/*" && fail "something was made"
    gives 0 data --bytes data/x.bin -- "nats per byte"
    gives 0 data tokenise --tokenizer bytes --to x data/x.bin -- "$finding$asis"
    expect "warnings of data tokenise" 1 "$(grep -c "is not text" out)"
    rm x.*
    gives 0 check bytes.lua --lib "$lib" -- "bytes: $finding$asis"
    gives 0 run bytes.lua --lib "$lib" --threads 1 --set steps=1 -- "$finding$asis" "done  step"
    run 0 --set data.paths=data/x.bin --set data.tokenizer=bytes --set steps=1 -- \
        "$finding$asis" "done  step"
    expect "warnings of run" 1 "$(grep -c "is not text" out)"
}
sed -i 's/name = "texts"/name = "bytes"/' bytes.lua
control 4000 >data/x.bin
other "5.0 % of its bytes are control characters"
control 80000 >data/x.bin
other "5.0 % of its first 64 KiB are control characters"
for encoding in UTF-16LE UTF-16BE; do
    iconv -f ASCII -t $encoding <texts.lua >data/x.bin
    wide="as in UTF-16 without a byte-order mark (iconv -f $encoding -t UTF-8 IN >OUT)"
    other "50.0 % of its bytes are control characters, $wide"
done
cp data/x.bin wide.bin
paths=data/x.bin,data/a.jsonl,data/y.bin,wide.bin
gives 0 check bytes.lua --lib "$lib" --set data.paths=$paths -- \
    "data/x.bin is not text" "$asis, and those of 1 more of 4 files"
# Conversations are JSON lines for any tokenizer. eval as run.
cp data/x.bin data/x.jsonl
cat >talks.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "talks", model = tiny.llama { layers = 1, seq_len = 32, vocab = 700 }, recipe = bf16,
  data = chats { "data/x.jsonl", tokenizer = "tokenizer.json" },
  train = { steps = 1, global_batch = 4, micro_batch = 2 },
}
LUA
gives 2 check talks.lua --lib "$lib" -- "data/x.jsonl is not text" "leave it out"
run 0 --set data.paths=data/a.jsonl --set steps=1 --set archive=weights --runs trained -- "done"
cp data/x.bin data/x.txt
gives 2 eval "$(bundle_in trained)" --data data/x.txt -- "data/x.txt is not text" "leave it out"
# Packed: once it is unpacked; in a tar each file by itself.
gzip -k data/x.bin
tar -cf data/x.tar data/a.jsonl data/x.bin
finding=": 50.0 % of its unpacked bytes are control characters"
for path in data/x.bin.gz data/x.tar; do
    name=$path
    [ $path = data/x.tar ] && name="$path: x.bin"
    gives 2 data $path -- "$name is not text$finding"
    gives 2 data tokenise --tokenizer tokenizer.json --to x $path -- "$name is not text$finding"
    run 2 --set data.paths=$path -- "$name is not text$finding"
    run 0 --set data.paths=$path --set data.tokenizer=bytes --set steps=1 -- \
        "$name is not text$finding" "$asis" "done  step"
done
# One warning for all of a tar.
cp data/x.bin data/y.bin
tar -cf data/x.tar data/x.bin data/a.jsonl data/y.bin
gives 0 data tokenise --tokenizer bytes --to x data/x.tar -- \
    "data/x.tar: x.bin is not text$finding" "$asis, and those of 1 more of 3 files"
expect "warnings of data tokenise of a tar" 1 "$(grep -c "is not text" out)"
rm x.* data/y.bin
# A few of them are a warning: one small text must not stop the ingestion of the others.
printf 'a note\1 x\n' >data/note.txt
tar -cf data/x.tar data/a.jsonl data/note.txt
few=": control characters in the first 64 KiB, so it may be no text; all of it is read as text"
gives 0 data data/note.txt -- "data/note.txt$few"
for tokenizer in tokenizer.json bytes; do
    gives 0 data tokenise --tokenizer $tokenizer --to x data/x.tar -- "data/x.tar: note.txt$few"
    rm x.*
done
run 0 --set data.paths=data/note.txt,data/a.jsonl --set steps=1 -- "data/note.txt$few" "done  step"
# Behind the first 64 KiB: only `data` reads so far.
{ head -c 70000 /dev/zero | tr '\0' a && control 40000; } >data/x.bin
gives 0 data data/x.bin -- "data/x.bin: 1.8 % of its bytes are control characters, mostly behind"
file 'a\0b'
gives 0 data data/x.bin -- "data/x.bin$warning"
gives 0 data tokenise --tokenizer tokenizer.json --to x data/x.bin -- "data/x.bin$warning"

[ "$failed" = 0 ] && echo "what is no text is refused, or a warning"
exit "$failed"
