#!/bin/bash
# long: 20
# `data tokenise` gives the ids of the packages tokenizers and tiktoken, for each family. The input
# is text in many scripts and random strings. tests/long/tokenizers.sh takes more of both.
set -u
. tests/outside/lib.sh
# shellcheck disable=SC2086  # words
python "$root/tests/ingest/compare_packages.py" ${amount:---mb 0.05 --strings 3000} >out 2>log ||
    fail "the ids differ"
python "$root/tests/ingest/compare_patterns.py" >>out 2>>log || fail "the ids of a pattern differ"
[ $failed = 0 ] && tail -1 out
exit $failed
