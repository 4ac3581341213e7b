/* The verdict of a reproduction: compares a bundle with a new run of the same script. */
#ifndef FP8LAB_RUNNER_REPRO_REPRO_VERDICT_H
#define FP8LAB_RUNNER_REPRO_REPRO_VERDICT_H

#include "runner/compare/compare.h"
#include "runner/compare/seed_band.h"

enum repro_kind {
    REPRO_BITWISE,     /* every record of the bundle, to the bit */
    REPRO_TOLERANCE,   /* other bits; each step's loss is within the tolerance */
    REPRO_DIFFERENT,
    REPRO_INCOMPARABLE /* another configuration, or fewer steps */
};

/* The allowed difference of a step's loss: the larger of this share of the bundle's loss and, if
 * the band counts, REPRO_SEED_BANDS seed bands. */
#define REPRO_LOSS_RELATIVE 1e-3
enum { REPRO_SEED_BANDS = 3 };

struct loss_distance {
    int64_t step; /* 0: there is none */
    double nats, relative, allowed_nats;
};

struct repro_verdict {
    enum repro_kind kind;
    int64_t steps;           /* training steps that both have */
    int64_t of_steps;        /* those of the bundle */
    json_t *reasons;         /* texts: why equal bits were not expected; [] if they were */
    const char *band;        /* file of the seed band, borrowed from it; NULL: there is none */
    bool band_counts;        /* one that was only found does not, where equal bits were promised */
    struct divergence first; /* the first difference */
    struct loss_distance worst, first_outside; /* worst: by share of the allowed difference;
                                                  first_outside: first above it */
    char note[200];          /* further information for the user, or "" */
};

/* c: run 0 is the bundle, run 1 the new run. band: of the reference, may be empty. only_steps: as
 * many of the bundle's steps were repeated; 0: all. Release the result with
 * repro_verdict_free(). */
NODISCARD enum status repro_judge(const struct comparison *c, const struct seed_band *band,
                                  int64_t only_steps, struct repro_verdict *out, struct err *e);
void repro_verdict_free(struct repro_verdict *v);

/* "bitwise equal", "within tolerance", "different", "not comparable". */
const char *repro_kind_name(enum repro_kind kind);

/* EXIT_OK, EXIT_DIFFERS or EXIT_HARDWARE. `exact`: only equal bits are accepted. */
int repro_exit_code(enum repro_kind kind, bool exact);

/* "verdict", "steps", "reasons", "divergence", "losses" and "note": new reference, NULL without
 * memory. */
json_t *repro_verdict_json(const struct repro_verdict *v);

#endif
