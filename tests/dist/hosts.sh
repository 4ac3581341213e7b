#!/bin/bash
# long: 60, waits
# Two hosts: network namespaces with their own names and a virtual cable. The bits are those of one
# host. A cut cable ends the run on both hosts within the specified time. With TEST_CASES=all
# (tests/long/hosts.sh) the run also goes on without the other host.
set -u
. tests/dist/lib.sh

LOST_S=20 # WIRE_LOST_MS and SUPERVISE_FROZEN_S
ENDED_S=60 # to end a run and bundle it on a busy machine: far less than a hang's limit
if [ -z "${DIST_INSIDE:-}" ]; then
    if ! unshare -n true 2>/dev/null; then
        as=(--user --map-root-user)
        if ! unshare "${as[@]}" -n true 2>/dev/null; then
            echo "skipped: no permission to make network namespaces"
            exit 77
        fi
    fi
    command -v ip >/dev/null || { echo "skipped: ip (iproute2) is not installed"; exit 77; }
    # A namespace for the whole test: everything that the test makes ends with it.
    cd "$OLDPWD" || exit 1
    DIST_INSIDE=1 exec unshare "${as[@]}" --net --mount --pid --fork --mount-proc "$0"
fi

# The second host is a process that holds its namespaces.
ip link set lo up
unshare --net --uts sleep 1000 &
other=$!
for ((i = 0; i < 1200; i++)); do
    [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ] && break
    sleep 0.05
done
on_other() { nsenter --target "$other" --net --uts "$@"; }
ip link add wire0 type veth peer name wire1
ip link set wire1 netns "$other"
ip addr add 10.77.0.1/24 dev wire0
ip link set wire0 up
on_other ip addr add 10.77.0.2/24 dev wire1
on_other ip link set wire1 up
on_other ip link set lo up
name=$(printf "otherhost-%054d" 7) # 64 characters, the maximum
on_other hostname "$name"
on_other hostname | grep -qx "$name" || {
    echo "skipped: a namespace has no name of its own"
    exit 77
}

each=1 # tasks on each host
master= # MASTER_ADDR, torchrun's address of task 0's host; empty: only srun's variables
task() { # INDEX RUNS ARGS...
    local i=$1 node=$(($1 / each)) runs=$2 where='' torchrun=()
    shift 2
    [ $node = 0 ] || where=on_other
    [ -z "$master" ] || torchrun=(RANK="$i" WORLD_SIZE=$((2 * each)) LOCAL_RANK=$((i % each))
        LOCAL_WORLD_SIZE=$each MASTER_ADDR="$master" MASTER_PORT=29511)
    # shellcheck disable=SC2046
    $where env SLURM_PROCID="$i" SLURM_STEP_NUM_TASKS=$((2 * each)) SLURM_LOCALID=$((i % each)) \
        SLURM_NODEID=$node SLURM_STEP_TASKS_PER_NODE="$each(x2)" SLURM_JOB_ID=12 SLURM_STEP_ID=3 \
        "${torchrun[@]}" $(command_of 4 --runs "$runs" "$@") >"out$i" 2>"log$i"
    echo $? >"code$i"
}
job() { # RUNS ARGS...
    local i tasks=()
    rm -f log? out? code?
    for ((i = 0; i < 2 * each; i++)); do
        task $i "$@" &
        tasks+=($!)
    done
    wait "${tasks[@]}"
}

case_name="one host"
run 4 --runs alone
reference=$(field "$(bundle_in alone)" 'run["results_sha256"]')

case_name="two hosts"
job both
expect "exit codes" "0 0 " "$(cat code? | tr '\n' ' ')"
expect results "$reference" "$(field "$(bundle_in both)" 'run["results_sha256"]')"

