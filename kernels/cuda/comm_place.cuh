/* The position of the device among the collectives, for the supervisor of this rank (comm_note).
 * The host queues collectives long before they run, and does not queue those of a replayed graph.
 * If one rank's device has reached fewer collectives than all others, the others wait for that
 * rank. */
#ifndef FP8LAB_KERNELS_CUDA_COMM_PLACE_CUH
#define FP8LAB_KERNELS_CUDA_COMM_PLACE_CUH

#include "kernels/comm.h"
#include "kernels/cuda/cuda_common.cuh"

struct comm_place; /* comm_place.cu */

NODISCARD enum status comm_place_open(struct comm_place **out, struct err *e);
void comm_place_close(struct comm_place *p); /* NULL is fine */

/* Queues a record on `stream`: the device has reached collective `name` of x. Replaying a graph
 * that contains it records it again. *began <- clock_ns() at that time. Like collectives, these
 * must run one at a time. */
NODISCARD enum status comm_place_arrive(struct comm_place *p, const char *name,
                                        const struct tensor *x, uint64_t *began,
                                        cudaStream_t stream, struct err *e);

/* note <- the last collective that the device has reached. Reads host memory only, so it also works
 * while the device hangs. May be called from any one thread. */
void comm_place_read(const struct comm_place *p, struct comm_note *note);

#endif
