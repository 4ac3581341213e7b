#!/bin/bash
# Which run `last` means after `repro`: repro repeats the original again; verbs that compare runs or
# read weights leave out repetitions that ended early; the others take the newest run.
set -u
. "$PWD/tests/cli/lib.sh"

run_tiny -q --set checkpoint.every=12
original=$(newest runs)
repro() { # CODE ARGUMENTS... -- WORDS...
    gives "$1" repro --threads 1 "${@:2}"
}
repro 0 last --steps 3 -- "the first 3 of 12 steps"
cut=$(newest runs)
gives 0 show last -- "interrupted" "$(basename "${cut%.tar.zst}")"

case_name="repro"
repro 0 last --steps 4 -- "last means $original: what repro made does not count" \
    "the first 4 of 12 steps" "bundle     $original"
repro 0 name:tiny --steps 5 -- "the first 5 of 12 steps" "bundle     $original"
repro 0 "$cut" -- "bitwise equal  tiny, 3 steps" # by its path any run can be repeated
whole=$(newest runs)
repro 2 last~1 -- "last~1: runs has 1 run that repro did not make; last~0 is the oldest"

case_name="weights and comparisons"
gives 0 show last -- "done" "$(basename "${whole%.tar.zst}")"
gives 0 compare last~1 last -- "last~1 means $original: what repro ended early does not count" \
    "equal bit for bit over 12 steps"
repro 0 last --steps 3 --
gives 0 export last --to exported -- "last means $whole: what repro ended early does not count"
gives 0 run --extend last --set train.steps=14 --threads 1 -- "step 14/14"

case_name="only repetitions"
mkdir only && cp "$cut" only
repro 2 last --runs only -- "last: only has only runs that repro made; name one, such as only/"
gives 2 compare last last --runs only -- "only has only runs that repro ended early; name one"
repro 2 last --runs nowhere -- "there are no runs in nowhere"
exit "$failed"
