#!/bin/bash
# data sample: conversations as a chat template renders them, with their loss. Every error names the
# file and the line. Text of a file can neither control the terminal nor look like our own lines.
set -u
. "$PWD/tests/cli/lib.sh"
shown=out
template=$root/tests/chat/templates/chatml.jinja

data() { gives "$1" data "${@:2}"; } # CODE ARGUMENTS... -- WORDS...

# render CODE ARGUMENTS -- WORDS...: the same, with a ChatML template.
render() { data "$1" sample --template "$template" "${@:2}"; }

cat >talk.jsonl <<'X'
{"messages":[{"role":"user","content":"two\nlines"},{"role":"assistant","content":"fine"}]}
{"conversations":[{"from":"gpt","value":"a"},{"from":"user","value":""},{"from":"gpt","value":"b"}]}
{"instruction":"i","input":"x","output":"o"}
{"prompt":"p","completion":"c"}
X
render 0 talk.jsonl -- 'talk.jsonl:1  2 messages, 74 bytes, 14 with loss' \
    '  | lines<|im_end|>' '  | {+fine<|im_end|>+}' '{+a<|im_end|>+}' '{+b<|im_end|>+}' \
    '  | x<|im_end|>' '{+...+}: text with loss'
grep -q 'talk.jsonl:4' out && fail "more than 3 conversations"
render 0 --show 0 --loss last talk.jsonl -- 'talk.jsonl:4' '| a<|im_end|>' \
    '{+b<|im_end|>+}'
render 0 --show 1 --generation-prompt talk.jsonl -- '| <|im_start|>assistant'

# Packed files, a tar of two, a pipe; Parquet is refused with the way round.
gzip -k talk.jsonl && printf '{"prompt":"tar","completion":"red"}' >second.jsonl
render 0 --show 1 talk.jsonl.gz -- 'talk.jsonl.gz:1  2 messages' '{+fine<|im_end|>+}'
tar -cf talks.tar second.jsonl talk.jsonl
render 0 talks.tar -- 'talks.tar: second.jsonl:1  2 messages' '{+red<|im_end|>+}' \
    'talks.tar: talk.jsonl:1  2 messages' 'talk.jsonl:2'
render 0 --show 0 <(cat talk.jsonl) -- '/dev/fd/' ':4  2 messages'
mkfifo pipe
cat talk.jsonl >pipe &
render 0 --show 0 pipe -- 'pipe:4  2 messages'
printf 'PAR1PAR1' >table && render 2 table -- 'table is a Parquet file' 'to_json'

# The template of a tokenizer: its key, the file beside it, and its special tokens.
mkdir -p model bare
cat >model/tokenizer_config.json <<'X'
{"model_max_length":1000000000000000019884624838656,"bos_token":{"content":"<s>"},
"eos_token":"</s>","pad_token":null,
"chat_template":"{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}"}
X
cp model/tokenizer_config.json bare/
printf 'beside {{ eos_token }}{{ x }}' >model/chat_template.jinja
data 0 sample --tokenizer-config bare/tokenizer_config.json talk.jsonl -- '| <s>[two'
data 0 sample --template bare/tokenizer_config.json talk.jsonl -- '| <s>[two'
data 0 sample --tokenizer bare talk.jsonl -- '| <s>[two'
data 0 sample --tokenizer bare/tokenizer.json talk.jsonl -- '| <s>[two'
mkdir alone && printf 'alone {{ messages | length }}' >alone/chat_template.jinja
data 0 sample --tokenizer alone talk.jsonl -- '| alone 2'
data 0 sample --tokenizer-config model/tokenizer_config.json --variable x=7 talk.jsonl -- \
    '| beside </s>7'
