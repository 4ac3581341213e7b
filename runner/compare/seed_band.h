/* The seed band of a reference: the spread of an experiment's losses at each step over seeds. A
 * reproduction without the same bits may differ by as much as two seeds do, so it is judged by the
 * band. A file beside the reference bundle:
 *   schema "fp8lab.seed_band/1", name, reference: identity of the bundle, seeds: [...],
 *   bundles: identities of the repeats, window: steps, band: [nats, for steps 1, 2, ...] */
#ifndef FP8LAB_RUNNER_COMPARE_SEED_BAND_H
#define FP8LAB_RUNNER_COMPARE_SEED_BAND_H

#include "runner/compare/compare.h"

#define SEED_BAND_SCHEMA "fp8lab.seed_band/1"
#define SEED_BAND_BEGINS "{\n  \"band\": [" /* of a file of json_file_write() */

enum { SEED_BAND_SEEDS_MIN = 3, SEED_BAND_WINDOW = 11 };

struct seed_band {
    double *nats;  /* owned; of step 1, 2, ... */
    int64_t steps; /* 0: there is no band */
    bool found;    /* the user did not name it: it lies beside a bundle that may be a stranger's */
    char path[PATH_CAP];
};

/* The limits of a band, as shares of the reference's losses: at each step, and on average. The
 * widest known, of a tiny model that is unstable at first, has 0.33 and 0.09. */
#define SEED_BAND_SHARE_MAX 0.5
#define SEED_BAND_MEAN_MAX 0.2

/* Makes a band from at least SEED_BAND_SEEDS_MIN runs that differ only in their seed; run 0 is the
 * reference. The band at a step is the standard deviation over the seeds (n - 1), pooled over the
 * SEED_BAND_WINDOW steps around it. Without pooling, three seeds would sometimes give almost 0 by
 * chance. ERR_CONFIG names other differences, or the number of seeds. *out is owned. */
NODISCARD enum status seed_band_make(const struct comparison *c, json_t **out, struct err *e);

/* Reads a band file. ERR_FORMAT; ERR_CONFIG if it is of another reference than `identity`, or above
 * a limit. train: the records of the reference. */
NODISCARD enum status seed_band_read(const char *path, const char *identity,
                                     const struct columns *train, struct seed_band *out,
                                     struct err *e);
void seed_band_free(struct seed_band *band);

/* 0 for steps outside the band. */
double seed_band_at(const struct seed_band *band, int64_t step);

/* The path of a bundle's band: X.tar.zst -> X.band.json. */
NODISCARD enum status seed_band_path(const char *bundle, char out[PATH_CAP], struct err *e);

#endif
