#!/bin/bash
# Data, directory or checkpoints of a run are deleted while it runs. It fails with an error that
# names what is missing (without a folder for checkpoints: when it is stopped), and its bundle, if
# one can be written, verifies.
set -u
. tests/cli/lib.sh
cp "$tests/tiny.lua" .

# begin RUNS SCRIPT ARGS...: an endless run in the background; returns at its step 10.
begin() {
    local runs=$1
    shift
    "$FP8LAB" run "$@" --lib "$lib" --runs "$runs" --threads 1 --set train.steps=1000000 \
        --set eval=false >out 2>log &
    pid=$!
    await_step "$runs" 10
}

bundle_is_failed() { # RUNS
    "$FP8LAB" verify -q "$1"/*.tar.zst >/dev/null || fail "the bundle does not verify"
    expect status failed "$(field "$1"/*.tar.zst 'run["status"]')"
}

case_name="data that shrink"
head -c 40000 /dev/zero | tr '\0' a >text.txt
sed 's/data = .*/data = text { "text.txt" },/' tiny.lua >text.lua
begin data text.lua --set checkpoint=false
truncate -s 100 text.txt
wait $pid
expect "exit code" 6 $?
says "text.txt: 40000 bytes when it was opened, now 100"
bundle_is_failed data

case_name="data that grow between two attempts"
head -c 40000 /dev/zero | tr '\0' a >text.txt
begin grown text.lua --set checkpoint=false --retries 1
echo "more of it" >>text.txt
kill -KILL $(cat /proc/$pid/task/$pid/children)
wait $pid
expect "exit code" 2 $?
says "text.txt: 40011 bytes, but 40000 when the run began"
bundle_is_failed grown

case_name="a directory of runs that is removed"
begin removed tiny.lua --set checkpoint=false
mv removed away && rm -rf away # at once: files that are made meanwhile would keep it
wait $pid
expect "exit code" 6 $?
says "is gone: it was deleted or renamed while the run wrote to it"

case_name="a file where the checkpoints were, in a folder whose name is no UTF-8"
odd=$(printf 'repl\377ced')
begin "$odd" tiny.lua --set checkpoint.every=500
checkpoints=$(ls -d "$odd"/*)/data/checkpoints
rm -rf "$checkpoints"
echo "not a directory" >"$checkpoints"
await_words "could not be written; the run goes on" "$odd/*/data/logs/runner.log"
kill -TERM $pid # the checkpoint of a stop must be written
wait $pid
expect "exit code" 6 $?
says "Not a directory"
bundle_is_failed "$odd"

case_name="a directory that was changed since it was closed"
begin changed tiny.lua --set checkpoint.every=50
kill -TERM $pid
wait $pid
dir=$(dirname changed/*/data)
"$FP8LAB" close "$dir" >out 2>log
expect "exit code of close, unchanged" 0 $?
hash=$(sha256sum "$dir.tar.zst")
state=$(cd "$dir" && ls data/checkpoints/*/state.safetensors | tail -1)
for file in data/metrics/train.jsonl "$state"; do
    cp "$dir/$file" saved
    truncate -s 500 "$dir/$file"
    verbs=(close "run --runs changed --resume")
    [ "$file" = "$state" ] && verbs=(close) # --resume skips a damaged checkpoint: damaged.sh
    for verb in "${verbs[@]}"; do
        for path in "$dir" "$dir/"; do # the slash is a shell's completion
            timeout 60 "$FP8LAB" $verb "$path" >out 2>log
            expect "exit code of $verb $path" 4 $?
            says "$file changed since the run was closed"
        done
    done
    cp saved "$dir/$file"
done
expect "the bundle" "$hash" "$(sha256sum "$dir.tar.zst")"

case_name="more text files than a shell lets a program open"
mkdir many
for i in $(seq 300); do echo "The text of file $i, of three hundred." >many/$i.txt; done
{ sed '/data = /,$d' tiny.lua
  echo "data = text { paths = { $(printf '"many/%d.txt",' $(seq 300)) } },"
  sed '1,/data = /d' tiny.lua; } >many.lua
(ulimit -Sn 100; "$FP8LAB" run -q many.lua --lib "$lib" --runs opened --set eval=false >out 2>log)
expect "exit code" 0 $?

[ $failed = 0 ] && echo "each missing file is named"
exit $failed
