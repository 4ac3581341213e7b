#!/bin/bash
# The folder of kept checkpoints beside a bundle, and the folder of runs, are not taken for a run.
# Every command that reads a run says whose checkpoints it has, or names the newest run.
set -u
. "$PWD/tests/cli/lib.sh"

run_tiny --runs runs --set train.steps=2
expect "exit code" 0 $code
bundle=$(bundle_in runs)
folder=${bundle%.tar.zst}.ckpt id=$(basename "${bundle%.tar.zst}")
[ -d "$folder" ] || fail "the run kept no checkpoint"

refused() { # WORDS...: by each verb that takes a run, for $path
    local verb
    for verb in show verify repro "compare $bundle" log export extract tag close health watch \
        "rm --yes"; do
        # shellcheck disable=SC2086  # a verb and its arguments
        gives 2 $verb "$path" -- "$@"
    done
}

for path in "$folder" "$folder/" "$PWD/$folder"; do
    refused "$path is the folder of checkpoints of the run $id, not the run; name the run: " \
        "${bundle##*/}"
done
path=$folder/step-000002
refused "$path is a checkpoint of the run $id, not the run; name the run: $bundle"
gives 0 compare "$bundle" "$bundle" --
gives 0 list "$folder" -- "no runs in $folder" \
    "$folder is the folder of checkpoints of the run $id, not the run; name the run: $bundle"
gives 0 list runs -- "$id"
for path in runs runs/; do
    refused "$path is a folder of runs, not a run; name one of them: the newest is $bundle" \
        "\`fp8lab list $path\`"
done

case_name="the run's directory"
cp "$bundle" away.tar.zst
"$FP8LAB" extract -q "$bundle" --to "runs/$id" >log 2>&1 || fail "extract"
rm "$bundle"
path=$folder
gives 2 show "$path" -- "name the run: runs/$id"

case_name="no bundle"
rm -r "runs/${id:?}"
bundle=away.tar.zst
refused "$path is the folder of checkpoints of the run $id, not the run, and there is no " \
    "runs/$id.tar.zst beside it: name the run where it is now"
mv "$path/step-000002" lone
path=lone
refused "lone is a checkpoint, not a run; name the run that wrote it"
mv lone "$folder/step-000002"

case_name="a run in a folder of that name"
"$FP8LAB" extract -q away.tar.zst --to odd.ckpt >log 2>&1 || fail "extract"
gives 0 show odd.ckpt --

[ "$failed" = 0 ] && echo "a folder of checkpoints is no run"
exit "$failed"
