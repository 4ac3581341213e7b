# For tests of a peer that runs a public program, with a stand-in for that program. A test sources
# this file from the repository root, after it sets `peer` (llmc), `public` (llm.c), `stand_in` (its
# file in tests/support/stand_in) and `experiment`. PEER_MODE is the behaviour of the stand-in.
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
export NO_COLOR=1 PEER_MODE=steady MARK="$peer-test-$$"
stand_in=$PWD/tests/support/stand_in/$stand_in
peer_command=(python3 "$PWD/experiments/peers/$peer.py" "$PWD/experiments/$experiment"
    --program "$FP8LAB" "--$peer" "$stand_in")
cd "$TEST_TMP" || exit 1
mkdir tmp
export TMPDIR=$PWD/tmp
failed=0
fail() {
    echo "FAILED: $*"
    sed 's/^/    /' err | tail -6
    failed=1
}

measure() { # ARGS...: runs `peer_command` with them
    "${peer_command[@]}" "$@" >out 2>err
}
ours() { # every process that we started has MARK in its environment
    env -u MARK grep -lsaF "MARK=$MARK" /proc/[0-9]*/environ
}
nothing_left() {
    [ -z "$(ls tmp)" ] || fail "$1: left in the temporary folder: $(ls tmp)"
    [ -z "$(ours)" ] || fail "$1: still there: $(ours)"
}
expect() { # CODE WORDS ARGS...
    local code=$1 words=$2 got
    shift 2
    measure "$@"
    got=$?
    [ $got = "$code" ] || fail "$PEER_MODE $*: exit code $got, not $code"
    grep -qF -- "$words" err || fail "$PEER_MODE $*: missing in the output: $words"
    ! grep -q Traceback err || fail "$PEER_MODE $*: a traceback"
    nothing_left "$PEER_MODE $*"
}
lines() { # EXPRESSION: this Python expression holds for the JSON lines in `out`
    python3 -c '
import json, sys
lines = [json.loads(line) for line in open("out")]
assert eval(sys.argv[1]), lines' "$1" 2>>err || fail "does not hold: $1"
}

# Programs that cannot be started, named by the flag or by the variable.
no_program() { # VARIABLE
    expect 2 "there is no program '/nowhere': --$peer or $1" "--$peer" /nowhere
    (export "$1="; expect 2 "there is no program ''" "--$peer" ''; exit $failed) || failed=1
    echo "no program" >text && chmod +x text
    expect 6 "cannot start $PWD/text: Exec format error" "--$peer" ./text
}

# A signal ends the public program and removes its files.
ends_by_signal() {
    local code i
    PEER_MODE=hangs "${peer_command[@]}" >out 2>err &
    for ((i = 0; i < 1200; i++)); do
        cat $(ours | sed 's/environ$/comm/') /dev/null 2>/dev/null | grep -qx sleep && break
        sleep 0.05
    done
    kill -TERM $!
    wait $!
    code=$?
    [ $code = 143 ] || fail "SIGTERM: exit code $code, not 143"
    [ $i -lt 1200 ] || fail "SIGTERM: $public was never started"
    nothing_left SIGTERM
}
