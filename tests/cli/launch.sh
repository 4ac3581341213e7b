#!/bin/bash
# run --launch: the command line of each launcher as golden text; stand-ins that record what they
# were started with; exit codes and signals.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}" "${UPDATE:=}"
export NO_COLOR=1
unset CUDA_VISIBLE_DEVICES OMP_NUM_THREADS
tests=$PWD/tests/cli
lib=$PWD/experiments/lib
here=$TEST_TMP/here
export HOME=$TEST_TMP/home XDG_CONFIG_HOME=
mkdir -p "$here/data" "$HOME" "$TEST_TMP/elsewhere" "$TEST_TMP/dist/bin" "$TEST_TMP/dist/lib"
cp "$tests/tiny.lua" "$here"
cp -r "$lib" "$here/lib"
cp /bin/true "$TEST_TMP/dist/bin/fp8lab"
cd "$here" || exit 1
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# ---- golden text --------------------------------------------------------------------------------
cat >big.lua <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "big", model = tiny.llama, recipe = bf16,
  image = "nvcr.io/nvidia/cuda:13.0.1-devel-ubuntu24.04",
  hardware = { query = 'gpu.product_name="NVIDIA H200"', gpus = 8 },
  data = tokens { path = "../elsewhere/shard", format = "megatron" },
  train = { steps = 10, global_batch = 8, time_limit = "1h56m" },
}
LUA
mkdir "$TEST_TMP/words" && touch "$TEST_TMP/elsewhere/shard.bin" "$TEST_TMP/words/tokenizer.json"
cat >slurm.json <<'JSON'
{ "schema": "fp8lab.slurm/1", "flags": ["--account=lab", "--partition=gpu"],
  "nodes": [
    { "constraint": "h200", "facts": { "gpu.product_name": "NVIDIA H200", "gpu.count": 8 } },
    { "constraint": "gh200",
      "facts": { "gpu.product_name": "NVIDIA GH200 480GB", "gpu.count": 1 } },
    { "constraint": "b200", "facts": { "gpu.product_name": "NVIDIA B200", "gpu.count": 8 } } ] }
JSON
# 9 and 16 GPUs do not divide evenly over one number of nodes. 9 GPUs alone take three on each of
# three nodes of eight. 16 GPUs take two whole nodes of eight, of either kind.
cat >rows.lua <<'LUA'
local tiny = require "models.tiny"
return suite {
  name = "rows", model = tiny.llama, recipe = bf16, data = synthetic {},
  train = { steps = 10, global_batch = 144 }, matrix = { ["hardware.gpus"] = { 9, 16 } },
}
LUA
# A command and its output: each word with "--" on its own line, without paths of this machine.
show() {
    echo "\$ fp8lab $*"
    "$FP8LAB" "$@" 2>&1 | sed -e "s|$TEST_TMP|/T|g" -e "s|${lib%/experiments/lib}|/R|g" \
        -e "s|--user=[0-9:]*|--user=UID:GID|" -e "s|--userns=keep-id|--user=UID:GID|" \
        -e '/^docker\|^podman\|^apptainer\|^srun/s/ \(.\?\)--/\n    \1--/g'
    echo
}
{
    show run tiny.lua --backend cpu --launch docker --dry-run
    show run tiny.lua --launch podman --dry-run --runs ../elsewhere/runs --backend cpu
    show run tiny.lua --backend cpu --launch apptainer --dry-run
    show run tiny.lua --launch srun --dry-run --set 'about=two words'
    show run big.lua --launch docker --dry-run --program ../dist \
        --set sample.every=5 --set sample.prompts=Once \
        --set sample.tokenizer=../words/tokenizer.json
    show run big.lua --launch podman --dry-run --image registry.lab:5000/fp8lab:1
    show run big.lua --launch apptainer --dry-run --image nvcr.io/nvidia/pytorch:25.04-py3
    show run big.lua --launch srun --dry-run --program ../dist --slurm slurm.json
    show run big.lua --launch srun --dry-run --image ./big.sqsh --grace 600 \
        --launch-arg=--exclusive
    show run big.lua --launch srun --dry-run --image ubuntu:24.04 --backend cpu
    show run big.lua --launch srun --dry-run --image none --program ../dist --slurm slurm.json
    show run big.lua --set hardware.gpus=16 --set train.global_batch=16 --launch srun --dry-run \
        --image none --program ../dist --slurm slurm.json
    show run rows.lua --launch srun --dry-run --image none --program ../dist --slurm slurm.json
    for row in 9 16; do
        show run rows.lua --only rows-gpus-$row --launch srun --dry-run --image none \
            --program ../dist --slurm slurm.json
    done
    for launcher in docker podman apptainer srun; do
        show run big.lua --launch $launcher --dry-run --image fp8lab
    done
    for launcher in podman apptainer srun; do
        show run tiny.lua --backend cpu --launch $launcher --dry-run --image localhost/fp8lab:old
    done
    show run tiny.lua --backend cpu --launch apptainer --dry-run \
        --image docker-daemon:fp8lab:latest
    for launcher in docker podman apptainer srun; do
        show run tiny.lua --backend cpu --launch $launcher --dry-run \
            --image docker://registry.lab:5000/fp8lab:1
    done
    for scheme in oras:// library:// docker-daemon:; do
        for launcher in docker apptainer srun; do
            show run tiny.lua --backend cpu --launch $launcher --dry-run --image ${scheme}lab/fp8:1
        done
    done
    show run tiny.lua --backend cpu --launch podman --dry-run --image oras://lab/fp8:1
    show run tiny.lua --backend cpu --launch docker --dry-run --image docker://--privileged
    show run tiny.lua --launch podman --dry-run --image none
    show run big.lua --launch docker --dry-run
    show run big.lua --launch srun --dry-run --image x@sha256:0123
    show run big.lua --launch docker --dry-run --image --privileged
    show run tiny.lua --launch dcoker --dry-run
    show run tiny.lua --dry-run
    show run tiny.lua --launch docker --slurm slurm.json
    sed -i 's/NVIDIA H200/NVIDIA H100/' slurm.json
    show run big.lua --launch srun --dry-run --image ./x.sqsh --slurm slurm.json
    mkdir 'a,b' && cp tiny.lua 'a,b'
    cd 'a,b' && show run tiny.lua --lib ../lib --launch docker --dry-run
    cd ..
} >"$TEST_TMP/got"
golden=$tests/launch.txt
compare() { # FILE GOLDEN
    if [ -n "$UPDATE" ]; then
        cp "$1" "$2"
    elif ! diff -u "$2" "$1"; then
        fail "the commands are not those of tests/cli/${2##*/} (UPDATE=1 writes it anew)"
    fi
}
compare "$TEST_TMP/got" "$golden"
[ ! -e "$TEST_TMP/elsewhere/runs" ] || fail "--dry-run made a folder"

