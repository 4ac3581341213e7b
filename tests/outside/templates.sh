#!/bin/bash
# long: 20
# `data sample` renders the conversations that the package transformers renders, and rejects those
# that it rejects. The templates are those of the package trl, and ours for families that trl does
# not have. `data tokenise --chat` makes their tokens and loss as transformers and tokenizers do.
# tests/long/templates.sh takes more conversations and all templates of trl.
set -u
. tests/outside/lib.sh
trl=$(python -c 'import importlib.util
print(importlib.util.find_spec("trl").submodule_search_locations[0])')
compare() { # FOLDER NAME...
    python "$root/tests/chat/compare_packages.py" "$FP8LAB" "$@" --count "${count:-30}" \
        >out 2>log || fail "$1: a rendered conversation differs"
    [ -s out ] || fail "$1: nothing was compared"
    python "$root/tests/chat/compare_tokens.py" "$FP8LAB" "$@" --count "${count:-30}" \
        >out 2>log || fail "$1: tokens or loss of a conversation differ"
    [ "$(wc -l <out)" -gt 3 ] || fail "$1: no tokens were compared"
}
# shellcheck disable=SC2086  # names
compare "$trl/chat_templates" ${names-llama3 llama3_1 llama3_2 qwen2_5 qwen3}
compare "$root/tests/chat/templates"
[ $failed = 0 ] && tail -1 out
exit $failed
