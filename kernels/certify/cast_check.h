/* A cast beside the reference's, to the bit: private to kernels/certify. */
#ifndef FP8LAB_KERNELS_CERTIFY_CAST_CHECK_H
#define FP8LAB_KERNELS_CERTIFY_CAST_CHECK_H

#include "kernels/certify/certificate.h"

/* Casts rows with zeros, an outlier, subnormal numbers, tails, and then a NaN, on both backends. */
NODISCARD enum status certify_cast(struct backend *b, struct backend *reference,
                                   const struct certify_way *way, struct certificate *out,
                                   struct err *e);

#endif
