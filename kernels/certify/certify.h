/* Certificates: each way in which a backend computes is tried on this device before its first use.
 *
 * A way is a GEMM kind and scale mode, a cast, or an attention, with the shape of the run.
 *
 * A GEMM is tried twice. First on whole numbers, chosen so small that every published arithmetic
 * adds them without rounding: each sampled output must have the exact bits, on any device. Then on
 * noise: where the device's arithmetic is known (kernels/EXACT.md), sampled outputs must have its
 * bits, in the order along K that the backend states; elsewhere they must stay within a bound. A
 * cast must have the reference's bits. Attention must stay within a bound. README.md has the rules.
 *
 * Host code over the interface of backends; nothing here knows a device. */
#ifndef FP8LAB_KERNELS_CERTIFY_CERTIFY_H
#define FP8LAB_KERNELS_CERTIFY_CERTIFY_H

#include "kernels/certify/certificate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tries `way` on b. reference: the CPU backend under its own arithmetic. It makes choices on b and
 * allocates there; it frees what it allocates. A wrong result is no error: it is in `out`. */
NODISCARD enum status certify(struct backend *b, struct backend *reference,
                              const struct certify_way *way, struct certificate *out,
                              struct err *e);

#ifdef __cplusplus
}
#endif
#endif
