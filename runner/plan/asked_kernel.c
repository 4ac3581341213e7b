#include "runner/plan/asked_kernel.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"
#include "runner/base/run_files.h"

/* The capability that is known, 121 for 12.1; 0: none is. */
static enum status find_capability(const struct asked_machine *m, int *cc, struct err *e) {
    int major, minor;
    *cc = 0;
    if (m->caps) return device_capability(m->caps, cc, e);
    const char *fact = json_text(m->facts, "gpu.cc", "");
    if (sscanf(fact, "%d.%d", &major, &minor) == 2) *cc = 10 * major + minor;
    return OK;
}

/* "auto" is the CPU on a machine that is known to have no GPU. */
static bool is_cpu(const struct asked_machine *m) {
    const json_t *gpus = json_object_get(m->facts, "gpu.count");
    if (m->backend && strcmp(m->backend, "auto") != 0) return !strcmp(m->backend, "cpu");
    return !m->caps && json_is_integer(gpus) && json_integer_value(gpus) == 0;
}

enum status asked_kernel_check(const json_t *config, const struct asked_machine *machine,
                               struct err *e) {
    const json_t *attention = json_object_get(config, "attention");
    const char *cublaslt = json_text(machine->facts, "cublaslt.version", NULL);
    int cc;
    if (strcmp(json_text(attention, "backend", ""), "cudnn") != 0) return OK;
    if (is_cpu(machine))
        return FAIL(e, ERR_CONFIG, "attention.backend = \"cudnn\": the cpu backend has one way to "
                    "compute attention, its own; leave the key out, or run on a GPU");
    TRY(find_capability(machine, &cc, e));
    if (cc && cc != 90 && cc != 100) /* attention_choice.cu asks cuDNN on these alone */
        return FAIL(e, ERR_CONFIG, "attention.backend = \"cudnn\" is for sm_90 and sm_100, found "
                    "sm_%d; leave the key out, or use \"own\"", cc);
    if (cublaslt && !json_text(machine->facts, "cudnn.version", NULL))
        return FAIL(e, ERR_CONFIG, "attention.backend = \"cudnn\": cuDNN was not found on this "
                    "machine, cuBLASLt %s was; install it (`fp8lab doctor` says how), leave the "
                    "key out, or use \"own\"", cublaslt);
    return OK;
}
