#!/bin/bash
# long: 3
# advise: five lines that hold without a GPU, the forecast beside what an H200 did, evidence, and
# what it says of files, machines and scripts that do not help.
set -u
. "$PWD/tests/cli/lib.sh"
cd "$root" || exit 1
unset XDG_CACHE_HOME
runs=$TEST_TMP/runs
h200="--facts tests/facts/h200.json --runs $runs"
bench="--bench experiments/reference/figures/bench_h200.json"
out=$TEST_TMP/out shown=log

advise() { # CODE ARGUMENTS...: its output in $out
    local code=$1 got
    shift
    "$FP8LAB" advise "$@" >"$out" 2>"$TEST_TMP/log"
    got=$?
    [ "$got" = "$code" ] || fail "exit code $got, not $code: advise $*"
}

case_name="forecast" # within 10 % of each measured row; a rough one within 25 %
n=0
while IFS='|' read -r arguments rows _; do
    [ "${arguments:0:1}" = '#' ] && continue
    set -f
    # shellcheck disable=SC2086 # several words
    advise 0 experiments/$arguments --facts tests/facts/h200x8.json --runs "$runs" $bench --json
    set +f
    mv "$out" "$TEST_TMP/forecast.$n"
    echo "$rows" >"$TEST_TMP/measured.$n"
    n=$((n + 1))
done <tests/cli/advise_h200.txt
files=$n
# bench_h200.json's rows of which a Python expression is true: of `name`, `recipe`, and `first`, the
# 21 rows that were measured first.
bench_rows() {
    python3 - "$1" <<'PY'
import json, sys
bench = json.load(open("experiments/reference/figures/bench_h200.json"))
four = "bf16", "fp8.tensorwise", "fp8.delayed", "fp8.blockwise"
def wanted(row):
    first = row["name"].startswith("bench-") and row["recipe"] in four
    return eval(sys.argv[1], {"name": row["name"], "recipe": row["recipe"], "first": first})
bench["rows"] = [row for row in bench["rows"] if wanted(row)]
json.dump(bench, sys.stdout)
PY
}
# GPT-2 without its own rows: some of its operators were never measured, and others stand in.
bench_rows 'first and "gpt2" not in name' >"$TEST_TMP/no_gpt2.json"
# shellcheck disable=SC2086
advise 0 experiments/bench_gpt2_124m.lua $h200 --bench "$TEST_TMP/no_gpt2.json" --json
mv "$out" "$TEST_TMP/forecast.$n"
grep '^bench_gpt2' tests/cli/advise_h200.txt | cut -d'|' -f2 >"$TEST_TMP/measured.$n"
n=$((n + 1))
# A step under 1 ms without its own rows: the forecast must say that it is rough.
bench_rows '"sft" not in name' >"$TEST_TMP/no_sft.json"
# shellcheck disable=SC2086
advise 0 experiments/sft_quickstart.lua $h200 --bench "$TEST_TMP/no_sft.json" --json
mv "$out" "$TEST_TMP/forecast.$n"
grep '^sft_quickstart' tests/cli/advise_h200.txt | sed 's/.*| bf16/rough bf16/; s/|.*//' \
    >"$TEST_TMP/measured.$n"
n=$((n + 1))
python3 - "$TEST_TMP" "$n" "$files" >"$out" <<'PY' || fail "not within 10 %, or 25 % where rough"
import json, sys
errors = {10: [], 25: []}
files = int(sys.argv[3]) # the rest has no rows of its own, and may be rough or not
for i in range(int(sys.argv[2])):
    rows = json.load(open("%s/forecast.%d" % (sys.argv[1], i)))["rows"]
    forecast = {row["recipe"]: row["forecast"] for row in rows}
    words = open("%s/measured.%d" % (sys.argv[1], i)).read().split()
    rough = words[0] == "rough"
    for word in words[rough:]:
        recipe, tokens_per_s = word.split("=")
        if rough or i < files:
            assert forecast[recipe]["rough"] == rough, (i, recipe)
        error = float(tokens_per_s) / forecast[recipe]["tokens_per_s"] - 1
        errors[25 if rough else 10].append(error)
        print("%+5.1f %%  row %d, %s" % (100 * error, i + 1, recipe))
    for row in rows: # gradients and weights cross the link; with one GPU nothing does
        assert (row["comm_bytes"] > 3e8) == (row["ranks"] > 1) == (row["comm_bytes"] > 0), row
