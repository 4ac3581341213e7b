/* The time to move the bytes between ranks, where it can be forecast. */
#ifndef FP8LAB_RUNNER_ADVISE_LINK_H
#define FP8LAB_RUNNER_ADVISE_LINK_H

#include <stdbool.h>

struct json_t;

/* Whether the GPUs of all ranks are of this host, and each two joined by NVLink of at least 12
 * links, as an A100's. `facts` of a host of one GPU, or without links, say no. */
bool link_is_nvlink(const struct json_t *facts, int ranks);

/* Microseconds for `bytes`, of one rank's collectives, at 100 GB/s: a low rate of NVLink. Two H200
 * reach 76 GB/s with 4 MiB at a time, 170 with 32 MiB (kernels/cuda/LOG.md). Of N ranks each keeps
 * 1/N of what is gathered or reduced; the rest crosses a link. 0 with one rank. */
double link_us(double bytes, int ranks);

#endif
