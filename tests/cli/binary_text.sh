#!/bin/bash
# `text` of files that are no text: other formats are refused by `check` and `run`, with what to use
# instead; bytes of zero are a warning.
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
[ -e none ] && ls none/* 2>/dev/null && fail "a run was begun"

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

[ "$failed" = 0 ] && echo "what is no text is refused, or a warning"
exit "$failed"
