#!/bin/bash
# What lies beside a tokenizer comes back in an export: special tokens and chat template, of a run
# on text and of one whose conversations a function renders. A run that kept none says so.
set -u
. tests/cli/lib.sh
. "$root/tests/support/text.sh"
mkdir model && mv tokenizer.json model
cat >model/tokenizer_config.json <<'END'
{ "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>",
  "eos_token": {"content": "<|endoftext|>", "__type": "AddedToken"},
  "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
  "model_max_length": 1000000000000000019884624838656 }
END
echo '{"eos_token": "<|endoftext|>"}' >model/special_tokens_map.json
beside="tokenizer.json tokenizer_config.json special_tokens_map.json"
for i in {1..100}; do
    echo '{"messages": [{"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "the loss"}]}' | tr -d '\n' && echo
done >talks.jsonl
base() { # NAME DATA
    sed "s#  data = .*#  data = $2,#; s#  eval = .*#  checkpoint = { every = 6 },#" texts.lua \
        >"$1.lua"
}
base text 'text { "data/a.jsonl", tokenizer = "model" }'
spoken='{ { text = "Hello" }, { text = "the loss", loss = true } }'
base talks 'chats { "talks.jsonl", tokenizer = "model", render = function() return SPOKEN end }'
sed -i "s/SPOKEN/$spoken/" talks.lua
for name in text talks; do
    case_name=$name
    gives 0 run $name.lua --lib "$lib" --threads 1 --backend cpu --runs $name -- "done  step 6"
    run=$(bundle_in $name)
    gives 0 export "$run" --to e.$name --
    ! grep -q "kept no tokenizer_config.json" out || fail "a note without a reason"
    for file in $beside; do
        cmp "model/$file" "e.$name/$file" || fail "the export's $file"
    done
    gives 0 generate e.$name --chat Hello --tokens 2 --backend cpu --threads 1 --
    rm -r "$name/cache"
    gives 0 repro "$run" --runs again.$name --threads 1 --exact -- "bitwise equal"
    gives 0 export "$(bundle_in again.$name)" --to r.$name --
    for file in $beside; do
        cmp "model/$file" "r.$name/$file" || fail "the $file of a repetition's export"
    done
done
case_name=
gives 0 generate "$(bundle_in text)" --chat Hello --tokens 2 --backend cpu --threads 1 --

# A template of its own file; and nothing beside the tokenizer.
python3 - <<'PY'
import json
with open("model/tokenizer_config.json") as f:
    c = json.load(f)
with open("model/chat_template.jinja", "w") as f:
    f.write(c.pop("chat_template"))
with open("model/tokenizer_config.json", "w") as f:
    json.dump(c, f)
PY
gives 0 run text.lua --lib "$lib" --threads 1 --backend cpu --runs file -- "done  step 6"
gives 0 export "$(bundle_in file)" --to e.file --
cmp model/chat_template.jinja e.file/chat_template.jinja || fail "chat_template.jinja"
mkdir bare && { cat model/tokenizer.json && printf '%200000s\n' ""; } >bare/tokenizer.json
base bare 'text { "data/a.jsonl", tokenizer = "bare" }'
gives 0 run bare.lua --lib "$lib" --threads 1 --backend cpu --runs bare.d -- "done  step 6"
gives 0 export "$(bundle_in bare.d)" --to e.bare -- "the run kept no tokenizer_config.json" \
    "names no eos_token, no bos_token and no chat template" "copy it to e.bare"
gives 2 generate "$(bundle_in bare.d)" --chat Hello -- "its data were no chats, and none lay beside"

# Where it cannot write, it names the folder of --to, not the bundle. No file may have more than 100
# KiB, as on a full disk.
run=$(bundle_in bare.d)
(trap '' XFSZ; ulimit -f 100; "$FP8LAB" export "$run" --to full/e >out 2>&1)
expect "a full disk" 6 $?
says "--to full/e: full/e.partial.1/.experiment: write data/experiment/tokenizer.json" out
! grep -qF "$run" out || fail "a full disk: the bundle is not to blame"
[ -z "$(ls full)" ] || fail "a full disk: what is left"
gives 6 export "$run" --to /proc/x -- "make the folder of --to /proc/x: "

[ "$failed" = 0 ] && echo "an export has what lay beside the tokenizer"
exit "$failed"
