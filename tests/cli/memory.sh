#!/bin/bash
# Too little memory: `plan` and `run` reject the experiment before anything runs. A worker that
# finds less than planned fails before its first step, with the plan and with ways to need less.
set -u
. tests/cli/lib.sh
: "${CONFIG:=release}"
facts=$root/tests/facts

# 8 B parameters: 120 GiB with f32 gradients, moments and master weights.
cat >big.lua <<'LUA'
local llama3 = require "models.llama3"
return experiment { name = "big", model = llama3["8b"], recipe = bf16, data = synthetic {},
                    train = { steps = 2, global_batch = 4, micro_batch = 2 } }
LUA
less="less memory: --set train.micro_batch=1 --set train.recompute=block \
--set train.head_chunk=1024 --set train.optimizer.state=8bit --set train.optimizer.master=none \
--set train.optimizer.offload=true --set train.grad_dtype=bf16"

# A fake machine: the same GPU with its full memory, then with half of it.
"$FP8LAB" plan big.lua --lib "$lib" --facts "$facts/h200.json" >log 2>&1
[ $? = 3 ] || fail "plan of what does not fit an H200"
says "does not fit gpu.memory of 143771.0 MiB"
says "$less"
says "context, modules, graphs"

# fits FACTS ARGS...: `plan` names settings that fit, and with them it says so; they go to $with.
fits() {
    local file=$1
    shift
    "$FP8LAB" plan big.lua --lib "$lib" --facts "$file" "$@" >log 2>&1
    expect "exit code of what does not fit" 3 $?
    with=$(sed -n 's/^  fits with //p' log)
    [ -n "$with" ] || fail "nothing fits: $*"
    # shellcheck disable=SC2086  # several words
    "$FP8LAB" plan big.lua --lib "$lib" --facts "$file" "$@" $with >log 2>&1 ||
        fail "does not fit: $* $with"
    says "  fits gpu.memory"
    grep -q "fits with" log && fail "fits, and a way to fit is named"
}
# Settings that change no number come before others; then the fewest.
fits "$facts/h200.json"
expect "what fits" "--set train.optimizer.offload=true" "$with"
fits "$facts/h200.json" --set train.optimizer.offload=true --set train.micro_batch=4
expect "what fits, though a smaller micro-batch would" \
    "--set train.recompute=block --set train.recompute_layers=14" "$with"
"$FP8LAB" plan big.lua --lib "$lib" --facts "$facts/h200.json" --set train.optimizer.offload=true \
    --set train.micro_batch=4 --set train.recompute=block --set train.recompute_layers=8 >log 2>&1
says "  fits with --set train.recompute=block --set train.recompute_layers=14"
says "less memory: --set train.micro_batch=1 --set train.recompute=block \
--set train.recompute_layers=32 --set"
"$FP8LAB" plan big.lua --lib "$lib" --facts "$facts/h200.json" --set train.optimizer.offload=true \
    --set train.micro_batch=1 >log 2>&1 || fail "a smaller micro-batch does not fit"
fits "$facts/h200.json" --set train.optimizer.offload=true --set train.recompute=block \
    --set train.micro_batch=4 --set model.seq_len=65536
expect "what fits" "--set train.micro_batch=1" "$with"
codes="--set train.weight_codes=made"
# Codes that are not kept: the least that changes no number, and that costs no second forward.
sed 's/\("gpu.memory": *\)[0-9]*/\1104857600000/' "$facts/h200.json" >less.json
lean="--set train.micro_batch=1 --set train.grad_dtype=bf16 --set train.optimizer.state=bf16 \
--set train.optimizer.master=none --set recipe=fp8.blockwise"
fits less.json $lean
expect "what fits of FP8" "$codes" "$with"
# Beside recomputation they spare layers.
fits "$facts/h200.json" $lean --set train.micro_batch=2 --set model.seq_len=16384
expect "what fits of FP8 with longer sequences" \
    "$codes --set train.recompute=block --set train.recompute_layers=16" "$with"
