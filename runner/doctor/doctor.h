/* The findings of `fp8lab doctor` about a machine: what was found and, if it is a problem, the fix
 * in one line. One file for each part, in the order of the report. */
#ifndef FP8LAB_RUNNER_DOCTOR_DOCTOR_H
#define FP8LAB_RUNNER_DOCTOR_DOCTOR_H

#include <stdio.h>

#include "kernels/base.h"

struct json_t;

enum finding_level {
    FINDING_FINE,
    FINDING_NOTE,    /* no action needed, or only for some uses */
    FINDING_WARNING, /* speeds or long runs will suffer */
    FINDING_WRONG    /* a function of this machine does not work; sets the exit code */
};

struct doctor {
    struct json_t *facts;    /* of this machine or of a fact file; owned by the caller */
    int cuda;                /* major CUDA version of the libraries that the backend was built
                                with */
    bool here;               /* the facts are of this machine, so its files can be examined */
    struct json_t *findings; /* array of {topic, level, found, fix or null} */
    struct json_t *libraries; /* array: doctor_libraries.c */
    struct json_t *recipes;  /* array: doctor_recipes.c */
    struct json_t *ways;     /* array of certificates (certify_child.h); empty: none were asked */
    bool gpu;                /* recipes are checked for the GPU, else for the CPU */
    const char *caps;        /* "sm_121": use the table column of this device; or NULL */
    bool no_memory;          /* a finding was lost, so the report is not complete */
};

/* Adds one finding. fix: one line, or NULL. */
void doctor_say(struct doctor *d, enum finding_level level, const char *topic, const char *fix,
                const char *format, ...) PRINTF_LIKE(5, 6);
/* The worst level among the findings. */
enum finding_level doctor_worst(const struct doctor *d);
/* The compute capability of the GPU that is examined, or of `caps`: 90 for 9.0. 0: not known. */
int doctor_capability(const struct doctor *d);
/* The version of cuBLASLt, "13.4.0": of the facts, else of the file that doctor_libraries() found.
 * NULL: not known. Borrowed from `d`. */
const char *doctor_cublaslt(const struct doctor *d);

#define CUBLASLT_FIX "update cuBLASLt (CUDA's libcublas)"

/* ---- the parts ---- */

/* Driver, GPUs, memory, limits of the container; uses only the facts. */
void doctor_machine(struct doctor *d);
/* Sets `cuda`: the version of the plugin that is here; without a plugin, of the one that would be
 * built. */
void doctor_cuda(struct doctor *d);
/* Every NVIDIA library that a run can use: path, version, processor. Of a fact file: the versions
 * that it has. */
void doctor_libraries(struct doctor *d);
/* Adds cublaslt.version, cudnn.version and nccl.version of the files that the backend would load to
 * `facts`, unless they are there. */
NODISCARD enum status doctor_library_facts(struct json_t *facts, struct err *e);
/* nvcc, also outside PATH; and the disk space for builds and runs. */
void doctor_toolkit(struct doctor *d);
void doctor_disk(struct doctor *d);
/* Environment variables of a launcher, which make a run here one task of several. */
void doctor_launcher(struct doctor *d);
/* Each recipe on this device: native, emulated or refused. With `train` also a GEMM and ten steps
 * of training, compared with the reference. */
NODISCARD enum status doctor_recipes(struct doctor *d, bool train, struct err *e);
/* Each GPU, or the CPU, audited for about `seconds` each (audit_check.h). */
void doctor_audit(struct doctor *d, int64_t seconds);
/* Certificates of the standard ways, from the cache or made now, into `ways`; and a finding for
 * those that fail. */
NODISCARD enum status doctor_ways(struct doctor *d, struct err *e);
/* The table of ways as text. */
void doctor_ways_text(const struct json_t *ways, FILE *out);
/* Whether a report can be written to `path`: asked before the examination, which takes minutes.
 * ERR_ARG if the file holds something else, or its folder is missing or read-only. */
NODISCARD enum status doctor_report_check(const char *path, struct err *e);
/* Writes one file to attach to an issue: the findings and the ways as text, then all as JSON. After
 * an error an earlier report is unchanged. */
NODISCARD enum status doctor_report(const struct doctor *d, const char *path, struct err *e);

#endif
