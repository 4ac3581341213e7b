#!/bin/bash
# long: 25
# bench: a figure for every dtype, a step in parts that add up, one JSON object, and errors that
# name the valid values.
set -u
failed=0
fail() {
    echo "$1"
    failed=1
}
small="--m 64 --n 48 --k 32 --repeats 3 --threads 1 --backend cpu"

# A GPU's arithmetic reaches the product, and the machine's name says so.
"$FP8LAB" bench gemm $small --arithmetic ada --dtype f32 >"$TEST_TMP/ada" 2>&1
for want in ', arithmetic ada (unverified)' 'matmul: a is f32, and ada multiplies bf16 and FP8'; do
    grep -qF -- "$want" "$TEST_TMP/ada" || fail "bench --arithmetic ada does not say: $want"
done

# Every dtype has a row. No share of the fastest product is above 1, not even for the fastest shape
# of a CPU.
"$FP8LAB" bench gemm --m 768 --n 768 --k 768 --repeats 3 --threads 1 --backend cpu --json \
    2>/dev/null >"$TEST_TMP/large.json" || fail "bench gemm 768: exit code $?"
python3 - "$TEST_TMP/large.json" <<'PY' || fail "bench gemm: a share above 1"
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
assert [row["dtype"] for row in rows] == ["f32", "bf16", "e4m3"], rows
assert all(0 < row["share"] <= 1 for row in rows), rows
PY

for scale in tensor row 1x128 1x32 ''; do # '': NVFP4's, which its codes imply
    dtype=e4m3 words="--scale $scale"
    [ -n "$scale" ] || dtype=e2m1 words='' scale=1x16
    # shellcheck disable=SC2086 # the flag and its word
    json=$("$FP8LAB" bench gemm $small --dtype $dtype $words --json 2>/dev/null) ||
        fail "$dtype $scale: exit code $?"
    for want in '"schema":"fp8lab.bench/1"' '"kind":"gemm"' '"backend":"cpu"' \
        "\"dtype\":\"$dtype\"" "\"scale\":\"$scale\"" '"m":64' '"gflops_median":' \
        '"energy_j":null'; do
        case $json in *"$want"*) ;; *) fail "$dtype $scale: no $want in $json" ;; esac
    done
done

# A CPU has no energy counter: `not measured`, and null in JSON, which is never 0.
rows=$("$FP8LAB" bench attention --seq-len 64 --heads 2 --kv-heads 1 --repeats 3 --backend cpu \
    --threads 1 --energy 1 2>/dev/null |
    grep -c '[GT]FLOP/s .*% of a large GEMM.*  not measured$')
[ "$rows" = 4 ] || fail "bench attention: wanted forward, backward and plain, found $rows rows"
"$FP8LAB" bench attention --seq-len 64 --heads 2 --kv-heads 1 --repeats 1 --backend cpu \
    --threads 1 --json 2>/dev/null >"$TEST_TMP/attention" || fail "bench attention: exit code $?"
python3 - "$TEST_TMP/attention" <<'PY' || fail "bench attention: the plain version"
import json, sys
for row, tables in zip(json.load(open(sys.argv[1]))["rows"], (1, 2)):
    assert row["memory_bytes"] == tables * 2 * 64 * 4, row
    plain = row["plain"]
    assert row["energy_j"] is None, row
    assert plain["memory_bytes"] == tables * 2 * 64 * 64 * 2, row
    assert plain["time_us_median"] > 0 and 0 < plain["share"] and plain["energy_j"] is None, row
PY
rows=$("$FP8LAB" bench quantise --m 48 --k 64 --repeats 3 --backend cpu --threads 1 --energy 1 \
    2>/dev/null | grep -c 'GB/s .*% of a copy.*  not measured$')
[ "$rows" = 16 ] || fail "bench quantise: wanted 8 granularities, twice, found $rows rows"
case $("$FP8LAB" bench quantise --m 48 --k 64 --scale 1x16 --repeats 1 --backend cpu --threads 1 \
    --json 2>/dev/null) in
*'"energy_j":null'*) ;; *) fail "bench quantise --json: no energy_j" ;; esac

# The next command names another kind than the one measured.
"$FP8LAB" bench gemm $small --dtype bf16 --energy 1 >"$TEST_TMP/gemm" 2>&1
grep -q 'GFLOP/s.*  not measured$' "$TEST_TMP/gemm" || fail "bench gemm: $(cat "$TEST_TMP/gemm")"
case $(cat "$TEST_TMP/gemm") in
*"Next: fp8lab bench gemm"*) fail "bench gemm suggests itself as the next command" ;;
*"Next: fp8lab bench "*) ;;
*) fail "bench gemm: no next command" ;;
esac

