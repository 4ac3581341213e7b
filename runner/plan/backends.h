/* The backends by name; no other file names one. cpu is linked in. cuda is a plugin,
 * libfp8lab_cuda.so, searched beside the executable and in ../lib/fp8lab. */
#ifndef FP8LAB_RUNNER_PLAN_BACKENDS_H
#define FP8LAB_RUNNER_PLAN_BACKENDS_H

#include "kernels/backend.h"

struct backend_handle {
    struct backend *backend; /* owned */
    void *plugin;            /* from dlopen; NULL for cpu */
};

/* name: "cpu", "cuda" or "auto" (cuda if its plugin and a GPU exist, else cpu). threads: for cpu,
 * 0 = one per processor; device: for cuda, the index of the GPU.
 * ERR_ARG for another name; ERR_UNSUPPORTED where there is no plugin (naming the places), or where
 * it was built from other interface headers (naming both hashes). */
NODISCARD enum status backend_open(const char *name, int64_t threads, int64_t device,
                                   struct backend_handle *out, struct err *e);
void backend_close(struct backend_handle *h); /* safe on a zeroed struct */

/* ERR_ARG for an unknown name. Does not check whether the backend exists here. */
NODISCARD enum status backend_check_name(const char *name, struct err *e);

/* Whether backend_open would find it. Opens no plugin and no GPU. Errors as in backend_open. */
NODISCARD enum status backend_check(const char *name, struct err *e);

/* Why "auto" means the CPU here; NULL if it means the GPU, or for other names. */
const char *backend_without_gpu(const char *name);

/* *out = the arithmetic `asked` (kernels/arithmetic.h), or NULL for the reference's. asked
 * NULL: none was named. ERR_ARG for an unknown name, and for any but "reference" on a GPU. */
NODISCARD enum status backend_arithmetic(const char *name, const char *asked, const char **out,
                                         struct err *e);
/* From now on an open cpu backend multiplies under it. Errors as above. */
NODISCARD enum status backend_calculate(const struct backend_handle *h, const char *arithmetic,
                                        struct err *e);

/* The hash of the kernels' sources, the program's and its plugin's. */
const char *backend_kernels_sha256(void);

/* Whether the backend can simulate a GPU of this architecture ("sm_121"). ERR_ARG for the CPU,
 * ERR_UNSUPPORTED for an unknown architecture. */
NODISCARD enum status backend_check_caps(const char *name, const char *caps, struct err *e);

#endif
