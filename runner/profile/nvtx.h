/* Ranges for NVIDIA's profilers (NVTX), through a library of the CUDA toolkit that is opened at run
 * time. A profiler asks for them by NVTX_INJECTION64_PATH, its own library, which nsys sets. */
#ifndef FP8LAB_RUNNER_PROFILE_NVTX_H
#define FP8LAB_RUNNER_PROFILE_NVTX_H

#include "kernels/base.h"

struct nvtx {
    void *lib;                       /* NULL: closed */
    const char *name;                /* "libnvtx3interop.so.1": static */
    int (*push)(const char *text);   /* opens a range in this thread's innermost one */
    int (*pop)(void);                /* closes the innermost range of this thread */
};

/* Whether a profiler asks for ranges. Changes during a process are not noticed by all libraries. */
bool nvtx_is_asked(void);
/* ERR_UNSUPPORTED: the library is not there; the text says which one, and how it is found. */
NODISCARD enum status nvtx_open(struct nvtx *out, struct err *e);
void nvtx_close(struct nvtx *n);

#endif
