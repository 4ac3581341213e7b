#!/bin/bash
# doctor: this machine's CPU to the bit; other machines through fact files; libraries, driver and
# compiler through stand-ins made here. Each finding with its fix, and the exit code.
set -u
: "${TEST_TMP:=$(mktemp -d)}" "${FP8LAB:=$PWD/build/release/fp8lab}" "${BUILD:=$PWD/build/release}"
export NO_COLOR=1 OMP_WAIT_POLICY=passive
root=$PWD
failed=0
fail() {
    echo "FAILED: $*"
    sed 's/^/    /' "$TEST_TMP/out" | tail -30
    failed=1
}
# expect CODE -- ARGUMENTS -- WORDS...: doctor's output and exit code ("any": not checked).
expect() {
    local code=$1 arguments=() got word
    shift 2
    while [ "$1" != -- ]; do arguments+=("$1") && shift; done
    shift
    "$FP8LAB" doctor "${arguments[@]}" >"$TEST_TMP/out" 2>&1
    got=$?
    [ "$code" = any ] || [ "$got" = "$code" ] ||
        fail "exit code $got, not $code: doctor ${arguments[*]}"
    for word in "$@"; do
        grep -qF -- "$word" "$TEST_TMP/out" ||
            fail "doctor ${arguments[*]}: missing in the output: $word"
    done
}
# facts FILE KEY=JSON...: a fact file with other values.
facts() {
    python3 - "$@" >"$TEST_TMP/facts.json" <<'PY'
import json, sys
facts = json.load(open(f"tests/facts/{sys.argv[1]}.json"))
for pair in sys.argv[2:]:
    key, value = pair.split("=", 1)
    facts[key] = json.loads(value)
json.dump(facts, sys.stdout)
PY
}
f=$TEST_TMP/facts.json

# ---- this machine's CPU: every recipe, to the bit
"$FP8LAB" doctor --backend cpu --json >"$TEST_TMP/out" 2>&1 ||
    fail "doctor --backend cpu: exit code $?"
python3 - "$TEST_TMP/out" <<'PY' || fail "doctor --json"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["schema"] == "fp8lab.doctor/1" and report["well"] is True
rows = {r["recipe"]: r for r in report["recipes"]}
assert list(rows) == ["bf16", "fp8.delayed", "fp8.tensorwise", "fp8.rowwise", "fp8.blockwise",
                      "fp8.mxfp8", "fp4.nvfp4"]
for name, row in rows.items():
    assert row["way"] == "emulated" and row["because"], name
    assert row["verdict"] == "agrees", (name, row["verdict"])
    losses = row["check"]["losses"]
    assert len(losses) == 10 and losses[9] < losses[0]
for finding in report["findings"]:
    assert set(finding) == {"topic", "level", "found", "fix"}
    assert finding["level"] not in ("warning", "wrong") or finding["fix"], finding
PY

# ---- variables of a launcher that were left in a shell
RANK=0 WORLD_SIZE=2 expect 0 -- --quick --backend cpu -- 'warning  launcher' \
    'RANK=0 and WORLD_SIZE=2 are set, as by torchrun: `fp8lab run` is task 0 of 2 here' \
    'fix: unset RANK WORLD_SIZE'
WORLD_SIZE=2 expect 1 -- --quick --backend cpu -- 'wrong    launcher' \
    'WORLD_SIZE=2 is set, as torchrun does, and RANK is not'

# ---- a report has a name, and is of this machine; on a CPU its ways are those of the recipes
expect 2 -- --report --quick -- '--report --quick: give the name of a file to write'
[ ! -e ./--quick ] || fail "a report named --quick"
expect 2 -- --facts tests/facts/h200.json --report "$TEST_TMP/r.txt" -- \
    'a report says how a machine computes, which only that machine can try'
[ ! -e "$TEST_TMP/r.txt" ] || fail "a report of another machine"
expect 0 -- --quick --backend cpu --report "$TEST_TMP/r.txt" -- 'passed  emulated  reference' \
    'gemm e2m1 1x16 x e2m1 16x16 -> f32, 128 x 128 x 8192' 'fp4.nvfp4        emulated'
! grep -q 'passed  native' "$TEST_TMP/r.txt" || fail "a CPU multiplies natively"

