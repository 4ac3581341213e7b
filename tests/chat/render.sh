#!/bin/bash
# tier: long
# data = chats { ..., render = function }: the same tokens as a template for any number of threads;
# special tokens only where the script allows them; the key; resume and repro; what is wrong.
set -u
. "$PWD/tests/cli/lib.sh"
. "$root/tests/support/text.sh"
cp "$recorded/qwen2.json" tokenizer.json
cp "$root/experiments/lib/chatml.jinja" .
python3 - <<'PY'
import json, random
draw = random.Random(5)
words = "the loss of a tensor é scale 中 is small and FP8 holds it <|im_end|>".split()
say = lambda n: " ".join(draw.choices(words, k=n))
with open("talks.jsonl", "w") as f:
    for i in range(300):
        turns = [{"role": role, "content": say(draw.randint(1, 8))}
                 for _ in range(draw.randint(1, 2)) for role in ("user", "assistant")]
        f.write(json.dumps({"messages": turns}, ensure_ascii=False) + "\n")
PY
cp "$root/experiments/lib/chatml.lua" .
data='"talks.jsonl", tokenizer = "tokenizer.json", render = require "chatml"'
sed "s|  data = text .*|  data = chats { $data },|"'
     s/seq_len = 32, vocab = 700/seq_len = 128, vocab = 710/' texts.lua >chats.lua
