/* Whether something disturbed a GPU while algorithms were timed on it. */
#ifndef FP8LAB_RUNNER_HARDWARE_GPU_WATCH_H
#define FP8LAB_RUNNER_HARDWARE_GPU_WATCH_H

#include "kernels/base.h"

struct telemetry;

/* Zero-initialised but for the device: nothing was seen. */
struct gpu_watch {
    int64_t device;    /* among this host's GPUs */
    int64_t throttled; /* NVML's bits of harmful reasons, of any sample */
    int64_t others;    /* most processes of others that a sample saw */
};

/* Looks once. telemetry may be NULL: then nothing is known of a disturbance. */
void gpu_watch_sample(struct gpu_watch *w, const struct telemetry *telemetry);
/* Whether something made the times wrong; `why` then says what: "it was slowed down: thermal". */
bool gpu_watch_disturbed(const struct gpu_watch *w, char *why, size_t size);

#endif