"$FP8LAB" plan big.lua --lib "$lib" --facts "$facts/h200.json" $lean --set train.micro_batch=2 \
    --set model.seq_len=16384 --set train.recompute=block >log 2>&1 ||
    fail "recomputation alone does not fit, so nothing is spared"
fits less.json $lean --set recipe=bf16
[[ $with != *weight_codes* ]] || fail "a row without codes is told not to keep them: $with"
# Nor one that rejects the setting, or one in which it frees nothing: a single layer has codes, and
# a tied head's are kept.
fits less.json $lean --set recipe=fp8.tensorwise --set recipe.param_gather=true
[[ $with != *weight_codes* ]] || fail "beside param_gather, which rejects it: $with"
"$FP8LAB" plan big.lua --lib "$lib" --facts less.json $lean --set recipe=fp8.tensorwise \
    --set recipe.first_bf16=31 --set recipe.lm_head=fp8 --set model.tied=true \
    --set model.seq_len=16384 >log 2>&1
says "less memory: --set train.recompute=block"
long="--set train.micro_batch=1 --set model.seq_len=131072"
fits "$facts/h200.json" $long
expect "128k tokens on one GPU" \
    "--set train.recompute=block --set train.optimizer.offload=true" "$with"
fits "$facts/h200x8.json" $long --ranks 4 --set recipe=fp8.tensorwise
expect "128k tokens on four" "--set train.shard=parameters --set train.recompute=block" "$with"
"$FP8LAB" plan big.lua --lib "$lib" --facts "$facts/h200.json" --set model.seq_len=1048576 \
    --json >log 2>&1
says '"fits_with":""'

# On a CPU the copy of a checkpoint takes memory, too. Without it the run has the same numbers.
cat >copy.lua <<'LUA'
local tiny = require "models.tiny"
return experiment { name = "copy", recipe = bf16, data = synthetic {}, checkpoint = { every = 2 },
                    model = tiny.llama { width = 4096, layers = 6, heads = 32, ffn = 14336 },
                    train = { steps = 2, global_batch = 1, micro_batch = 1 } }
LUA
plan="plan copy.lua --lib $lib --facts $facts/laptop.json"
"$FP8LAB" $plan --json >log 2>&1 && fail "the copy of a checkpoint fits"
says '"fits_with":"--set checkpoint.background=false"'
"$FP8LAB" $plan --set checkpoint.background=false >log 2>&1 || fail "it does not fit without a copy"
small="--set train.micro_batch=1 --set train.grad_dtype=bf16 --set train.optimizer.state=bf16 \
--set train.optimizer.master=none"
"$FP8LAB" plan big.lua --lib "$lib" --facts "$facts/h200.json" $small >log 2>&1 ||
    fail "plan of what fits an H200"
sed 's/\("gpu.memory": *\)[0-9]*/\175376885760/' "$facts/h200.json" >half.json
"$FP8LAB" plan big.lua --lib "$lib" --facts half.json $small >log 2>&1
[ $? = 3 ] || fail "plan of what fits only a whole H200"
says "does not fit gpu.memory of 71885.0 MiB"

# Memory outside the arenas counts: the arenas plus 500 MiB are not enough.
arenas=$("$FP8LAB" plan big.lua --lib "$lib" --facts "$facts/h200.json" $small --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["runs"][0]["bytes"] + (500 << 20))')
sed "s/\(\"gpu.memory\": *\)[0-9]*/\1$arenas/" "$facts/h200.json" >tight.json
"$FP8LAB" plan big.lua --lib "$lib" --facts tight.json $small >log 2>&1
[ $? = 3 ] || fail "plan of arenas that fit alone"

