#include "runner/base/build_info.h"

#include "sources.h"

struct build_info build_info(void) {
    return (struct build_info){ .code_sha256 = FP8LAB_CODE_SHA256,
                                .build_sha256 = FP8LAB_BUILD_SHA256, .commit = FP8LAB_COMMIT,
                                .dirty = FP8LAB_DIRTY != 0, .compiler = __VERSION__ };
}
