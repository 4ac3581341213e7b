/* The ways of computing that a run needs certified: of a configuration, or of all recipes. */
#ifndef FP8LAB_RUNNER_CERTIFY_WAYS_H
#define FP8LAB_RUNNER_CERTIFY_WAYS_H

#include "kernels/certify/certificate.h"

struct json_t;

struct ways {
    struct certify_way *way; /* owned; each once, in the order of a step */
    int64_t count, cap;
};

/* Those of one step of a configuration on this many ranks, counted without running it. Operands in
 * f32 have none: only the reference multiplies them. */
NODISCARD enum status ways_of_config(const struct json_t *config, int ranks, struct ways *out,
                                     struct err *e);
/* The standard ones: each kind of GEMM, cast and attention that a recipe has, in shapes of a small
 * model. For `doctor`. */
NODISCARD enum status ways_standard(struct ways *out, struct err *e);
void ways_free(struct ways *w);

#endif
