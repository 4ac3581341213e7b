#include "runner/profile/nvtx.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NVTX 3 is a header. Its functions as a library: CUDA 12 and 13 have the first, older ones the
 * second, with the same functions. Both find the profiler and do nothing without it. */
static const char *const LIBRARIES[] = { "libnvtx3interop.so.1", "libnvToolsExt.so.1" };
/* After the loader's own search, which honours LD_LIBRARY_PATH. */
static const char *const FOLDERS[] = { "", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/" };

bool nvtx_is_asked(void) {
    const char *tool = getenv("NVTX_INJECTION64_PATH");
    return tool && *tool;
}

static void *open_at(const char *folder, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s%s", folder, name);
    /* It stays loaded: the profiler keeps pointers into it. */
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

/* A pointer to a function, from the pointer to data that dlsym returns. */
static void find(void *lib, const char *name, void *function) {
    void *found = dlsym(lib, name);
    memcpy(function, &found, sizeof found);
}

enum status nvtx_open(struct nvtx *out, struct err *e) {
    *out = (struct nvtx){ 0 };
    for (size_t l = 0; l < sizeof LIBRARIES / sizeof *LIBRARIES; l++)
        for (size_t f = 0; f < sizeof FOLDERS / sizeof *FOLDERS && !out->lib; f++) {
            out->lib = open_at(FOLDERS[f], LIBRARIES[l]);
            out->name = LIBRARIES[l];
        }
    if (!out->lib)
        return FAIL(e, ERR_UNSUPPORTED, "no ranges for the profiler: neither %s nor %s is found; "
                    "install the CUDA package cuda-nvtx, or add its folder to LD_LIBRARY_PATH",
                    LIBRARIES[0], LIBRARIES[1]);
    find(out->lib, "nvtxRangePushA", &out->push);
    find(out->lib, "nvtxRangePop", &out->pop);
    if (out->push && out->pop) return OK;
    nvtx_close(out);
    return FAIL(e, ERR_UNSUPPORTED, "no ranges for the profiler: %s lacks nvtxRangePushA or "
                "nvtxRangePop", LIBRARIES[0]);
}

void nvtx_close(struct nvtx *n) {
    if (n->lib) dlclose(n->lib);
    *n = (struct nvtx){ 0 };
}