cat >two.json <<'X'
{"chat_template":[{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]}
X
data 0 sample --template two.json talk.jsonl -- '  | d'
printf '{"messages":[{"role":"user","content":"q"}],"tools":[{}]}\n' >tools.jsonl
data 2 sample --template two.json tools.jsonl -- 'tools.jsonl:1: two.json' "'tool_use'"
printf '{{ strftime_now("%%d %%B") }}' >date.jinja
data 0 sample --template date.jinja --date 2024-07-26 talk.jsonl -- '| 26 July'
data 2 sample --template date.jinja talk.jsonl -- "date.jinja:1: 'strftime_now' is undefined"

# Errors: what, where, and exit code 2.
printf 'a\n{{ x | nofilter }}' >bad.jinja
data 2 sample --template bad.jinja talk.jsonl -- \
    "bad.jinja:2: the filter 'nofilter' is not supported"
cat >loop.jinja <<'X'
{% for m in messages %}
{% for n in range(99999) %}{% for o in range(99999) %}{% endfor %}{% endfor %}{% endfor %}
X
data 2 sample --template loop.jinja talk.jsonl -- \
    'talk.jsonl:1: loop.jinja:2: the template needs more than'
cat >bad.jsonl <<'X'
{"messages":[{"role":"user","content":1}]}
{"messages":[{"role":"user","content":"good"}]}
{"text":"no conversation"}
X
printf 'some text\n' >words.jsonl
render 2 words.jsonl -- 'words.jsonl:1: no JSON object: '
render 2 bad.jsonl -- 'bad.jsonl:1: messages[0].content: expected a string'
render 0 --skip-bad 2 bad.jsonl -- 'skipped: bad.jsonl:1: messages[0]' '| good' \
    'skipped: bad.jsonl:3: no conversation in it'
render 2 --skip-bad 1 bad.jsonl -- 'bad.jsonl:3:'
render 2 missing.jsonl -- 'open missing.jsonl'
data 2 sample --template missing.jinja talk.jsonl -- 'missing.jinja'
data 2 sample talk.jsonl -- 'give --template or --tokenizer-config'
data 2 sample --template two.json -- 'missing argument'
render 2 --date today talk.jsonl -- "the date 'today'"
render 2 --loss none talk.jsonl -- '--loss: expected all or last'
render 2 --variable x talk.jsonl -- '--variable'
data 2 --template "$template" talk.jsonl -- \
    '--template is a flag of `fp8lab data tokenise` and `fp8lab data sample`'

# Text of a file: control characters, a false line of ours, a mark of ours.
cat >hostile.jsonl <<'X'
{"prompt":"\u001b[31mred\u0007 \u202e\ntalk.jsonl:9  fake","completion":"x\ty"}
X
render 0 hostile.jsonl -- '  | ?[31mred? ?' '  | talk.jsonl:9  fake' '{+x    y'
grep -q $'[\033\007]' out && fail "a control character reaches the terminal"
NO_COLOR='' FORCE_COLOR=1 "$FP8LAB" data sample --template "$template" talk.jsonl >out
grep -qF $'\033[32mfine<|im_end|>\033[0m' out || fail "loss is not green"
grep -qF '{+' out && fail "marks beside colours"

# Token shards: documents decoded, with their loss; the tokenizer is known, or named, or wrong.
qwen=$root/tests/ingest/recorded/qwen2.json
data 0 tokenise --chat --template "$template" --tokenizer "$qwen" --to talk talk.jsonl --
data 0 sample talk -- 'talk  document 0, 22 tokens, 3 with loss' '  | lines<|im_end|>' \
    '  | {+fine<|im_end|>+}' 'document 2' '{+...+}: text with loss'
grep -q 'document 3' out && fail "more than 3 documents"
data 0 sample --show 1 talk.bin talk.jsonl --
grep -q 'document 1\|talk.jsonl:' out && fail "more than --show 1"
data 0 sample --show 5 --template "$template" talk talk.jsonl -- 'document 3' 'talk.jsonl:1' '+}'
data 2 sample --tokenizer "$root/tests/ingest/recorded/gpt2.json" talk -- \
    'talk was made with a tokenizer of SHA-256' 'name the right one'
printf 'a \033[31m text\n%s\n' "$(seq 3000)" >text.txt
data 0 tokenise --tokenizer bytes --to text text.txt --
data 0 sample text -- 'text  document 0, 139' 'of which the first 2000' '  | a ?[31m text' \
    '  | 510'
grep -q 'loss' out && fail "loss of a text"
printf 'a\0b' >zero.txt # a zero byte ends no text
data 0 tokenise --tokenizer bytes --to zero zero.txt --
data 0 sample --json zero -- $'"text":"a\357\277\275b"'
rm text.json talk.json
data 2 sample text -- 'text: name the tokenizer of these shards with --tokenizer'
data 2 sample --tokenizer bytes --show 0 talk -- 'talk, document 0: '
data 0 sample --tokenizer "$qwen" --json --show 1 talk --
grep -qF '"loss":[[18,21]]' out || fail "loss of a document in JSON"
printf 'short' >talk.loss
data 2 sample --tokenizer "$qwen" talk -- 'talk.loss has 5 bytes for'
NO_COLOR='' FORCE_COLOR=1 "$FP8LAB" data sample --tokenizer bytes text >out
grep -qF 'green' out && fail "a legend of nothing"

"$FP8LAB" data sample --json --template "$template" --show 1 talk.jsonl >out ||
    fail "data sample --json"
grep -qF '"loss":[[59,73]],"loss_bytes":14' out || fail "loss in JSON"
grep -qF '{"begin":59,"end":63,"field":"content","message":1}' out || fail "fragments in JSON"
exit $failed