# Where MXFP8's twins are not transposed, square weights have one array of codes: the GEMM weights
# of this model without the head, 32 layers of 218,103,808.
arenas_of() { # GPU.CC WEIGHT_2D
    sed "s/\(\"gpu.cc\": *\)\"9.0\"/\1\"$1\"/" "$facts/h200.json" >chip.json
    "$FP8LAB" plan big.lua --lib "$lib" --facts chip.json $small --set recipe=fp8.mxfp8 \
        --set recipe.weight_2d="$2" --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["runs"][0]["bytes"])'
}
for square in true false; do
    hopper=$(arenas_of 9.0 $square) thin=$(arenas_of 12.0 $square)
    [ "$hopper" = "$thin" ] || fail "arenas of sm_120: $thin, of sm_90: $hopper"
    for cc in 10.0 10.3; do
        saved=$((hopper - $(arenas_of $cc $square)))
        [ "$square" = true ] && wanted=$((32 * 218103808)) || wanted=0
        [ "$saved" = "$wanted" ] || fail "MXFP8 on $cc, squares $square: $saved bytes saved"
    done
done

# A suite has one line per row, and equal verdicts once. --detail lists the arenas, as does a single
# row.
sed "s/\(\"gpu.memory\": *\)[0-9]*/\1110000000000/" "$facts/h200.json" >most.json
suite=$lib/../h200_recipes.lua
"$FP8LAB" plan -q "$suite" --facts most.json >log 2>&1
[ $? = 3 ] || fail "plan of a suite of which one row does not fit"
sed 's/^ *//' >wanted <<'TEXT'
    llama3-8b-h200-recipes: MiB per rank
    row ranks weights gradients optimizer activations peak
    llama3-8b-h200-bf16 8 N N N N N fits
    llama3-8b-h200-delayed 8 N N N N N fits
    llama3-8b-h200-tensorwise 8 N N N N N fits
    llama3-8b-h200-tensorwise-1f1l 8 N N N N N fits
    llama3-8b-h200-blockwise 8 N N N N N does not fit
    llama3-8b-h200-bf16 and 3 more:
    llama3-8b-h200-blockwise:
TEXT
grep -v '^  ' log | sed -E 's/ +/ /g; s/ [0-9]+\.[0-9]/ N/g' | diff wanted - || fail "its table"
[ "$(grep -c '^  less memory:' log)" = 1 ] || fail "less memory: not printed once"
"$FP8LAB" plan -q "$suite" --facts most.json --json >json
python3 - json log <<'PY' || fail "the table and the JSON differ"
import json, sys
lines = [line.split() for line in open(sys.argv[2])][2:7]
for line, run in zip(lines, json.load(open(sys.argv[1]))["runs"]):
    arenas = {name: sum(row["bytes"] for row in run["rows"] if row["arena"].startswith(name))
              for name in ("weight", "master", "gradients", "optimizer", "activations")}
    arenas["weight"] += arenas.pop("master")
    wanted = ["%.1f" % (b / 2**20) for b in [*arenas.values(), run["peak_bytes"]]]
    assert line[:7] == [run["name"], "8", *wanted], (line, wanted)
PY
"$FP8LAB" plan -q "$suite" --facts most.json --detail >log 2>&1
[ "$(grep -c '^    softmax statistics' log)" = 5 ] || fail "--detail: the arenas of five rows"
"$FP8LAB" plan -q "$suite" --facts most.json --only '*bf16' >log 2>&1
[ "$(grep -c '^    softmax statistics' log)" = 1 ] || fail "--only: the arenas of the row"

# Offloaded arenas are not in the GPU's memory nor in its columns.
"$FP8LAB" plan -q "$suite" --facts most.json --set train.optimizer.offload=true >log 2>&1
[ "$(grep -cE '^llama3.* 0\.0 +[0-9.]+ +[0-9.]+  fits' log)" = 5 ] || fail "offloaded moments"

