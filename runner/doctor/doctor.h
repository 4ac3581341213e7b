/* What `fp8lab doctor` finds out about a machine: findings, each with what was found and, where it
 * is not well, the fix in one line. The parts are one file each, in the order of the report. */
#ifndef FP8LAB_RUNNER_DOCTOR_DOCTOR_H
#define FP8LAB_RUNNER_DOCTOR_DOCTOR_H

#include "kernels/base.h"

struct json_t;

enum finding_level {
    FINDING_FINE,
    FINDING_NOTE,    /* worth knowing; nothing to do, or only for some uses */
    FINDING_WARNING, /* figures or long runs will suffer */
    FINDING_WRONG    /* what this machine should do does not work: the exit code says so */
};

struct doctor {
    struct json_t *facts;    /* of this machine or of a fact file; owned by the caller */
    int cuda;                /* major version whose libraries the backend was built with */
    bool here;               /* the facts are of this machine: its files can be looked at */
    struct json_t *findings; /* array of {topic, level, found, fix or null} */
    struct json_t *libraries; /* array: doctor_libraries.c */
    struct json_t *recipes;  /* array: doctor_recipes.c */
    bool gpu;                /* recipes are meant for the GPU, else for the CPU */
    const char *caps;        /* "sm_121": another device's column of the table; or NULL */
    bool no_memory;          /* a finding was lost: the report is not whole */
};

/* Adds one finding. fix: one line, or NULL. */
void doctor_say(struct doctor *d, enum finding_level level, const char *topic, const char *fix,
                const char *format, ...) PRINTF_LIKE(5, 6);
/* The worst level among the findings. */
enum finding_level doctor_worst(const struct doctor *d);

/* ---- the parts ---- */

/* Driver, GPUs, memory, limits of the container: from the facts alone. */
void doctor_machine(struct doctor *d);
/* `cuda`: of the plugin that is here; of the one that would be built, where there is none. */
void doctor_cuda(struct doctor *d);
/* Every library of NVIDIA's that a run can use: found where, which version, for which processor. */
void doctor_libraries(struct doctor *d);
/* Puts cublaslt.version, cudnn.version and nccl.version of the files that the backend would load
 * into `facts`, where those do not have them yet. */
NODISCARD enum status doctor_library_facts(struct json_t *facts, struct err *e);
/* nvcc and where it hides; what builds and runs need of the disk. */
void doctor_toolkit(struct doctor *d);
void doctor_disk(struct doctor *d);
/* Variables of a launcher that make a run here one task of several. */
void doctor_launcher(struct doctor *d);
/* Each recipe on this device: native, emulated or refused; with `train`, also a GEMM and ten steps
 * of training against the reference. */
NODISCARD enum status doctor_recipes(struct doctor *d, bool train, struct err *e);

#endif
