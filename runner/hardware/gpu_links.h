/* How the GPUs of a host are connected, as one fact. */
#ifndef FP8LAB_RUNNER_HARDWARE_GPU_LINKS_H
#define FP8LAB_RUNNER_HARDWARE_GPU_LINKS_H

#include "runner/hardware/nvml.h"

struct json_t;

/* "nvlink x18" if all pairs have equal links, else each kind with its pairs: "nvlink x4: 0-1
 * 2-3; sys: 0-2 0-3 1-2 1-3". GPUs have CUDA's numbers. JSON null for fewer than two GPUs, or if
 * the driver does not answer. New reference; NULL: out of memory. */
struct json_t *gpu_links(const struct nvml_report *report);

#endif
