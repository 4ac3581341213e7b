/* Facts that need a CUDA context: library versions, memory, measured ceilings. The runner never
 * touches a GPU, so a child process (`fp8lab probe`) asks, and exits before a run begins. */
#ifndef FP8LAB_RUNNER_DOCTOR_PROBE_H
#define FP8LAB_RUNNER_DOCTOR_PROBE_H

#include "kernels/base.h"

struct json_t;

struct probe_options {
    const char *backend; /* "cpu", "cuda", "auto" */
    const char *caps;    /* for the checks: act as this architecture; NULL: its own */
    int64_t device;
    bool ceilings;       /* also measure the rate of a large GEMM */
    bool checks;         /* also check every recipe (recipe_check.h) */
    int64_t audit_seconds; /* > 0: also audit it for about so long (audit_check.h) */
};

/* The child's part: opens the backend and makes the answer, "fp8lab.probe/1":
 *   backend, device, architecture, memory_bytes, memory_free
 *   libraries [{name, version, path, problem}]
 *   ceilings: bf16_tflops, fp8_tflops (ceiling_large_gemm; null: lacks the mode), or null
 *   checks [{recipe, ...}] of recipe_check_json, or null
 *   audit {products, ...} of audit_check_run, or null */
NODISCARD enum status probe_answer(const struct probe_options *o, struct json_t **out,
                                   struct err *e);

/* The parent's part: starts the child and waits at most `seconds`. ERR_DEVICE with the child's text
 * if it failed; also ERR_DEVICE if it crashed or timed out. *out is owned by the caller. */
NODISCARD enum status probe_ask(const struct probe_options *o, int64_t seconds,
                                struct json_t **out, struct err *e);

/* Whether a child can open the backend. ERR_HARDWARE with its text: this machine cannot run it. OK
 * if the child fails otherwise: who uses the backend says more. */
NODISCARD enum status probe_opens(const char *backend, struct err *e);

/* Adds an answer's values to facts: cuda.runtime, cublaslt.version, cudnn.version, nccl.version,
 * gpu.gemm_bf16_tflops, gpu.gemm_fp8_tflops. */
NODISCARD enum status probe_put_facts(const struct json_t *answer, struct json_t *facts,
                                      struct err *e);

/* Probes if `facts` have a GPU and the program has a CUDA backend, and adds the answer to them. If
 * the child fails, facts stay as they are and `problem` gets one sentence, else "". */
NODISCARD enum status probe_facts(struct json_t *facts, bool measure, char *problem,
                                  size_t problem_size, struct err *e);

#endif
