#!/bin/bash
# long: 20
# A run resumes although its newest checkpoint is damaged or belongs to another run. It skips that
# checkpoint with a message, takes the older one, and has the bits of an undisturbed run.
set -u
. tests/cli/lib.sh

every=10
run() { # RUNS ARGS...; keeps all checkpoints: a slow machine may write more before it stops
    run_tiny --set checkpoint.every=$every --set checkpoint.keep=10 \
        --set train.steps=$((every * 10)) --runs "$@"
}
results() {
    "$FP8LAB" show --json "$1"/*.tar.zst | grep -o '"results_sha256":"[0-9a-f]*"' | head -1
}
stop() { # RUNS ARGS...: interrupted after its third checkpoint; the directory and its bundle stay
    run "$@" &
    await_checkpoint "$1" $((every * 3))
    kill -TERM "$(runner_of "$1")"
    wait
    ls -d "$1"/*/data "$1"/*.tar.zst >/dev/null || fail "$1 was done before it was stopped"
}
again_bundled() { # CASE: a copy of the run and its bundle; its newest checkpoint is $newest
    case_name=$1
    cp -r stopped "$1"
    checkpoints=$(echo "$1"/*/data/checkpoints)
    newest=$(ls -d "$checkpoints"/step-* | tail -1)
}
again() { # CASE: the same without the bundle
    again_bundled "$1"
    rm "$1"/*.tar.zst
}
ends_right() { # CODE WORDS: checks the result of the resumed run
    expect "exit code" 0 "$1"
    says "$2"
    expect results "$reference" "$(results "$case_name")"
}
resumes() { # WORDS
    "$FP8LAB" run --resume last --runs "$case_name" --threads 1 >out 2>log
    ends_right $? "$1"
}
damage() { # FILE
    printf '\377' | dd of="$1" bs=1 seek=3000 conv=notrunc 2>/dev/null
}

case_name=undisturbed
run whole
expect "exit code" 0 $code
reference=$(results whole)
stop stopped
stop other --set train.seed=2

again whole-checkpoint
resumes resuming
! grep -q "skipped" log || fail "a whole checkpoint is skipped"

again cursor
sed -i 's/\("cursor": [0-9]*\)[0-9],/\19,/' "$newest/checkpoint.json" # it was even
resumes "a damaged checkpoint is skipped: $newest/checkpoint.json: its own SHA-256 is"
again meaning
sed -i 's/"vocab": 256/"vocab": 257/' "$newest/checkpoint.json"
resumes "$newest/checkpoint.json: its own SHA-256 is"
again step
sed -i 's/^ "step": /&1/' "$newest/checkpoint.json"
resumes "$newest/checkpoint.json: its own SHA-256 is"
again state
damage "$newest/state.safetensors"
resumes "$newest/state.safetensors: tree SHA-256 is"

# An intact checkpoint of a run with another seed: its hash is right, but the log names another.
again another-run
while [ "$(basename "$newest")" != "step-$(printf %06d $((every * 3)))" ]; do
    rm -r "$newest"
    newest=$(ls -d "$checkpoints"/step-* | tail -1)
done
rm -r "$newest"
cp -r other/*/data/checkpoints/"$(basename "$newest")" "$newest"
resumes "$newest/checkpoint.json: SHA-256 is"

# The run was bundled: --resume DIR, and the command that began the run.
again_bundled bundled-cursor
sed -i 's/\("cursor": [0-9]*\)[0-9],/\19,/' "$newest/checkpoint.json"
resumes "a damaged checkpoint is skipped: $newest/checkpoint.json: its own SHA-256 is"
again_bundled bundled-state
damage "$newest/state.safetensors"
"$FP8LAB" run --resume "${checkpoints%/data/*}" --threads 1 >out 2>log
ends_right $? "a damaged checkpoint is skipped: $newest/state.safetensors: tree SHA-256 is"
again_bundled bundled-model
damage "$newest/model.safetensors"
run bundled-model
ends_right $code "a damaged checkpoint is skipped: $newest/model.safetensors: tree SHA-256 is"
again_bundled bundled-older
older=$(ls -d "$checkpoints"/step-* | tail -2 | head -1)
damage "$older/model.safetensors"
resumes "$older/model.safetensors changed since the run was closed; the checkpoint of step "
! grep -q "skipped" log || fail "a whole checkpoint is skipped"

# Only the bundle has an intact checkpoint: it stays.
again_bundled bundled-all
for model in "$checkpoints"/step-*/model.safetensors; do damage "$model"; done
hash=$(sha256sum bundled-all/*.tar.zst)
"$FP8LAB" run --resume "${checkpoints%/data/*}" --threads 1 >out 2>log
expect "exit code of --resume" 4 $?
grep -q "changed since the run was closed; its bundle .* is intact" log ||
    fail "the error does not name the bundle"
run bundled-all
expect "exit code of the command" 4 $code
expect "the bundle" "$hash" "$(sha256sum bundled-all/*.tar.zst)"

# A line that is not a record: resuming would lose that line or the records after it.
again records
sed -i '5s/./#/' "$case_name"/*/data/metrics/eval.jsonl "$case_name"/*/data/metrics/train.jsonl
cp "$case_name"/*/data/metrics/train.jsonl before
"$FP8LAB" run -q --resume last --runs "$case_name" >out 2>log
expect "exit code of --resume" 4 $?
grep -q "train.jsonl: line 5 is not a record" log || fail "--resume -q does not say it"
cmp -s before "$case_name"/*/data/metrics/train.jsonl || fail "records were removed"
"$FP8LAB" close -q last --runs "$case_name" >out 2>log
expect "exit code of close" 4 $?
grep -q "data/metrics/train.jsonl is damaged, .*:5: " log || fail "close -q does not say it"

[ $failed = 0 ] && echo "damaged checkpoints are skipped"
exit $failed
