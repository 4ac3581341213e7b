#!/bin/bash
# completion: bash's suggestions for the words of a command line; each shell's script names every
# verb; no shell executes a file name on TAB.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
tests=$PWD/tests/cli
cd "$TEST_TMP" || exit 1
mkdir -p runs sub
touch x.lua y.txt runs/20261121T010203Z-tiny-0badcafe.tar.zst
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
# shellcheck disable=SC1090
source <("$FP8LAB" completion bash) || fail "bash does not take it"
complete -p fp8lab >/dev/null || fail "nothing completes fp8lab"
offers() { # WANTED UNWANTED WORDS...: for the last of the words
    local wanted=$1 unwanted=$2
    shift 2
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    _fp8lab fp8lab "${!#}"
    [[ " ${COMPREPLY[*]} " == *" $wanted "* ]] || fail "$*: no $wanted in: ${COMPREPLY[*]}"
    [[ " ${COMPREPLY[*]} " != *" $unwanted "* ]] || fail "$*: $unwanted is offered"
}
offers repro worker fp8lab r
offers x.lua y.txt fp8lab ""
offers --smoke --html fp8lab run --
offers --smoke --html fp8lab x.lua --s
offers x.lua y.txt fp8lab check ""
offers sub y.txt fp8lab check ""
offers 20261121T010203Z-tiny-0badcafe x.tar.zst fp8lab show 2026
offers last y fp8lab repro l
offers last~1 x.lua fp8lab show l
offers best:eval.loss gemm fp8lab compare b
offers speed old fp8lab list --sort s
offers old speed fp8lab gc --checkpoints o
offers cuda x.lua fp8lab run --backend ""
offers podman docker fp8lab run x.lua --launch p
offers help worker fp8lab h
offers repro worker fp8lab help ""
offers attention docker fp8lab bench ""
offers fish gemm fp8lab completion f
offers train.steps= x.lua fp8lab run x.lua --set train.s
offers recipe.history= train.steps= fp8lab check x.lua --set recipe.h
offers model.rope.scaling.factor= --smoke fp8lab plan x.lua --set model.rope.
offers data.tokenizer= data.render= fp8lab run x.lua --set data.
offers train.optimizer.offload= hardware= fp8lab run x.lua --set ""
# After a flag only its values; no files for a verb without file arguments.
touch reports replay.tar.zst
offers e4m3 --m fp8lab bench gemm --dtype ""
offers 128x128 gemm fp8lab bench quantise --scale ""
offers y.txt --smoke fp8lab plan --facts ""
offers 20261121T010203Z-tiny-0badcafe x.lua fp8lab run --resume 2
offers repro reports fp8lab help r
offers replay.tar.zst --json fp8lab repro r
COMP_WORDS=(fp8lab run --only "") COMP_CWORD=3
_fp8lab fp8lab ""
[ ${#COMPREPLY[*]} = 0 ] || fail "run --only: ${COMPREPLY[*]} is offered"
# Every flag of every verb, as --help lists them.
for verb in $("$FP8LAB" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    for flag in $("$FP8LAB" help "$verb" | sed -n 's/^  \(--[a-z-]*\).*/\1/p'); do
        offers "$flag" --nonsense fp8lab "$verb" --
    done
done
for shell in bash zsh fish; do
    for verb in $("$FP8LAB" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
        "$FP8LAB" completion $shell | grep -qw -- "$verb" || fail "$shell: no $verb"
    done
done
for shell in zsh fish; do
    command -v $shell >/dev/null || continue
    "$FP8LAB" completion $shell >script
    $shell -n script || fail "$shell does not take it"
done
# fish's script says what each flag is, also the ones of every command; nothing is on stderr in a
# folder without runs.
if command -v fish >/dev/null; then
    mkdir empty
    (cd empty && fish --no-config -c 'source ../script; complete -C "fp8lab plan --js"
        complete -C "fp8lab show l"') >out 2>&1
    printf -- '%s\t%s\nlast\nlast~1\n' --json "print the result as one JSON object" | cmp - out ||
        fail "fish: $(cat out)"
fi
# In interactive shells, with file names that contain commands.
bash_completion=/usr/share/bash-completion/bash_completion
for shell in bash bash-completion zsh fish; do
    if [ $shell = bash-completion ] && [ -e $bash_completion ] || command -v $shell >/dev/null; then
        python3 "$tests/completion_tabs.py" "$FP8LAB" $shell "$TEST_TMP/$shell" ||
            fail "TAB in $shell"
    else
        missing="${missing-} $shell"
    fi
done
"$FP8LAB" completion tcsh >out 2>&1
[ $? = 2 ] || fail "completion tcsh: exit code"
[ $failed = 0 ] || exit 1
[ -z "${missing-}" ] || { echo "SKIP: not here:$missing (containers/install.sh test)" && exit 77; }
