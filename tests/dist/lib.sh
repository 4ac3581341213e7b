# For the shell tests of this folder: sourced, from the repository root.
. tests/cli/lib.sh
# Steps between checkpoints of a run that a test disturbs.
: "${every:=20}"

# The command line of a run of the tiny experiment on $1 ranks.
command_of() { # RANKS ARGS...
    local ranks=$1
    shift
    echo "$FP8LAB run $tests/tiny.lua --lib $lib --threads 1 --set hardware.gpus=$ranks" \
        "--set train.global_batch=8 $*"
}
long="--set train.steps=$((6 * every)) --set checkpoint.every=$every"
# For runs that are not resumed: they cannot end too early.
endless="--set train.steps=1000000 --set checkpoint.every=$every"

run() { # RANKS ARGS...; exit code in $code
    # shellcheck disable=SC2046
    $(command_of "$@") >out 2>log
    code=$?
}

# The files in a folder of runs other than bundles, their checkpoints and the claim.
left_in() {
    find "$1" -mindepth 1 -maxdepth 1 ! -name '*.tar.zst' ! -name .claim ! -name '*.ckpt'
}

# The worker of rank $2 among the children of runner $1.
rank_of() {
    local pid
    for pid in $(children_of "$1"); do
        tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -- "--rank $2 " && echo "$pid"
    done
}
# The states of another host's ranks come with its heartbeats, two a second (TICK_MS). Waits for
# some, so that the leader knows of a step.
await_beats() { sleep 2; }
seconds() { date +%s; }
