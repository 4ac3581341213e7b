#!/bin/bash
# long: 15
# repro:
# - the same bits from a bundle's own script, overrides, smoke run and data in any folder
# - the verdicts within tolerance, different and not comparable, with their exit codes
# - parts of a foreign bundle that are not used
set -u
. tests/cli/lib.sh
shown="out log"
# again CODE TEXT ARGS...: exit code and output of repro.
again() {
    local code=$1 text=$2 got
    shift 2
    "$FP8LAB" repro --threads 1 "$@" >out 2>log
    got=$?
    [ $got = "$code" ] || fail "repro $*: exit code $got, not $code"
    grep -qF -- "$text" out log || fail "repro $*: neither out nor log says: $text"
}
run() { # RUNS ARGS...: prints the bundle
    local runs=$1
    shift
    "$FP8LAB" run --backend cpu --threads 1 --runs "$runs" -q "$@" >/dev/null 2>log || fail "run $*"
    ls -d "$runs"/*.tar.zst
}

# ---- bitwise equal ------------------------------------------------------------------------------
mkdir -p src/lib data
cp "$root/tests/cli/tiny.lua" src
cp -r "$root/experiments/lib" src/
a=$(run a src/tiny.lua --set train.steps=8 --set 'about=with an override')
rm -r src # everything needed is in the bundle
again 0 "bitwise equal" "$a" --exact
identity=$("$FP8LAB" verify "$a" | sed -n 's/^  bundle //p')
expect "parent" "$identity" "$(field "$(newest runs)" 'run["parent"]')"
expect "results_sha256" "$(field "$a" 'run["results_sha256"]')" \
    "$(field "$(newest runs)" 'run["results_sha256"]')"
again 0 "bitwise equal" "$(newest runs)" # of a reproduction
again 0 '"verdict":"bitwise equal"' --json "$a"
[ -z "$(find runs -name '.repro*')" ] || fail "a working folder was left"

# Only the beginning: the schedule is that of the whole run, and no checkpoint stays.
again 0 "bitwise equal" "$a" --exact --steps 3 --runs begun
says "tiny, the first 3 of 8 steps" out
says "steps after 3 and the final weights were not compared" out
expect "what --steps leaves" 1 "$(find begun -mindepth 1 -maxdepth 1 -name '2*' | wc -l)"
cut=$(find begun -mindepth 1 -maxdepth 1 -name '2*')
"$FP8LAB" list --runs begun >out 2>&1 || fail "list: $(cat out)"
grep -q "was interrupted" out && fail "a repetition of the first steps: $(cat out)"
"$FP8LAB" run --resume "$cut" >out 2>&1
expect "--resume of it" 2 $?
says "repeated as many steps as repro --steps asked for" out
expect "what is still there" "$cut" "$(find begun -mindepth 1 -maxdepth 1 -name '2*')"
again 2 "steps" "$a" --steps 0

# No speed of a CPU is compared. Only --speed changes the exit code by that.
again 0 "  speed      not compared: both ran on a CPU" "$a"
again 3 "  speed      not compared: both ran on a CPU" "$a" --speed 5%
again 3 '"speed":{"band":0.05,' "$a" --speed 5% --json
again 2 "--speed: found '5'" "$a" --speed 5

# A row of a suite with --smoke: it stops in the middle and resumes.
mkdir suite
cp -r "$root/experiments/lib" suite/
cat >suite/s.lua <<'LUA'
local tiny = require "models.tiny"
return suite {
  name = "s", matrix = { recipe = { bf16, fp8.tensorwise } },
  model = tiny.llama { layers = 1, seq_len = 32 }, data = synthetic {},
  train = { steps = 6, global_batch = 2 },
}
LUA
"$FP8LAB" run suite/s.lua --smoke --runs s --backend cpu --threads 1 -q >/dev/null 2>log
again 0 "s-fp8.tensorwise, " s/*tensorwise*.tar.zst --exact

# ---- a GPU's arithmetic on the CPU ---------------------------------------------------------------
# Each recipe trains under it. The bundle names it, and repro takes it from there.
cat >arithmetic.lua <<'LUA'
local tiny = require "models.tiny"
return suite {
  name = "h", matrix = { recipe = { bf16, fp8.tensorwise, fp8.delayed, fp8.blockwise } },
  model = tiny.llama { layers = 1, seq_len = 32 }, data = synthetic {},
  train = { steps = 2, global_batch = 2 },
}
LUA
run h arithmetic.lua --lib suite/lib --arithmetic hopper >bundles
expect "bundles under hopper" 4 "$(wc -l <bundles)"
for h in $(cat bundles); do
    expect "$h" "hopper None" "$(field "$h" \
        'run["inputs"]["arithmetic"] + " " + str(run["inputs"]["choices"])')"
done
h=$(ls h/*delayed*.tar.zst)
again 0 "bitwise equal" "$h" --exact
decisions() { tar --zstd -xOf "$1" --wildcards '*/decisions.json' >decisions; }
decisions "$(newest runs)"
says '"arithmetic_verified": true' decisions
again 0 "inputs.arithmetic was hopper and is ada" "$h" --arithmetic ada
decisions "$(newest runs)"
says ', arithmetic ada (unverified)"' decisions
says '"arithmetic_verified": false' decisions
gives 2 run arithmetic.lua --lib suite/lib --backend cpu --arithmetic volta -- \
    "unknown arithmetic 'volta'; the arithmetics are reference, hopper, ada, sm_100, sm_120"
gives 2 run --resume x --backend cpu --arithmetic hopper -- "as it is: no --arithmetic"

# ---- data ---------------------------------------------------------------------------------------
seq 1 4000 >data/numbers.txt
mkdir text && cp -r suite/lib text/
cat >text/t.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "t", model = tiny.llama { layers = 1, seq_len = 32 }, recipe = bf16,
  data = text { paths = { "data/numbers.txt" } }, train = { steps = 3, global_batch = 2 },
}
LUA
t=$(run t text/t.lua)
mkdir -p moved/deep
mv data/numbers.txt moved/deep/others.txt
again 3 "--data DIR finds them" "$t"
grep -qF "data/numbers.txt" log || fail "the missing file is not named"
again 0 "bitwise equal" "$t" --data moved
[ "$(field "$(newest runs)" 'run["inputs"]["data"]')" = "$(field "$t" 'run["inputs"]["data"]')" ] ||
    fail "the data's hash differs"