# ---- a file that cannot be written is refused before the examination; other data stay
refused() { # FILE WORDS: one line, and nothing is examined
    expect 2 -- --backend cpu --report "$1" -- "--report $1: $2"
    [ "$(wc -l <"$TEST_TMP/out")" = 1 ] || fail "--report $1: more than one line"
}
mkdir -p "$TEST_TMP/folder"
printf 'my notes on the\nfp8lab doctor report\n' >"$TEST_TMP/mine.txt"
cp "$TEST_TMP/mine.txt" "$TEST_TMP/mine.copy"
refused "$TEST_TMP/mine.txt" \
    'the file holds other data, and stays as it is; name a new file or an earlier report of doctor'
cmp -s "$TEST_TMP/mine.txt" "$TEST_TMP/mine.copy" || fail "a file of the user was replaced"
refused "$TEST_TMP/none/r.txt" "there is no folder $TEST_TMP/none; make it, or name a file in"
refused "$TEST_TMP/folder" 'it is not a regular file'
refused "$TEST_TMP/new/" 'it is a folder; name a file'
if [ "$(id -u)" != 0 ]; then
    chmod 555 "$TEST_TMP/folder"
    refused "$TEST_TMP/folder/r.txt" "no file can be written in $TEST_TMP/folder: Permission denied"
    chmod 755 "$TEST_TMP/folder"
fi
# A report replaces a report. If it cannot be written, the findings are printed, the old one stays.
expect 0 -- --quick --backend cpu --report "$TEST_TMP/r.txt" -- 'passed  emulated  reference'
cp "$TEST_TMP/r.txt" "$TEST_TMP/r.copy"
mkdir "$TEST_TMP/r.txt.partial" # no temporary file can have this name
expect 6 -- --quick --backend cpu --report "$TEST_TMP/r.txt" -- 'fine     ways' 'all is well' \
    "create $TEST_TMP/r.txt.partial: "
cmp -s "$TEST_TMP/r.txt" "$TEST_TMP/r.copy" || fail "an earlier report was lost"
rmdir "$TEST_TMP/r.txt.partial"

# ---- certificates of earlier runs that cannot be read or kept
report=(--quick --backend cpu --report "$TEST_TMP/r.txt")
certificates=$XDG_CACHE_HOME/fp8lab/certificates.json
cp "$certificates" "$TEST_TMP/certificates.json"
echo '{"schema": "fp8lab.certificates/1"}' >"$certificates"
expect 0 -- "${report[@]}" -- 'it cannot be used and is ignored: it has no list of tables' \
    "fix: delete $certificates"
cp "$TEST_TMP/certificates.json" "$certificates"
for home in '' near; do
    HOME=$home XDG_CACHE_HOME=$home expect 0 -- "${report[@]}" -- 'note     ways' \
        'certificates are not kept: HOME and XDG_CACHE_HOME name no absolute folder' \
        'fix: set HOME or XDG_CACHE_HOME to a folder that you can write'
done

# ---- machines of fact files
expect 0 -- --facts tests/facts/h200.json -- 'NVIDIA H200, compute capability 9.0' \
    'dense 989 TFLOP/s BF16, 1979 FP8' 'fp8.blockwise    native' \
    'fp8.mxfp8        emulated: this chip has no 1x32 scales' \
    'fp4.nvfp4        emulated: this chip has no FP4 tensor cores'
expect 0 -- --facts tests/facts/gb10.json -- 'CPU and GPU share it, 8 GiB of it are left' \
    '; derived)' 'fp8.tensorwise   native' \
    'fp8.blockwise    native'
expect 0 -- --facts tests/facts/h200.json --caps sm_100 -- \
    'fp8.blockwise    emulated: cuBLASLt has GEMMs with these scales for Hopper only'
expect 0 -- --facts tests/facts/h200.json --caps sm_103 -- \
    'fp8.blockwise    emulated: cuBLASLt has GEMMs' 'fp8.mxfp8        native' \
    'fp4.nvfp4        native'
expect 0 -- --facts tests/facts/h200.json --caps sm_80 -- \
    'fp8.delayed      emulated: this chip has no FP8 tensor cores' 'bf16             native'
expect 2 -- --facts tests/facts/h200.json --caps sm_999 -- \
    'caps sm_999: sm_80, sm_89, sm_90, sm_100, sm_103, sm_120 or sm_121'
expect 2 -- --facts tests/facts/laptop.json --caps sm_121 -- \
    'caps sm_121: the cpu backend cannot simulate a GPU'
expect 1 -- --facts tests/facts/laptop.json --backend cuda --quick -- \
    'no NVIDIA GPU here, and --backend cuda needs one' 'fix: use a machine with a GPU, or' '1 wrong'
