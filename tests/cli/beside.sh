#!/bin/bash
# experiments/peers/beside.py: the table's arithmetic, each way in which PyTorch or we can fail, and
# that nothing is left behind. A stand-in is PyTorch; ours is the CPU backend on a small model.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
export NO_COLOR=1 TOKENS=128 MARK="beside-test-$$"
peers=$PWD/experiments/peers stand_in=$PWD/tests/support/stand_in/torch_peer.sh
experiments=$PWD/experiments
cd "$TEST_TMP" || exit 1
failed=0
fail() {
    echo "FAILED: $*"
    sed 's/^/    /' err | tail -6
    failed=1
}
small=(--program "$FP8LAB" --backend cpu --anywhere --only '*-bf16' --only '*-fp8.tensorwise'
    --set model.layers=1 --set model.width=64 --set model.heads=2 --set model.kv_heads=2
    --set model.ffn=64 --set model.vocab=256 --set model.seq_len=32
    --set train.global_batch=4 --set train.micro_batch=2 --set train.steps=5)

beside() { # MODE ARGS...: the stand-in in this mode
    python3 "$peers/beside.py" "$experiments/bench_llama_124m.lua" "${small[@]}" \
        --peer "bash $stand_in $1" "${@:2}" >out 2>err
}
expect() { # CODE WORDS MODE ARGS...
    local code=$1 words=$2 got
    shift 2
    rm -rf failing
    beside "$@" --out failing
    got=$?
    [ "$got" = "$code" ] || fail "$*: exit code $got, not $code"
    grep -qF -- "$words" err || fail "$*: missing in the output: $words"
    ! grep -q Traceback err || fail "$*: a traceback"
    none_left "$*"
}
# Every process that we started has MARK in its environment.
none_left() {
    local left i
    for ((i = 0; i < 1200; i++)); do # a killed process needs a moment to exit
        left=$(env -u MARK grep -lsaF "MARK=$MARK" /proc/[0-9]*/environ)
        [ -n "$left" ] || return 0
        sleep 0.05
    done
    fail "$1: still there: $(for left in $left; do tr '\0' ' ' <"${left%environ}cmdline"; done)"
}

# ---- the table -----------------------------------------------------------------------------------
beside steady --out table || fail "steady: exit code $?"
none_left steady
python3 - "$FP8LAB" <<'PY' || fail "the arithmetic of the table"
import glob, json, subprocess, sys
results = json.load(open("table/results.json"))
assert results["tokens_per_step"] == 128 and results["peer"] == "stand-in", results
turns = {"bf16": [100, 110, 121], "fp8.tensorwise": [1000, 1100, 1210]}
for recipe, speeds in turns.items():
    line = results["peers"][recipe]
    assert line["tokens_per_s"] == speeds and line["median"] == speeds[1], line
    assert abs(line["mean"] - sum(speeds) / 3) < 1e-9, line
    assert abs(line["spread"] - (speeds[2] - speeds[0]) / speeds[1]) < 1e-12, line
assert list(results["fp8lab"]) == ["bf16", "fp8.tensorwise"], results["fp8lab"].keys()
table = open("table/table.txt").read()
for row, line in results["fp8lab"].items():
    ours = []
    for turn in "12":
        (bundle,) = glob.glob(f"table/suite-{turn}/*-bench-llama-124m-{row}-*.tar.zst")
        shown = subprocess.run([sys.argv[1], "show", "--json", bundle], stdout=subprocess.PIPE)
        ours.append(json.loads(shown.stdout)["summary"]["tokens_per_s_median"])
    assert line["tokens_per_s"] == ours and line["beside"] == row, line
    assert abs(line["median"] - sum(ours) / 2) < 1e-9 * ours[0], line
    assert abs(line["ratio"] - sum(ours) / 2 / (sum(turns[row]) / 3)) < 1e-9 * ours[0], line
    assert f"fp8lab {row} " in table and f"{line['ratio']:.3f} x" in table, table
assert "mean of stand-in's turns, 110 (bf16), 1,103 (fp8.tensorwise)" in table, table
PY
cmp -s out table/table.txt || fail "stdout differs from table.txt"
turns=$(grep -oE 'stand-in [a-z0-9.]*: [0-9,]+|suite [0-9]' err | cut -d: -f1 | tr '\n' ' ')
each="stand-in bf16 stand-in fp8.tensorwise "
[ "$turns" = "${each}suite 1 ${each}suite 2 $each" ] ||
    fail "the measurements do not alternate: $turns"
