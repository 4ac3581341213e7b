/* A backend without arithmetic and without memory: each operator is accepted and does nothing. A
 * trainer over it queues the operators of a real step, so a census of a large model takes
 * milliseconds on any machine. Addresses are invented and must never be read.
 *
 * It has no clock, and a read-back gives zeros: queue steps, never collect them. */
#ifndef FP8LAB_RUNNER_PLAN_DRY_BACKEND_H
#define FP8LAB_RUNNER_PLAN_DRY_BACKEND_H

#include "kernels/backend.h"

struct dry_backend {
    struct backend base; /* first member, as of each backend */
    int world;           /* ranks of the group; this is rank 0 */
    bool native;         /* the answer of matmul_native */
    uintptr_t next;      /* the next invented address */
    double comm_bytes;   /* bytes of this rank's operands in collectives so far; 0 with one rank */
};

/* Owned by the caller; there is nothing to close. */
void dry_backend_open(struct dry_backend *out, int world, bool native);

#endif