case_name="two hosts with IPv6 only"
if [ -e /proc/net/if_inet6 ]; then
    ip addr flush dev wire0
    on_other ip addr flush dev wire1
    ip addr add fd77::1/64 dev wire0 nodad
    on_other ip addr add fd77::2/64 dev wire1 nodad
    job six
    expect "exit codes" "0 0 " "$(cat code? | tr '\n' ' ')"
    expect results "$reference" "$(field "$(bundle_in six)" 'run["results_sha256"]')"
    ip addr add 10.77.0.1/24 dev wire0
    on_other ip addr add 10.77.0.2/24 dev wire1

    case_name="one host with IPv6 only"
    # shellcheck disable=SC2046
    unshare --net sh -c 'ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec "$@"' sh \
        $(command_of 4 --runs v6) >out 2>log
    expect "exit code" 0 $?
    expect results "$reference" "$(field "$(bundle_in v6)" 'run["results_sha256"]')"
fi

case_name="two hosts, a task for each rank"
each=2 job every
expect "exit codes" "0 0 0 0 " "$(cat code? | tr '\n' ' ')"
expect results "$reference" "$(field "$(bundle_in every)" 'run["results_sha256"]')"
expect "hosts" "$(hostname) $(hostname) $name $name" \
    "$("$FP8LAB" extract -q "$(bundle_in every)" >/dev/null 2>&1
    python3 -c 'import json, glob
print(*(h["host"] for h in json.load(open(glob.glob("*/data/system/hosts.json")[0]))))')"

# Addresses of task 0's host: the one in Debian's /etc/hosts, and one that other hosts cannot reach.
ip addr add 192.0.2.1/32 dev lo
for master in 127.0.1.1 192.0.2.1; do
    case_name="a task for each rank, and the address of task 0's host is $master"
    each=2 master=$master job "own-$master"
    expect "exit codes" "0 0 0 0 " "$(cat code? | tr '\n' ' ')"
    expect results "$reference" "$(field "$(bundle_in "own-$master")" 'run["results_sha256"]')"
done
master=

case_name="rank 2, on the other host, is killed"
# shellcheck disable=SC2086
job killed $endless &
await_checkpoint killed $every
kill -KILL "$(pgrep -f -- "fp8lab worker .*--rank 2 ")"
wait $!
bundle=$(bundle_in killed)
expect status killed "$(field "$bundle" 'run["status"]')"
expect "rank and host" "2 $name" "$(field "$bundle" '"%d %s" % (error["rank"], error["host"])')"

case_name="the cable is cut"
# shellcheck disable=SC2086
job cut $endless --retries 1 &
await_step cut $((every * 5 / 4))
await_beats
begin=$(seconds)
ip link set wire0 down
wait $!
took=$(($(seconds) - begin))
[ $took -le $((LOST_S + ENDED_S)) ] || fail "it took $took s"
bundle=$(bundle_in cut)
expect status failed "$(field "$bundle" 'run["status"]')"
expect "the host" "$name" "$(field "$bundle" 'error["host"]')"
expect "the text" True "$(field "$bundle" \
    'error["text"].startswith("task 1 on '"$name"' with ranks 2 to 3 is lost: ")')"
expect "the operation" True "$(field "$bundle" '"step " in error["operation"]')"
grep -q "task 0 on 10.77.0.1 is lost" log1 || fail "the other host does not report it"
grep -q "no retry: task [0-9]* on .* is lost: .*; --fewer-gpus continues without it" log0 ||
    fail "no reason why there was no retry"
grep -q "Next: fp8lab run --resume cut/" log0 || fail "no hint how to continue"
expect "workers are left" "" "$(pgrep -f -- 'fp8lab worker')"

if [ "${TEST_CASES:-}" != all ]; then
    kill $other
    exit $failed
fi
case_name="the cable is cut, with --fewer-gpus"
ip link set wire0 up
sleep 1
# shellcheck disable=SC2086
job alone-again $long --retries 1 --fewer-gpus &
await_step alone-again $((every * 5 / 4))
ip link set wire0 down
wait $!
bundle=$(bundle_in alone-again)
expect status done "$(field "$bundle" 'run["status"]')"
expect "ranks of the attempts" "[4, 2]" "$(field "$bundle" '[a["ranks"] for a in run["attempts"]]')"

kill $other
exit $failed