# Memory that ranks share is compared with the sum of their needs. CPU ranks share a host's memory,
# and so does the offloaded state of GPU ranks.
eight="--set hardware.gpus=8 --set train.global_batch=16"
echo '{"memory.total":68719476736}' >host.json
"$FP8LAB" plan -q big.lua --lib "$lib" --facts host.json $eight >log 2>&1
[ $? = 3 ] || fail "plan of eight ranks in the memory of one"
says "does not fit memory.total of 65536.0 MiB, which its 8 ranks share"
sed 's/\("memory.total": *\)[0-9]*/\168719476736/' "$facts/h200x8.json" >host.json
"$FP8LAB" plan -q "$suite" --only '*bf16' --facts host.json --set train.optimizer.offload=true \
    >log 2>&1
[ $? = 3 ] || fail "plan of more than can be offloaded"
says "does not fit memory.total (for offloaded state) of 65536.0 MiB, which its 8 ranks share"
"$FP8LAB" run big.lua --lib "$lib" --backend cpu --set hardware.gpus=64 \
    --set train.global_batch=128 >log 2>&1
[ $? = 3 ] || fail "a run of 64 ranks that no host has memory for"
grep -qE "big needs [0-9]{4}\.[0-9] GiB for 64 ranks, memory.total is " log ||
    fail "no message about the memory of all ranks"

# After a plan for another machine, the next command is a smoke run here. If the memory is not
# known, there is neither a verdict nor a next command.
next() { sed -n 's/^Next: fp8lab //p' log; }
bench=$lib/../bench_llama3_8b.lua
"$FP8LAB" plan "$bench" --facts "$facts/h200.json" >log 2>&1 || fail "plan of what fits an H200"
[ "$(next)" = "run --smoke --anywhere $bench" ] || fail "next, planned for another: $(next)"
echo '{"gpu.count": 1}' >nowhere.json
"$FP8LAB" plan big.lua --lib "$lib" --facts nowhere.json --backend cuda >log 2>&1 ||
    fail "plan for an unknown memory"
says "gpu.memory is not known, so whether it fits is not known; --facts FILE"
[ -z "$(next)" ] || fail "a next command although the memory is not known: $(next)"
"$FP8LAB" plan big.lua --lib "$lib" --facts nowhere.json --backend cuda --json >log 2>&1
says '"fits":null'
"$FP8LAB" plan big.lua --lib "$lib" --backend gpu >log 2>&1
[ $? = 2 ] || fail "plan for an unknown backend"
says "unknown backend 'gpu'; use auto, cpu or cuda"

# `run` on this machine rejects it too, and makes no directory.
"$FP8LAB" run big.lua --lib "$lib" --backend cpu --runs runs --set train.global_batch=4096 \
    --set train.micro_batch=1024 >log 2>&1
[ $? = 3 ] || fail "run of what does not fit"
says "less memory: --set train.micro_batch=1"
[ -e runs ] && fail "a run was begun"

# A worker under a limit that the plan does not see. (The sanitizers reserve address space.)
if [ "$CONFIG" != asan ]; then
    mkdir -p worker/data/checkpoints
    "$FP8LAB" check big.lua --lib "$lib" --json |
        python3 -c 'import json, sys
