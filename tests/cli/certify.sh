#!/bin/bash
# How a device computes is certified before a run: what fails is not used, and log, decisions,
# doctor and bundle say so. A resumed or repeated run stops with exit 3 if another way fails now.
# The device is a stand-in (tests/support/stand_in/wrong_plugin.c).
set -u
. tests/cli/lib.sh
. "$root/tests/support/wrong_device.sh"

case_name="a right device"
echo $WRONG_NOTHING >bin/mistake
run good 0
says "certifying how this device computes"
part good logs/runner.log >log
says "0 ways not used"
expect "forbidden" "None []" "$(part good decisions.json | value 'o.get("forbidden")') \
$(field "$(newest good)" 'run["forbidden"]')"
expect "failed certificates" "0 True" "$(part good certificates.json | value \
    'sum(c["outcome"] == "failed" for c in o["certificates"]), len(o["certificates"]) > 20' |
    tr -d '(),')"
# counts RUNS: certificates in decisions.json; they must be those of certificates.json
counts() {
    part "$1" certificates.json | value '" ".join(str(sum(c["outcome"] == outcome
        for c in o["certificates"])) for outcome in ["passed", "failed", "absent"])' >in_list
    part "$1" decisions.json | value '"%(passed)d %(failed)d %(absent)d" % o["certificates"]' \
        >in_decisions
    expect "counts" "$(cat in_list)" "$(cat in_decisions)"
    part "$1" decisions.json | value '"%(failed)d %(not_certified)d" % o["certificates"]'
}
expect "failed, not certified" "0 0" "$(counts good)"

case_name="kept"
run good2 0
! grep -q "certifying how" log || fail "it certifies again"
part good2 logs/runner.log >log
says "0 certificates made now"
expect "results" "$(field "$(newest good)" 'run["results_sha256"]')" \
    "$(field "$(newest good2)" 'run["results_sha256"]')"

expect "failed, not certified" "0 0" "$(counts good2)"

case_name="damaged"
sed -i 's/passed/PASSED/' "$kept"
run good3 0
says "cannot be used and is ignored: its content does not have the hash that it states"
says "; delete certificates.json"
says "certifying how this device computes"

case_name="no folder for certificates" # a run keeps them beside the runs, and says so
XDG_CACHE_HOME=near HOME='' run homeless 0
says "HOME and XDG_CACHE_HOME name no absolute folder: certificates are kept in homeless/cache"
part homeless logs/runner.log >log
says "certificates are kept in homeless/cache"
[ -f homeless/cache/certificates.json ] || fail "they are not there"

case_name="an ignored scale"
echo $WRONG_IGNORED >bin/mistake
rm -f "$kept"
run ignored 0 --keep-dir
says "gemm e4m3 tensor x e4m3 tensor is not used on this device, and another way is, since"
says "ignored scale"
says "all outputs are as without the scale of a"
expect "forbidden" "gemm e4m3 tensor x e4m3 tensor; gemm e5m2 tensor x e4m3 tensor" \
    "$(part ignored decisions.json | value 'o["forbidden"]')"
expect "both ways of the first" "['failed native', 'passed emulated']" \
    "$(part ignored certificates.json | value '[c["outcome"] + " " + c["how"] for c in
        o["certificates"] if c["way"].startswith("gemm e4m3 tensor")][:2]')"
[ "$(counts ignored | cut -d' ' -f1)" -ge 2 ] || fail "failed certificates are not counted"
case_name="compared with a run that has no counts"
run_tiny --runs reference --backend cpu --set train.steps=4
expect "of the reference" None "$(part reference decisions.json | value 'o.get("certificates")')"
"$FP8LAB" compare "$(newest ignored)" "$(newest reference)" >out 2>log
expect "exit code of compare" 0 $?
! grep -q "certificates" out || fail "compare shows the counts"
"$FP8LAB" verify "$(newest ignored)" "$(newest reference)" >out 2>log
expect "exit code of verify" 0 $?
case_name="an ignored scale"
expect "results, as the right device has them" "$(field "$(newest good)" 'run["results_sha256"]')" \
    "$(field "$(newest ignored)" 'run["results_sha256"]')"

case_name=doctor
"$FP8LAB" doctor --quick --backend cuda --report report.txt >out 2>log
says "failed  native    -" out
says "passed  emulated  reference" out
says "gemm e4m3 row x e4m3 row -> f32, 512 x 768 x 1024, fast: ignored scale" out
says "warning  ways" out
says "report.txt: attach this file to an issue"
says "passed  emulated" report.txt
expect "the report's certificates" "True" "$(tail -n +2 report.txt | sed -n '/^{/,$p' |
    value 'sum(c["fault"] == "ignored scale" for c in o["ways"]) > 4')"
echo mine >mine.txt
"$FP8LAB" doctor --quick --backend cuda --report mine.txt >out 2>log
expect "another file" "2 mine" "$? $(cat mine.txt)"

case_name="repro on the same device"
"$FP8LAB" repro "$(newest ignored)" --runs again --backend cuda --threads 1 >out 2>log
expect "exit code" 0 $?
[ "$(counts again | cut -d' ' -f1)" -ge 2 ] || fail "repro does not count what failed"
case_name="repro on a device that passes"
echo $WRONG_NOTHING >bin/mistake
rm -f "$kept"
"$FP8LAB" repro "$(newest ignored)" --runs other --backend cuda --threads 1 >out 2>log
expect "exit code" 3 $?
says "did not use gemm e4m3 tensor x e4m3 tensor, which failed then and passes here"
case_name="repro on a device that fails"
echo $WRONG_TAIL >bin/mistake
rm -f "$kept"
"$FP8LAB" repro "$(newest good)" --runs other --backend cuda --threads 1 >out 2>log
expect "exit code" 3 $?
says "this device fails in gemm e4m3 tensor x e4m3 tensor, which the run used"

case_name="resume"
echo $WRONG_NOTHING >bin/mistake
rm -f "$kept"
"$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --threads 1 --runs stopped --backend cuda \
    --set train.steps=1000000 --set eval.every=1000000 >out 2>log &
pid=$!
until ls stopped/*/data/checkpoints/step* >/dev/null 2>&1; do
    kill -0 $pid 2>/dev/null || break
    sleep 0.1
done
kill -INT $pid
wait $pid
id=$(basename "$(ls -d stopped/*tiny-*[0-9a-f] | head -1)")
echo $WRONG_TAIL >bin/mistake
rm -f "$kept"
"$FP8LAB" run --resume "$id" --runs stopped --backend cuda --threads 1 >out 2>log
expect "exit code" 3 $?
says "this device fails in gemm e4m3 tensor x e4m3 tensor, which the run used"

case_name="resume on the device of then" # counts what is certified now
echo $WRONG_NOTHING >bin/mistake
rm -f "$kept"
last=$(tail -1 "stopped/$id/data/metrics/train.jsonl" | value 'o["step"]')
"$FP8LAB" run --resume "$id" --runs stopped --backend cuda --threads 1 >out 2>log &
pid=$!
await_step stopped $((last + 1))
kill -INT $pid
wait $pid
expect "exit code" 130 $?
expect "failed, not certified" "0 0" "$(counts stopped)"

case_name="no other way"
for mistake in $WRONG_CAST_STALE $WRONG_ATTENTION; do
    echo $mistake >bin/mistake
    rm -f "$kept"
    if [ $mistake = $WRONG_CAST_STALE ]; then
        run "no$mistake" 3
        says "computes wrong results here, and there is no other way"
        says "stale output"
    else
        run "no$mistake" 0
        says "attention wgmma is not used on this device, and another way is"
    fi
done

exit $failed