beside steady --out apart --apart --suites 1 || fail "apart: exit code $?"
[ "$(grep -c ready apart/peer-bf16.jsonl)" = 2 ] || fail "apart: not started for each measurement"

# A recipe that the peer lacks: its rows are measured and have no ratio.
beside lacks --out lacks --suites 1 || fail "lacks: exit code $?"
none_left lacks
grep -qF "stand-in bf16 " lacks/table.txt && ! grep -qF "stand-in fp8" lacks/table.txt &&
    grep -qE "^fp8lab bf16 .* x  " lacks/table.txt && grep -qE "^fp8lab fp8" lacks/table.txt &&
    ! grep -qE "^fp8lab fp8.* x  " lacks/table.txt || fail "lacks: $(cat lacks/table.txt)"

# ---- failures ------------------------------------------------------------------------------------
expect 2 "the peer lacks the recipes of all these rows" nothing
expect 1 'ended with exit code 9 before it was "measured":' dies
grep -q "    it broke" err || fail "dies: the error lacks the last line of its output"
expect 3 "there is no such GPU" unfit
expect 1 'where "measured" with a positive tokens_per_s was due' garbage
expect 1 "printed 'xxxx" flood
expect 1 'was not "measured" within 0.5 s' hangs --measure-limit 0.5
TOKENS=64 expect 1 "takes 64 tokens a step, the experiment 128" steady
expect 1 "was not done within 1 s" steady --set train.steps=1000000 --suite-limit 1
expect 2 "--only x: the rows are bench-llama-124m-bf16, " steady --only x
expect 2 "there is no program /nowhere" steady --program /nowhere
expect 2 "is no fp8lab" steady --program true
# Without --program: the one of the tree that has this folder, in any working directory.
mkdir -p tree/experiments tree/bin
cp -R "$peers" tree/experiments/peers
python3 tree/experiments/peers/beside.py none.lua >out 2>err
[ $? = 2 ] && grep -q "no program .*/tree/build/release/fp8lab and no .*/tree/bin/fp8lab: " err ||
    fail "no program in the tree"
ln -s "$FP8LAB" tree/bin/fp8lab
python3 tree/experiments/peers/beside.py none.lua >out 2>err
grep -qF "none.lua" err && ! grep -q "no program" err || fail "the program of the tree"
python3 "$peers/beside.py" "$experiments/bench_llama_124m.lua" "${small[@]}" \
    --set model.norm=layernorm --out failing >out 2>err
[ $? = 2 ] && grep -qF "PyTorch's programs can train is 'rmsnorm'" err || fail "no RMSNorm"
expect 2 "is not for one GPU with BF16 weights" steady --set train.optimizer.state=f32 \
    --set train.optimizer.master=f32 --set train.grad_dtype=f32
expect 6 "cannot start /nowhere" steady --peer /nowhere
beside steady --out table
[ $? = 2 ] || fail "a folder that is not empty is accepted"

# A signal in the middle of a suite ends the suite, PyTorch, and the processes that PyTorch started.
rm -rf failing
python3 "$peers/beside.py" "$experiments/bench_llama_124m.lua" "${small[@]}" --out failing \
    --peer "bash $stand_in steady" --set train.steps=1000000 >out 2>err &
beside=$!
for ((i = 0; i < 1200; i++)); do
    grep -qs '"step":3,' failing/suite-1/*/data/metrics/train.jsonl && break
    sleep 0.05
done
kill -TERM $beside
wait $beside
code=$?
[ $code = 143 ] || fail "SIGTERM: exit code $code, not 143"
none_left SIGTERM
"$FP8LAB" verify -q failing/suite-1/*.tar.zst >out 2>>err ||
    fail "SIGTERM: our bundle does not verify"

# ---- the PyTorch program, without PyTorch --------------------------------------------------------
for file in "$peers"/*.py; do
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$file" 2>err || fail "$file"
done
python3 "$peers/torch_train.py" --help >out 2>err || fail "torch_train.py --help"
CUDA_VISIBLE_DEVICES='' python3 "$peers/torch_train.py" "$experiments/bench_llama_124m.lua" \
    --program "$FP8LAB" >out 2>err
code=$?
case $code in
6) grep -q "no PyTorch 2.6 or later in" err || fail "the error does not name the missing PyTorch" ;;
3) grep -q "sees no GPU" err || fail "the error does not name the missing GPU" ;;
*) fail "torch_train.py: exit code $code, not 3 or 6" ;;
esac
[ -z "$(find . -type p)" ] || fail "a pipe is left"
[ ! -e "$peers/__pycache__" ] || fail "compiled Python is left in the source tree"
exit $failed