sed 's|render = require "chatml"|template = "chatml.jinja"|' chats.lua >template.lua
chat() { # CODE ARGUMENTS... -- WORDS...
    local code=$1
    shift
    gives "$code" run chats.lua --lib "$lib" --threads 1 "$@"
}
shard() { ls "${1:-runs}"/cache/*."$2"; } # FOLDER END

# ---- the same tokens -----------------------------------------------------------------------------
gives 0 check chats.lua --lib "$lib" --resolved -- '"render":"data.render"' "tokenised by \`run\`"
chat 0 -- "tokenising 1 file" "of the tokens carry loss" "done  step 6"
first=$(bundle_in runs)
gives 0 run template.lua --lib "$lib" --threads 1 --runs other -- "tokenising 1 file" "done  step 6"
for end in bin idx loss; do
    cp "$(shard runs $end)" "first.$end"
    cmp "first.$end" "$(shard other $end)" || fail "$end: not the tokens of the template"
done
expect "results" "$(field "$first" 'run["results_sha256"]')" \
    "$(field "$(bundle_in other)" 'run["results_sha256"]')"
chat 0 -- "text already tokenised" "not run again"
gives 0 show "$first" -- "rendered by" "data.render, a function of the script; loss on"

# A user's <|im_end|> is text, unless the script says otherwise.
end=$(grep -o '"id":[0-9]*,"content":"<|im_end|>"' tokenizer.json | tr -cd '0-9')
ends() { # FOLDER
    python3 -c 'import array, sys
print(array.array("H", open(sys.argv[1], "rb").read()).count(int(sys.argv[2])))' \
        "$(shard "$1" bin)" "$end"
}
cp chatml.lua as_it_was.lua
sed -i 's/m.content, role/m.content, special = true, role/' chatml.lua
chat 0 --runs special --set steps=1 -- "tokenising 1 file"
[ "$(ends special)" -gt "$(ends runs)" ] || fail "special = true finds no token in a message"
cp as_it_was.lua chatml.lua
chat 0 -- "text already tokenised" "not run again"

# ---- the key: the script and what it requires ----------------------------------------------------
"$FP8LAB" extract "$first" --to bag >out 2>&1 || fail "extract"
cmp bag/data/experiment/chatml.lua chatml.lua || fail "the bundle has no chatml.lua"
python3 - <<'PY' || fail "ingest.json does not name the files"
import hashlib, json
chat = json.load(open("bag/data/experiment/ingest.json"))["chat"]
assert chat["render"] == "data.render" and "template" not in chat, chat
hashes = {f["name"]: f["sha256"] for f in chat["render_files"]}
for name, path in (("main.lua", "chats.lua"), ("chatml.lua", "chatml.lua")):
    assert hashes[name] == hashlib.sha256(open(path, "rb").read()).hexdigest(), name
PY
echo "-- a comment" >>chatml.lua
chat 0 --set steps=1 -- "tokenising 1 file"
sed -i '$d' chatml.lua

# ---- a suite, whose functions are different ------------------------------------------------------
cat >two.lua <<'LUA'
local tiny = require "models.tiny"
local function by(word)
  return function(c)
    return { { text = word }, { text = c.messages[2].content, role = "assistant" } }
  end
end
local shared = by "c"
local function run(name, render)
  return experiment {
    name = name, model = tiny.llama { layers = 1, seq_len = 128, vocab = 710 }, recipe = bf16,
    data = chats { "talks.jsonl", tokenizer = "tokenizer.json", render = render },
    train = { steps = 1, global_batch = 2 },
  }
end
return suite { name = "two", run("a", by "a"), run("b", by "b"), run("c", shared),
               run("d", shared) }
LUA
gives 0 check two.lua --lib "$lib" --resolved -- '"render":"[1].data.render"' \
    '"render":"[2].data.render"'
expect "names of a shared function" 2 "$(grep -o '"render":"\[3].data.render"' out | wc -l)"
gives 0 run two.lua --lib "$lib" --threads 1 --runs two --
expect "ingestions" 3 "$(shards two/cache)"

sed '/^  name = name/,$d; /^local shared/,$d' two.lua >matrix.lua
cat >>matrix.lua <<'LUA'
return suite {
  name = "matrix", matrix = { ["data.render"] = { first = by "a", by "b" } },
  model = tiny.llama { layers = 1, seq_len = 128, vocab = 710 }, recipe = bf16,
  data = chats { "talks.jsonl", tokenizer = "tokenizer.json" },
  train = { steps = 1, global_batch = 2 },
}
LUA
gives 0 check matrix.lua --lib "$lib" --resolved -- 'matrix[\"data.render\"].first' \
    'matrix[\"data.render\"][1]'

# The script of the run is the one that its bundle has: a file that changes while the tokens of an
# earlier row are waited for is found.
python3 - "$FP8LAB" "$lib" two/cache/*.bin <<'PY' || fail "a script that changes"
import fcntl, os, subprocess, sys
fp8lab, lib, *shards = sys.argv[1:]
os.mkdir("changed")
locks = [open("changed/" + os.path.basename(s)[:-3] + "lock", "w") for s in shards]
for lock in locks:
    fcntl.flock(lock, fcntl.LOCK_EX)
run = subprocess.Popen([fp8lab, "run", "two.lua", "--lib", lib, "--cache", "changed"],
                       stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
while "another process is tokenising" not in run.stderr.readline():
    pass
with open("two.lua", "a") as f:
    f.write("-- another comment\n")
for lock in locks:
    lock.close()
rest = run.stderr.read()
assert run.wait() == 2 and "two.lua changed after the script was read; start again" in rest, rest
PY

# ---- data tokenise, data sample ------------------------------------------------------------------
data() { gives "$1" data "${@:2}"; } # CODE ARGUMENTS... -- WORDS...
for threads in 1 2 5; do
    data 0 tokenise --chat --render chatml.lua --tokenizer tokenizer.json --max-tokens 128 \
        --threads $threads --to threads$threads talks.jsonl --
    for end in bin idx loss; do
        cmp "first.$end" "threads$threads.$end" || fail "$end: other tokens by $threads threads"
    done
done
data 0 sample --template chatml.jinja --show 0 talks.jsonl --
sed 's/the template.s own text/special/' out >by_template
data 0 sample --render chatml.lua --show 0 talks.jsonl --
sed 's/text that may have special tokens/special/' out | cmp by_template - || fail "data sample"
data 0 sample --json --show 1 --render chatml.lua talks.jsonl -- '"field":"special"' '"loss":[['
# json() writes what the template's tojson does.
cat >tools.jsonl <<'J'
{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","tool_calls":[
{"type":"function","function":{"name":"f","arguments":
{"z":[1,2.5,-1e-7,1e22,null,true],"a":{},"é\"":"\n中"}}}]}],
"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":
{"b":{"type":["string","null"],"default":null},"a":{"enum":[]}},"required":["b"]}}}]}
J
tr -d '\n' <tools.jsonl >one.jsonl
echo '{{ tools | tojson }}{{ messages[1].tool_calls[0].function.arguments | tojson }}' >tools.jinja
cat >tools.lua <<'LUA'
return function(c, json)
  return { { text = json(c.tools) .. json(c.messages[2].tool_calls[1]["function"].arguments) } }
end
LUA
data 0 sample --template tools.jinja one.jsonl --
cp out by_template
data 0 sample --render tools.lua one.jsonl --
plain() { grep '^  |' "$1" | sed 's/{+//; s/+}//'; } # without the marks of loss
diff <(plain by_template) <(plain out) || fail "json() and tojson differ"
grep -q 'properties' out || fail "json() wrote nothing"
data 2 sample --render two.lua talks.jsonl -- "two.lua: it returns no function"
data 2 sample --render missing.lua talks.jsonl -- "missing.lua: No such file"
data 2 sample --render chatml.lua --loss last talks.jsonl -- "--loss does not fit --render"
data 2 tokenise --render chatml.lua --tokenizer bytes --to x talks.jsonl -- "add --chat"
data 2 tokenise --chat --render chatml.lua --template x --tokenizer bytes --to x talks.jsonl -- \
    "--template does not fit --render"

# ---- resume and repro ----------------------------------------------------------------------------
# The bundle, and a run that goes on, have the script: nothing of it is read beside the talks.
"$FP8LAB" run chats.lua --lib "$lib" --threads 1 --runs open --set train.steps=1000000 \
    --set checkpoint.every=2 >out 2>log &
await_step open 4
kill -TERM $! && wait $!
dir=$(ls -d open/*-texts-*/)
rm -r open/cache && mkdir away && mv chats.lua chatml.lua away
"$FP8LAB" run --resume "$dir" --threads 1 --runs open >out 2>log &
await_step open 8
kill -TERM $! && wait $!
says "tokenising 1 file"
for end in bin loss; do
    cmp "first.$end" "$(shard open $end)" || fail "$end: other tokens after a resume"
