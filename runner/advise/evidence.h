/* What the runs at hand say about the loss of a recipe: the verdicts of `compare`. */
#ifndef FP8LAB_RUNNER_ADVISE_EVIDENCE_H
#define FP8LAB_RUNNER_ADVISE_EVIDENCE_H

#include "model/ground/sha256.h"

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
    double relative, high;     /* its mean loss to the baseline's, and the upper 95 % bound; NaN:
                                * none */
    char baseline[80];         /* "bf16", "fp8.delayed with attention in BF16"; "": no comparison */
    double tokens;             /* of training, after which losses were compared; NaN: not known */
    bool other_data, other_training; /* than the configuration's, apart from the seed */
    char why[512];             /* of a missing verdict or a divergence, as compare says it; else
                                * "" */
};

struct evidence {
    struct json_t *rows; /* owned: {config: of a run, baseline, tokens, verdict...} a row */
    struct json_t *unreadable; /* owned: why, for each run that was left out; it names the path */
    char weights[SHA256_HEX]; /* of the script's `init`, for evidence_of(). "": not known; then
                               * the path decides whether runs began with the same. */
    int64_t runs;        /* that have this model, are over and were evaluated or failed */
    char problem[256];   /* why the runs could not be compared; "" */
};

/* Compares all runs in `runs_dir` that have the model of `config`, random initial weights if it has
 * them, and its precision of attention:
 * for FP8 attention either one, since BF16 defines none, so its baseline is the same recipe with
 * attention in BF16. A run that cannot be read, or of
 * which a byte is damaged, is left out. */
NODISCARD enum status evidence_gather(const char *runs_dir, const struct json_t *config,
                                      struct evidence *out, struct err *e);
void evidence_free(struct evidence *x);

/* Whether a run began with given weights, and recorded their hash. Only then is it worth reading
 * those of a script. */
bool evidence_has_weights(const struct evidence *x);

bool evidence_is_of_attention(const struct json_t *config); /* attention.precision is "fp8" */

/* What they say of the recipe of `config`, with just its options. Of several comparisons the worst
 * one counts: a loss that failed once is not forgotten, also without FP8 attention. Of equal ones
 * the one with its data and its training counts. */
void evidence_of(const struct evidence *x, const struct json_t *config,
                 struct loss_evidence *out);
const char *evidence_name(enum loss_finding finding); /* "does not hold" */

#endif
