#!/bin/bash
# Patterns in data.paths: the matching files are in the configuration, the inputs and a container's
# mounts. `repro` uses the bundle's files for them, even if other files match here by then.
set -u
. tests/cli/lib.sh
sed 's/synthetic.*},/text { "books\/*.txt" },/' "$tests/tiny.lua" >x.lua
unset FP8LAB_IMAGE
run() { "$FP8LAB" run -q x.lua --lib "$lib" --set train.steps=2 --runs runs "$@" >out 2>err; }

# No match: an error before the run. `check` only warns, because the data may be elsewhere.
run && fail "a run without a file that matches"
grep -q 'data.paths: no file matches "books/\*.txt"' err || fail "no match: $(cat err)"
[ -e runs ] && fail "a run directory without data"
"$FP8LAB" check x.lua --lib "$lib" >out 2>err || fail "check without data: $(cat err)"
grep -q 'its data cannot be read here' err || fail "check says nothing of data: $(cat err)"
"$FP8LAB" run -q x.lua --lib "$lib" --smoke --runs smoke >out 2>err || fail "--smoke: $(cat err)"

mkdir books
for book in b a c; do for i in {1..200}; do echo "$book book, line $i"; done >books/$book.txt; done
wanted='"paths":["books/a.txt","books/b.txt","books/c.txt"]'
"$FP8LAB" check x.lua --lib "$lib" --resolved >out 2>err || fail "check: $(cat err)"
grep -qF "$wanted" out || fail "check --resolved: $(cat out)"
"$FP8LAB" check x.lua --lib "$lib" --resolved --smoke 2>err | grep -qF "$wanted" ||
    fail "--smoke takes other data: $(cat err)"
# A name that no script could have.
for name in $'d\xff.txt' $'d\n.txt'; do
    cp books/a.txt "books/$name"
    "$FP8LAB" check x.lua --lib "$lib" >out 2>err && fail "check takes a file named $name"
    grep -q 'matches books/d.*, whose name .*; rename the file' err || fail "a name: $(cat err)"
    rm "books/$name"
done
mkdir desk && cp x.lua desk
(cd desk && "$FP8LAB" run x.lua --lib "$lib" --set 'data.paths=../books/*.txt' --launch docker \
    --dry-run) >out 2>err || fail "launch: $(cat err)"
grep -q "source=$PWD/books," out || fail "the folder of the books is not mounted: $(cat out)"
run || fail "a run: $(cat err)"
bundle=$(ls runs/*.tar.zst)
"$FP8LAB" extract -q "$bundle" --to bag >out 2>err || fail "extract: $(cat err)"
grep -qF "books/b.txt" bag/data/experiment/data.json || fail "the inputs do not list the files"

# A comma in a name: --set takes it for two files, unless they are a JSON list.
cp books/a.txt 'books/a,b.txt'
named='data.paths=["books/a,b.txt", "books/b.txt"]'
run --set "$named" || fail "a JSON list: $(cat err)"
"$FP8LAB" check x.lua --lib "$lib" --resolved --set "$named" >out 2>err || fail "check: $(cat err)"
grep -qF '"paths":["books/a,b.txt","books/b.txt"]' out || fail "a JSON list: $(cat out)"
hint="in --set a comma separates files, but there is a file books/a,b.txt: "
hint+="--set 'data.paths=[\"books/b.txt\",\"books/a,b.txt\"]'"
for more in train.steps=2 data.tokenizer=bytes train.epochs=1; do
    run --set data.paths=books/b.txt,books/a,b.txt --set $more && fail "half a name: $more"
    grep -qF "No such file" err && grep -qF "$hint" err || fail "half a name, $more: $(cat err)"
done
"$FP8LAB" check x.lua --lib "$lib" --set data.paths=books/b.txt,books/a,b.txt >out 2>err
grep -qF "$hint" err || fail "check of half a name: $(cat err)"
run --data-root books --set data.paths=a,b.txt && fail "half a name below a root"
grep -qF 'but there is a file a,b.txt: ' err || fail "half a name below a root: $(cat err)"
# The command of the hint is accepted, whatever the name.
cp books/a.txt "books/it's \"a\", b.txt"
run --set "data.paths=books/c.txt,books/it's \"a\", b.txt,books/*.txt" &&
    fail "half of a quoted name"
command=$(sed -n "s/.* b.txt: \(--set .*\)/\1/p" err)
eval "run $command" || fail "the command of a hint: $command: $(cat err)"
[[ $command == *c.txt*it*books/\*.txt* ]] || fail "a hint without the other files: $command"
rm "books/it's"*
# Two names in the script are no work of --set.
sed 's/"books\/\*.txt"/"books\/a", "b.txt"/' x.lua >two.lua
"$FP8LAB" check two.lua --lib "$lib" >out 2>err
grep -q 'No such file' err && ! grep -q 'comma' err || fail "two names in a script: $(cat err)"
run --set data.paths=books/a.txt,books/none.txt && fail "a file that is not there"
grep -qF 'comma' err && fail "a comma that is none of a name: $(cat err)"
for list in '["books/a.txt"' '{"books/a.txt"}' '[{}]' '[]'; do
    run --set "data.paths=$list" && fail "a list $list"
done
grep -q 'expected a list of file names' err || fail "an empty list: $(cat err)"
run --set 'data.paths={"books/a.txt"}'
grep -qF "as JSON: --set 'data.paths=[\"A,B\", \"C\"]'" err || fail "a Lua list: $(cat err)"
rm 'books/a,b.txt'

# Another root, and a file that was added later.
mkdir elsewhere && mv books elsewhere/
run && fail "data that moved away"
run --data-root elsewhere || fail "--data-root: $(cat err)"
gives 0 check x.lua --lib "$lib" -- "its data cannot be read here" "Next: fp8lab plan"
gives 0 check x.lua --lib "$lib" --data-root elsewhere -- "--data-root elsewhere x.lua"
grep -q "cannot be read" out && fail "check --data-root: $(cat out)"
gives 0 plan x.lua --lib "$lib" --data-root elsewhere -- "--data-root elsewhere x.lua"
echo "a new book" >elsewhere/books/d.txt
"$FP8LAB" repro "$bundle" --data elsewhere --runs again >out 2>err ||
    fail "repro: exit code $?: $(cat out err)"
grep -q "bitwise equal" out || fail "repro: $(cat out err)"
grep -q "resolves to another configuration" err && fail "repro matches new files: $(cat err)"
exit $failed