counts = len(errors[10]), len(errors[25])
assert counts == (75 + 4, 3), counts # GPT-2 without its own rows has four more
sys.exit(any(max(map(abs, errors[most])) > most / 100 for most in errors))
PY

case_name="five lines" # with times of four recipes, as before the others were measured
bench_rows first >"$TEST_TMP/four.json"
# shellcheck disable=SC2086
advise 0 experiments/bench_llama3_8b_8layers.lua $h200 --bench "$TEST_TMP/four.json"
expect "lines" 5 "$(wc -l <"$out")"
says "Use fp8.delayed: 1" "$out"
untried="its operators are not checked against the CPU's on NVIDIA H200 yet"
untried="$untried (\`fp8lab run\` does it before its first step)"
says "x bf16; native; $untried; needs 36.4 GiB of 140.4 GiB." "$out"
says "Loss: no runs here show whether it holds;" "$out"
says "Then: fp8.tensorwise 1" "$out"
says "fp8.mxfp8 (emulated: this chip has no 1x32 scales)" "$out"
says "Times: forecast from 21 steps measured on NVIDIA H200, to about 10 %; " "$out"

case_name="older files" # do not say what attention in BF16 writes and reads
for d_o in '' fp9; do
    python3 - "$d_o" >"$TEST_TMP/older$d_o.json" <<'PY'
import json, sys
bench = json.load(open("experiments/reference/figures/bench_h200.json"))
bench["rows"] = [row for row in bench["rows"] if row["name"].startswith("bench-llama3-small")]
for attention in (work.get("attention") for row in bench["rows"] for work in row["operators"]):
    if attention:
        del attention["out"], attention["d_o"]
        attention.update({"d_o": sys.argv[1]} if sys.argv[1] else {})
json.dump(bench, sys.stdout)
PY
done
bench_rows 'name.startswith("bench-llama3-small")' >"$TEST_TMP/newer.json"
for file in older newer; do
    # shellcheck disable=SC2086
    advise 0 experiments/bench_llama3_small.lua $h200 --bench "$TEST_TMP/$file.json" --json
    mv "$out" "$TEST_TMP/$file"
done
cmp "$TEST_TMP/older" "$TEST_TMP/newer" || fail "an older file has another forecast"
# shellcheck disable=SC2086
advise 2 experiments/bench_llama3_small.lua $h200 --bench "$TEST_TMP/olderfp9.json"
grep -q '"d_o" is not a word that this version knows' "$TEST_TMP/log" || fail "d_o: not named"

case_name="bytes between ranks" # over NVLink are in the forecast
# shellcheck disable=SC2086
advise 0 experiments/grad_fp8.lua --only grad-fp8-bf16-f32-seed1 --runs "$runs" $bench \
    --facts tests/facts/h200x8.json
says "to about 10 %; with 3.72 ms for 0.7 GB between ranks, as if nothing hid them" "$out"
# Over slower links they are not; they make the forecast of a short step rough.
sed '/"gpu.nvlink"/s/true/false/' tests/facts/h200x8.json >"$TEST_TMP/pcie.json"
links='"gpu.links": "nvlink x18: 0-1; sys: 0-2 1-2"'
sed "s/.*\"gpu.nvlink\".*/&\n  $links,/" tests/facts/h200x8.json >"$TEST_TMP/pairs.json"
for machine in pcie pairs; do
    # shellcheck disable=SC2086
    advise 0 experiments/grad_fp8.lua --only grad-fp8-bf16-f32-seed1 --runs "$runs" $bench \
        --facts "$TEST_TMP/$machine.json"
    grep -q "as if nothing hid them" "$out" && fail "$machine: a rate is assumed"
