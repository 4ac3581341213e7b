#!/bin/bash
# Records that were lost, as by a power loss or a hand: no run goes on from a checkpoint that the
# records do not reach, and a bundle with a hole says so.
set -u
. tests/cli/lib.sh
tiny() { # RUNS STEPS
    "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --backend cpu --threads 1 --runs "$1" \
        --set train.steps="$2" --set checkpoint.every=20 --set checkpoint.keep=100
}
killed() { # RUNS: a run whose runner and worker were killed after its step 70
    tiny "$1" 100000 >out 2>log &
    await_step "$1" 70
    kill -9 "$(runner_of "$1")" $(pgrep -P "$(runner_of "$1")")
    wait
    records=$(echo "$1"/*/data/metrics/train.jsonl)
}
keep_lines() { # SED: of the records
    sed -n "$1" "$records" >kept && cat kept >"$records"
}

case_name="the end is lost"
killed cut
keep_lines 1,30p
"$FP8LAB" close "$(echo cut/*/)" >out 2>log
says "the newest checkpoint of step 20" <(tar -xOf cut/*.tar.zst --wildcards '*/data/run.json')
bundle=$(echo cut/*.tar.zst)
"$FP8LAB" run --resume "$bundle" --runs cut --threads 1 >out 2>log & # 100000 steps are too many
await_step cut 45
kill -TERM "$(runner_of cut)"
wait
says "the run's records end at step 30, so some were lost" log
says "resuming from step 20" log
"$FP8LAB" show --json "$(newest cut)" | grep -q '"problems":\[\]' || fail "a problem without a hole"

case_name="all records are lost"
killed none
: >"$records"
"$FP8LAB" close "$(echo none/*/)" >out 2>log
says "the newest checkpoint of step 0" <(tar -xOf none/*.tar.zst --wildcards '*/data/run.json')

case_name="a hole"
killed hole
keep_lines '1,9p;20,50p'
printf '\0\0behind zeros\nand more\n' >>"$(echo hole/*/data/logs/runner.log)" # of a power loss
"$FP8LAB" log "$(echo hole/*/)" >out 2>log
says "??behind zeros" out
says "and more" out
"$FP8LAB" close "$(echo hole/*/)" >out 2>log
says "the records of 10 steps were lost: data/metrics/train.jsonl lacks them" log
"$FP8LAB" show "$(newest hole)" >out 2>log
says "the records of 10 steps were lost" out
"$FP8LAB" verify "$(newest hole)" >out 2>log || fail "verify: exit code $?"
says "the records of 10 steps were lost" log

case_name="rows of a wide stream are lost"
killed rows
wide=$(echo rows/*/data/metrics/trace.npy)
truncate -s $(($(stat -c %s "$wide") * 2 / 3)) "$wide"
"$FP8LAB" close "$(echo rows/*/)" >out 2>log
[ $? = 4 ] || fail "close: not exit code 4"
says " rows were lost: data/metrics/trace.npy counts" log
"$FP8LAB" verify "$(newest rows)" >out 2>log || fail "verify: exit code $?"
says " rows were lost" log

case_name="the header of a wide stream is lost"
killed head
truncate -s 70 "$(echo head/*/data/metrics/trace.npy)"
"$FP8LAB" close "$(echo head/*/)" >out 2>log
[ $? = 4 ] || fail "close: not exit code 4"
says "data/metrics/trace.npy has no whole header, so the bundle lacks its rows" log
exit "$failed"