grep -q emulated "$TEST_TMP/out" && fail "doctor --backend cuda: recipes of a GPU that is not there"
expect 0 -- --facts tests/facts/laptop.json --backend cuda --caps sm_90 --quick -- \
    'fp8.tensorwise   native'
expect 0 -- --facts tests/facts/laptop.json -- 'no NVIDIA GPU: recipes run emulated' \
    'fp8.rowwise      emulated: a CPU multiplies in f32'
facts h200x8 'gpu.links="nvlink x18"'
expect 0 -- --facts "$f" -- '8 x NVIDIA H200' 'nvlink x18'
facts h200 'cuda.driver="12.4"' 'gpu.driver="550.54"'
expect 1 -- --facts "$f" -- 'driver 550.54 supports CUDA 12.4, and CUDA 13.0 is needed' \
    'fix: update the driver to R580 or newer' '1 wrong'
facts laptop gpu.on_bus=1 'container.runtime="docker"'
expect 1 -- --facts "$f" -- \
    '1 NVIDIA GPU on the bus, but no driver for it in this container' \
    'fix: start the container with --gpus all'
facts laptop gpu.on_bus=2 'container.runtime="none"'
expect 1 -- --facts "$f" -- "fix: install NVIDIA's driver R580"
facts laptop 'container.runtime="unknown"'
expect 0 -- --facts "$f" -- 'container        yes, of an unknown runtime'
facts h200 'gpu.cc="7.5"' 'gpu.family="turing"'
expect 1 -- --facts "$f" -- 'compute capability 7.5 is older than any machine code built here' \
    'fp8.tensorwise   refused: no machine code below compute capability 8.0'
facts h200 'gpu.cc="11.0"' 'gpu.product_name="NVIDIA Thor"'
expect 1 -- --facts "$f" -- 'compute capability 11.0 is Thor, for which no machine code can be' \
    'fp8.tensorwise   refused: there is no machine code for Thor'
facts h200x8 memory.shm=67108864 limits.memlock=8388608 gpu.processes=3 gpu.ecc=false \
    gpu.temperature_c=91
expect 0 -- --facts "$f" -- '/dev/shm has 64 MiB: too little for NCCL' \
    'fix: docker run --ipc=host, or --shm-size=8g' 'fix: docker run --ulimit memlock=-1, or' \
    '3 compute processes on the GPUs' 'fix: nvidia-smi -e 1, then reboot' \
    'fix: cool the machine first' 'nothing is wrong, 5 warnings'
facts gb10 memory.available=5000000000
expect 0 -- --facts "$f" -- 'only 4.7 GiB of the shared memory are available' \
    'fix: close other programs'
facts h200 'gpu.product_name="NVIDIA H20"'
expect 0 -- --facts "$f" -- 'no data-sheet peak for NVIDIA H20 in the table'

# ---- versions of a fact file: products that a version of cuBLASLt does not multiply run emulated
update="fix: update cuBLASLt (CUDA's libcublas)"
facts gb10 'cublaslt.version="13.4.0"'
expect 0 -- --facts "$f" -- 'warning  cublaslt         13.4.0, ' \
    "fp4.nvfp4 runs emulated: cuBLASLt 13.4.0 drops NVFP4's factor" 'fp8.mxfp8        native' \
    "note     fp4.nvfp4        emulated: cuBLASLt 13.4.0 drops NVFP4's factor" "$update" \
    'nothing is wrong, 1 warning'
[ "$(grep -cF "$update" "$TEST_TMP/out")" = 2 ] || fail "cuBLASLt 13.4.0: not two fixes"
for cc in 10.0 12.1; do
    facts gb10 'cublaslt.version="12.8.0"' "gpu.cc=\"$cc\""
    expect 0 -- --facts "$f" -- 'warning  cublaslt         12.8.0, ' "$update" \
        'fp8.mxfp8, fp4.nvfp4 run emulated: cuBLASLt < 12.8.1 mixes up MXFP8, FP8' \
        'note     fp8.mxfp8        emulated: cuBLASLt < 12.8.1' \
        'note     fp4.nvfp4        emulated: cuBLASLt < 12.8.1' 'fp8.tensorwise   native'
done
facts gb10 'cublaslt.version="13.4.1"'
expect 0 -- --facts "$f" -- 'fine     cublaslt         13.4.1, ' 'fp4.nvfp4        native' \
    'no fault in these facts; no recipe was tried'