done
# shellcheck disable=SC2086
advise 0 experiments/grad_fp8.lua --only grad-fp8-bf16-f32-seed1 --runs "$runs" $bench \
    --facts "$TEST_TMP/pcie.json"
says ": rough, since the bytes between ranks (0.7 GB) take a part of it that is not forecast" "$out"
! grep -q "comes on top" "$out" || fail "said twice"
# shellcheck disable=SC2086
advise 0 experiments/h200_recipes.lua --set hardware.gpus=2 --set train.global_batch=32 \
    --runs "$runs" $bench --facts "$TEST_TMP/pcie.json"
says ", to about 10 %; " "$out"
says "; what 41.2 GB between ranks cannot hide comes on top" "$out"

case_name="a rough forecast" # is said to be, with the reason and what that means
# shellcheck disable=SC2086
advise 0 experiments/sft_quickstart.lua $h200 --bench "$TEST_TMP/four.json"
says "; none is forecast to be 10 %, or where rough 25 %, faster." "$out"
says ", to about 25 %: rough, since its operators are over 8 times shorter or longer than" "$out"
# Without its own rows: BF16 misses a tenth of GPT-2's step, the others more.
# shellcheck disable=SC2086
advise 0 experiments/bench_gpt2_124m.lua $h200 --bench "$TEST_TMP/no_gpt2.json"
says ", to about 10 %; roughly, to about 25 %: fp8.delayed, fp8.tensorwise, fp8.blockwise" "$out"
# Steps of FP8 alone: BF16's GEMMs have no time, and the best one's operators are another recipe's.
python3 - "$TEST_TMP/no_gpt2.json" >"$TEST_TMP/delayed.json" <<'PY'
import json, sys
bench = json.load(open(sys.argv[1]))
bench["rows"] = [row for row in bench["rows"] if row["recipe"] == "fp8.delayed"]
json.dump(bench, sys.stdout)
PY
# shellcheck disable=SC2086
advise 0 experiments/bench_gpt2_124m.lua $h200 --bench "$TEST_TMP/delayed.json"
grep -qE ", to about 25 %: rough, since [1-9][0-9] % of the step was not measured in this recipe" \
    "$out" || fail "no share that was assumed"

case_name="an emulated recipe" # is not forecast to be faster than bf16
cat >"$TEST_TMP/one.lua" <<'LUA'
local tiny = require "models.tiny"
return experiment {
  name = "one", model = tiny.llama { layers = 1 }, recipe = bf16, data = synthetic {},
  train = { steps = 2, global_batch = 2, micro_batch = 2 },
}
LUA
# shellcheck disable=SC2086
advise 0 "$TEST_TMP/one.lua" --lib experiments/lib $h200 $bench
grep -qE "fp8.mxfp8 emulated, 0\.[0-9]+ ms \(1.00 x bf16\)" "$out" || fail "not the time of bf16"
# shellcheck disable=SC2086
advise 0 "$TEST_TMP/one.lua" --lib experiments/lib $h200 $bench --json
python3 - "$out" >"$TEST_TMP/log" 2>&1 <<'PY' || fail "an emulated row that is faster than bf16"
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
bf16 = [row for row in rows if row["recipe"] == "bf16"][0]["forecast"]["step_us"]
emulated = [row for row in rows if row["way"] == "emulated"]
assert len(emulated) == 2, rows
for row in emulated:
    assert row["forecast"]["step_us"] >= bf16 and row["speed"] <= 1, row
    assert row["reason"].startswith("emulated: this chip has no "), row
PY

