#!/bin/bash
# experiments/peers/llmc.py: the speed that it reads out of llm.c's lines, what it refuses to train,
# each way in which llm.c can fail, and that nothing is left behind. A stand-in prints its lines.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
export NO_COLOR=1 LLMC_MODE=steady MARK="llmc-test-$$"
peers=$PWD/experiments/peers experiments=$PWD/experiments
stand_in=$PWD/tests/support/stand_in/train_gpt2cu.sh
cd "$TEST_TMP" || exit 1
mkdir tmp
export TMPDIR=$PWD/tmp
failed=0
fail() {
    echo "FAILED: $*"
    sed 's/^/    /' err | tail -6
    failed=1
}

llmc() { # ARGS...: with the stand-in as llm.c
    python3 "$peers/llmc.py" "$experiments/bench_gpt2_124m.lua" --program "$FP8LAB" \
        --llmc "$stand_in" "$@" >out 2>err
}
ours() { # every process that we started has MARK in its environment
    env -u MARK grep -lsaF "MARK=$MARK" /proc/[0-9]*/environ
}
nothing_left() {
    [ -z "$(ls tmp)" ] || fail "$1: left in the temporary folder: $(ls tmp)"
    [ -z "$(ours)" ] || fail "$1: still there: $(ours)"
}
expect() { # CODE WORDS ARGS...
    local code=$1 words=$2 got
    shift 2
    llmc "$@"
    got=$?
    [ $got = "$code" ] || fail "$LLMC_MODE $*: exit code $got, not $code"
    grep -qF -- "$words" err || fail "$LLMC_MODE $*: nobody says: $words"
    ! grep -q Traceback err || fail "$LLMC_MODE $*: a traceback"
    nothing_left "$LLMC_MODE $*"
}
lines() { # WHAT: out is the JSON lines for which this Python expression holds
    python3 -c '
import json, sys
lines = [json.loads(line) for line in open("out")]
assert eval(sys.argv[1]), lines' "$1" 2>>err || fail "not so: $1"
}

# ---- the speed -----------------------------------------------------------------------------------
ready='lines[0]["event"] == "ready" and lines[0]["name"] == "llm.c"
    and lines[0]["device"] == "NVIDIA stand-in" and lines[0]["tokens_per_step"] == 32768'
printf 'measure\nmeasure\nquit\nmeasure\n' | llmc --resident || fail "resident: exit code $?"
lines "($ready) and len(lines) == 3 and lines[1] == lines[2]"
lines 'lines[0]["flags"] == "-w 0 -r 0 -ge 1"'
lines '{**lines[1], "tokens_per_s": round(lines[1]["tokens_per_s"])} == {"event": "measured",
    "recipe": "bf16", "tokens_per_s": round(32768 / 0.059), "step_ms_median": 59.0,
    "step_ms_min": 49.0, "step_ms_max": 89.0, "loss": 10.987654}'
nothing_left resident
LLMC_MODE=unfused llmc --steps 13 || fail "unfused: exit code $?"
lines "($ready)"' and lines[0]["flags"] == "-w 0 -r 0 -ge 0" and len(lines) == 2'
lines 'lines[1]["step_ms_median"] == 60'
grep -qF "llmc: -w 0 -r 0 -ge 1: it ended with exit code 1" err || fail "unfused: nobody says so"
LLMC=$stand_in expect 0 "-e d12" --llmc ''
llmc --recipe fp8.tensorwise || fail "another recipe: exit code $?"
lines 'lines == [{"event": "lacks", "name": "llm.c", "recipe": "fp8.tensorwise"}]'

# ---- what it does not train ----------------------------------------------------------------------
expect 2 "model.layers is 6; all that llmc.py can train is 12" --set model.layers=6
expect 2 "train.optimizer.master is 'f32'" --set train.optimizer.master=f32
expect 2 "hardware.gpus is 4" --set hardware.gpus=4 --set train.global_batch=128
expect 2 "model.norm is 'rmsnorm'" --set model.norm=rmsnorm
expect 2 "no --device cpu" --device cpu
expect 2 "--warmup is at least 0, and less than" --warmup 40

# ---- failures of llm.c ---------------------------------------------------------------------------
expect 2 "there is no program '/nowhere': --llmc or LLMC" --llmc /nowhere
LLMC='' expect 2 "there is no program ''" --llmc ''
echo "no program" >text && chmod +x text
expect 6 "cannot start $PWD/text: Exec format error" --llmc ./text
LLMC_MODE=dies expect 1 "    CUDA driver version is insufficient" # its last words
LLMC_MODE=garbage expect 1 "not 20 steps, each with a loss and a time"
LLMC_MODE=nan expect 1 "not 20 steps, each with a loss and a time"
LLMC_MODE=short expect 1 "not 20 steps, each with a loss and a time"
LLMC_MODE=hangs expect 1 "not done within 0.3 s (--run-limit)" --run-limit 0.3
echo stop | llmc --resident
[ $? = 2 ] && grep -qF "measure or quit, not 'stop'" err || fail "stop is a request"
nothing_left stop

# A signal ends llm.c and clears its files away.
LLMC_MODE=hangs python3 "$peers/llmc.py" "$experiments/bench_gpt2_124m.lua" --program "$FP8LAB" \
    --llmc "$stand_in" >out 2>err &
for ((i = 0; i < 1200; i++)); do
    cat $(ours | sed 's/environ$/comm/') /dev/null 2>/dev/null | grep -qx sleep && break
    sleep 0.05
done
kill -TERM $!
wait $!
code=$?
[ $code = 143 ] || fail "SIGTERM: exit code $code, not 143"
[ $i -lt 1200 ] || fail "SIGTERM: llm.c was never started"
nothing_left SIGTERM
exit $failed
