#!/bin/bash
# Difficult shells: closed descriptors, names that are not UTF-8 or need quotes, --json of each
# failure, and the printed next command typed unchanged.
set -u
. tests/cli/lib.sh
cp "$tests/tiny.lua" .

fp8lab() { "$FP8LAB" "$@"; }

# One object with a schema on stdout, whatever the exit code.
one_object() { # SCHEMA EXIT ARGS...
    local schema=$1 wanted=$2 code
    shift 2
    fp8lab --json "$@" >out 2>err
    code=$?
    expect "exit code of $*" "$wanted" "$code"
    expect "schema of $*" "$schema" \
        "$(python3 -c 'import json; print(json.load(open("out"))["schema"])' 2>&1 | tail -1)"
}

# Runs the command after "Next: ", which must work.
type_next() { # EXIT ARGS...
    local wanted=$1 next
    shift
    fp8lab "$@" >out 2>err
    next=$(sed -n 's/^Next: //p' err)
    [ -n "$next" ] || { fail "$*: no next command"; return; }
    eval "$next" >out 2>err
    expect "exit code of '$next', which $* suggests" "$wanted" $?
}

# With any descriptors closed by the caller, the run's files have the right content.
steps_of() {
    fp8lab show --json "$1"/*.tar.zst |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["summary"]["step_last"])'
}
fp8lab run tiny.lua --lib "$lib" --runs closed <&- >&- 2>&-
expect "exit code without descriptors" 6 $?
expect "steps of a run without descriptors" 12 "$(steps_of closed)"
fp8lab list closed >/dev/full 2>err
expect "exit code on a full device" 6 $?

# Names that are not UTF-8, and names that a shell would split.
odd=$'no\xffutf8 it\'s "$odd" \n'
fp8lab run -q tiny.lua --lib "$lib" --runs "$odd" >out 2>err ||
    fail "a folder with an odd name: $(cat err)"
bundle=$(ls "$odd"/*.tar.zst)
cp tiny.lua "odd $odd.lua"
one_object fp8lab.show/1 0 show "$bundle"
one_object fp8lab.verify/1 0 verify "$bundle"
one_object fp8lab.extract/1 0 extract "$bundle" --to $'ex\xff'
one_object fp8lab.compare/1 0 compare "$bundle" "$bundle"
one_object fp8lab.list/1 0 list "$odd"
one_object fp8lab.data/1 0 data "odd $odd.lua"
one_object fp8lab.check/1 2 check $'nothing\xff.lua'
one_object fp8lab.error/1 2 show $'nothing\xff'
one_object fp8lab.error/1 2 $'nothing\xff'
one_object fp8lab.error/1 2 data $'nothing\xff'
one_object fp8lab.error/1 2 list nothing
one_object fp8lab.version/1 0 --version
one_object fp8lab.run_refused/1 3 run tiny.lua --lib "$lib" --set 'hardware.query=gpu.count>99'
grep -q '"wanted"' out || fail "the JSON of a rejected run lacks the missing facts"
one_object fp8lab.run_result/1 0 run tiny.lua --lib "$lib" --runs json

# The next command works when typed, flags included.
type_next 0 check "odd $odd.lua" --lib "$lib" --set train.steps=2 --set 'about=two words'
type_next 3 check tiny.lua --lib "$lib" --set 'hardware.query=gpu.count>99'
sed 's/synthetic.*},/text { "gone.txt" },/' tiny.lua >gone.lua
type_next 0 check gone.lua --lib "$lib"
echo short >gone.txt
mkdir folder.txt
: >empty.txt
for text in gone folder empty; do
    sed "s/synthetic.*},/text { \"$text.txt\" },/" tiny.lua >refused.lua
    fp8lab check refused.lua --lib "$lib" >out 2>err
    expect "exit code of check for the data $text.txt" 2 $?
    grep -qE 'tiny: (its data would be rejected: |folder.txt is a folder)' err ||
        fail "check of $text.txt: $(cat err)"
    grep -q Next: out err && fail "check of $text.txt names a next command"
done
type_next 0 plan tiny.lua --lib "$lib" --set 'hardware.query=gpu.count>99'
type_next 0 run tiny.lua --lib "$lib" --set 'hardware.query=gpu.count>99'
type_next 0 list "$odd"
type_next 0 run tiny.lua --lib "$lib" --runs "$odd"
fp8lab run -q --again tiny.lua --lib "$lib" --runs "$odd" >out 2>err || fail "a second run"
type_next 0 list "$odd"
type_next 0 compare "$odd"/*.tar.zst
type_next 0 show "$bundle"
type_next 0 verify "$bundle"
type_next 0 bench gemm --m 32 --n 32 --k 32 --repeats 1
type_next 3 hw

# A copy unpacked among the runs is not changed.
fp8lab extract -q json/*.tar.zst --to json/copy >out 2>err ||
    fail "extract among the runs: $(cat err)"
fp8lab list json >out 2>err
[ -d json/copy ] && [ ! -e json/copy.tar.zst ] || fail "list tried to close an unpacked copy"

# An unusable plugin gives an error text, not a crash of the worker.
if [ -e "$(dirname "$FP8LAB")/libfp8lab_cuda.so" ] && [ ! -e /dev/nvidiactl ]; then
    fp8lab run -q tiny.lua --lib "$lib" --runs cuda --backend cuda >out 2>err
    expect "exit code of the cuda backend without a driver" 3 $?
fi

# Data that are not regular files are rejected without waiting; a signal while data are hashed
# ends the command.
mkfifo fifo.txt
truncate -s 64G hole.txt
for text in fifo hole; do sed "s/synthetic.*},/text { \"$text.txt\" },/" tiny.lua >$text.lua; done
timeout 60 "$FP8LAB" run -q fifo.lua --lib "$lib" --runs data >out 2>err
expect "exit code of a FIFO as data" 2 $?
"$FP8LAB" run -q hole.lua --lib "$lib" --runs data >out 2>err &
sleep 0.5
kill -TERM $!
wait $!
expect "exit code of a stop while data are hashed" 143 $?
rm hole.txt # a copy of this folder that is not sparse would fill a disk
[ -e data ] && fail "a run that was not begun left files"

# A small stack limit is raised if the hard limit allows it, otherwise rejected.
bash -c 'ulimit -Ss 128; exec "$@"' _ "$FP8LAB" run -q tiny.lua --lib "$lib" --set train.steps=1 \
    --runs stack >out 2>err
expect "exit code with a soft limit of 128 KiB on the stack" 0 $?
bash -c 'ulimit -s 128; exec "$@"' _ "$FP8LAB" run -q tiny.lua --lib "$lib" --set train.steps=1 \
    --runs stack --again >out 2>err
expect "exit code with a hard limit of 128 KiB on the stack" 6 $?
grep -q "raise the limit: ulimit -s 8192" err || fail "a small stack: $(cat err)"

# A script's text cannot control the terminal. A script with a byte order mark runs.
printf 'error("a\\27[31mb")' >escape.lua
fp8lab check escape.lua >out 2>err
grep -q $'\033' err && fail "an escape sequence of a script reaches the terminal"
{ printf '\xef\xbb\xbf'; cat tiny.lua; } >mark.lua
fp8lab check -q mark.lua --lib "$lib" >out 2>err || fail "byte-order mark: $(cat err)"
fp8lab check missing.lua 2>&1 | grep -q traceback && fail "a missing file has a traceback"
cp tiny.lua ./-dash.lua
fp8lab -q --lib "$lib" --set train.steps=1 -- -dash.lua >out 2>err ||
    fail "-- -dash.lua: $(cat err)"
for off in eval=false eval=null checkpoint=false; do
    fp8lab check -q tiny.lua --lib "$lib" --set $off >out 2>err || fail "--set $off: $(cat err)"
done
exit $failed
