/* How the GPUs of a host are joined, as one fact. */
#ifndef FP8LAB_RUNNER_HARDWARE_GPU_LINKS_H
#define FP8LAB_RUNNER_HARDWARE_GPU_LINKS_H

#include "runner/hardware/nvml.h"

struct json_t;

/* "nvlink x18" where all pairs are joined alike, else each way with its pairs: "nvlink x4: 0-1 2-3;
 * sys: 0-2 0-3 1-2 1-3". GPUs have the numbers that CUDA gives them. JSON null for fewer than two,
 * or where the driver says nothing. New reference; NULL: no memory. */
struct json_t *gpu_links(const struct nvml_report *report);

#endif
