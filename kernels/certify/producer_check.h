/* Casts inside other operators: private to the users of kernels/certify.
 *
 * A run casts where a value is made: in a norm, an activation, a rotation, the optimizer. Their
 * arithmetic is not exact on a device, but what they write into a sink is defined by the value that
 * they store (kernels/quant.h). So the reference casts the device's own value, and codes, scales
 * and amax must have the same bits; also if the value is not kept. */
#ifndef FP8LAB_KERNELS_CERTIFY_PRODUCER_CHECK_H
#define FP8LAB_KERNELS_CERTIFY_PRODUCER_CHECK_H

#include "kernels/certify/certificate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Goes on with the certificate of a cast that passed: tries the operators that may make it, and
 * names them in `found`. One that refuses the sink or the shape is left out. */
NODISCARD enum status certify_producers(struct backend *b, struct backend *reference,
                                        const struct certify_way *way, struct certificate *out,
                                        struct err *e);

#ifdef __cplusplus
}
#endif
#endif