# ---- every shipped experiment, by every launcher -------------------------------------------------
# Each distinct command once, with the experiments that it starts. On a machine with GPUs, NVML is
# hidden: an experiment that names no GPU uses the machine's.
mkdir "$TEST_TMP/shipped" "$TEST_TMP/no-nvml"
: >"$TEST_TMP/no-nvml/libnvidia-ml.so.1"
cp -r "${lib%/lib}" "$TEST_TMP/shipped/experiments"
cd "$TEST_TMP/shipped" || exit 1
for launcher in docker podman apptainer srun; do
    for script in experiments/*.lua; do
        if ! LD_LIBRARY_PATH=$TEST_TMP/no-nvml "$FP8LAB" run "$script" --launch $launcher \
            --dry-run >"$TEST_TMP/command" 2>&1; then
            fail "$script, $launcher: $(cat "$TEST_TMP/command")" >&2
        fi
        name=${script##*/}
        sed -e "s|$TEST_TMP|/T|g" -e "s|$script|EXPERIMENT|" -e 's|--user=[0-9:]*|--user=UID:GID|' \
            -e 's|--userns=keep-id|--user=UID:GID|' \
            -e 's|--job-name=fp8lab-[^ ]*|--job-name=NAME|' -e "s|^|${name%.lua} |" \
            "$TEST_TMP/command"
    done
done >"$TEST_TMP/commands"
awk '{ name = $1; sub(/^[^ ]* /, ""); if (!($0 in who)) order[++n] = $0
              who[$0] = who[$0] " " name }
     END { for (i = 1; i <= n; i++) print order[i] "\n   " who[order[i]] "\n" }' \
    "$TEST_TMP/commands" | sed -e 's/ \(.\?\)--/\n    \1--/g' >"$TEST_TMP/got"
cd "$here" || exit 1
compare "$TEST_TMP/got" "$tests/launch_shipped.txt"

# ---- stand-ins ----------------------------------------------------------------------------------
mkdir "$TEST_TMP/bin"
cat >"$TEST_TMP/bin/stand-in" <<'SH'
#!/bin/bash
[ "$*" != --help ] || { echo "usage: ${PYXIS-"--container-image=NAME"}"; exit 0; }
printf '%s\n' "${0##*/}" "$@" >"$RECORD"
# Like apptainer: its child is in its group, and it forwards signals.
if [ "${CODE:-}" = wait ]; then
    trap 'sleep 0.5; kill -TERM $!; wait; exit 143' TERM # set before the start is visible
    (n=0 && trap 'echo stopped >>"$RECORD"; n=1' TERM && echo started >>"$RECORD"
        for ((i = 0; i < 600 && n == 0; i++)); do sleep 0.1; done
        for ((i = 0; i < 10; i++)); do sleep 0.1; done) &
    wait