facts h200 'cublaslt.version="12.8.0"'
expect 0 -- --facts "$f" -- 'fp8.rowwise, fp8.blockwise run emulated: cuBLASLt < 12.9' \
    'note     fp8.blockwise    emulated: cuBLASLt < 12.9' "$update" \
    'fp8.mxfp8        emulated: this chip has no 1x32 scales' 'fp8.tensorwise   native'
facts h200 'cublaslt.version="13.4.0"'
expect 0 -- --facts "$f" -- 'fine     cublaslt         13.4.0, ' \
    'fine     fp4.nvfp4        emulated: this chip has no FP4 tensor cores'
expect 0 -- --facts "$f" --caps sm_121 -- 'warning  cublaslt         13.4.0, ' \
    "fp4.nvfp4        emulated: cuBLASLt 13.4.0 drops NVFP4's factor"
# cuDNN is asked on few devices. On the others its version is no problem.
for cc in 12.0 12.1 10.3 8.9; do
    facts gb10 'cudnn.version="9.14.0"' "gpu.cc=\"$cc\""
    expect 0 -- --facts "$f" -- 'fine     cudnn            9.14.0, ' '(not used on this GPU)'
done
facts gb10 'cudnn.version="9.10.0"'
expect 0 -- --facts "$f" -- 'fine     cudnn            9.10.0, ' 'no fault in these facts'
expect 1 -- --facts "$f" --caps sm_100 -- 'cuDNN 9.10.0 is not used'
facts gb10 'cudnn.version="9.14.0"' 'gpu.cc="10.0"'
expect 0 -- --facts "$f" -- 'warning  cudnn            cuDNN 9.14.0 computes wrong results'

# ---- stand-ins for the driver and for libraries
cd "$TEST_TMP" || exit 1
mkdir -p driver bad good other toolkit/bin
cc -shared -fPIC -o driver/libnvidia-ml.so.1 "$root/tests/support/stand_in/nvml.c" || exit 1
echo 'int cuInit(unsigned f) { return f ? 1 : 100; }' >cuda.c
cc -shared -fPIC -o driver/libcuda.so.1 cuda.c || exit 1
version() { # FOLDER cuDNN cuBLASLt NCCL
    printf '#include <stddef.h>\nsize_t cudnnGetVersion(void) { return %s; }\n' "$2" >v.c
    cc -shared -fPIC -o "$1/libcudnn.so.9" v.c
    printf '#include <stddef.h>\nsize_t cublasLtGetVersion(void) { return %s; }\n' "$3" >v.c
    cc -shared -fPIC -o "$1/libcublasLt.so.13" v.c
    echo "int ncclGetVersion(int *v) { *v = $4; return 0; }" >v.c
    cc -shared -fPIC -o "$1/libnccl.so.2" v.c
    for part in graph heuristic engines_precompiled engines_runtime_compiled; do
        cp "$1/libcudnn.so.9" "$1/libcudnn_$part.so.9"
    done
}
version good 91900 130100 22809
version bad 91001 130100 22809
export FAKE_PROCESSES=0
export LD_LIBRARY_PATH=$PWD/driver:$PWD/good
# A machine with a GPU and no plugin is wrong.
[ -e "$BUILD/libfp8lab_cuda.so" ] && well=0 || well=1
expect $well -- --quick -- '1 x NVIDIA H200' 'driver           580.159.04, CUDA 13.0' \
    'cudnn            9.19.0' 'cublaslt         13.1.0' \
    "nccl             2.28.9, $PWD/good/libnccl.so.2" 'no others on the GPUs' \
    'fp8.rowwise      native'
# Without a CUDA context, hw reports the same versions as doctor.
"$FP8LAB" hw -q >out 2>&1 || fail "hw: exit code $?"
for version in 'cublaslt.version       "13.1.0"' 'cudnn.version          "9.19.0"' \
    'nccl.version           "2.28.9"'; do
    grep -qxF "$version" out || fail "hw: missing in the output: $version"