# A step: every part has a row and a floor, and the parts add up to their sum. Each recipe's scales
# have words. FP8 attention has rows of its own, and a floor: from codes of e4m3, and e5m2 where
# they are gradients, into bf16. What was measured here is what `advise` forecasts from; near it,
# since near shapes weigh too.
for how in attention.precision=fp8 recipe=fp4.nvfp4; do
    "$FP8LAB" bench step tests/cli/tiny.lua --set $how --set fp8_error=3 --steps 3 --threads 1 \
        --backend cpu --json \
        >"$TEST_TMP/step.json" 2>/dev/null || fail "bench step: exit code $? with $how"
    "$FP8LAB" advise tests/cli/tiny.lua --set $how --bench "$TEST_TMP/step.json" --json \
        >"$TEST_TMP/advice.json" 2>/dev/null || fail "advise: exit code $? with $how"
    python3 - "$TEST_TMP/step.json" "$TEST_TMP/advice.json" $how <<'PY' || fail "bench step: $how"
import json, sys
row, = json.load(open(sys.argv[1]))["rows"]
parts = row["parts"]
names = ["GEMM", "attention", "quantise, transpose", "norm, activation", "head, loss", "optimizer",
         "other"]
assert [p["part"] for p in parts] == names, parts
assert abs(sum(p["time_us"] for p in parts) - row["parts_us"]) < 1e-6 * row["parts_us"]
assert abs(sum(p["floor_us"] for p in parts) - row["floor_us"]) < 1e-6 * row["floor_us"]
assert all(p["time_us"] > 0 and p["floor_us"] >= 0 and p["calls"] > 0 for p in parts)
assert all(p["floor_us"] <= p["time_us"] * (1 + 1e-9) for p in parts), parts
assert all(p["floor_us"] > 0 for p in parts if p["part"] == "attention"), parts
phases = row["phases"]
assert [p["phase"] for p in phases] == ["forward", "backward", "update"], phases
assert all(p["time_us"] > 0 and p["calls"] > 0 for p in phases), phases
assert abs(sum(p["time_us"] for p in phases) - row["parts_us"]) < 1e-6 * row["parts_us"]
assert sum(p["calls"] for p in phases) == sum(p["calls"] for p in parts)
optimizer = next(p for p in parts if p["part"] == "optimizer")
assert optimizer["calls"] == phases[2]["calls"], (optimizer, phases[2])
assert row["tokens"] == 128 and row["model_flop"] > 0 and row["copy_bytes_per_s"] > 0
assert {g["direction"] for g in row["gemms"]} == {"fprop", "dgrad", "wgrad"}
text = open(sys.argv[1]).read().replace(" ", "")
assert '"energy_j":null' in text and '"energy_j":0' not in text
shapes = [work["attention"] for work in row["operators"] if work.get("attention")]
found = {(s["backward"], s["act"], s["out"], s["d_o"]) for s in shapes}
nvfp4 = sys.argv[3] == "recipe=fp4.nvfp4"
assert ('"a_scale":"1x16"' in text) == nvfp4
assert found == ({(False, "bf16", "bf16", "bf16"), (True, "bf16", "bf16", "bf16")} if nvfp4 else
                 {(False, "e4m3", "bf16", "bf16"), (True, "e4m3", "bf16", "e5m2")}), found
advice, = (r for r in json.load(open(sys.argv[2]))["rows"] if r["recipe"] == row["recipe"])
assert 0.5 < advice["forecast"]["step_us"] / row["step_us_median"] < 2, (advice, row)
PY
done

# Joules: that there is no counter is said. Names of details are complete, and their columns align
# with the table above. Of two GPUs one is measured.
"$FP8LAB" bench step tests/cli/tiny.lua --steps 1 --threads 1 --backend cpu --energy 1 --detail \
    --set hardware.gpus=2 >"$TEST_TMP/detail" 2>"$TEST_TMP/messages" ||
    fail "bench step --energy --detail: exit code $?"
grep -q '^  energy not measured: there is no energy counter of this device' "$TEST_TMP/detail" ||
    fail "bench step --energy: does not say that nothing was measured"
rows=$(grep -cE '^  (GEMM|attention|head, loss|optimizer) .*  not measured ' "$TEST_TMP/detail")
[ "$rows" = 4 ] || fail "bench step --energy: $rows of 4 rows say that nothing was measured"
grep -q '^tiny: measuring' "$TEST_TMP/messages" || fail "bench step: no message before its figures"
grep -q '^tiny: one device is measured, with the whole batch of 4;' "$TEST_TMP/messages" ||
    fail "bench step: no message that only one of two GPUs is measured"
for phase in forward backward update; do
    grep -qE "^    $phase +[0-9]+ +[0-9.]+ +[0-9.]+% " "$TEST_TMP/detail" ||
        fail "bench step: no line of $phase"
done
grep -q '^  quantise, transpose: quantise_finish ' "$TEST_TMP/detail" ||
    fail "bench step --detail: names are cut"
ends=$(grep -oE '^  [a-zA-Z, ]+(: .*)? +[0-9]+ +[0-9.]+ +[0-9.]+% ' "$TEST_TMP/detail" |
    awk '{ print length($0) }' | sort -u | wc -l)
[ "$ends" = 1 ] || fail "bench step --detail: columns are not aligned"

