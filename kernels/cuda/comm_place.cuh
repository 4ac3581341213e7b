/* The position of the device among the collectives, for the supervisor of this rank (comm_note).
 * The host queues collectives long before they run, and does not call those of a replayed graph. If
 * one rank's device has reached fewer collectives than all others, the others wait for that rank.
 * */
#ifndef FP8LAB_KERNELS_CUDA_COMM_PLACE_CUH
#define FP8LAB_KERNELS_CUDA_COMM_PLACE_CUH

#include "kernels/comm.h"
#include "kernels/cuda/cuda_common.cuh"

struct comm_place; /* comm_place.cu */

NODISCARD enum status comm_place_open(struct comm_place **out, struct err *e);
void comm_place_close(struct comm_place *p); /* NULL is fine */

/* Queued on `stream`: the device has come to a collective, `name` of x, and does so again whenever
 * a graph with this in it is replayed. *began <- clock_ns() then. Collectives run one at a
 * time, and so must these. */
NODISCARD enum status comm_place_arrive(struct comm_place *p, const char *name,
                                        const struct tensor *x, uint64_t *began,
                                        cudaStream_t stream, struct err *e);

/* What the note says <- the last one that the device has come to. Not queued, asks the device
 * nothing, and so answers while it hangs. From any one thread. */
void comm_place_read(const struct comm_place *p, struct comm_note *note);

#endif