case_name="FP8 attention" # is emulated, however the recipe's products run
attention="--only fp8-attention-tensorwise-fp8-seed1 --runs $runs"
# shellcheck disable=SC2086
advise 0 experiments/fp8_attention.lua $attention --facts tests/facts/h200.json $bench --detail
grep -qE "^Use fp8.delayed: (29|30).[0-9] ms per step, " "$out" || fail "no forecast"
says "; native; $untried; FP8 attention is emulated here; needs " "$out"
says '. Attention in BF16 is faster: drop precision = "fp8" (on an H200 a step of ' "$out"
grep -qE "^fp8.tensorwise .*; FP8 attention is emulated here" "$out" || fail "not in the table"
attention_json() { # FACTS: the way and whether there is a hint, of two rows
    # shellcheck disable=SC2086
    advise ${2:-0} experiments/fp8_attention.lua $attention --facts "$1" --json
    python3 -c 'import json, sys
rows = {row["recipe"]: row for row in json.load(open(sys.argv[1]))["rows"]}
for recipe in "fp8.delayed", "bf16":
    hint = rows[recipe]["attention_hint"]
    print(rows[recipe]["attention"], hint and "drop precision" in hint, end="; ")' "$out"
}
expect "as JSON" "emulated True; None None; " "$(attention_json tests/facts/h200.json)"
sed 's/"gpu.cc": "9.0"/"gpu.cc": "10.0"/' tests/facts/h200.json >"$TEST_TMP/sm_100.json"
# shellcheck disable=SC2086
advise 0 experiments/fp8_attention.lua $attention --facts "$TEST_TMP/sm_100.json"
says "; FP8 attention runs in cuDNN if its plan is deterministic, else emulated; needs " "$out"
! grep -q "drop precision" "$out" || fail "a hint where cuDNN may serve"
expect "as JSON" "cudnn or emulated None; None None; " "$(attention_json "$TEST_TMP/sm_100.json")"
# shellcheck disable=SC2086
advise 3 experiments/fp8_attention.lua $attention --facts tests/facts/laptop.json
says "Use fp8.delayed: emulated; needs " "$out"
cp "$out" "$TEST_TMP/laptop"
expect "as JSON" "None None; None None; " "$(attention_json tests/facts/laptop.json 3)"
! grep -q "emulated here\|in cuDNN\|drop precision" "$TEST_TMP/laptop" ||
    fail "the CPU defines FP8 attention"

case_name="exact kernels" # take up to twice as long as those of the measured steps
# shellcheck disable=SC2086
advise 0 experiments/exact.lua $h200 $bench
says "Use bf16: without times it is the safe choice" "$out"
says "Times: none, since train.exact takes other kernels than those that were measured" "$out"
! grep -q "measures one recipe" "$out" || fail "a command that cannot help"

case_name="a recipe that falls back" # to bf16 in each GEMM takes bf16's time, and is not emulated
fall="--set recipe=fp4.nvfp4 --set recipe.fallback=bf16"
# shellcheck disable=SC2086
advise 0 experiments/bench_llama3_8b_8layers.lua $h200 $bench $fall --detail
says "fp4.nvfp4 falls back to bf16" "$out"
says "fp4.nvfp4        fallback  " "$out"
says "; falls back to bf16: this chip has no FP4 tensor cores" "$out"
# shellcheck disable=SC2086
advise 0 experiments/bench_llama3_8b_8layers.lua $h200 $bench $fall --json
python3 - "$out" >"$TEST_TMP/log" 2>&1 <<'PY' || fail "not the time and memory of bf16"
import json, sys
row = {row["recipe"]: row for row in json.load(open(sys.argv[1]))["rows"]}
bf16, fp4 = row["bf16"], row["fp4.nvfp4"]
assert fp4["forecast"] == bf16["forecast"] and fp4["way"] == "fallback", fp4
assert fp4["bytes"] == bf16["bytes"], (fp4["bytes"], bf16["bytes"])
assert row["fp8.mxfp8"]["way"] == "emulated"
PY
# Where the chip multiplies FP4, nothing falls back; nor does it on a CPU, the reference.
# shellcheck disable=SC2086
advise 0 experiments/bench_llama3_8b_8layers.lua --facts "$TEST_TMP/sm_100.json" $fall --detail
says "fp4.nvfp4        native " "$out"
advise 0 experiments/quickstart.lua --facts tests/facts/laptop.json --runs "$runs" --detail \
    --set recipe=fp8.blockwise --set recipe.fallback=bf16
