#!/bin/bash
# tier: long
# advise over every script of experiments/, for an H200, a GB10 and this machine: what it does not
# exclude, `check` accepts for the same row and machine. A recipe with which a script does not
# resolve, or that the machine cannot serve, is a row with the reason.
set -u
. "$PWD/tests/cli/lib.sh"
shown=log

case_name="every script" # as Python, for the JSON of three commands
(cd "$root" && python3 - "$FP8LAB" "$TEST_TMP" experiments/*.lua) >out 2>&1 <<'PY' ||
import json, subprocess, sys
program, folder, *scripts = sys.argv[1:]
failed = recommended = refused = 0

def run(*words):
    done = subprocess.run([program, *words], capture_output=True, text=True)
    try:
        return done.returncode, json.loads(done.stdout), done.stderr
    except ValueError:
        return done.returncode, {}, done.stderr

def accepts(as_written, script, row, recipe, machine):
    """The row as written has the recipe, or it does with --set."""
    if as_written.get(row) == recipe:
        return True
    for change in [], ["--set", "recipe=" + recipe]:
        code, answer, _ = run("check", script, "--json", "--only", row, *change, *machine)
        if code == 0 and answer["runs"][0]["config"]["recipe"]["kind"] == recipe:
            return True
    return False

for script in scripts:
    first = run("check", script, "--json")[1]["runs"][0]["name"]
    for name in "h200", "gb10", "here":
        machine = [] if name == "here" else ["--facts", "tests/facts/%s.json" % name]
        figures = "experiments/reference/figures/bench_h200.json"
        bench = ["--bench", figures] if name == "h200" else []
        code, advice, log = run("advise", script, "--json", "--runs", folder + "/none", *machine,
                                *bench)
        rows = advice.get("rows", [])
        best = advice.get("best")
        code_all, all_rows, _ = run("check", script, "--json", *machine)
        as_written = {} if code_all != 0 else { # a row that the machine refuses fails them all
            row["name"]: row["config"]["recipe"]["kind"] for row in all_rows["runs"]}
        plan = run("plan", script, "--json", "--only", first, *machine)[1]
        wanted = 3 if best is None or plan["runs"][0]["mismatch"] else 0
        wrong = []
        if code != wanted:
            wrong.append("exit code %d, not %d: %s" % (code, wanted, log))
        if len(rows) != 7 or len({row["recipe"] for row in rows}) != 7:
            wrong.append("%d rows" % len(rows))
        for row in rows:
            if row["run"] is None:
                refused += 1
                if row["group"] != "cannot" or row["way"] != "refused" or not row["reason"]:
                    wrong.append("%s has no run, and is no refusal" % row["recipe"])
            elif row["group"] == "cannot":
                continue
            elif not accepts(as_written, script, row["run"], row["recipe"], machine):
                wrong.append("check refuses %s" % row["recipe"])
        recommended += best is not None
        for text in wrong:
            failed = 1
            print("FAILED: %s on %s: %s" % (script, name, text))
if recommended < 80 or refused < 10:
    sys.exit("%d recommended, %d refused: too few to say anything" % (recommended, refused))
sys.exit(failed)
PY
    { cat out && failed=1; }

case_name="recipes that a script refuses"
scripts=$root/experiments facts=$root/tests/facts
gives 0 advise "$scripts/fp8_attention.lua" --facts "$facts/h200.json" --runs none -- \
    "Use bf16: " "fp8.rowwise, fp8.blockwise, fp8.mxfp8, fp4.nvfp4 (attention.precision: FP8 att" \
    "Then: floors, not forecasts: bf16 "
says "Not: fp8.rowwise, fp8.blockwise, " out
gives 0 advise "$scripts/fp8_attention.lua" --only '*tensorwise-fp8-seed1' --detail \
    --facts "$facts/h200.json" --runs none -- \
    "Use fp8.delayed: native" "bf16, fp8.rowwise, fp8.blockwise" "found the recipe bf16"
gives 0 advise "$scripts/exact.lua" --facts "$facts/h200.json" --runs none -- \
    "fp4.nvfp4 (recipe: train.exact has no form of this recipe's products with the CPU's bits)."

case_name="a kernel that the machine lacks" # as `check --facts` refuses it
gives 3 advise "$scripts/attention_backend.lua" --only '*cudnn*' --facts "$facts/gb10.json" \
    --runs none -- 'No recipe can be advised here: attention.backend = "cudnn" is for sm_90'
gives 0 advise "$scripts/attention_backend.lua" --only '*cudnn*' --facts "$facts/h200.json" \
    --runs none -- "Use bf16: "

case_name="an error of the script itself"
gives 2 advise "$scripts/exact.lua" --set train.nonsense=1 -- "unknown key 'nonsense'"
exit $failed