fi
exit "${CODE:-0}"
SH
chmod +x "$TEST_TMP/bin/stand-in"
for tool in docker podman apptainer srun; do ln -s stand-in "$TEST_TMP/bin/$tool"; done
export RECORD=$TEST_TMP/record
touch fp8lab.sif
for tool in docker podman apptainer srun; do
    PATH=$TEST_TMP/bin:$PATH "$FP8LAB" run tiny.lua --set 'about=two words' --launch $tool \
        >"$TEST_TMP/out" 2>&1 || fail "$tool: exit code $?"
    [ "$(head -1 "$RECORD")" = $tool ] || fail "$tool was not started"
    grep -qx -- '--set=about=two words' "$RECORD" || fail "$tool: a word was split"
    [ "$(tail -1 "$RECORD")" = tiny.lua ] || fail "$tool: the script is not the last word"
done
[ -d runs ] || fail "there is no folder for runs to mount"

code_of() { # CODE TEXT LAUNCHER: our exit code and message for the exit code of the launcher
    local want=$1 text=$2 got
    shift 2
    PATH=$TEST_TMP/bin:$PATH "$FP8LAB" run tiny.lua --launch "$@" >"$TEST_TMP/out" 2>&1
    got=$?
    [ $got = "$want" ] || fail "--launch $*: exit code $got, not $want"
    [ -z "$text" ] || grep -qF -- "$text" "$TEST_TMP/out" || {
        fail "missing in the output: $text"
        cat "$TEST_TMP/out"
    }
}
CODE=3 code_of 3 "" docker
CODE=125 code_of 6 "docker itself failed" docker
CODE=127 code_of 6 "could not start fp8lab" podman
CODE=127 code_of 6 "could not start fp8lab" srun
PYXIS='' code_of 2 \
    "by Pyxis, NVIDIA's plugin for it, which is not installed here; --image none" srun
PYXIS='' code_of 0 "" srun --image none
[ "$(grep -cx "$(realpath "$FP8LAB")" "$RECORD")" = 1 ] || fail "--image none: not this program"
CODE=127 code_of 6 "the node could not start" srun --image none
PATH=/nonexistent "$FP8LAB" run tiny.lua --launch podman >"$TEST_TMP/out" 2>&1
[ $? = 2 ] || fail "a missing podman does not exit with 2"
grep -q "there is no podman in PATH" "$TEST_TMP/out" || fail "the error does not name podman"
rm fp8lab.sif
code_of 2 "\`make sif\` builds it" apptainer

# The batch script, as sbatch runs it.
PATH=$TEST_TMP/bin:$PATH SLURM_SUBMIT_DIR=$here bash "$tests/../../containers/fp8lab.sbatch" \
    x.lua --set a=b >"$TEST_TMP/out" 2>&1 || fail "fp8lab.sbatch: exit code $?"
[ "$(tail -6 "$RECORD" | tr '\n' ' ')" = "FP8LAB_STOP_GRACE=180 fp8lab run x.lua --set a=b " ] ||
    fail "fp8lab.sbatch does not pass its arguments on"
for flag in $(grep -oE -- '--(no-)?container-[a-z-]+' "$tests/../../containers/fp8lab.sbatch"); do
    grep -qF -- "$flag" "$golden" || fail "fp8lab.sbatch has $flag, --launch srun lacks it"
done
# The programs that the Apptainer definition calls exist.
for file in $(grep -oE 'containers/[a-z_]+\.sh' "$tests/../../containers/fp8lab.def"); do
    [ -x "$tests/../../$file" ] || fail "fp8lab.def calls $file"
done

await_start() {
    local i
    for ((i = 0; i < 600; i++)); do grep -qsx started "$RECORD" && return; sleep 0.1; done
    fail "the launcher never started"
}

# srun gets the signal that it forwards to the run, and we return the exit code of the run.
cat >"$TEST_TMP/bin/waiting" <<'SH'
#!/bin/bash
[ "$*" != --help ] || exit 0
trap 'exit 138' USR1
trap 'exit 9' TERM
echo started >"$RECORD"
for ((i = 0; i < 600; i++)); do sleep 0.1; done
SH
chmod +x "$TEST_TMP/bin/waiting" && ln -sf waiting "$TEST_TMP/bin/srun"
PATH=$TEST_TMP/bin:$PATH "$FP8LAB" run tiny.lua --launch srun >"$TEST_TMP/out" 2>&1 &
pid=$!
await_start
kill -TERM $pid
wait $pid
[ $? = 143 ] || fail "srun was stopped with exit code $?, not 143"
rm "$RECORD"

# A stop request is forwarded once.
CODE=wait PATH=$TEST_TMP/bin:$PATH "$FP8LAB" run tiny.lua --launch docker >"$TEST_TMP/out" 2>&1 &
pid=$!
await_start
kill -TERM $pid
wait $pid
[ $? = 143 ] || fail "stopped with exit code $?, not 143"
[ "$(grep -c stopped "$RECORD")" = 1 ] || fail "the stop request was not passed on once"
exit $failed
