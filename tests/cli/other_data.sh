#!/bin/bash
# repro, eval, run --resume and run --extend, if a file of the run's data is at its path with other
# content: they name it, with its hash and the run's; also as text that a tokenizer read.
set -u
. "$PWD/tests/cli/lib.sh"
shown="out log"
mkdir data
seq 1 4000 >data/n.txt
seq 1 2000 >data/m.txt
cp -r data kept
was=$(sha256sum <kept/n.txt | cut -c1-12)
cat >t.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "t", model = tiny.llama { layers = 1, seq_len = 32 }, recipe = bf16,
  data = text { "data/m.txt", "data/n.txt" }, archive = "weights",
  train = { steps = 4, global_batch = 2 }, checkpoint = { every = 2 },
}
LUA
gives 0 run t.lua --lib "$lib" --threads 1 --runs done -- "done  step"
gives 0 run t.lua --lib "$lib" --threads 1 --runs text --set data.tokenizer=bytes -- "done  step"
# Two runs that a signal ends.
for runs in stopped cut; do
    set -- --runs $runs
    [ $runs = cut ] && set -- "$@" --set data.tokenizer=bytes
    "$FP8LAB" run t.lua --lib "$lib" --threads 1 "$@" --set train.steps=100000 >out 2>log &
    await_checkpoint $runs 2
    kill -INT $!
    wait $!
    expect "the signal's code" 130 $?
done
rm -r text/cache cut/cache

others() { # FINDING: of data/n.txt
    local other="data/n.txt is here, but with other content: $1" runs
    local mend="; the run's had 18893 bytes, sha256 $was; put the run's file back, or --data-root"
    for runs in done text; do
        gives 3 repro "$(bundle_in $runs)" --threads 1 --runs again -- \
            "  data/n.txt  18893 bytes, sha256 $was" "    $other"
        gives 2 eval "$(bundle_in $runs)" --threads 1 --cache again -- \
            "  data/n.txt  18893 bytes, sha256 $was" "    $other"
        grep -q "data/m.txt is here" out && fail "a file that is the run's is called another"
    done
    gives 2 run --resume "$(bundle_in stopped)" --threads 1 -- \
        "cannot be resumed as the same run: $other" "$mend"
    gives 2 run --resume "$(bundle_in cut)" --threads 1 -- \
        "cannot be resumed as the same run: data/n.txt is here, but with other content: " "$mend"
    gives 2 run --extend "$(bundle_in done)" --threads 1 --set train.steps=8 --runs again -- \
        "t: data/n.txt is here, but with other content: " "$mend"
    rm -rf text/cache
    gives 2 run --extend "$(bundle_in text)" --threads 1 --set train.steps=8 --runs again \
        --cache again -- "t: data/n.txt is here, but with other content: " "$mend"
}
seq 2 4001 | head -c 18893 >data/n.txt
others "18893 bytes, sha256 $(sha256sum <data/n.txt | cut -c1-12)"
seq 1 4001 >data/n.txt
others "18898 bytes"
# Too short for the model, which another error would say.
seq 1 9 >data/n.txt
cp data/n.txt data/m.txt
gives 2 run --resume "$(bundle_in stopped)" --threads 1 -- \
    "data/m.txt is here, but with other content: 18 bytes; the run's had 8893 bytes"
# No file at all.
rm data/n.txt && mkdir data/n.txt
gives 3 repro "$(bundle_in done)" --threads 1 --runs again -- \
    "    data/n.txt is here, but is not a regular file"
rmdir data/n.txt && ln -s n.txt data/n.txt
gives 2 eval "$(bundle_in done)" --threads 1 -- \
    "    data/n.txt is here, but is a link that leads to no file"
rm data/n.txt
# Below the folder of --data, too; and where nothing is.
mkdir -p here/data && seq 1 5 >here/data/n.txt && cp kept/m.txt data/
gives 3 repro "$(bundle_in done)" --threads 1 --data here --runs again -- \
    "    here/data/n.txt is here, but with other content: 10 bytes"
gives 2 repro "$(bundle_in done)" --data-root here -- "no flag --data-root; did you mean --data?"
# In another folder under its name; the file of another name is the run's.
mkdir -p there/deep && cp here/data/n.txt there/deep/n.txt && cp kept/m.txt there/other.txt
for runs in done text; do
    gives 3 repro "$(bundle_in $runs)" --threads 1 --data there --runs again -- \
        "    there/deep/n.txt is here, but with other content: 10 bytes"
    grep -q "m.txt" out && fail "$runs: a file that is there is called missing"
done
expect "the text before the tokens" "data/n.txt tokens .bin .idx" "$(sed -n \
    's,^  \(data/n.txt\) .*,\1,p; s/^  or instead .* the tokens.*/tokens/p
        s/^  .*\(\.bin\|\.idx\) .*/\1/p' out | tr '\n' ' ' | sed 's/ $//')"
gives 6 run --resume "$(bundle_in stopped)" --threads 1 -- "data/n.txt: No such file" \
    "it had 18893 bytes, sha256 $was; put the run's file back"
rm -r data
# With the run's own files all of them work.
gives 0 repro "$(bundle_in done)" --threads 1 --data kept --runs again -- "bitwise equal"
gives 0 eval "$(bundle_in done)" --threads 1 --data kept -- "loss"
mkdir root && mv kept root/data
gives 0 run --extend "$(bundle_in done)" --threads 1 --set train.steps=5 --runs more \
    --data-root root -- "done  step 5"
"$FP8LAB" run --resume "$(bundle_in stopped)" --threads 1 --data-root root >out 2>log &
await_words "resuming" log
kill -INT $!
wait $!
expect "the signal's code" 130 $?
exit $failed