says "fp8.blockwise    emulated " "$out"

case_name="no measurements"
# shellcheck disable=SC2086
advise 0 experiments/bench_llama3_8b_8layers.lua $h200 --detail --set model.layers=4
says "Use bf16: without times it is the safe choice; $untried; needs" "$out"
says "fp8.blockwise    native    not tried " "$out"
grep -q "^Then: floors, not forecasts: bf16 .*fp8.mxfp8 [0-9.]* ms (emulated), " "$out" ||
    fail "not named as emulated"
says "Not: nothing is excluded." "$out" # a recipe with a floor could be used
grep -qE "^fp8.delayed .*; no time can be forecast, only a floor is known" "$out" ||
    fail "the table does not say what fp8.delayed is"
grep -qE "^fp8.mxfp8 .*; emulated: this chip has no 1x32 scales" "$out" ||
    fail "the table does not say what fp8.mxfp8 is"
says "Times: none can be forecast without measurements of NVIDIA H200" "$out"
says 'fp8lab bench step experiments/bench_llama3_8b_8layers.lua --set model.layers=4 --set' "$out"
says ' --set recipe=bf16 --json > bf16.json` measures one recipe there' "$out"
expect "lines of the table" 8 "$(sed 1,5d "$out" | wc -l)"

case_name="another machine, too little memory"
# shellcheck disable=SC2086
advise 0 experiments/bench_llama3_8b_8layers.lua --facts tests/facts/gb10.json $bench --runs "$runs"
says "Times: none, since what was measured is of NVIDIA H200, not of NVIDIA GB10; " "$out"
says "; the floors are by the data sheet (125 TFLOP/s BF16, 250 FP8, 273 GB/s); \`fp8lab" "$out"
expect "lines" 5 "$(wc -l <"$out")"
grep -qE "^Then: floors, not forecasts: bf16 1\.[0-9]+ s, fp8.delayed 9[0-9]+ ms, .*, fp4.nvfp4 8" \
    "$out" || fail "no floors of all recipes"
advise 3 experiments/bench_llama3_8b_8layers.lua --set model.layers=16 --runs "$runs" \
    --facts tests/facts/laptop.json
says "Next: fp8lab plan --set model.layers=16" "$TEST_TMP/log"
says "gpu.cc             wanted >= 8.9" "$TEST_TMP/log"
says "No recipe can be advised here: bf16 (it needs" "$out"
says "Less memory: --set train.recompute=block" "$out"

case_name="the command that measures" # measures the row of the advice alone
cat >"$TEST_TMP/rows.lua" <<'LUA'
local tiny = require "models.tiny"
return suite {
  name = "rows", data = synthetic {},
  matrix = { recipe = { bf16, fp8.delayed }, seed = { 1, 2 },
             model = { tiny.llama { layers = 1 }, tiny.llama { layers = 2 } } },
  train = { steps = 2, global_batch = 2, micro_batch = 2 },
}
LUA
advise 0 "$TEST_TMP/rows.lua" --lib experiments/lib --runs "$runs" --facts tests/facts/h200.json \
    --only '*model2*bf16*' --json
python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["measure"])' "$out" \
    >"$TEST_TMP/command"