print(json.dumps(json.load(sys.stdin)["runs"][0]["config"]))' >worker/config.json
    (ulimit -v 8000000
     "$FP8LAB" worker --config worker/config.json --run worker --backend cpu --threads 1 \
         --events-fd 3 3>worker/events) >log 2>&1
    [ $? = 6 ] || fail "exit code of a worker without memory"
    says "out of memory before step 0; 209836.9 MiB are planned (weights 15316.5, master"
    says "memory for weights: "
    says "$less"
    grep -q '"event":"step"' worker/events && fail "a step was made"
    grep -q '"code":"ERR_MEMORY"' worker/events || fail "no error event"

    # `bench` fails the same way.
    (ulimit -v 8000000
     "$FP8LAB" bench step big.lua --lib "$lib" --backend cpu --threads 1 \
         --set train.global_batch=4096 --set train.micro_batch=1024) >log 2>&1
    [ $? = 3 ] || fail "exit code of a bench without memory"
    says "; less memory: --set train.micro_batch=1"

    # A run without a step cannot be reproduced, so repro does not run it.
    (ulimit -v 8000000
     for batch in 1 2; do
         "$FP8LAB" run -q big.lua --lib "$lib" --backend cpu --threads 1 --anywhere --runs none \
             --set train.micro_batch=$batch
     done) >log 2>&1
    "$FP8LAB" compare none/*.tar.zst >log 2>&1
    grep -A2 '^B   bf16' log | grep -q ' - .* - ' || fail "compare shows no row B"
    grep -qE '^( +-)+$' log && fail "compare shows ratios of nothing"
    "$FP8LAB" repro "$(ls none/*.tar.zst | head -1)" --runs again >log 2>&1
    [ $? = 3 ] || fail "exit code of repro of a run without a step"
    says "holds no step to compare with: its run ended as failed: out of memory before step 0"
    ls again/*.tar.zst >/dev/null 2>&1 && fail "repro ran the run without a step"
fi
# experiments/RESULTS.md and `plan` agree on FP8's memory on a GH200.
# plan_long RECIPE RANKS ARGS...: the plan of 128k tokens as JSON, of the row of that recipe.
plan_long() {
    "$FP8LAB" plan "$bench" --facts "$facts/h200x8.json" --only "*-$1" --ranks "$2" \
        --set model.seq_len=131072 --set train.micro_batch=1 --json "${@:3}" |
        python3 -c 'import json, sys
run, = json.load(sys.stdin)["runs"]
print("%.1f %s" % (run["peak_bytes"] / 2**30, run["fits_with"]))'
}
for recipe in bf16 fp8.tensorwise fp8.blockwise; do
    for ranks in 1 4; do
        read -r before with <<<"$(plan_long "$recipe" $ranks)"
        # shellcheck disable=SC2086  # words
        after=$(plan_long "$recipe" $ranks $with)
        says "| $recipe | $ranks | $before | \`$with\` | ${after% } |" "${lib%/lib}/RESULTS.md"
    done
done

"$FP8LAB" plan "${lib%/lib}/gh200_llama31_8b.lua" --facts "$facts/gh200.json" --json >log ||
    fail "plan of gh200_llama31_8b.lua"
said=$(python3 -c 'import json, sys
peak = {r["name"].rsplit("-", 1)[1]: r["peak_bytes"] for r in json.load(sys.stdin)["runs"]}
bf16, fp8 = peak["bf16"], peak["fp8.tensorwise"]
print(f"says {100 * fp8 / bf16 - 100:.0f} % more: {fp8 / 2**30:.1f} GiB in tensorwise,",
      f"{bf16 / 2**30:.1f} in BF16")' <log)
tr '\n' ' ' <"${lib%/lib}/RESULTS.md" | grep -qF "$said" ||
    fail "experiments/RESULTS.md does not say: $said"
peaks() { # ARGS...: GiB of BF16 and tensorwise, their codes made before each use
    "$FP8LAB" plan "${lib%/lib}/gh200_llama31_8b.lua" --facts "$facts/gh200.json" --json \
        --set train.weight_codes=made "$@" | python3 -c 'import json, sys
peak = {r["name"].rsplit("-", 1)[1]: r["peak_bytes"] for r in json.load(sys.stdin)["runs"]}
print(peak["bf16"], peak["fp8.tensorwise"])'
}
said=$(python3 -c 'import sys
bf16, fp8, all_bf16, all_fp8 = map(int, sys.argv[1:])
print(f"tensorwise needs {fp8 / 2**30:.1f} GiB, and {all_fp8 / 2**30:.1f} without recomputation:",
      f"{100 - 100 * all_fp8 / all_bf16:.0f} % less than BF16")' \
    $(peaks) $(peaks --set train.recompute=none))
tr -s '\n ' ' ' <"${lib%/lib}/RESULTS.md" | grep -qF "$said" ||
    fail "experiments/RESULTS.md does not say: $said"

exit $failed
