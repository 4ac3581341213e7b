#!/bin/bash
# tests/gpu/plan_peak.py without a GPU: a stand-in for the driver, and one for the program, whose
# peak is visible in a single sample. The result is the peak above the earlier use, on the GPU with
# the higher one.
set -u
: "${TEST_TMP:=$(mktemp -d)}"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
root=$PWD
cd "$TEST_TMP" || exit 1
failed=0
fail() {
    echo "FAILED: $*"
    sed 's/^/    /' log
    failed=1
}

# The program holds 3000 MiB on GPU 0, 2000 MiB on GPU 1, and there 1500 MiB more for one sample.
cat >program <<'SH'
#!/bin/bash
if [ "$1" = plan ]; then
    echo '{"runs": [{"name": "row", "bytes": 2097152000, "peak_bytes": '"$PEAK"', "rows":
        [{"item": "timing GEMMs", "arena": "beside the arenas", "bytes": 1572864000}]}]}'
    exit
fi
[ "$PEAK" != 0 ] || { echo 'no such row' >&2; exit 3; }
truncate -s 3100M "$FAKE_MEMORY/0"
truncate -s 2200M "$FAKE_MEMORY/1"
truncate -s 1500M "$FAKE_MEMORY/soon"
mv "$FAKE_MEMORY/soon" "$FAKE_MEMORY/once"
for ((i = 0; i < 6000; i++)); do
    [ -e "$FAKE_MEMORY/once" ] || exit 0
    sleep 0.01
done
echo 'no sample was taken' >&2
exit 1
SH
chmod +x program
mkdir memory v1 v2
cc -shared -fPIC -o v2/libnvidia-ml.so.1 "$root/tests/support/stand_in/nvml_memory.c" || exit 1
cc -shared -fPIC -DWITHOUT_V2 -o v1/libnvidia-ml.so.1 \
    "$root/tests/support/stand_in/nvml_memory.c" || exit 1

peak() { # RC LIBRARY VISIBLE PEAK_MIB -- TEXT...
    local expected=$1 library=$2 visible=$3 peak=$4 rc
    shift 5
    truncate -s 100M memory/0
    truncate -s 200M memory/1
    CUDA_VISIBLE_DEVICES=$visible LD_LIBRARY_PATH=$PWD/$library FAKE_MEMORY=$PWD/memory \
        PEAK=$((peak << 20)) python3 "$root/tests/gpu/plan_peak.py" ./program row.lua >log 2>&1
    rc=$?
    [ $rc = "$expected" ] || fail "exit code $rc, expected $expected: $library, GPUs '$visible'"
    for text; do grep -qF -- "$text" log || fail "missing in the output: $text"; done
}

peak 0 v2 '' 3500 -- 'seen      3500 MiB       +0 MiB' \
    'beside the arenas: seen 1500 MiB, planned timing GEMMs 1500' 'ms apart at most'
peak 0 v1 '' 3500 -- 'seen      3500 MiB'
peak 0 v2 1,0 3500 -- 'seen      3500 MiB'
peak 0 v2 GPU-1 3500 -- 'seen      3500 MiB'
peak 1 v2 '' 4100 -- 'seen      3500 MiB     +600 MiB +17.14 %  OFF'
peak 1 v2 '' 2900 -- 'seen      3500 MiB     -600 MiB -17.14 %  OFF'
peak 1 v2 2 3500 -- "CUDA_VISIBLE_DEVICES: NVML sees no GPU '2'"
peak 1 v2 '' 0 -- 'no such row'
exit $failed
