/* `fp8lab doctor --audit`: a device trains a small model in each recipe, and every step is audited
 * (model/audit.h): outputs of GEMMs and casts are computed again on the host, to the bit. */
#ifndef FP8LAB_RUNNER_DOCTOR_AUDIT_CHECK_H
#define FP8LAB_RUNNER_DOCTOR_AUDIT_CHECK_H

#include "kernels/base.h"

struct json_t;

/* On a GPU for about `seconds`, divided among the recipes; on a CPU one step of each. *out, owned
 * by the caller: {products, codes, unknown: numbers, recipes, difference: text or null}. */
NODISCARD enum status audit_check_run(const char *backend, int64_t device, int64_t seconds,
                                      struct json_t **out, struct err *e);

#endif
