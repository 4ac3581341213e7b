#!/bin/bash
# What README.md tells a newcomer to type exists: every verb, flag, target and path; its experiment
# passes check; and `make help` lists every target that is documented anywhere.
set -u
failed=0
fail() { echo "$1"; failed=1; }

help=$("$FP8LAB" --help) || fail "fp8lab --help failed"
verbs=$(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' <<<"$help")
[ "$(wc -w <<<"$verbs")" -gt 1 ] || fail "fp8lab --help lists no commands"
for verb in $verbs; do
    "$FP8LAB" "$verb" --help >"$TEST_TMP/$verb.help" || fail "fp8lab $verb --help failed"
    grep -q "^Usage: fp8lab $verb" "$TEST_TMP/$verb.help" || fail "$verb --help has no usage line"
done

# Commands in the fenced blocks: "fp8lab VERB ...", and their flags.
while read -r _ verb rest; do
    [[ $verb == *.lua ]] && continue
    grep -qx "$verb" <<<"$verbs" || { fail "README: no verb '$verb'"; continue; }
    for flag in $(grep -oE -- ' --[a-z-]+' <<<" ${rest%%#*}"); do
        grep -qE -- "$flag\b" "$TEST_TMP/$verb.help" || fail "README: $verb has no flag $flag"
    done
done < <(sed -n '/^```sh/,/^```/p' README.md | grep -oE '^fp8lab .*')

targets=$(make help | sed -n 's/^  \([a-z0-9-]*\) .*/\1/p')
documented=$(grep -ohP '(^|`)make \K[a-z][a-z0-9-]*(?![a-z0-9/-])' README.md */README.md \
    containers/*.sh | sort -u)
for target in $documented; do
    grep -qx "$target" <<<"$targets" || fail "documented, but not in make help: make $target"
done
for target in all demo test arrows headers dist info clean help; do
    grep -qx "$target" <<<"$targets" || fail "make help does not list $target"
done
for target in $targets; do
    make -n "$target" >/dev/null 2>&1 || fail "make $target: no rule"
done

for path in $(grep -oE '`[A-Za-z0-9_.-]+/[A-Za-z0-9_./-]*`' README.md | tr -d '`' |
    grep -v '^runs/'); do
    [ -e "$path" ] || fail "README: no such path: $path"
done
for room in experiments runner model kernels kernels/cpu containers tests; do
    [ -e "$room/README.md" ] || fail "$room/ has no README.md"
done

sed -n '/^```lua/,/^```/p' README.md | grep -v '^```' >"$TEST_TMP/mine.lua"
"$FP8LAB" check "$TEST_TMP/mine.lua" || fail "README: its experiment does not pass check"
exit "$failed"
