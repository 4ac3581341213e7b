/* Hardware facts: a flat JSON map from the names of fact_names.h to values; null is "not known on
 * this machine". From /proc, /sys, uname, the distribution's os-release, and NVML. */
#ifndef FP8LAB_RUNNER_HARDWARE_FACTS_H
#define FP8LAB_RUNNER_HARDWARE_FACTS_H

#include "kernels/base.h"

/* What an image of ours says about itself (record/image_record.h); outside of one there is none. */
#define IMAGE_RECORD_PATH "/usr/share/fp8lab/image.json"

struct json_t;
struct nvml_report;

/* Every fact of this machine. `problem` (at least 256 bytes, may be NULL) takes one sentence where
 * the NVIDIA driver is there but does not work, else "". *out is owned by the caller. */
NODISCARD enum status facts_gather(struct json_t **out, char *problem, size_t problem_size,
                                   struct err *e);

/* Puts the gpu.*, cuda.driver and memory.unified facts of `report` into `facts`, which must hold
 * memory.total already: a GPU that answers no memory query (GB10) shares it. */
NODISCARD enum status facts_put_gpus(struct json_t *facts, const struct nvml_report *report,
                                     struct err *e);

/* Reads a fact file (such as `fp8lab hw --json` prints): unknown names and wrong types are
 * ERR_CONFIG naming file and fact; facts that it lacks become null. *out is owned. */
NODISCARD enum status facts_load(const char *path, struct json_t **out, struct err *e);

/* The same for facts in memory, which are changed: checked, and those that are missing become null.
 * `path` is where they are from, for messages. */
NODISCARD enum status facts_complete(struct json_t *facts, const char *path, struct err *e);

/* The architecture name of a compute capability, or NULL where we know none. */
const char *facts_gpu_family(int64_t cc_major, int64_t cc_minor);

#endif
