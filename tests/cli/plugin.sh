#!/bin/bash
# A plugin that is not of this program's sources is refused, whatever it would compute: the run has
# recorded other code. A plugin that lacks an operator, what is no plugin, or none that can be
# opened, is named as well.
set -u
. tests/cli/lib.sh
cp "$FP8LAB" fp8lab
FP8LAB=./fp8lab

refused() { # CODE WORDS...: the run ends with this exit code, and the words are said
    local wanted=$1 words
    shift
    rm -rf runs
    run_tiny --runs runs --backend cuda
    expect "exit code" "$wanted" $code
    for words in "$@"; do says "$words"; done
}

stand_in() { # C source on standard input: the plugin
    ${CC:-cc} -shared -fPIC -I"$root" -x c -o libfp8lab_cuda.so - || exit 1
}

case_name="other kernels"
stand_in <<'C'
#include "kernels/backend.h"
static void leave(struct backend *b) {}
static const struct backend_ops OPS = {
    .size = sizeof OPS, .name = "cuda", .close = leave,
    .kernels_sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
};
static struct backend backend = { .ops = &OPS };
enum status cuda_backend_open(struct backend **out, int device, struct err *e) {
    *out = &backend;
    return OK;
}
C
refused 2 "libfp8lab_cuda.so is from another build: its kernels are 0123456789abcdef" \
    "build both from the same sources"

case_name="another table"
stand_in <<'C'
#include "kernels/backend.h"
static const struct { int64_t size; } OPS = { 8 };
static struct backend backend = { .ops = (const struct backend_ops *)&OPS };
enum status cuda_backend_open(struct backend **out, int device, struct err *e) {
    *out = &backend;
    return OK;
}
C
refused 2 "is from another build: its kernels are unknown (a table of 8 bytes)"

case_name="an empty slot"
sha=$(grep -o '[0-9a-f]\{64\}' "${BUILD:-$root/build/release}/gen/kernels_hash.h")
stand_in <<C
#include "kernels/backend.h"
static void leave(struct backend *b) {}
static const struct backend_ops OPS = {
    .size = sizeof OPS, .name = "cuda", .close = leave, .kernels_sha256 = "$sha",
};
static struct backend backend = { .ops = &OPS };
enum status cuda_backend_open(struct backend **out, int device, struct err *e) {
    *out = &backend;
    return OK;
}
C
refused 2 "the cuda backend has no operator comm.init" "rebuild it from the program's sources"

case_name="no GPU" # nothing is made, as for a machine that the experiment does not ask for
stand_in <<'C'
#include <string.h>
#include "kernels/backend.h"
enum status cuda_backend_open(struct backend **out, int device, struct err *e) {
    strcpy(e->text, "no NVIDIA driver is installed on this machine");
    return e->code = ERR_HARDWARE;
}
C
if [ ! -e /dev/nvidiactl ]; then
    refused 3 "no NVIDIA driver is installed on this machine"
    [ ! -e runs ] || fail "the refused run left $(find runs)"
fi

case_name="another library"
stand_in <<<'int nothing;'
refused 2 "libfp8lab_cuda.so has no cuda_backend_open"
case_name="no library"
echo "no library" >libfp8lab_cuda.so
refused 6 "libfp8lab_cuda.so cannot be loaded"
case_name="no file"
rm libfp8lab_cuda.so
refused 2 "there is no cuda backend: no libfp8lab_cuda.so"
exit $failed
