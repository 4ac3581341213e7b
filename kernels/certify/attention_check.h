/* Attention beside sampled rows in f64: private to kernels/certify. */
#ifndef FP8LAB_KERNELS_CERTIFY_ATTENTION_CHECK_H
#define FP8LAB_KERNELS_CERTIFY_ATTENTION_CHECK_H

#include "kernels/certify/certificate.h"

/* Forward and backward of the run's shape; then of small shapes, with the parts of the mask that
 * the run has, and their forward again with a NaN among the values. */
NODISCARD enum status certify_attention(struct backend *b, const struct certify_way *way,
                                        struct certificate *out, struct err *e);

#endif
