/* The ways of computing that a run needs certified: of a configuration, or of all recipes. */
#ifndef FP8LAB_RUNNER_CERTIFY_WAYS_H
#define FP8LAB_RUNNER_CERTIFY_WAYS_H

#include "kernels/certify/certificate.h"

struct json_t;
struct run_options;

struct ways {
    struct certify_way *way; /* owned; each once, in the order of a step */
    int64_t count, cap;
};

/* In which orders MXFP8's twins may lie (kernels/tensor.h). */
enum { TWINS_TRANSPOSED = 1, TWINS_UNTRANSPOSED = 2 };
/* Those that a GPU asks for: that acts as `caps`, or (NULL) of these facts. Both if they do not
 * tell: they know no GPU, or GPUs of several products. */
unsigned ways_twins(const char *caps, const struct json_t *facts);

/* Those of a configuration on this many ranks, counted without running it: of an evaluation, of a
 * step, and of a step after forward_bf16_after; of a recipe with a fallback, those of BF16 too.
 * Operands in f32 have none: only the reference multiplies them. */
NODISCARD enum status ways_of_config(const struct json_t *config, int ranks, unsigned twins,
                                     struct ways *out, struct err *e);
/* Those of a model that only goes forward (forward_only), in the sizes of these options. Without
 * attention in FP8, whose certificates need a backward. */
NODISCARD enum status ways_of_model(const struct run_options *run, struct ways *out, struct err *e);
/* The standard ones: each kind of GEMM, cast and attention that a recipe has, in shapes of a small
 * model. For `doctor`. Without untransposed twins if the device asks for none. */
NODISCARD enum status ways_standard(unsigned twins, struct ways *out, struct err *e);
void ways_free(struct ways *w);
/* A file of ways, for a child of this very program. */
NODISCARD enum status ways_write(const struct ways *w, int fd, struct err *e);
NODISCARD enum status ways_read(const char *path, struct ways *out, struct err *e);

/* "gemm", "cast" or "attention", as forbid() takes it. */
const char *way_section_name(enum way_section s);
/* Whether a backend may compute `w` in the way with this name ("attention wgmma"), and then has
 * another one. So a certificate of w holds only under the same names. */
bool way_may_use(const struct certify_way *w, const char *name);

#endif
