#!/bin/bash
# long: 24, waits
# --launch srun, the batch script and ranks under srun on a real Slurm. The test starts and stops
# this Slurm: two nodes, both this machine. It has no Pyxis, and fp8lab must say so. The rest runs
# on the nodes themselves.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}"
export NO_COLOR=1 OMP_WAIT_POLICY=passive
skip() {
    printf '\n*** SKIP: %s\n' "$*"
    printf '*** tests on a real Slurm were NOT run: %s\n' "$*"
    exit 77
}
PATH=$PATH:/usr/sbin:/sbin
for tool in munged slurmctld slurmd srun sbatch scancel; do
    command -v "$tool" >/dev/null || skip "there is no $tool here (containers/install.sh slurm)"
done
failed=0
root=$PWD
cd "$TEST_TMP" || exit 1
fail() {
    echo "FAILED: $*"
    sed 's/^/    /' said | tail -12
    failed=1
}

# ---- a cluster of two nodes --------------------------------------------------------------------
state=$(mktemp -d) # a socket's path has room for 107 characters
finish() {
    local daemon pid
    timeout 10 scancel --user="$(id -un)" 2>/dev/null
    for daemon in slurmd-n1 slurmd-n2 slurmctld munged; do
        pid=$(cat "$state/$daemon.pid" 2>/dev/null) || continue
        kill "$pid" && for _ in $(seq 100); do kill -0 "$pid" && sleep 0.1; done
    done 2>/dev/null
    [ "$failed" = 0 ] || tail -n 5 "$state"/*.log
    rm -rf "$state"
}
trap finish EXIT
export SLURM_CONF=$state/slurm.conf
port=$((20000 + $$ % 12000)) # below the ports that the kernel assigns to other tests
dd if=/dev/urandom of="$state/key" bs=64 count=1 2>/dev/null
chmod 400 "$state/key"
cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$state/munge
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd-%n.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdLogFile=$state/slurmd-%n.log
StateSaveLocation=$state
SlurmdSpoolDir=$state/spool-%n
PlugStackConfig=/dev/null
ReturnToService=2
GresTypes=gpu
NodeName=DEFAULT CPUs=$(nproc) Gres=gpu:2 Features=cpu
NodeName=n1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((port + 1))
NodeName=n2 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((port + 2))
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
END
touch "$state"/gpu{0,1} # the scheduler takes these files for GPUs
echo "Name=gpu File=$state/gpu[0-1]" >"$state/gres.conf"
# From 23.02 on, a slurmd without control groups needs this setting.
slurmd -V | grep -qE ' (1|20|21|22)\.' || echo CgroupPlugin=disabled >"$state/cgroup.conf"
munged --force --key-file="$state/key" --socket="$state/munge" --pid-file="$state/munged.pid" \
    --seed-file="$state/seed" --log-file="$state/munged.log" >said 2>&1 &&
    slurmctld >>said 2>&1 && slurmd -N n1 >>said 2>&1 && slurmd -N n2 >>said 2>&1 ||
    skip "Slurm does not start here: $(tail -q -n 1 "$state"/*.log said | tail -n 1)"
for ((SECONDS = 0; SECONDS < 20; )); do
    [ "$(timeout 5 sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break
    sleep 0.1
done
timeout 20 srun --nodes=2 true >said 2>&1 || skip "Slurm runs nothing here: $(tail -1 said)"

# ---- launching ---------------------------------------------------------------------------------
cp "$root/tests/cli/tiny.lua" .
lib=(--lib "$root/experiments/lib" --backend cpu)
"$FP8LAB" run tiny.lua "${lib[@]}" --launch srun >said 2>&1
[ $? = 2 ] && grep -q "Pyxis.*is not installed here; --image none" said ||
    fail "the missing Pyxis is not reported"
"$FP8LAB" run tiny.lua "${lib[@]}" --launch srun --image none >said 2>&1 ||
    fail "run: exit code $?"
"$FP8LAB" run tiny.lua "${lib[@]}" --runs here >said 2>&1 || fail "the run outside of Slurm fails"
"$FP8LAB" compare --assert-equal runs/*.tar.zst here/*.tar.zst >said 2>&1 ||
    fail "the bits differ from a run outside of Slurm"
cat >slurm.json <<'JSON'
{ "schema": "fp8lab.slurm/1", "flags": ["--partition=all"], "nodes": [
    { "constraint": "cpu", "facts": { "gpu.product_name": "NVIDIA H200", "gpu.count": 1 } } ] }
JSON
sed 's/recipe =/hardware = { query = "gpu.count >= 1" }, recipe =/' tiny.lua >query.lua
"$FP8LAB" run query.lua "${lib[@]}" --anywhere --launch srun --image none --slurm slurm.json \
    >said 2>&1 || fail "a constraint: exit code $?"

# stopped HOW ARGS...: an endless run, stopped by HOW after its first step, exits with 143 and a
# checkpoint
stopped() {
    local how=$1 pid code
    shift
    rm -rf stopped
    # Emptied here, because the child redirects its output later. Until then the file would contain
    # the steps of the run before.
    : >said
    "$FP8LAB" run "$@" --set train.steps=1000000 --runs stopped --launch srun --image none \
        >>said 2>&1 &
    pid=$!
    for _ in $(seq 1200); do grep -q "step [1-9]" said && break; sleep 0.1; done
    "$how" "$pid" || { fail "stopped $how: no process was stopped"; kill -KILL "$pid"; }
    wait "$pid"
    code=$?
    [ "$code" = 143 ] || fail "stopped $how: exit code $code, not 143"
    "$FP8LAB" show --json stopped/*.tar.zst 2>/dev/null | grep -q '"status":"interrupted"' ||
        fail "stopped $how: no bundle"
    grep -q "run --resume" said || fail "stopped $how: no checkpoint to resume from"
}
by_signal() { kill -TERM "$1"; }
# The run before may not have exited yet.
by_scancel() {
    local job
    job=$(squeue -h -t running -o %i | sort -n | tail -1)
    [ -n "$job" ] && scancel --signal=TERM "$job"
}
stopped by_signal tiny.lua "${lib[@]}"
stopped by_scancel tiny.lua "${lib[@]}"

# ---- two nodes, for more GPUs than one has -------------------------------------------------------
# No --backend: the run asks Slurm for GPUs, finds none, and uses the CPU.
sed 's/recipe =/hardware = { gpus = 4 }, recipe =/; s/batch = 4, m.*2/batch = 8, micro_batch = 2/' \
    tiny.lua >four.lua
sed -i 's/{ "gpu.product_name.*1 }/{ "gpu.count": 2 }/' slurm.json
four=(four.lua --lib "$root/experiments/lib" --threads 1)
"$FP8LAB" run "${four[@]}" --runs four --launch srun --image none --slurm slurm.json >said 2>&1 ||
    fail "four ranks on two nodes: exit code $?"
"$FP8LAB" run "${four[@]}" --runs here4 >said 2>&1 || fail "four ranks without Slurm"
"$FP8LAB" compare --assert-equal four/*.tar.zst here4/*.tar.zst >said 2>&1 ||
    fail "four ranks on two nodes: the bits differ from a run outside of Slurm"
"$FP8LAB" extract -q four/*.tar.zst >said 2>&1
python3 - ./*-tiny-*/data/system/hosts.json >said 2>&1 <<'END' || fail "they were not on two nodes"
import json, sys
kept = [host["environment"]["kept"] for host in json.load(open(sys.argv[1]))]
found = [[task["SLURM_" + name] for name in ("NNODES", "PROCID", "LOCALID")] for task in kept]
assert found == [["2", "0", "0"], ["2", "1", "0"]], found
END
stopped by_signal "${four[@]}" --slurm slurm.json

# ---- the batch script, and two ranks -----------------------------------------------------------
PATH=$(dirname "$FP8LAB"):$PATH IMAGE=none sbatch --wait --gpus-per-node=0 --time=5 --output=said \
    "$root/containers/fp8lab.sbatch" tiny.lua "${lib[@]}" --runs batch >/dev/null 2>&1 ||
    fail "fp8lab.sbatch: exit code $?"
"$FP8LAB" compare --assert-equal batch/*.tar.zst here/*.tar.zst >>said 2>&1 || fail "sbatch: bits"
sbatch --wait --gpus-per-node=0 --time=5 --output=said "$root/containers/fp8lab.sbatch" tiny.lua \
    >/dev/null 2>&1
[ $? = 6 ] && grep -q "has no --container-image" said ||
    fail "fp8lab.sbatch does not notice that Pyxis is missing"
if [ "$(nproc)" -ge 2 ]; then
    sed 's/recipe =/hardware = { gpus = 2 }, recipe =/' tiny.lua >two.lua
    timeout 300 srun --ntasks=2 "$FP8LAB" run two.lua "${lib[@]}" --runs ranks >said 2>&1 ||
        fail "two ranks: exit code $?"
    "$FP8LAB" verify ranks/*.tar.zst >>said 2>&1 || fail "two ranks: no bundle"
else
    echo "SKIP: two ranks need two processors"
fi
exit "$failed"
