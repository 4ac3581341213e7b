/* A cast beside the reference's, to the bit: private to kernels/certify. */
#ifndef FP8LAB_KERNELS_CERTIFY_CAST_CHECK_H
#define FP8LAB_KERNELS_CERTIFY_CAST_CHECK_H

#include "kernels/certify/certificate.h"

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
