#!/bin/bash
# compare --require: exit codes, a line for each miss, --json and --junit.
set -u
. tests/cli/lib.sh
"$FP8LAB" run "$tests/suite.lua" --lib "$lib" --threads 1 --set train.steps=3 >out 2>log ||
    fail "no runs to compare"
set -- runs/*.tar.zst

"$FP8LAB" compare "$@" --require holds --require 'speed>=1.15x' --junit junit.xml >out 2>log
expect "exit code of two misses" 5 $?
says "missed: holds: B fp8.tensorwise: no verdict: row and baseline need 3 seeds each"
says "missed: speed>=1.15x: B fp8.tensorwise: no verdict: a CPU emulates FP8"
python3 -c 'import xml.etree.ElementTree as t
s = t.parse("junit.xml").getroot()
assert s.get("failures") == "2", s.attrib
assert [c.get("classname") for c in s] == ["holds", "speed>=1.15x"]' || fail "junit.xml"
"$FP8LAB" compare "$@" --require holds --json >out 2>log
expect "exit code with --json" 5 $?
expect "requirements of --json" "holds False False" "$(python3 -c 'import json
r = json.load(open("out"))["requirements"][0]
print(r["requirement"], r["met"], r["rows"][0]["met"])')"
"$FP8LAB" compare "$@" --json >out 2>log
expect "exit code without --require" 0 $?
expect "requirements without --require" "[]" "$(python3 -c 'import json
print(json.load(open("out"))["requirements"])')"
gives 5 compare "$1" "$1" --require holds -- "missed: holds: no row has a baseline"
gives 2 compare "$@" --require 'speed>1' -- "there is no such requirement" "write holds, speed>="
gives 2 compare "$@" --require 'speed>=fast' -- "'fast' is no ratio"
gives 2 compare "$@" --junit j.xml -- "add --require holds"
gives 2 compare "$@" --require holds --junit "$1" -- "--junit"

[ $failed = 0 ] && echo "requirements that are missed are named, with exit code 5"
exit $failed
