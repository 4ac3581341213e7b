/* Hardware facts: a flat JSON map from the names of fact_names.h to values; null is "not known on
 * this machine". From /proc, /sys, uname, the distribution's os-release, and NVML. */
#ifndef FP8LAB_RUNNER_HARDWARE_FACTS_H
#define FP8LAB_RUNNER_HARDWARE_FACTS_H

#include "kernels/base.h"

/* The description of our container image (record/image_record.h); absent outside of one. */
#define IMAGE_RECORD_PATH "/usr/share/fp8lab/image.json"

#define FACTS_SCHEMA "fp8lab.facts/1" /* of a fact file */

struct json_t;
struct nvml_report;

/* Every fact of this machine. `problem` (at least 256 bytes, may be NULL) becomes one sentence if
 * the NVIDIA driver is installed but does not work, else "". *out is owned by the caller. */
NODISCARD enum status facts_gather(struct json_t **out, char *problem, size_t problem_size,
                                   struct err *e);

/* Adds the gpu.*, cuda.driver and memory.unified facts of `report` to `facts`. `facts` must have
 * memory.total: it is the memory of a GPU that answers no memory query (GB10). */
NODISCARD enum status facts_put_gpus(struct json_t *facts, const struct nvml_report *report,
                                     struct err *e);

/* Reads a fact file (from `fp8lab hw --json`). ERR_CONFIG, with file and fact, for an unknown name,
 * a value that the fact cannot have, a file without a fact, and a GPU whose number is not known. A
 * missing fact becomes null, and 8.0 GPUs are 8. *out is owned by the caller. */
NODISCARD enum status facts_load(const char *path, struct json_t **out, struct err *e);

/* The same check for facts in memory; missing ones become null, in place. `path` is their source,
 * for messages. */
NODISCARD enum status facts_complete(struct json_t *facts, const char *path, struct err *e);

/* Whether the machine has a GPU, and its compute capability, 90 for 9.0; 0: not known. */
bool facts_have_gpu(const struct json_t *facts);
int facts_capability(const struct json_t *facts);
/* Whether no GPU that this version knows has the capability of the facts: a sentence that says so.
 * The GPU may be newer than this version, so it is no error. */
enum { FACTS_NOTE_CAP = 200 };
bool facts_strange_capability(const struct json_t *facts, char out[FACTS_NOTE_CAP]);
/* What to do if the facts of a GPU lack it. */
#define FACTS_ADD_CAPABILITY "add gpu.cc to the facts, such as \"9.0\": nvidia-smi " \
                             "--query-gpu=compute_cap --format=csv prints it"

/* Bytes of host memory for new allocations, within the control group's limit; -1: not known.
 * MemAvailable counts reclaimable page cache, which the driver's own "free" does not. */
int64_t facts_memory_available(void);

/* The architecture name of a compute capability, or NULL if it is unknown. */
const char *facts_gpu_family(int64_t cc_major, int64_t cc_minor);

#endif