# --only chooses a row of a suite. One thread of a CPU is reported in GFLOP/s. Of chats the
# documents are not measured.
"$FP8LAB" bench step experiments/sft_quickstart.lua --only '*bf16' --steps 2 --threads 1 \
    --backend cpu --set model.layers=1 --set model.seq_len=32 --set train.micro_batch=2 \
    --set train.global_batch=4 >"$TEST_TMP/chats" 2>"$TEST_TMP/messages" ||
    fail "bench step of chats: exit code $?"
grep -q '^sft-quickstart-bf16: its data are generated: attention' "$TEST_TMP/messages" ||
    fail "bench step of chats: no message that documents are not measured"
lines=$(cat "$TEST_TMP/chats")
case $lines in *TFLOP/s*) fail "bench step: TFLOP/s of one thread" ;; *GFLOP/s*) ;;
*) fail "bench step: no GFLOP/s" ;; esac
case $lines in *quickstart-fp8*) fail "bench step --only: measured the other row too" ;;
*quickstart-bf16*) ;; *) fail "bench step --only: no row" ;; esac

# A suite: each row beside its row in BF16, whose differences add up; and changed steps.
"$FP8LAB" bench step tests/cli/suite.lua --steps 1 --threads 1 --backend cpu --each-gemm \
    >"$TEST_TMP/suite" 2>/dev/null || fail "bench step --each-gemm: exit code $?"
for want in '^pair-fp8.tensorwise beside pair-bf16, ms of a step$' \
    '^  step  .*x as fast$' '^  qkv fprop 64x256x128  .*x as fast$' \
    '^  a CPU emulates FP8: these times say nothing' 'a step would be [0-9.]*x as fast$' \
    '^  unchanged ' '^  wgrad in BF16 ' '^  lm_head in fp8.tensorwise ' \
    '^  --each-gemm: no GEMM of this row '; do
    grep -qE -- "$want" "$TEST_TMP/suite" || fail "bench step of a suite does not say: $want"
done
sed -n '/ beside /,$p' "$TEST_TMP/suite" | python3 -c 'import re, sys
rows = re.findall(r"^  (\S.*?)  +(-?[\d.]+) +(-?[\d.]+) +[+-]([\d.]+)", sys.stdin.read(), re.M)
parts = [row for row in rows if not re.search(r" \d+x\d+x\d+$", row[0])]
assert len(parts) >= 8 and parts[-1][0] == "step", parts
for column in (1, 2):
    sum_ms = sum(float(row[column]) for row in parts[:-1])
    assert abs(sum_ms - float(parts[-1][column])) < 0.01, (sum_ms, parts)
' || fail "bench step of a suite: the differences do not add up"

refused() { # words of the message, then arguments
    local words=$1 text
    shift
    text=$("$FP8LAB" bench "$@" 2>&1)
    [ $? = 2 ] || fail "bench $*: exit code is not 2"
    case $text in *"$words"*) ;; *) fail "bench $*: \"$words\" is not in \"$text\"" ;; esac
}

refused 'bench fp4: gemm, attention, quantise or step' fp4
refused 'not a multiple of --kv-heads 3' attention --heads 4 --kv-heads 3 --backend cpu
refused '32x32, 1x16 or 16x16, not "2x2"' quantise --scale 2x2 --backend cpu
refused 'takes an experiment' step
refused 'takes no file' gemm tests/cli/tiny.lua
refused 'f32, bf16, e4m3, e5m2 or e2m1, not "fp4"' gemm --dtype fp4
refused 'tensor, row, 1x128, 1x32 or 1x16, not "2x2"' gemm --scale 2x2
refused 'e2m1 (NVFP4) go together, not row and e2m1' gemm --dtype e2m1 --scale row
refused '--dtype f32 has none' gemm --dtype f32 --scale row
refused '--m' gemm --m 0
refused 'bench gemm takes no --seq-len' gemm --seq-len 64
refused 'bench quantise takes no --dtype' quantise --dtype bf16
refused '--energy' step tests/cli/tiny.lua --energy 0
refused 'bench step takes no --repeats' step tests/cli/tiny.lua --repeats 3

# A script's errors are those of `check`, as an object of its own, before a device is opened.
sed 's/steps = 12/steps = 0/; s/seed = 1/seed = "x"/' tests/cli/tiny.lua >"$TEST_TMP/wrong.lua"
for verb in check "bench step"; do
    # shellcheck disable=SC2086  # two words
    "$FP8LAB" $verb "$TEST_TMP/wrong.lua" --lib experiments/lib --json 2>/dev/null \
        >"$TEST_TMP/${verb%% *}.json"
    [ $? = 2 ] || fail "$verb of a wrong script: exit code"
done
cmp "$TEST_TMP/check.json" "$TEST_TMP/bench.json" || fail "bench step --json: other errors"
[ "$(grep -o '"line"' "$TEST_TMP/bench.json" | wc -l)" -gt 1 ] || fail "not several errors"
exit "$failed"
