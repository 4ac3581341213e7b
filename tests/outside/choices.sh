#!/bin/bash
# Answers to multiple choice by a Llama in numpy and the rule in Python, on the weights of a run.
# tests/infer/choices.txt records them, and tests/infer/choices.sh compares `eval --choices` with
# that.
set -u
. tests/outside/lib.sh
. "$root/tests/support/questions.sh"
"$FP8LAB" extract "$bundle" --to open >out 2>log || fail "extract"
python "$root/tests/outside/multiple_choice.py" score questions.bin open "$step" >out 2>log ||
    fail "the rule in Python"
recorded tests/infer/choices.txt out
exit $failed
