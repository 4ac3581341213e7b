#!/bin/bash
# `check` from outside: its output, stdout or stderr, and its exit code.
set -u
failed=0
work=${TEST_TMP:-$(mktemp -d)}

expect() { # WHAT EXPECTED FOUND
    [ "$2" = "$3" ] && return
    printf '%s\n  expected: %s\n  found:    %s\n' "$1" "$2" "$3"
    failed=1
}

code() { # ARGUMENTS... -> exit code; output in $work/out and $work/err
    "$FP8LAB" "$@" >"$work/out" 2>"$work/err"
    echo $?
}

# Every shipped script, with and without --smoke. This machine's disk may be too small.
for script in experiments/*.lua; do
    expect "check $script" 0 "$(code check --facts tests/facts/h200.json "$script")"
    expect "check --smoke $script" 0 "$(code check --smoke "$script")"
done

# A shrunk run still changes to BF16 before it ends.
expect "forward_bf16_after of --smoke" 1 "$("$FP8LAB" check -q --smoke --resolved \
    experiments/fp4_loss.lua | grep -o '"forward_bf16_after":[1-9][0-9]*' | sort -u |
    grep -cx '"forward_bf16_after":3')"

# The canonical bytes do not depend on the folder, the locale or the run.
first=$("$FP8LAB" check -q --resolved experiments/shapes.lua | sha256sum)
again=$(LC_ALL=tr_TR.UTF-8 TZ=Asia/Kathmandu "$FP8LAB" check -q --resolved experiments/shapes.lua |
    sha256sum)
expect "bytes of a second check" "$first" "$again"
here=$PWD
again=$(cd experiments && "$FP8LAB" check -q --resolved shapes.lua | sha256sum)
expect "bytes from another folder" "$first" "$again"
again=$(cd / && "$FP8LAB" check -q --resolved "$here/experiments/shapes.lua" | sha256sum)
expect "bytes from the root" "$first" "$again"
expect "lines of --resolved" 25 "$("$FP8LAB" check -q --resolved experiments/shapes.lua | wc -l)"

# Endless recursion is a stack overflow, reported at once.
echo 'local function f() return 1 + f() end f()' >"$work/deep.lua"
expect "recursion without end" 2 "$(code check "$work/deep.lua")"
expect "what it says" 1 "$(grep -c 'deep.lua:1: stack overflow' "$work/err")"

# Errors: exit code 2, all of them, on stderr; as JSON on stdout.
cat >"$work/x.lua" <<'LUA'
return experiment {
  name = "x", model = { layers = 0 },
}
LUA
expect "exit code of errors" 2 "$(code check "$work/x.lua")"
expect "stdout of errors" "" "$(cat "$work/out")"
expect "lines that name the script" 9 "$(grep -c "^fp8lab: $work/x.lua:[12]: " "$work/err")"
expect "exit code of errors, --json" 2 "$(code check --json "$work/x.lua")"
grep -q '"key": *"model.layers"' "$work/out" || expect "--json names the key" yes no
expect "exit code of a missing script" 2 "$(code check "$work/absent.lua")"
expect "exit code of a bad override" 2 "$(code check --set train.step=3 experiments/margins.lua)"

# Lists in the notation of Lua or of no JSON, several values for one key, a kind as a key: each is
# rejected. The error has the correct spelling, and that spelling is accepted.
refused() { # SET WORDS
    expect "exit code of --set $1" 2 "$(code check --set "$1" experiments/quickstart.lua)"
    grep -qF -- "$2" "$work/err" || expect "--set $1" "$2" "$(cat "$work/err")"
}
for list in '["a.txt", b.txt]' '{"a.txt","b.txt"}' '[a.txt,b.txt]' '"a.txt","b.txt"'; do
    refused "data.paths=$list" ": --set data.paths=a.txt,b.txt"
done
refused "train.optimizer.betas={0.9,0.95}" ": --set train.optimizer.betas=0.9,0.95"
# JSON: the item that is wrong, and no advice for another type of key.
list="expected a list of file names"
betas="expected a list of 2 numbers from 0 to below 1"
refused "data.paths=[]" "data.paths: $list, found an empty list"
refused 'data.paths=["a.txt",null]' "data.paths[2]: expected a string of 1 to 4096 bytes, found"
refused 'train.optimizer.betas=[0.9,"x"]' "betas[2]: expected a number from 0 to below 1, found"
refused "train.optimizer.betas=[0.9]" "$betas, found a list of 1"
refused "train.optimizer.betas=[1e400,0.95]" \
    "$betas, found no valid JSON: real number overflow near '1e400'"
for set in 'data.paths=[]' 'train.optimizer.betas=[0.9]' 'data.paths=[null]'; do
    code check --set "$set" experiments/quickstart.lua >"$work/code"
    grep -E "takes one value|--set data.paths=null" "$work/err" &&
        expect "advice for another key" "" "$set"
done
refused 'data.paths=[ab]*.txt,c.txt' "--set 'data.paths=[\"[ab]*.txt\",\"c.txt\"]'"
refused "seed={1,2}" "--set takes one value, a suite's matrix takes several"
for set in "seed=1,2" "seed=[1,2]" "recipe=bf16,fp8.rowwise"; do
    matrix="matrix.${set/#seed/train.seed}"
    refused "$set" "In a suite --set '$matrix' makes rows of several"
    expect "exit code of --set $matrix" 0 "$(code check --set "$matrix" experiments/quickstart.lua)"
done
refused "recipe.kind=fp8.tensorwise" "recipe itself names the kind: --set recipe=fp8.tensorwise"
expect "errors of recipe.kind" 1 "$(grep -c "unknown key" "$work/err")"
for list in a.txt,b.txt '["a.txt", "b.txt"]'; do
    expect "exit code of a list" 0 \
        "$(code check --resolved --set "data.paths=$list" experiments/quickstart.lua)"
    grep -qF '"paths":["a.txt","b.txt"]' "$work/out" || expect "a list of two" yes no
done

for verb in run check plan advise; do
    "$FP8LAB" help $verb | grep -qF "'matrix.KEY=[[\"A,B\"],[\"C\"]]'" ||
        expect "help $verb says how --set takes JSON" yes no
done

# The output of a script goes to stderr, and -q silences it.
echo 'print("seen") return require "x2"' >"$work/y.lua"
sed 's/name = "x", model.*/name = "x", model = { vocab = 2, seq_len = 1, layers = 1, width = 8,\
  heads = 1, ffn = 8 }, recipe = bf16, data = synthetic,\
  train = { steps = 1, global_batch = 1 },/' \
    "$work/x.lua" >"$work/x2.lua"
expect "exit code of a script that prints" 0 "$(code check "$work/y.lua")"
grep -q '^  seen$' "$work/err" || expect "printed text on stderr" yes no
expect "exit code with -q" 0 "$(code check -q "$work/y.lua")"
expect "stderr with -q" "" "$(cat "$work/err")"
exit $failed
