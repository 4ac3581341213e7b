#!/bin/bash
# The ways that are certified for a configuration: attention has the run's window, and its documents
# if attention is masked by them, and the kernel that the run asks for. Each phase of a run has its
# ways: evaluations, steps, and steps after forward_bf16_after.
set -u
. "$PWD/tests/cli/lib.sh"
cat >x.lua <<'LUA'
local tiny = require "models.tiny"
local masked = { path = "s", mask = "document", positions = "document" }
local packed = { path = "s", layout = "packed" }
local function row(name, window, data, kernel, recipe, attention)
  return experiment {
    name = name, recipe = recipe or bf16,
    attention = { backend = kernel, precision = recipe and (attention or "fp8") },
    model = tiny.llama { seq_len = 32, layers = 1, vocab = 96, window = window },
    data = data and tokens(data) or synthetic { seed = 7 },
    train = { steps = 3, global_batch = 4, micro_batch = 2 },
  }
end
return suite {
  name = "ways", row("plain"), row("window", 9), row("wide", 32), row("documents", nil, masked),
  row("both", 9, masked), row("packed", nil, packed), row("own", nil, nil, "own"),
  row("delayed", nil, nil, nil, fp8.delayed {}), row("current", 9, nil, nil, fp8.tensorwise {}),
  row("fp4", nil, nil, nil, fp4.nvfp4 {}, "bf16"),
  row("switch", nil, nil, nil, fp4.nvfp4 { forward_bf16_after = 2 }, "bf16"),
  row("mx", nil, nil, nil, fp8.mxfp8 {}, "bf16"),
  row("squares", nil, nil, nil, fp8.mxfp8 { weight_2d = true }, "bf16"),
}
LUA
attention_of() { # NAME: its ways of attention
    "$FP8LAB" check --resolved --only "$1" --lib "$lib" x.lua >one.json 2>log || fail "check: $1"
    "$FP8LAB" probe --certify --backend cpu --config one.json >out 2>log || fail "probe: $1"
    python3 -c 'import json
for c in json.load(open("out"))["certificates"]:
    if c["section"] == "attention": print(c["way"].split(" of ")[1], c["outcome"], sep="; ")'
}
for one in "plain;32; passed" "window;32, window 9; passed" "wide;32; passed" \
    "documents;32, documents; passed" "both;32, window 9, documents; passed" \
    "packed;32; passed" "own;32, own kernel; passed"; do
    case_name=${one%%;*}
    expect "attention of heads of" "${one#*;}" "$(attention_of "$case_name")"
done
# Attention in FP8 has ways of its own: the recipe says what backward reads of the output.
fp8="attention e4m3 by known scales, gradients e5m2, output"
for one in "delayed;$fp8 e4m3, 2 x 32, heads 4/2" "current;$fp8 bf16, 2 x 32, heads 4/2"; do
    case_name=${one%%;*}
    expect "attention" "1" "$(attention_of "$case_name" | grep -c '; passed$')"
    expect "its way" "${one#*;}" "$(python3 -c 'import json
for c in json.load(open("out"))["certificates"]:
    if c["section"] == "attention": print(c["way"].split(" of ")[0])')"
done
# Steps after the switch multiply forward in BF16, beside those before it.
gemm='gemm [a-z0-9 ]* -> bf16, 64 x'
forward="$gemm [0-9]* x [0-9]*, residual\|$gemm 768 x 128"
for one in fp4 switch; do
    case_name=$one
    attention_of $one >/dev/null
    grep -o "\"way\":\"\($forward\)\"" out | cut -d'"' -f4 | sort >"$one.ways"
