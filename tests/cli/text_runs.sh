#!/bin/bash
# long: 30
# timeout: 300
# Runs whose text becomes tokens: a kill and a full disk while tokens are made, two at once, several
# ranks, a suite, resume, extend, and repro with the tokens or with the text.
set -u
. "$PWD/tests/cli/lib.sh"
. "$root/tests/support/text.sh"
again() { # CODE ARGUMENTS... -- WORDS...
    local code=$1
    shift
    gives "$code" repro --threads 1 "$@"
}

run 0 -- "tokenising 2 files"
first=$(bundle_in runs)
results=$(field "$first" 'run["results_sha256"]')
bin=$(ls runs/cache/*.bin)
key=${bin%.bin}
name=${key##*/}

# ---- killed, and a full disk ---------------------------------------------------------------------
run=("$FP8LAB" run texts.lua --lib "$lib" --threads 1)
{ (ulimit -c 0; ulimit -f 8; "${run[@]}" --cache killed >out 2>&1); } 2>/dev/null
expect "a process killed by a limit on a file" 153 $?
[ -e "killed/$name.bin.part" ] && [ ! -e "killed/$name.idx" ] || fail "what a kill leaves"
cp "$key.bin" "$key.json" killed # as if it was killed between two renames
run 0 --cache killed -- "an earlier run was killed" "kept as" "not run again"
cmp "killed/$name.bin" "$key.bin" || fail "tokens after a kill"
expect "files after a kill" 3 "$(ls killed | wc -l)"
(trap '' XFSZ; ulimit -f 8; "${run[@]}" --cache full >out 2>&1)
expect "a full disk" 6 $?
says "full/$name.bin.part" out
expect "files on a full disk" 0 "$(ls full | wc -l)"

# ---- two at once ---------------------------------------------------------------------------------
# The other process is stood in for by one that holds the lock.
python3 - "$name" "$FP8LAB" "$lib" <<'PY' || fail "two at once"
import fcntl, os, shutil, subprocess, sys
name, fp8lab, lib = sys.argv[1:]
for made in (True, False):
    folder = "both" if made else "neither"
    os.mkdir(folder)
    with open(f"{folder}/{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = subprocess.Popen([fp8lab, "run", "texts.lua", "--lib", lib, "--cache", folder],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        line = run.stderr.readline()
        assert "another process is tokenising this text; waiting for it" in line, line
        for suffix in ("bin", "json", "idx") if made else ():
            shutil.copy(f"runs/cache/{name}.{suffix}", folder)
    rest = run.stderr.read()
    assert run.wait() == 0, rest
    assert ("tokenised by the other process" if made else "tokenising 2 files") in rest, rest
    assert not os.path.exists(f"{folder}/{name}.lock")
PY

# ---- ranks, suites, resume -----------------------------------------------------------------------
run 0 --set hardware.gpus=2 --set train.global_batch=4 -- "text already tokenised" "done  step"
sed 's/^return experiment {/return suite { matrix = { recipe = { bf16, fp8.delayed } },/
     /recipe = bf16/d' texts.lua >suite.lua
gives 0 run suite.lua --lib "$lib" --threads 1 --cache suite -- "tokenising 2 files"
expect "times that a suite tokenises" 1 "$(grep -c '^tokenising' out)"
gives 0 run suite.lua --lib "$lib" --threads 1 --cache beside --runs beside --side-by-side 2 -- \
    "tokenising 2 files"
expect "times that rows side by side tokenise" 1 "$(grep -c 'tokenising' out)"

# A run stops at its checkpoint. It goes on with its tokens; or if they are gone, with its text.
endless=(--set train.steps=1000000 --set checkpoint.every=2)
stop() { # PROCESS: 143 says that it stopped with a checkpoint
    kill -TERM "$1"
    wait "$1"
    expect "exit code after SIGTERM" 143 $?
}
"$FP8LAB" run texts.lua --lib "$lib" --threads 1 --runs open "${endless[@]}" >out 2>log &
await_step open 4
stop $!
dir=$(ls -d open/*-texts-*/)
go_on() { # STEP WORDS...: resumes, and stops after that step
    local step=$1 word
    shift
    "$FP8LAB" run --resume "$dir" --threads 1 --runs open >out 2>log &
    await_step open "$step"
    stop $!
    for word in "$@"; do says "$word"; done
}
last() { tail -1 "$dir"/data/metrics/train.jsonl | sed 's/.*"step":\([0-9]*\).*/\1/'; }
mv data away && mv tokenizer.json away.json
go_on $(($(last) + 2))
rm -r open/cache
gives 2 run --resume "$dir" --runs open -- "data.paths: open data/a.jsonl" \
    "--data-root DIR counts paths from another folder"
mv away data
go_on $(($(last) + 2)) "tokenising 2 files" "with the run's own tokenizer.json"
mv away.json tokenizer.json
printf 'X' | dd of="open/cache/$name.bin" bs=1 seek=60 conv=notrunc status=none
go_on $(($(last) + 2)) "are not the tokens that they were" "tokenising 2 files"
gives 0 verify "$(bundle_in open)" --

# ---- repro ---------------------------------------------------------------------------------------
again 0 "$first" -- "bitwise equal"
mkdir -p shards/deep
mv "$key.bin" shards/deep/x && mv "$key.idx" shards/y
rm -r runs/cache && mv data text
again 3 "$first" --runs new -- "the bundle's data are not here" "$name.bin" "data/a.jsonl"
again 0 "$first" --runs new --data shards --exact -- "bitwise equal"
mv tokenizer.json away.json
again 0 "$first" --runs of_text --data text --exact -- "tokenising 2 files" "bitwise equal"
again 0 "$first" --runs of_text --exact -- "bitwise equal" # of the cache
expect "results of repro" "$results" "$(field "$(bundle_in of_text)" 'run["results_sha256"]')"
again 0 "$(bundle_in of_text)" --runs twice --data text --exact -- "bitwise equal"
mv away.json tokenizer.json && mv text data

# Text that gives other tokens than the bundle says.
"$FP8LAB" run texts.lua --lib "$lib" --threads 1 --runs forged --keep-dir -q >/dev/null 2>log
dir=$(ls -d forged/*-texts-*/)
rm forged/*.tar.zst "$dir"{bagit.txt,bag-info.txt,manifest-sha256.txt,tagmanifest-sha256.txt}
rm -r forged/cache
python3 - "$dir/data/" <<'PY'
import json, sys
for name in ("experiment/ingest.json", "experiment/data.json", "run.json"):
    text = open(sys.argv[1] + name).read()
    if name.endswith("data.json") or "ingest" in name:
        record = json.load(open(sys.argv[1] + "experiment/ingest.json"))
        text = text.replace(record["files"]["bin"], record["files"]["bin"][::-1])
    open(sys.argv[1] + name, "w").write(text.replace('"status": "done"', '"status": "running"'))
PY
gives 0 close "$dir" --
again 2 "$(bundle_in forged)" --runs other --data data -- "gives other tokens here" "with hash"

# ---- extend --------------------------------------------------------------------------------------
gives 0 run texts.lua --lib "$lib" --threads 1 --runs long --set checkpoint.every=3 -- "done"
mv data away
gives 0 run --extend "$(bundle_in long)" --threads 1 --runs long --set train.steps=8 -- \
    "done  step 8"
mv away data
rm long/cache/*.idx
gives 0 run --extend "$(newest long)" --threads 1 --runs long --set train.steps=9 -- \
    "tokenising 2 files" "done  step 9"

[ "$failed" = 0 ] && echo "runs find their tokens again"
exit "$failed"
