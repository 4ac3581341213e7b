#!/bin/bash
# data verify: whole shards are valid; each part that is broken in turn is named, with exit code 4.
set -u
. "$PWD/tests/cli/lib.sh"
shown=out
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
data() { gives "$1" data "${@:2}"; } # CODE ARGUMENTS... -- WORDS...
printf '%s\n' '{"prompt":"one","completion":"two"}' '{"prompt":"3","completion":"four"}' >talk.jsonl
data 0 tokenise --chat --template "$root/tests/chat/templates/chatml.jinja" --tokenizer bytes \
    --to good talk.jsonl --
printf 'text\n' >text.txt
data 0 tokenise --tokenizer bytes --to plain text.txt --
tokens=$(($(stat -c %s good.bin) / 2))
data 0 verify good plain.idx -- 'valid: good' "$tokens tokens in 2 documents, ids up to 124" \
    '27 tokens with loss' 'valid: plain' '5 tokens in 1 document, ids up to 120'
cp good.bin bare.bin && cp good.idx bare.idx
data 0 verify bare.bin -- 'there is no .json to compare it with'
echo '{"other": "program"}' >bare.json
data 0 verify bare -- 'there is no .json to compare it with'

# broken FILE PYTHON WORDS...: changes the bytes b of a copy; the words must be in the message.
broken() {
    local end
    for end in bin idx json loss; do cp good.$end copy.$end; done
    python3 - "copy.$1" "$2" <<'PY'
import sys
name, code = sys.argv[1:]
b = bytearray(open(name, "rb").read())
exec(code)
open(name, "wb").write(b)
PY
    data 4 verify copy -- "${@:3}"
}
broken bin 'b[0] ^= 1' 'copy.bin was changed: its SHA-256 is' 'make the shards again'
broken bin 'b[1] = 9' 'copy.bin was changed'
broken bin 'del b[-2:]' 'copy.idx describes' '(truncated?)'
broken idx 'b[0] = 0' 'copy.idx: not a Megatron index: wrong magic at byte 0'
broken idx 'b[9] = 2' 'index version 2'
broken idx 'b[17] = 4' 'copy.bin'
broken idx 'b[18:26] = b"\xff" * 7 + b"\x7f"' 'copy.idx' '(truncated?)'
broken idx 'b[34] += 1' 'sequence 1'
broken idx 'del b[-1]' '(truncated?)'
broken idx 'b[-16] = 2' 'copy.idx was changed'
broken idx 'b[-16] = 3' 'documents must cover sequences 0 to 2 in order'
broken idx 'b[-8] = 1' 'documents must cover sequences 0 to 2 in order'
broken json 'b[:] = b.replace(b"\"documents\": 2,\n    \"in", b"\"documents\": 3,\n    \"in")' \
    'shards.documents is 3, but the files have 2'
broken json 'b[:] = b.replace(b"\"vocab\": 256", b"\"vocab\": 99")' 'the token 124' 'has 99'
broken json 'b[:] = b.replace(b"_bytes\": 2", b"_bytes\": 4")' 'shards.token_bytes is 4'
broken json 'b[:] = b[:50]' 'copy.json'
broken loss 'b[5] ^= 1' 'copy.loss was changed'
broken loss 'b[5] = 2' 'copy.loss: byte 5 is 2'
broken loss 'del b[-1]' 'copy.loss has' 'one byte per token'
rm copy.loss && cp good.bin copy.bin
data 4 verify copy -- 'copy.loss is missing'
data 2 verify nothing -- 'open nothing.bin'
data 2 verify -- 'missing argument'
data 2 verify --threads 2 good -- '--threads is a flag of `fp8lab data tokenise`'
"$FP8LAB" data verify --json good >out || fail "--json"
says '"loss_tokens":27' out
exit $failed
