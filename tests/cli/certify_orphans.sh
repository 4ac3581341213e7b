#!/bin/bash
# A child that certifies ends with the command that started it, also when only the command gets the
# signal. The device is a stand-in, on which a certificate never ends.
set -u
. tests/cli/lib.sh
. "$root/tests/support/wrong_device.sh"

device 0
run good 0 --set recipe=fp8.tensorwise
id=$(basename "$(newest good)" .tar.zst)
device hang

# end_with SIGNAL NUMBER ARGS...: the command gets the signal, and nobody else
end_with() {
    local signal=$1 wanted=$((128 + $2)) command child='' i
    shift 2
    case_name="$1, SIG$signal"
    env --default-signal=INT "$FP8LAB" "$@" --backend cuda >out 2>log & # a shell ignores it there
    command=$!
    for ((i = 0; i < 3000; i++)); do
        child=$(children_of $command 2>/dev/null)
        child=${child% }
        grep -qsz -e --certify "/proc/$child/cmdline" && break
        sleep 0.02
    done
    [ $i -lt 3000 ] || { fail "no certificate is made" && return; }
    kill -s "$signal" $command
    wait $command 2>/dev/null
    expect "exit code" $wanted $?
    for ((i = 0; i < 500; i++)); do
        grep -qsz -e --certify "/proc/$child/cmdline" || return
        sleep 0.02
    done
    fail "the child lives on"
    kill -9 "$child"
}

end_with TERM 15 eval "$id" --runs good
end_with INT 2 eval "$id" --runs good
end_with TERM 15 generate "$id" --runs good --tokens 4 --tokenizer bytes ab
end_with TERM 15 doctor --quick --report report.txt
end_with KILL 9 run "$tests/tiny.lua" --lib "$lib" --runs hangs
exit $failed