says ' --only ' "$TEST_TMP/command"
sed 's/^fp8lab bench step/check/; s/ --json > .*//' "$TEST_TMP/command" | PATH=${FP8LAB%/*}:$PATH \
    xargs "$FP8LAB" >"$out" 2>"$TEST_TMP/log" || fail "check with the words of the command"
expect "rows that are measured" 1 "$(grep -c '^rows.* bf16 ' "$out")"
says "rows-model2-seed-1 " "$out"

case_name="the next command" # a step that is not measured yet, then the run; each works as printed
if [ -e /dev/nvidiactl ]; then
    echo "NOT CHECKED: the next command without a GPU"
else
    next() { # what the last advice suggests
        sed -n 's/^Next: //p' "$TEST_TMP/log"
    }
    runs_it() { # in TEST_TMP
        ln -sfn "$PWD/experiments" "$TEST_TMP/experiments"
        (cd "$TEST_TMP" && PATH=${FP8LAB%/*}:$PATH bash -c "$(next)") >"$TEST_TMP/ran" 2>&1 ||
            fail "the next command: $(next): $(tail -3 "$TEST_TMP/ran")"
    }
    rows="$TEST_TMP/rows.lua --lib experiments/lib --runs $TEST_TMP/made"
    # shellcheck disable=SC2086
    advise 0 $rows --only '*model2*bf16*'
    says "Next: fp8lab bench step $TEST_TMP/rows.lua --lib experiments/lib --only " "$TEST_TMP/log"
    says " --set recipe=bf16 --json > bf16.json" "$TEST_TMP/log"
    runs_it
    # shellcheck disable=SC2086
    advise 0 $rows --only '*model2*bf16*' --bench "$TEST_TMP/bf16.json"
    says "Next: fp8lab run $TEST_TMP/rows.lua --lib experiments/lib --only " "$TEST_TMP/log"
    runs_it
    says "rows-model2" "$TEST_TMP/ran"
    expect "bundles" 1 "$(find "$TEST_TMP/made" -name '*.tar.zst' | wc -l)"
    # shellcheck disable=SC2086
    advise 0 $rows --only '*model2*delayed*' --bench "$TEST_TMP/bf16.json"
    says " --set recipe=bf16 --runs $TEST_TMP/made" "$TEST_TMP/log"
    runs_it
    expect "bundles" 2 "$(find "$TEST_TMP/made" -name '*.tar.zst' | wc -l)"
fi

case_name="a file that is given twice" # counts once, under another name too
cp "$TEST_TMP/four.json" "$TEST_TMP/copy.json"
# shellcheck disable=SC2086
advise 0 experiments/bench_llama3_8b_8layers.lua $h200 --bench "$TEST_TMP/four.json" \
    --bench "$TEST_TMP/four.json" --bench "$TEST_TMP/copy.json" --json
says '"measured_steps":21,' "$out"

case_name="files that are no measurements"
sed 's/"step_us_median": *[0-9.e+]*/"step_us_median":1e-300/' \
    experiments/reference/figures/bench_h200.json >"$TEST_TMP/tiny.json"
sed 's/"time_us": *[0-9.e+]*/"time_us":1e-300/g' \
    experiments/reference/figures/bench_h200.json >"$TEST_TMP/short.json"
# shellcheck disable=SC2086
advise 2 tests/cli/tiny.lua $h200 --bench "$TEST_TMP/tiny.json"
says 'tiny.json: "step_us_median" is 1e-300, not a number from 0.001 to 2^53' "$TEST_TMP/log"
# shellcheck disable=SC2086
for json in "" --json; do
    advise 0 experiments/bench_llama3_8b_8layers.lua $h200 --bench "$TEST_TMP/short.json" $json
    ! grep -qE "inf|nan" "$out" || fail "a number that is not finite"
    says "the measured times lead to no time of a step" "$out"
done
echo '{"schema":"fp8lab.bench/1","kind":"step","rows":[{}]}' >"$TEST_TMP/nowhere.json"
# shellcheck disable=SC2086
advise 2 tests/cli/tiny.lua $h200 --bench "$TEST_TMP/nowhere.json"
says 'nowhere.json: "device" is missing' "$TEST_TMP/log"
echo '{"schema":"fp8lab.bench/1","kind":"gemm","rows":[]}' >"$TEST_TMP/gemm.json"
sed 's/"m":32768/"m":0/' experiments/reference/figures/bench_h200.json >"$TEST_TMP/zero.json"
for file in gemm zero none; do
    # shellcheck disable=SC2086
    advise $([ $file = none ] && echo 6 || echo 2) tests/cli/tiny.lua $h200 \
        --bench "$TEST_TMP/$file.json"
    says "$file.json: " "$TEST_TMP/log"
    [ $file = zero ] && says 'operator 4: "m" is no such count; `fp8lab bench step' "$TEST_TMP/log"
done
exit $failed
