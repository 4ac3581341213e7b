/* The verdict of a reproduction: a bundle and a run that did again what it says, side by side. */
#ifndef FP8LAB_RUNNER_REPRO_REPRO_VERDICT_H
#define FP8LAB_RUNNER_REPRO_REPRO_VERDICT_H

#include "runner/compare/compare.h"
#include "runner/compare/seed_band.h"

enum repro_kind {
    REPRO_BITWISE,     /* every record of the bundle again, to the bit */
    REPRO_TOLERANCE,   /* other bits; each step's loss is within the tolerance */
    REPRO_DIFFERENT,
    REPRO_INCOMPARABLE /* it did not do the same, or less of it */
};

/* A step's loss may be off by the larger of this share of the bundle's, and three seed bands. */
#define REPRO_LOSS_RELATIVE 1e-3
enum { REPRO_SEED_BANDS = 3 };

struct loss_distance {
    int64_t step; /* 0: there is none */
    double nats, relative, allowed_nats;
};

struct repro_verdict {
    enum repro_kind kind;
    int64_t steps;           /* of training that both have */
    json_t *reasons;         /* texts: why the same bits were not to be expected; [] if they were */
    struct divergence first; /* where they part */
    struct loss_distance worst, first_outside; /* by share of what is allowed; beyond it */
    char note[200];          /* what a reader must know besides, or "" */
};

/* c: run 0 the bundle, run 1 the new run. band: of the reference, may be empty. The result is
 * released with repro_verdict_free(). */
NODISCARD enum status repro_judge(const struct comparison *c, const struct seed_band *band,
                                  struct repro_verdict *out, struct err *e);
void repro_verdict_free(struct repro_verdict *v);

/* "bitwise equal", "within tolerance", "different", "not comparable". */
const char *repro_kind_name(enum repro_kind kind);

/* 0, or EXIT_DIFFERS, EXIT_HARDWARE. `exact`: only the same bits will do. */
int repro_exit_code(enum repro_kind kind, bool exact);

/* "verdict", "steps", "reasons", "divergence", "losses" and "note": new reference, NULL without
 * memory. */
json_t *repro_verdict_json(const struct repro_verdict *v);

#endif
