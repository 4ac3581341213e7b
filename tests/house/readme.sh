#!/bin/bash
# The commands in the pages exist: verbs, flags, make targets, paths and links. The experiment of
# experiments/README.md passes check. `make help` lists every documented target.
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
for page in README.md CONTRIBUTING.md experiments/README.md containers/README.md \
    containers/LAUNCHING.md; do
    while read -r _ verb rest; do
        [[ $verb == *.lua ]] && continue
        grep -qx "$verb" <<<"$verbs" || { fail "$page: no verb '$verb'"; continue; }
        for flag in $(grep -oE -- ' --[a-z-]+' <<<" ${rest%%#*}"); do
            grep -qE -- "$flag\b" "$TEST_TMP/$verb.help" || fail "$page: $verb has no flag $flag"
        done
    done < <(sed -n '/^```sh/,/^```/p' "$page" | grep -oE '^fp8lab .*')
done

targets=$(make help | sed -n 's/^  \([a-z0-9_.-]*\) .*/\1/p')
documented=$(grep -ohP '(^|`)make \K[a-z]([a-z0-9_-]|\.json)*(?![a-z0-9/-])' ./*.md */README.md \
    containers/*.sh | sort -u)
for target in $documented; do
    grep -qx "$target" <<<"$targets" || fail "documented, but not in make help: make $target"
done
for target in all demo test arrows headers dist info clean help; do
    grep -qx "$target" <<<"$targets" || fail "make help does not list $target"
done
# make -n writes compile_commands.json, too. In an empty folder there are no rules of an earlier
# build, which make would read again for each target that calls it.
# shellcheck disable=SC2046 # the words
make -n BUILD="$TEST_TMP/build" $(grep -vxF compile_commands.json <<<"$targets") \
    >/dev/null 2>"$TEST_TMP/rules" ||
    fail "make -n of every target: $(tail -n 1 "$TEST_TMP/rules")"

for page in README.md CONTRIBUTING.md SECURITY.md; do
    for path in $(grep -oE '`[A-Za-z0-9_.-]+/[A-Za-z0-9_./-]*`' "$page" | tr -d '`' |
        grep -vE '^(runs|build|tests/<)'); do
        [ -e "$path" ] || fail "$page: no such path: $path"
    done
done
for room in experiments runner model kernels kernels/cpu containers tests; do
    [ -e "$room/README.md" ] || fail "$room/ has no README.md"
done

# Links from page to page: the file is there, and so is the heading.
headings() { # PAGE: the anchors of its headings
    sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}
while IFS=: read -r page link; do
    file=${link%%#*}
    target=$page
    [ -z "$file" ] || target=$(dirname "$page")/$file
    [ -e "$target" ] || { fail "$page: no file behind the link $link"; continue; }
    [[ $link != *#* ]] || headings "$target" | grep -qx -- "${link#*#}" ||
        fail "$page: no heading behind the link $link"
done < <(find . -name '*.md' -not -path './build/*' -not -path './.*' -not -path './dist/*' \
    -not -path './runs/*' -exec grep -oHP '\]\(\K[^):[:space:]]+(?=\))' {} +)

sed -n '/^```lua/,/^```/p' experiments/README.md | grep -v '^```' >"$TEST_TMP/mine.lua"
"$FP8LAB" check "$TEST_TMP/mine.lua" ||
    fail "experiments/README.md: its experiment does not pass check"
exit "$failed"
