#!/bin/bash
# verify, if a bundle or a checkpoint beside it is damaged or cannot be read: the exit code, which
# parts it names, and what it advises. It advises to delete only what is damaged.
set -u
. "$PWD/tests/cli/lib.sh"

run_tiny --runs runs --set train.steps=18 --set train.optimizer.lr=0.03 \
    --set checkpoint.best=eval.loss --set checkpoint.every=4 --set eval.every=6
expect "exit code" 0 $code
bundle=$(bundle_in runs)
folder=${bundle%.tar.zst}.ckpt
cp -r "$folder" kept && cp "$bundle" whole
best=$folder/$(ls kept | head -1) last=$folder/$(ls kept | tail -1)
[ "$best" != "$last" ] || fail "the run kept one checkpoint"

restore() { rm -rf "$folder" && cp -r kept "$folder" && cp whole "$bundle"; }
unreadable() { # FILE, for every user: a link to a name that is too long
    rm "$1" && ln -s "$(printf 'x%.0s' {1..300})" "$1"
}
damage() { printf x >>"$1"; }
never() { # WORDS: in `out`
    grep -qF -- "$1" out && fail "verify says: $1"
}

case_name="a checkpoint that cannot be read"
unreadable "$best/state.safetensors"
gives 6 verify "$bundle" -- "the bundle itself is intact, but its kept checkpoint of step " \
    "(best) cannot be checked: " "File name too long; make it readable and verify again" \
    "the kept checkpoint of step 18 (last) is intact"
never delete

rm -r "$folder" && ln -s "$(printf 'x%.0s' {1..300})" "$folder"
gives 6 verify "$bundle" -- "cannot be checked: $best: File name too long; make it readable"
restore
unreadable "$best/state.safetensors"

case_name="the other one is damaged"
damage "$last/model.safetensors"
gives 4 verify "$bundle" -- "the bundle itself is intact, but its kept checkpoint of step 18 " \
    "(last) is damaged: " "copy the checkpoint to $folder again, or delete its folder there" \
    "(best) cannot be checked: "
restore

case_name="a file is missing, a folder, or a link to itself"
for file in "$last/checkpoint.json" "$best/state.safetensors"; do
    for how in missing folder link; do
        rm "$file"
        [ $how = folder ] && mkdir "$file"
        [ $how = link ] && ln -s "${file##*/}" "$file"
        gives 4 verify "$bundle" -- " is damaged: " "$file" "or delete its folder there"
        restore
    done
done

case_name="run.json cannot be read"
head -c 100 whole >spoilt
cp spoilt "$bundle"
damage "$last/model.safetensors"
gives 4 verify "$bundle" -- "$folder: a newer kept checkpoint is damaged: $last/model.safetensors" \
    "$folder: the kept checkpoint of step " " is intact by its own hashes"
damage "$best/model.safetensors"
gives 4 verify "$bundle" -- "$folder: the kept checkpoint is damaged: $last/model.safetensors"
never "by its own hashes"
restore && cp spoilt "$bundle"
unreadable "$last/model.safetensors"
gives 4 verify "$bundle" -- "$folder: a checkpoint cannot be read, and may be intact" \
    "File name too long"
never "by its own hashes"
restore

case_name="no whole archive"
head -c -100 whole >cut.tar.zst
: >empty.tar.zst
echo garbage >garbage.tar.zst
for file in cut empty garbage; do
    gives 4 verify $file.tar.zst -- "$file.tar.zst is " \
        "; if it is a run's bundle, it is damaged: copy it again from its source, or repeat the run"
done
"$FP8LAB" extract -q "$bundle" --to directory >log 2>&1 || fail extract
echo garbage >directory/manifest-sha256.txt
gives 4 verify directory -- "if it is a run's bundle, it is damaged"

case_name="no bundle at all"
mkdir foreign
for file in "" x; do
    [ "$file" ] && echo >foreign/$file
    gives 4 verify foreign -- "foreign is not a run: name a run's .tar.zst or its directory"
    never "copy it again"
done
rm directory/bagit.txt
gives 4 verify directory -- "copy it again from its source"

restore
gives 0 verify "$bundle" -- "(last) is intact" "(best) is intact"
[ $failed = 0 ] && echo "verify tells damaged from unreadable"
exit $failed