done
# A backend built with CUDA 12 needs libraries and a driver of CUDA 12.
mkdir twelve && cp good/* twelve && mv twelve/libcublasLt.so.13 twelve/libcublasLt.so.12
echo 'int plugin;' >v.c
cc -shared -fPIC -Wl,--no-as-needed -o twelve/libfp8lab_cuda.so v.c -Ltwelve -l:libcublasLt.so.12
FAKE_CUDA=12090 LD_LIBRARY_PATH=$PWD/driver:$PWD/twelve expect any -- --quick -- \
    'driver           580.159.04, CUDA 12.9' "twelve/libcublasLt.so.12"
rm twelve/libcublasLt.so.12
FAKE_CUDA=11080 LD_LIBRARY_PATH=$PWD/driver:$PWD/twelve expect 1 -- --quick -- \
    'supports CUDA 11.8, and CUDA 12.0 is needed' 'R525 or newer (CUDA 12)' \
    'libcublasLt.so.12 was not found: nothing runs on the GPU'
export LD_LIBRARY_PATH=$PWD/driver:$PWD/bad
expect 1 -- --quick -- 'cuDNN 9.10.1 is not used: 9.10.0 and 9.10.1 compute wrong attention' \
    'fix: install libcudnn9-cuda-13 (-12 beside CUDA 12) of 9.18.1 or newer'
version bad 91400 130100 22809
expect $well -- --quick -- \
    'cuDNN 9.14.0 computes wrong results under CUDA graphs if a sequence is not a multiple of 128'
# On an RTX 50 cuDNN is not asked: an old one, a broken one and none are no problem.
version bad 91400 130400 22809
FAKE_CC=121 expect $well -- --quick -- 'fine     cudnn            9.14.0, ' \
    '(not used on this GPU)' 'warning  cublaslt         13.4.0, ' \
    "note     fp4.nvfp4        emulated: cuBLASLt 13.4.0 drops NVFP4's factor"
version bad 91400 130100 22809
echo 'no library' >bad/libcudnn.so.9
FAKE_CC=121 expect $well -- --quick -- "note     cudnn            $PWD/bad/libcudnn.so.9 is not a"
expect 1 -- --quick -- "bad/libcudnn.so.9 is not a library"
cp good/libnccl.so.2 bad/libcudnn.so.9
[ "$(uname -m)" = x86_64 ] && other='\xb7\x00' name=aarch64 || other='\x3e\x00' name=x86_64
printf "$other" | dd of=bad/libcudnn.so.9 bs=1 seek=18 conv=notrunc 2>/dev/null # e_machine of ELF
# If another cuDNN follows in the search path, it is used, and the finding is a note.
expect any -- --quick -- "bad/libcudnn.so.9 is for $name, this machine is $(uname -m)" \
    "fix: install the $(uname -m) package"
echo 'int nothing;' >v.c && cc -shared -fPIC -o bad/libcudnn.so.9 v.c
expect 1 -- --quick -- 'bad/libcudnn.so.9 does not load:'
if ! ldconfig -p | grep -q libcudnn; then
    rm bad/libcudnn*
    expect $well -- --quick -- 'warning  cudnn            libcudnn.so.9 was not found'
    FAKE_CC=121 expect $well -- --quick -- \
        'fine     cudnn            libcudnn.so.9 was not found (not used on this GPU)'
fi
export LD_LIBRARY_PATH=$PWD/driver:$PWD/good
FAKE_CUDA=12040 expect 1 -- --quick -- 'supports CUDA 12.4, and CUDA 13.0 is needed'
FAKE_INIT=18 expect 1 -- --quick -- 'NVML does not start: Driver/library version mismatch' \
    'fix: nvidia-smi must work before fp8lab can'
FAKE_PROCESSES=2 expect $well -- --quick -- '2 compute processes on the GPUs'

# ---- telemetry of a run with that driver: its own process is not counted as another process
(cd "$root" && FAKE_PROCESSES=2 "$BUILD/tests/cli/test_hardware") >out 2>&1 ||
    fail "telemetry with a driver"

# ---- a compiler outside PATH; a disk without permission; a mistyped flag
printf '#!/bin/sh\n' >toolkit/bin/nvcc && chmod +x toolkit/bin/nvcc
unset LD_LIBRARY_PATH CUDACXX CUDA_PATH
PATH=/usr/bin:/bin CUDA_HOME=$PWD/toolkit expect 0 -- --quick --backend cpu -- \
    "$PWD/toolkit/bin/nvcc is not in PATH" "fix: export PATH=$PWD/toolkit/bin:\$PATH"
PATH=$PWD/toolkit/bin:$PATH expect 0 -- --quick --backend cpu -- \
    "nvcc             $PWD/toolkit/bin/nvcc"
if [ "$(id -u)" != 0 ]; then
    mkdir -p theirs && chmod 555 theirs && cd theirs || exit 1
    expect 1 -- --quick --backend cpu -- 'this user cannot write to' \
        'fix: run from a folder of yours'
    cd ..
fi
expect 2 -- --backend tpu -- "unknown backend 'tpu'; use auto, cpu or cuda"
expect 2 -- --facts nowhere.json -- nowhere.json
exit $failed
