/* The seed band of a reference: how far the losses of one experiment lie apart at each step when
 * nothing but its seed differs. What two seeds differ by is no fault of a machine, so a
 * reproduction without the same bits is judged by it. A file beside the reference bundle:
 *   schema "fp8lab.seed_band/1", name, reference: identity of the bundle, seeds: [...],
 *   bundles: identities of the repeats, window: steps, band: [nats, one a step from step 1 on] */
#ifndef FP8LAB_RUNNER_COMPARE_SEED_BAND_H
#define FP8LAB_RUNNER_COMPARE_SEED_BAND_H

#include "runner/compare/compare.h"

enum { SEED_BAND_SEEDS_MIN = 3, SEED_BAND_WINDOW = 11 };

struct seed_band {
    double *nats;  /* owned; of step 1, 2, ... */
    int64_t steps; /* 0: there is no band */
};

/* From runs that differ in their seed only, at least SEED_BAND_SEEDS_MIN of them; run 0 is the
 * reference. The band at a step is the standard deviation over the seeds (n - 1), pooled over the
 * SEED_BAND_WINDOW steps around it: of three seeds alone it would sometimes be nearly 0 by chance.
 * ERR_CONFIG names what else differs, or how many seeds there are. *out is owned. */
NODISCARD enum status seed_band_make(const struct comparison *c, json_t **out, struct err *e);

/* Reads a band file. ERR_FORMAT, or ERR_CONFIG where it is of another reference than `identity`. */
NODISCARD enum status seed_band_read(const char *path, const char *identity, struct seed_band *out,
                                     struct err *e);
void seed_band_free(struct seed_band *band);

/* 0 where the band does not reach. */
double seed_band_at(const struct seed_band *band, int64_t step);

/* Where the band of a bundle file lies: X.tar.zst -> X.band.json. */
NODISCARD enum status seed_band_path(const char *bundle, char out[PATH_CAP], struct err *e);

#endif
