/* A cast beside the reference's, to the bit: private to kernels/certify. */
#ifndef FP8LAB_KERNELS_CERTIFY_CAST_CHECK_H
#define FP8LAB_KERNELS_CERTIFY_CAST_CHECK_H

#include "kernels/certify/certificate.h"

/* Where a cast's tensors lie. Up to AMAX: what it writes. */
enum cast_part { CAST_CODES, CAST_FACTORS, CAST_TWIN, CAST_TWIN_FACTORS, CAST_AMAX, CAST_VALUE,
                 CAST_MULTIPLIER, CAST_STEP, CAST_SEQUENCE, CAST_PARTS };
enum { CAST_WRITTEN = CAST_AMAX + 1 };

/* The tensors of one cast of [rows, k], and its sink, which points to them. */
struct cast_views {
    struct tensor value, codes, twin, amax, multiplier, step, sequence;
    struct round_draws draws;
    struct sink sink;
};
/* memory [CAST_PARTS]: borrowed. */
void cast_views_make(struct cast_views *v, const struct certify_way *way, int64_t rows, int64_t k,
                     void *const *memory);
/* Whether the cast writes this part. */
bool cast_writes(const struct certify_way *way, int part);
extern const char *const CAST_PART_NAMES[CAST_WRITTEN];

/* The twin of the codes of [rows, k], without its scale. */
struct tensor cast_twin(const struct certify_way *way, void *data, int64_t rows, int64_t k);
/* Whether the twin is in the memory of the codes, as in a run (model/operand.h). */
bool cast_shares_codes(const struct certify_way *way);
/* Fills an array of codes with `garbage`; the padding of their lines becomes zero. */
void cast_fill(unsigned char *to, const struct tensor *codes, int garbage);

/* Casts rows with zeros, an outlier, subnormal numbers, tails, and then a NaN, on both backends. */
NODISCARD enum status certify_cast(struct backend *b, struct backend *reference,
                                   const struct certify_way *way, struct certificate *out,
                                   struct err *e);

#endif
