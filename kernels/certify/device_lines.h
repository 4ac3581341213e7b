/* Large operands in device memory from few lines of the host: private to kernels/certify. */
#ifndef FP8LAB_KERNELS_CERTIFY_DEVICE_LINES_H
#define FP8LAB_KERNELS_CERTIFY_DEVICE_LINES_H

#include "kernels/backend.h"

/* Fills `bytes` of device memory with host[period], again and again. The host's bytes are uploaded
 * once; the device copies what it has, twice as much each time. period and bytes are even. Queued
 * on LANE_COMPUTE. */
NODISCARD enum status device_lines(struct backend *b, void *data, const void *host, int64_t period,
                                   int64_t bytes, struct err *e);
/* The same with one byte everywhere. */
NODISCARD enum status device_bytes(struct backend *b, void *data, int byte, int64_t bytes,
                                   struct err *e);

#endif
