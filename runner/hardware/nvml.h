/* The NVIDIA driver's report about its GPUs, from libnvidia-ml.so.1, which is opened at run time.
 * The prototypes are our own, so no CUDA header is needed. Without the library there are 0 GPUs. */
#ifndef FP8LAB_RUNNER_HARDWARE_NVML_H
#define FP8LAB_RUNNER_HARDWARE_NVML_H

#include "kernels/base.h"

/* -1: the driver does not answer this question for this GPU (GB10 answers no memory query). */
enum { NVML_UNKNOWN = -1, NVML_GPUS_MAX = 64 };

/* How two GPUs of a host are connected: by NVLinks, else through their nearest common part of the
 * machine, named as in `nvidia-smi topo`. */
enum nvml_path { NVML_PATH_UNKNOWN, NVML_PATH_NVLINK, NVML_PATH_BOARD, NVML_PATH_PIX, NVML_PATH_PXB,
                 NVML_PATH_PHB, NVML_PATH_NODE, NVML_PATH_SYS };
struct nvml_link {
    enum nvml_path path;
    int64_t links; /* of NVLink: to each other, or to switches of both */
};

struct nvml_gpu {
    int64_t index; /* the driver's; also the index into `link` */
    char name[96]; /* exact product string */
    char uuid[96]; /* "GPU-25b4..." */
    int64_t cc_major, cc_minor;
    int64_t memory_bytes;
    int64_t nvlink, ecc, mig; /* 0, 1 or NVML_UNKNOWN */
    int64_t power_limit_mw, clock_sm_max_mhz, clock_mem_max_mhz, clock_sm_mhz, temperature_c;
    int64_t processes; /* compute processes on it now */
    struct nvml_link link[NVML_GPUS_MAX]; /* to each of the driver's GPUs */
};

struct nvml_report {
    char driver[80];          /* "580.65.06"; "" without a driver */
    int64_t cuda_major, cuda_minor; /* newest CUDA the driver supports; 0.0 without one */
    int64_t count;
    struct nvml_gpu gpus[NVML_GPUS_MAX];
    char problem[256]; /* why the library does not work; "" if it works or is absent */
};

/* Keeps the GPUs that a CUDA program sees under CUDA_VISIBLE_DEVICES = `visible`: indices or
 * prefixes of UUIDs, separated by commas. The first entry without a GPU ends the list, as in CUDA.
 * NULL: the variable is not set, and all GPUs stay. Indices are the driver's, in order of PCI
 * address. */
void nvml_keep_visible(struct nvml_report *report, const char *visible);

/* Reads the report once, in some milliseconds, and closes the library. Cannot fail: see
 * `problem`. */
void nvml_read(struct nvml_report *out);

#endif