done
expect "without a switch" "gemm e2m1 1x16 x e2m1 16x16 -> bf16, 64 x 128 x 128, residual
gemm e2m1 1x16 x e2m1 16x16 -> bf16, 64 x 128 x 384, residual
gemm e2m1 1x16 x e2m1 16x16 -> bf16, 64 x 768 x 128" "$(cat fp4.ways)"
expect "after the switch" "gemm bf16 x bf16 -> bf16, 64 x 128 x 128, residual
gemm bf16 x bf16 -> bf16, 64 x 128 x 384, residual
gemm bf16 x bf16 -> bf16, 64 x 768 x 128" "$(comm -13 fp4.ways switch.ways)"
# An evaluation casts for forward alone, without the copy that backward reads.
expect "casts to 1x16 for one direction" 2 \
    "$(grep -o '"way":"cast bf16 to e2m1 1x16[^"]*own amax, rotated"' out | grep -vc 'both copies')"
# The kernel that a run asks for is the one that is tried: a backend without it says so.
"$FP8LAB" check --resolved --only own --lib "$lib" x.lua >one.json 2>log || fail "check: own"
sed -i 's/"backend":"own"/"backend":"cudnn"/' one.json
"$FP8LAB" probe --certify --backend cpu --config one.json >out 2>&1 && fail "a CPU tries cudnn"
grep -q 'attention.backend = "cudnn": the cpu backend has one way' out || fail "cudnn: $(cat out)"

# Where the device multiplies MXFP8 along either axis, dgrad is tried NN and wgrad NT, and casts
# make untransposed twins. The device is a stand-in.
. "$root/tests/support/wrong_device.sh"
device $WRONG_NOTHING
ways_on() { # NAME ARCH: its products and casts in FP8, without shapes
    "$FP8LAB" check --resolved --only "$1" --lib "$lib" x.lua >one.json 2>log || fail "check: $1"
    "$FP8LAB" probe --certify --backend cuda --caps "$2" --config one.json >out 2>log ||
        fail "probe: $1 $(cat log)"
    python3 -c 'import json
ways = {(c["way"].split(",")[0] + (", both" if ", both copies" in c["way"] else "") +
        (" untransposed" if "copies untransposed" in c["way"] else ""), c["outcome"], c["how"])
        for c in json.load(open("out"))["certificates"] if "e4m3" in c["way"]}
for w in sorted(ways): print(*w, sep="; ")'
}
case_name="untransposed twins"
expect "ways of mxfp8" "cast bf16 to e4m3 1x32 by block; passed; own
cast bf16 to e4m3 1x32 by block, both untransposed; passed; own
gemm e4m3 1x32 untransposed x e4m3 1x32 untransposed -> f32; passed; native
gemm e4m3 1x32 x e4m3 1x32 -> bf16; passed; native
gemm e4m3 1x32 x e4m3 1x32 untransposed -> bf16; passed; native" "$(ways_on mx sm_100)"
expect "of square blocks" "cast bf16 to e4m3 1x32 by block; passed; own
cast bf16 to e4m3 1x32 by block, both untransposed; passed; own
cast bf16 to e4m3 32x32 by block, both untransposed; passed; own
gemm e4m3 1x32 untransposed x e4m3 1x32 untransposed -> f32; passed; native
gemm e4m3 1x32 x e4m3 32x32 -> bf16; passed; native
gemm e4m3 1x32 x e4m3 32x32 untransposed -> bf16; passed; native" "$(ways_on squares sm_103)"
expect "of TN alone" "cast bf16 to e4m3 1x32 by block; passed; own
cast bf16 to e4m3 1x32 by block, both; passed; own
gemm e4m3 1x32 x e4m3 1x32 -> bf16; passed; native
gemm e4m3 1x32 x e4m3 1x32 -> f32; passed; native" "$(ways_on mx sm_120)"
# A run on it is certified in the ways in which it computes, and does without those that fail.
case_name="a run with untransposed twins"
mx=(--caps sm_100 --set recipe=fp8.mxfp8)
run twins 0 "${mx[@]}"
expect "ways that are not certified" "" "$(part twins logs/runner.log | grep 'not certified: ')"
expect "their products" "gemm e4m3 1x32 untransposed x e4m3 1x32 untransposed passed native
gemm e4m3 1x32 x e4m3 1x32 untransposed passed native" \
    "$(part twins certificates.json | value '"\n".join(sorted({
        " ".join([c["way"].split(" -> ")[0], c["outcome"], c["how"]]) for c in o["certificates"]
        if c["section"] == "gemm" and "untransposed" in c["way"]}))')"
device $WRONG_TWIN_CODES
run wrong 0 "${mx[@]}"
says "transposed codes"
expect "forbidden" "gemm e4m3 1x32 untransposed x e4m3 1x32 untransposed
gemm e4m3 1x32 x e4m3 1x32 untransposed" \
    "$(part wrong decisions.json | value '"\n".join(sorted(o["forbidden"].split("; ")))')"
expect "results, as the right device has them" \
    "$(field "$(newest twins)" 'run["results_sha256"]')" \
    "$(field "$(newest wrong)" 'run["results_sha256"]')"
case_name="doctor"
device $WRONG_TWIN_CODES
"$FP8LAB" doctor --quick --backend cuda --caps sm_100 --report report.txt >out 2>log
expect "failed with their codes" 3 "$(grep -c '^failed .*untransposed.*transposed codes$' out)"
expect "failed" 3 "$(grep -c '^failed ' out)"
expect "casts" 2 "$(grep -c '^passed .*cast .*untransposed' out)"
exit $failed