seq 2 4001 | head -c "$(stat -c %s moved/deep/others.txt)" >data/numbers.txt # as long, other bytes
again 3 "the bundle's data are not here" "$t"

# A run whose script counts its path from a folder beside the data.
mkdir -p aside && cp -r text aside/ && sed -i 's|"data/num|"../moved/deep/num|' aside/text/t.lua
mv moved/deep/others.txt moved/deep/numbers.txt
beside=$(cd aside && run ../beside text/t.lua) && beside=${beside#../}
again 3 "  ../moved/deep/numbers.txt  " "$beside"
again 0 "bitwise equal" "$beside" --data moved

# ---- other bits ---------------------------------------------------------------------------------
# A bundle that differs from its run: a file in the run directory is changed, and the run is closed
# again.
forge() { # NAME FILE SED ARGS...: prints the bundle
    local name=$1 file=$2 change=$3 dir
    shift 3
    "$FP8LAB" run --backend cpu --threads 1 --runs "$name" --keep-dir -q "$@" >/dev/null 2>log
    dir=$(ls -d "$name"/*/)
    rm "$name"/*.tar.zst "$dir"{bagit.txt,bag-info.txt,manifest-sha256.txt,tagmanifest-sha256.txt}
    sed -i "$change" "$dir$file"
    rm -f "$dir"data/source/dirty.patch # of this source tree
    [ -z "${PATCH:-}" ] || cp "$PATCH" "$dir"data/source/dirty.patch
    sed -i 's/"status": "done"/"status": "running"/' "$dir"data/run.json
    python3 - "$dir"data/ <<'PY' # the hashes of the changed configuration
import hashlib, json, sys
data = sys.argv[1]
run = json.load(open(data + "run.json"))
def sha256(text): return hashlib.sha256(text).hexdigest()
run["inputs"]["config"] = sha256(open(data + "experiment/resolved.json", "rb").read())
run["inputs_sha256"] = sha256(
    json.dumps(run["inputs"], sort_keys=True, separators=(",", ":")).encode())
json.dump(run, open(data + "run.json", "w"), indent=1)
PY
    "$FP8LAB" close "$dir" >/dev/null 2>log || fail "close"
    ls "$name"/*.tar.zst
}
train=data/metrics/train.jsonl
cp -r suite/lib lib
sed 's/steps = 12/steps = 4/; s/checkpoint = .*//' "$root/tests/cli/tiny.lua" >forge.lua
loss='"loss":\([0-9]\.[0-9]\{3\}\)[0-9]*,"loss_bits":"........'
# A slightly different loss, with its bits: numbers that contradict their bits cannot be closed.
nearby=$(tar --zstd -xOf "$(run plain forge.lua)" --wildcards '*/train.jsonl' | python3 -c '
import json, struct, sys
bits = struct.pack(">f", 1.0001 * json.loads(sys.stdin.readlines()[1])["loss"])
print("\"loss\":%.17g,\"loss_bits\":\"%s" % (*struct.unpack(">f", bits), bits.hex()))')
b=$(forge near $train "2s/$loss/$nearby/" forge.lua)
again 0 "within tolerance" "$b"
grep -q "first bit  step 2, train.loss" out || fail "the first divergent step is not named"
again 5 "within tolerance" "$b" --exact
c=$(forge far $train "3s/$loss/\"loss\":9.0,\"loss_bits\":\"41100000/" forge.lua)
again 5 "different" "$c"
again 0 "bitwise equal" "$c" --exact --steps 2
again 5 "different" "$c" --steps 3
grep -q "beyond the tolerance from step 3" out || fail "the step beyond the tolerance is not named"
resolved=data/experiment/resolved.json
again 0 "keys newer than the bundle, at their defaults: train.shard" \
    "$(forge older $resolved 's/,"shard":"optimizer"//' forge.lua)" --exact
grep -q "config.train.shard is newer than the bundle; its default is optimizer" out ||
    fail "the newer key is no reason"
again 0 "another configuration here than in the bundle: train.head_chunk" \
    "$(forge other $resolved 's/"head_chunk":[0-9]*/"head_chunk":7/' forge.lua)"
# An exact run of a GPU is repeated under its arithmetic; on a CPU exact changes nothing.
b=$(forge exact data/decisions.json 's/"backend": "cpu"/"backend": "cuda"/' forge.lua \
    --set train.exact=true)
tar --zstd -xOf "$b" --wildcards '*' | grep -qaF "a GPU need --arithmetic hopper" ||
    fail "nothing says what train.exact means on a CPU"
again 0 "inputs.arithmetic" "$b" --backend cpu
decisions "$(newest runs)"
says '"arithmetic": "hopper"' decisions

# The band of a reference widens the tolerance; another bundle's is refused.
for seed in 1 2 3; do
    run "band$seed" forge.lua --set train.seed=$seed >/dev/null
done
"$FP8LAB" compare -q --seed-band band.json band[123]/*.tar.zst >/dev/null 2>log || fail "no band"
again 0 "bitwise equal" band1/*.tar.zst --band band.json
again 2 "is the seed band of bundle" "$c" --band band.json
"$FP8LAB" compare -q --seed-band no.json band1/*.tar.zst band2/*.tar.zst >out 2>log
[ ! -e no.json ] || fail "a band of two seeds was written"
of_c() { # FILE BANDS: writes them as the band of $c
    python3 - "$("$FP8LAB" verify "$c" | sed -n 's/^  bundle //p')" "$@" <<'PY'
import json, sys
band = json.load(open("band.json"))
band["reference"], band["band"] = sys.argv[1], json.loads(sys.argv[3])
json.dump(band, open(sys.argv[2], "w"))
PY
}
of_c wide.json '[0, 0, 1.5, 0]'
again 0 "within tolerance" "$c" --band wide.json
says "  band       wide.json" out
# One that only lies beside the bundle, perhaps a stranger's, does not make other bits equal.
cp wide.json "${c%.tar.zst}.band.json"
again 5 "different" "$c"
says "band.json: not used, since equal bits were promised and no --band names it" out
again 0 "within tolerance" "$c" --band "${c%.tar.zst}.band.json"
of_c "${c%.tar.zst}.band.json" '[0, 0, 5, 0]'
again 2 "${c%.tar.zst}.band.json: the band of step 3 is 5, above 0.5 of the loss, 9: no spread" "$c"

# ---- not comparable -----------------------------------------------------------------------------
q=$(run q forge.lua --set 'hardware.query=gpu.count>=99' --anywhere)
again 3 "gpu.count" "$q"
again 3 "the bundle's run did not match either, and was made with --anywhere: give it" "$q"
again 3 '"verdict":"not comparable"' "$q" --json
again 0 "bitwise equal" "$q" --anywhere
grep -q "^$" log && fail "an empty line after the missing facts"
head -c 3000 "$a" >short.tar.zst
again 4 "truncated" short.tar.zst
"$FP8LAB" run forge.lua --backend cpu --runs live --keep-dir -q >/dev/null 2>log
rm live/*/manifest-sha256.txt
again 6 "not finished" live/*/
again 2 "neither a path" nothing

# ---- foreign bundles ----------------------------------------------------------------------------
again 4 'entry 1, data/../../numbers.txt, is not a path with a SHA-256; ".." may stand only' \
    "$(forge climb data/experiment/data.json 's|data/num|data/../../num|' text/t.lua)"
# Its script names a file that it does not list: 16 GiB of zeros, of which no byte is read.
unlisted=$(forge unlisted data/experiment/data.json '1s/.*/[]/;2,$d' text/t.lua)
truncate -s 16G data/numbers.txt
again 3 "the bundle lists no file of its data" "$unlisted"
rm data/numbers.txt && seq 1 4000 >data/numbers.txt
again 4 "names data at data/../../numbers.txt" "$(forge above data/experiment/main.lua \
    's|data/numbers.txt|data/../../numbers.txt|' text/t.lua)"
# A path that begins with ".." stays in the work folder: the file that lies there is not read.
again 3 "below/../data/numbers.txt: No such file" "$(forge beside data/experiment/main.lua \
    's|data/numbers.txt|../data/numbers.txt|' text/t.lua)"
again 3 "--anywhere runs it regardless" "$(forge asks data/experiment/main.lua \
    's/experiment {/experiment { hardware = { query = "gpu.count>=99" },/' forge.lua)"
again 2 "does not resolve here" \
    "$(forge script data/experiment/main.lua 's/experiment {/io.open {/' forge.lua)"
again 2 "LD_PRELOAD" "$(forge env data/experiment/main.lua \
    's/experiment {/experiment { env = { LD_PRELOAD = "x" },/' forge.lua)"
mkdir bin
printf '#!/bin/sh\ntouch "%s/started"\n' "$TEST_TMP" >bin/docker
chmod +x bin/docker
for tool in podman apptainer srun make; do cp bin/docker bin/$tool; done
i=$(run image forge.lua --set image=evil:1)
PATH=$TEST_TMP/bin:$PATH again 0 "bitwise equal" "$i"
[ ! -e started ] || fail "repro started a program that the bundle names"

# --patch: the bundle's commit of a tree, with its patch, is built and runs the reproduction.
mkdir tree
cat >tree/Makefile <<'MAKE'
build/release/fp8lab: program
	mkdir -p build/release && cp program build/release/fp8lab
MAKE
printf '#!/bin/sh\necho "of the commit: $*"\nexit 4\n' >tree/program
chmod +x tree/program
git=(git -C tree -c user.name=t -c user.email=t@localhost -c init.defaultBranch=main)
"${git[@]}" init -q && "${git[@]}" add . && "${git[@]}" commit -qm one
sed -i 's/commit/patch/; s/exit 4/exit 5/' tree/program
"${git[@]}" diff >changes.patch
commit="s/\"commit\": \"[0-9a-z]*/\"commit\": \"$("${git[@]}" rev-parse HEAD)/"
p=$(forge clean data/source/commit.json "$commit" forge.lua)
again 4 "of the commit: repro --threads=1 --exact $p" "$p" --patch tree --exact
p=$(PATCH=changes.patch forge patched data/source/commit.json "$commit" forge.lua)
again 5 "of the patch: repro --threads=1 --exact $p" "$p" --patch tree --exact
again 2 "checking out the bundle's commit" "$a" --patch tree
again 2 "one of them" "$p" --patch tree --launch docker
RANK=1 WORLD_SIZE=2 again 2 "torchrun started 2 tasks, but repro is one process" "$a"
again 2 "the bundle names no image" "$a" --launch docker --image --dry-run
again 2 "may hold no fp8lab" "$i" --launch docker --image --dry-run
again 0 "--mount=type=bind,source=$TEST_TMP/a/" "$a" --launch podman --dry-run
grep -qF "source=$TEST_TMP," out && fail "the working directory is mounted without --mount"
again 0 "source=$TEST_TMP,target=$TEST_TMP,readonly" "$a" --launch podman --mount --dry-run

exit $failed
