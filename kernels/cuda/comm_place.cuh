/* Where the device is among the collectives, for whoever watches this rank (comm_note): the host
 * queues them long before they run, and those of a replayed graph it does not even call. A rank
 * whose device has come to fewer of them than all others is the one that these wait for. */
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
