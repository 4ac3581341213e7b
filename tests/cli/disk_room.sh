#!/bin/bash
# check and plan judge a disk with little room as run does, for a suite of which a row is done.
set -u
. "$PWD/tests/cli/lib.sh"
mkdir runs
trap 'umount -l runs 2>/dev/null' EXIT
mount -t tmpfs -o size=10m tmpfs runs 2>/dev/null || {
    echo "no right to mount a tmpfs"
    exit 77
}
cat >three.lua <<'LUA'
local tiny = require "models.tiny"
return suite {
  name = "three",
  matrix = { ["train.seed"] = { 1, 2, 3 } },
  model = tiny.llama { layers = 1, seq_len = 32 }, recipe = bf16, data = synthetic { seed = 7 },
  train = { steps = 4, global_batch = 2, optimizer = adamw { lr = 1e-3 } },
  checkpoint = { every = 4 },
}
LUA
three() { # VERB ARGS...
    "$FP8LAB" "$1" three.lua --lib "$lib" --runs runs "${@:2}" >out 2>log
}

case_name="room for two of three" # a checkpoint has 3.5 MiB
three run --only '*seed-1' --threads 1
expect "exit code of the first" 0 $?
mount -o remount,size=9m runs
for verb in check plan run; do
    three $verb
    expect "exit code of $verb" 6 $?
    says "checkpoints need up to 7.0 MiB of disk"
    grep -q "^Next: " log && fail "$verb names a next command"
done
for verb in check plan; do
    three $verb --json
    expect "exit code of $verb --json" 6 $?
    expect "what $verb --json says" "True False" "$(python3 -c 'import json
o = json.load(open("out"))
print(o.get("ok", True), o["disk"]["fits"])')"
done

case_name="room for all"
mount -o remount,size=12m runs
for verb in check plan; do
    three $verb
    expect "exit code of $verb" 0 $?
    says "the disk of runs has room: checkpoints need up to 7.0 MiB at once" out
    says "Next: fp8lab run"
done
three run --threads 1
expect "exit code of run" 0 $?
for verb in check plan; do
    three $verb
    expect "exit code of $verb of a suite that is done" 0 $?
    three $verb --set archive=weights # other runs
    expect "exit code of $verb of other runs" 6 $?
done

case_name="tokens that may not fit"
mount -o remount,size=18m runs
head -c 4194304 /dev/zero | tr '\0' a >a.txt
sed 's/synthetic { seed = 7 }/text { "a.txt", tokenizer = "bytes" }/; s/suite/experiment/
    /matrix/d' three.lua >one.lua
for verb in check plan; do
    "$FP8LAB" $verb one.lua --lib "$lib" --runs runs >out 2>log
    expect "exit code of $verb" 0 $? # most text has far fewer tokens than bytes
    says "the tokens of the text need about 8.0 MiB of disk at most, in runs/cache" out
    says "the tokens of the text may need up to about 8.0 MiB beside 3.5 MiB of checkpoints"
done
"$FP8LAB" check one.lua --lib "$lib" --runs elsewhere >out 2>log
grep -q "the tokens of the text may need" log && fail "warns of a disk that has room"
exit $failed
