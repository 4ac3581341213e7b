/* What the runs at hand say about the loss of a recipe: the verdicts of `compare`. */
#ifndef FP8LAB_RUNNER_ADVISE_EVIDENCE_H
#define FP8LAB_RUNNER_ADVISE_EVIDENCE_H

#include "kernels/base.h"

struct json_t;

enum loss_finding {
    EVIDENCE_NONE,      /* no run of this model and recipe beside BF16, or none with a verdict */
    EVIDENCE_UNDECIDED,
    EVIDENCE_HOLDS,
    EVIDENCE_FAILS      /* "does not hold" */
};

struct loss_evidence {
    enum loss_finding finding;
    int64_t seeds;             /* of the recipe, in the comparison that decided */
    double relative, high;     /* its mean loss to BF16's, and the upper 95 % bound; NaN: none */
    char why[160];             /* of a missing verdict or a divergence; else "" */
};

struct evidence {
    struct json_t *rows; /* owned: {recipe: its section of the configuration, verdict...} a row */
    struct json_t *unreadable; /* owned: why, for each run that was left out; it names the path */
    int64_t runs;        /* that have this model, are over and were evaluated or failed */
    char problem[256];   /* why the runs could not be compared; "" */
};

/* Compares all runs in `runs_dir` that have the model of `config`. A run that cannot be read, or of
 * which a byte is damaged, is left out. */
NODISCARD enum status evidence_gather(const char *runs_dir, const struct json_t *config,
                                      struct evidence *out, struct err *e);
void evidence_free(struct evidence *x);

/* What they say of the recipe of `config`, with just its options. Of several comparisons the worst
 * one counts: a loss that failed once is not forgotten. */
void evidence_of(const struct evidence *x, const struct json_t *config,
                 struct loss_evidence *out);
const char *evidence_name(enum loss_finding finding); /* "does not hold" */

#endif
