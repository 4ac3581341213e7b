#!/bin/bash
# arrows.sh finds each kind of violation and nothing else: in a small tree, first clean, then with
# one wrong line at a time.
set -u
failed=0
tree=$TEST_TMP/tree

write_clean() {
    rm -rf "$tree"
    mkdir -p "$tree"/{kernels/cpu,model,runner/{base,script,plan}}
    echo '#include <stdint.h>' >"$tree/kernels/base.h"
    printf '#include <omp.h>\n#include <immintrin.h>\n#include "kernels/base.h"\n' \
        >"$tree/kernels/cpu/matmul.c"
    printf '#include "kernels/base.h"\n#include "model/train.h"\n' >"$tree/model/train.c"
    printf '#include <lua.h>\n#include "model/train.h"\n' >"$tree/runner/script/script.c"
    echo '#include "kernels/cpu/cpu_backend.h"' >"$tree/runner/plan/backends.c"
    printf '/* exit(1) belongs to main */\nint f(void) { return at_exit(x.exit(1)); }\n' \
        >"$tree/runner/base/cli.c"
    echo 'int main(void) { exit(1); }' >"$tree/runner/main.c"
}

# violation FILE LINE EXPECTED: with LINE added to FILE, arrows.sh must fail and say EXPECTED.
violation() {
    local said
    write_clean
    echo "$2" >>"$tree/$1"
    if said=$(tests/house/arrows.sh "$tree" 2>&1); then
        echo "$1: '$2' was not noticed"
        failed=1
    elif [ "$(wc -l <<<"$said")" != 1 ] || [[ $said != *"$3"* ]]; then
        echo "$1: '$2' gave: $said"
        failed=1
    fi
}

write_clean
tests/house/arrows.sh "$tree" || failed=1
violation kernels/base.h '#include "model/train.h"' \
    'the kernel interface may not include "model/train.h"'
violation kernels/base.h '#include "kernels/cpu/cpu.h"' 'may not include "kernels/cpu/cpu.h"'
violation kernels/base.h '#include <cuda_runtime.h>' 'may not include <cuda_runtime.h>'
violation kernels/cpu/matmul.c '#include "runner/base/cli.h"' \
    'kernels/cpu may not include "runner/base/cli.h"'
violation kernels/cpu/matmul.c '#  include "../../model/train.h"' \
    'may not include "../../model/train.h"'
violation kernels/cpu/matmul.c '#include <jansson.h>' 'kernels may not include <jansson.h>'
violation model/train.c '#include "kernels/cpu/cpu_backend.h"' 'model may not include'
violation model/train.c '#include "runner/base/cli.h"' 'model may not include'
violation model/train.c '#include <lua.h>' 'model may not include <lua.h>'
violation model/train.c '#include <archive_entry.h>' 'model may not include <archive_entry.h>'
violation model/train.c 'void g(void) { abort(); }' 'only runner/main.c ends the process'
violation runner/base/cli.c '#include "runner/script/resolve.h"' 'runner/base may not include'
violation runner/script/script.c '#include "kernels/cpu/cpu_backend.h"' \
    'runner/script may not include'
violation runner/script/script.c '#include <cuda_runtime.h>' \
    'runner may not include <cuda_runtime.h>'
violation runner/script/script.c 'if (x) exit (2);' 'only runner/main.c ends the process'
write_circle() { # runner/base gets a.c, which includes b.h, which includes a.h
    echo '#include "runner/base/b.h"' >"$tree/runner/base/a.c"
    echo '#include "runner/base/a.h"' >"$tree/runner/base/b.h"
}
write_clean
write_circle
said=$(tests/house/arrows.sh "$tree" 2>&1)
[ "$said" = "runner/base: these include each other in a circle: a b" ] ||
    [ "$said" = "runner/base: these include each other in a circle: b a" ] || {
    echo "a circle gave: $said"
    failed=1
}
exit "$failed"
