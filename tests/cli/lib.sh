# What shell tests of the program share: sourced, from the repository root. It changes the directory
# to TEST_TMP. A test writes a command's results to `out` and its messages to `log`.
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
export NO_COLOR=1
root=$PWD tests=$PWD/tests/cli lib=$PWD/experiments/lib
cd "$TEST_TMP" || exit 1
failed=0
case_name=

fail() { # WORDS...: prints the end of each file in $shown too (default: the logs)
    local file
    echo "FAILED: ${case_name:+$case_name: }$*"
    for file in ${shown:-log*}; do [ -f "$file" ] && tail -8 "$file" | sed "s/^/    $file: /"; done
    failed=1
}

expect() { # WHAT WANTED FOUND
    [ "$2" = "$3" ] || fail "$1: wanted $2, found $3"
}

says() { # WORDS [FILE]
    grep -qF -- "$1" "${2:-log}" || fail "${2:-log} does not say: $1"
}

# Whether a file matches one of the patterns. (`ls` also fails if another one matches none.)
made() { # PATTERN...
    local pattern
    for pattern; do compgen -G "$pattern" && return 0; done
    return 1
}

# gives CODE ARGUMENTS... -- WORDS...: runs fp8lab with the arguments; checks its exit code and that
# its output, in `out`, has the words.
gives() {
    local code=$1 arguments=() got word
    shift
    while [ "$1" != -- ]; do arguments+=("$1") && shift; done
    shift
    "$FP8LAB" "${arguments[@]}" >out 2>&1
    got=$?
    [ "$got" = "$code" ] || fail "exit code $got, not $code: ${arguments[*]}"
    for word in "$@"; do
        grep -qF -- "$word" out || fail "${arguments[*]}: missing in the output: $word"
    done
}

run_tiny() { # ARGS...: the tiny experiment; exit code in $code
    "$FP8LAB" run "$tests/tiny.lua" --lib "$lib" --threads 1 "$@" >out 2>log
    code=$?
}

# An expression over run.json and its neighbours, such as run["status"].
field() { # BUNDLE EXPRESSION
    "$FP8LAB" show --json "$1" | python3 -c 'import json, sys
o = json.load(sys.stdin)
run, summary, resolved, error = o["run"], o["summary"], o["resolved"], o["run"]["error"]
print(eval(sys.argv[1]))' "$2"
}

bundle_in() { ls "$1"/*.tar.zst 2>/dev/null | head -1; }
newest() { ls -td "$1"/*.tar.zst | head -1; } # by time: two names can share a second

# Waits until a file of the pattern contains the words, for two minutes at most.
await_words() { # WORDS PATTERN
    local i
    for ((i = 0; i < 6000; i++)); do
        # shellcheck disable=SC2086  # a pattern
        grep -qsF -- "$1" $2 && return
        sleep 0.02
    done
    fail "$2 never said: $1"
}

await_step() { # RUNS STEP [NAME]: until a run there with NAME in its name has recorded the step
    await_words "\"step\":$2," "$1/*${3:-}*/data/metrics/train.jsonl"
}

# Steps do not wait for a checkpoint: a run that has recorded a later step may not have written it.
await_checkpoint() { # RUNS STEP [NAME]
    await_words "checkpoint of step $2," "$1/*${3:-}*/data/logs/runner.log"
}

children_of() { cat "/proc/$1/task/$1/children"; }
runner_of() { head -1 "$(ls "$1"/*/lock)"; } # RUNS: the process of its only open run
