/* The backends by name: the only file that knows which there are. cpu is linked in; cuda is a
 * plugin, libfp8lab_cuda.so, looked for beside the executable and in ../lib/fp8lab. */
#ifndef FP8LAB_RUNNER_PLAN_BACKENDS_H
#define FP8LAB_RUNNER_PLAN_BACKENDS_H

#include "kernels/backend.h"

struct backend_handle {
    struct backend *backend; /* owned */
    void *plugin;            /* of dlopen; NULL for cpu */
};

/* name: "cpu", "cuda" or "auto" (cuda where its plugin and a GPU are there, else cpu). threads: for
 * cpu, 0 = one per processor; device: for cuda, the index of the GPU.
 * ERR_ARG for another name; ERR_UNSUPPORTED where there is no plugin (naming the places), or where
 * it was built from other interface headers (naming both hashes). */
NODISCARD enum status backend_open(const char *name, int64_t threads, int64_t device,
                                   struct backend_handle *out, struct err *e);
void backend_close(struct backend_handle *h); /* safe on a zeroed struct */

/* ERR_ARG for what is no backend's name; whether it is here is another question. */
NODISCARD enum status backend_check_name(const char *name, struct err *e);

/* Whether backend_open would find it, without opening it or touching a GPU. Errors as there. */
NODISCARD enum status backend_check(const char *name, struct err *e);

/* Why "auto" is the CPU here although there may be a GPU; NULL where it is not,
 * or for other names. */
const char *backend_without_gpu(const char *name);

/* Whether that backend can pretend to be a GPU of this architecture ("sm_121"): ERR_ARG for the
 * CPU, ERR_UNSUPPORTED for an architecture that is not known. */
NODISCARD enum status backend_check_caps(const char *name, const char *caps, struct err *e);

#endif