done
mv talks.jsonl away
rm -r runs/cache
gives 3 repro "$first" --threads 1 --runs new -- "talks.jsonl"
gives 0 repro "$first" --threads 1 --runs new --data away --exact -- "tokenising" "bitwise equal"
mv away/* .

# ---- what is wrong -------------------------------------------------------------------------------
broken() { # LUA CODE WORDS...
    local lua=$1 code=$2
    shift 2
    printf 'return function(c)\n%s\nend\n' "$lua" >chatml.lua
    chat "$code" --runs wrong --set steps=1 -- "$@"
}
broken 'return "text"' 2 "talks.jsonl:1: chatml.lua:1: it returned a string; expected a list"
broken 'return { { text = c.messages[3].content } }' 2 "talks.jsonl:" \
    "chatml.lua:2: attempt to index a nil value" "data.skip_bad = N"
broken 'while true do end' 2 "talks.jsonl:1: chatml.lua:2: the script ran 50 million instructions"
broken 'return { { text = "a", role = "user" } }' 2 "no conversation with loss in talks.jsonl"
[ -z "$(ls wrong/cache 2>/dev/null)" ] || fail "files are left of nothing"
chat 2 --set data.loss=last -- "chats.lua" "the function render says which fragments carry loss"
chat 2 --set data.template=chatml.jinja -- "data.template" "leave one of the two out"
chat 2 --set data.render=x -- "data.render: expected a function, found"
sed 's/render = .*},/render = "chatml.lua" },/' chats.lua >word.lua
gives 2 check word.lua --lib "$lib" -- "data.render: expected a function, found the string"
sed 's/chats {/text {/' chats.lua >text.lua
gives 2 check text.lua --lib "$lib" -- "text has no 'render'; chats has"

# A line is left out if every machine would leave it out.
broken 'local m = c.messages if #m == 4 then error "four" end
return { { text = m[1].content }, { text = m[2].content, loss = true } }' 2 "four"
chat 0 --runs skipped --set steps=1 --set data.skip_bad=300 -- "bad lines were left out"

[ "$failed" = 0 ] && echo "a function of the script renders conversations"
exit "$failed"
