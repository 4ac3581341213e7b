#include "runner/plan/asked_kernel.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"
#include "runner/base/run_files.h"
#include "runner/hardware/facts.h"
#include "runner/plan/recipe_table.h"

/* The capability that is known, 121 for 12.1; 0: none is. */
static enum status find_capability(const struct asked_machine *m, int *cc, struct err *e) {
    if (m->caps) return device_capability(m->caps, cc, e);
    *cc = facts_capability(m->facts);
    return OK;
}

/* "auto" is the CPU on a machine that is known to have no GPU. */
static bool is_cpu(const struct asked_machine *m) {
    const json_t *gpus = json_object_get(m->facts, "gpu.count");
    if (m->backend && strcmp(m->backend, "auto") != 0) return !strcmp(m->backend, "cpu");
    return !m->caps && json_is_integer(gpus) && json_integer_value(gpus) == 0;
}

static enum status check_recipe(const json_t *config, int cc, struct err *e) {
    const char *kind = json_text(json_object_get(config, "recipe"), "kind", "");
    const struct recipe_info *info = recipe_info_named(kind);
    if (!cc || !info) return OK;
    const struct recipe_row row = recipe_on(info->defaults.kind, cc, NULL);
    if (row.way != WAY_REFUSED) return OK;
    return FAIL(e, ERR_HARDWARE, "%s, found %d.%d", row.because, cc / 10, cc % 10);
}

/* cuDNN 9.14 and 9.19 list no plan for FP8 attention on sm_90 whose outputs are BF16 (kernels/cuda/
 * LOG.md, "FP8 attention by cuDNN"). Older versions are taken to have none either; of later ones
 * nothing is known. */
static enum status check_fp8(const struct asked_machine *machine, int cc, struct err *e) {
    const char *version = json_text(machine->facts, "cudnn.version", "");
    int major = 0, minor = 0;
    bool known = cc == 90 && sscanf(version, "%d.%d", &major, &minor) == 2;
    if (!known || major > 9 || (major == 9 && minor > 19)) return OK;
    return FAIL(e, ERR_CONFIG, "attention.backend = \"cudnn\" with precision = \"fp8\": cuDNN %s "
                "has no plan for it on sm_90 that fp8lab can use; leave the backend out (FP8 "
                "attention is emulated then), or use precision = \"bf16\"", version);
}

static enum status check_cudnn(const struct asked_machine *machine, bool fp8, int cc,
                               struct err *e) {
    const char *cublaslt = json_text(machine->facts, "cublaslt.version", NULL);
    if (is_cpu(machine))
        return FAIL(e, ERR_CONFIG, "attention.backend = \"cudnn\": the cpu backend has one way to "
                    "compute attention, its own; leave the key out, or run on a GPU");
    if (cc && cc != 90 && cc != 100) /* attention_choice.cu asks cuDNN on these alone */
        return FAIL(e, ERR_CONFIG, "attention.backend = \"cudnn\" is for sm_90 and sm_100, found "
                    "sm_%d; leave the key out, or use \"own\"", cc);
    if (cublaslt && !json_text(machine->facts, "cudnn.version", NULL))
        return FAIL(e, ERR_CONFIG, "attention.backend = \"cudnn\": cuDNN was not found on this "
                    "machine, cuBLASLt %s was; install it (`fp8lab doctor` says how), leave the "
                    "key out, or use \"own\"", cublaslt);
    return fp8 ? check_fp8(machine, cc, e) : OK;
}

enum status asked_kernel_check(const json_t *config, const struct asked_machine *machine,
                               struct err *e) {
    const json_t *attention = json_object_get(config, "attention");
    int cc = 0;
    if (!is_cpu(machine)) TRY(find_capability(machine, &cc, e));
    TRY(check_recipe(config, cc, e));
    bool asked = !strcmp(json_text(attention, "backend", ""), "cudnn");
    bool fp8 = !strcmp(json_text(attention, "precision", ""), "fp8");
    return asked ? check_cudnn(machine, fp8, cc, e) : OK;
}
