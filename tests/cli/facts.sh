#!/bin/bash
# Fact files: hw, doctor, check, plan and advise refuse the same ones with the same words, and agree
# about a GPU that no run can use, or whose capability is not known.
set -u
. "$PWD/tests/cli/lib.sh"
unset XDG_CACHE_HOME
script=$tests/tiny.lua

# facts KEY=JSON...: the facts of an H200 with other values; without a value: without the key.
facts() {
    python3 - "$root/tests/facts/h200.json" "$@" >facts.json <<'PY'
import json, sys
facts = json.load(open(sys.argv[1]))
for pair in sys.argv[2:]:
    key, _, value = pair.partition("=")
    facts.pop(key, None)
    if value:
        facts[key] = json.loads(value)
json.dump(facts, sys.stdout)
PY
}
# verb CODE VERB WORDS...: the verb's exit code with facts.json, and words of its output.
verb() {
    local code=$1 name=$2 arguments=()
    shift 2
    case $name in
    hw | doctor) arguments=("$name") ;;
    *) arguments=("$name" "$script" --lib "$lib") ;;
    esac
    gives "$code" "${arguments[@]}" --facts facts.json -- "$@"
}
shown=out

case_name="unusable facts"
refused() { # WORDS KEY=JSON...
    local words=$1 name
    shift
    facts "$@"
    for name in hw doctor check plan advise; do verb 2 $name "facts.json: $words"; done
}
refused 'gpu.count must be a whole number of 0 or more, or null; found -1' gpu.count=-1
refused 'gpu.memory must be a whole number of bytes, 0 or more, or null; found -5' gpu.memory=-5
refused 'gpu.cc must be a compute capability in quotes, such as "9.0"' 'gpu.cc="nine"'
refused 'its schema is "fp8lab.facts/2", and this version reads fp8lab.facts/1' \
    'schema="fp8lab.facts/2"'
refused 'gpu.count is 1e15, but no machine has more than 1024' gpu.count=1e15
refused 'gpu.count is 1025, but no machine has more than 1024' gpu.count=1025
refused 'cpu.cores is 1000000000000, but no machine has more than 65536' cpu.cores=1000000000000
refused 'gpu.memory is 1e30, but no machine has more than 1024 TiB' gpu.memory=1e30
refused 'memory.total is 1000000000000000000, but no machine has more than' \
    memory.total=1000000000000000000
refused 'gpu.power_limit_w is 1e300, but no machine has more than 1000000' gpu.power_limit_w=1e300
refused 'gpu.count is not known, but gpu.product_name is; add "gpu.count": 1' gpu.count=null
echo '{"schema": "fp8lab.facts/1"}' >facts.json
for name in hw doctor check plan advise; do verb 2 $name 'facts.json holds no fact'; done

case_name="8.0 GPUs"
facts gpu.count=8.0
verb 0 doctor '8 x NVIDIA H200'
verb 0 advise 'without measurements of NVIDIA H200'
verb 0 plan 'fits gpu.memory'

case_name="a GPU of unknown capability" # is no CPU
for cc in gpu.cc=null gpu.cc; do
    facts $cc
    add='add gpu.cc to the facts, such as "9.0": nvidia-smi'
    verb 0 check
    verb 0 plan 'gpu.cc is not known: memory is planned as for 9.0' "$add" 'fits gpu.memory'
    verb 2 advise 'gpu.cc is not known, so how the GPU runs each recipe is not known either' \
        '`fp8lab plan` works without it' "$add"
    verb 0 doctor 'warning  gpu              gpu.cc, its compute capability, is not known' \
        "fix: $add" '1 warning'
    grep -q emulated out && fail "doctor: recipes of a CPU"
done
"$FP8LAB" doctor --facts facts.json --caps sm_90 >out 2>&1 || fail "doctor --caps"
says 'fp8.tensorwise   native' out
"$FP8LAB" plan "$script" --lib "$lib" --facts facts.json --backend cpu >out 2>&1 || fail "plan"
grep -q "gpu.cc" out && fail "plan for a CPU: the GPU does not matter"

case_name="a capability that this version does not know" # the GPU may be newer
newer() { # CC WORDS
    facts "gpu.cc=\"$1\""
    for name in check plan advise; do verb "$2" $name "gpu.cc is $1, $3"; done
    verb "$2" doctor "warning  gpu              gpu.cc is $1, $3" "nothing is wrong, 1 warning"
    for name in check plan; do
        "$FP8LAB" $name "$script" --lib "$lib" --facts facts.json --backend cpu >out 2>&1
        ! grep -q "gpu.cc" out || fail "$name for a CPU: the GPU does not matter"
    done
}
newer 13.0 0 "newer than 12.1, the newest that this version knows"
newer 9.1 0 "and this version knows no GPU of it: 9.0 and 10.0 are the nearest that it knows"
facts 'gpu.cc="7.7"'
verb 2 check "gpu.cc is 7.7, and this version knows no GPU of it: 7.5 and 8.0 are the nearest"
facts
verb 0 check
! grep -q "gpu.cc" out || fail "a note on 9.0"

case_name="a GPU that no run can use"
facts 'gpu.cc="7.5"' 'gpu.product_name="Tesla T4"' 'gpu.family="turing"'
why='no machine code below compute capability 8.0 (use a newer GPU, or run with --backend cpu)'
verb 2 check "tiny: $why, found 7.5"
verb 3 plan "tiny: $why, found 7.5"
verb 3 advise "No recipe can be advised here: $why, found 7.5."
verb 1 doctor "fp8.delayed      refused: $why"
for name in check plan; do
    gives 0 $name "$script" --lib "$lib" --facts facts.json --backend cpu -- tiny
done

case_name="the next command" # takes the facts too, if it has the flag
facts
verb 0 advise "Next: fp8lab plan --lib $lib --facts facts.json $script"
verb 0 plan "Next: fp8lab run --smoke --anywhere --lib $lib $script"
verb 0 check "Next: fp8lab run --lib $lib $script"

case_name="text of a fact file" # cannot control a terminal
facts 'gpu.product_name="NVIDIA \u001b[31mX\nUse bf16"'
verb 0 advise 'without measurements of NVIDIA ?[31mX?Use bf16; '
gives 3 plan "$script" --lib "$lib" --facts facts.json --set 'hardware.query=gpu.product_name=X' \
    -- 'found "NVIDIA ?[31mX?Use bf16"'
gives 3 hw --facts facts.json --query 'gpu.product_name=X' -- 'found "NVIDIA ?[31mX?Use bf16"'
facts "gpu.product_name=\"$(printf 'X%.0s' {1..5000})\""
verb 0 advise "measurements of XXXX"
[ "$(wc -L <out)" -lt 1000 ] || fail "a product's name of 5000 characters is printed whole"
exit $failed
