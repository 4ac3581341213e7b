/* SHA-256 as a running digest (libcrypto underneath), for weights, data and checkpoints. */
#ifndef FP8LAB_MODEL_DIGEST_H
#define FP8LAB_MODEL_DIGEST_H

#include "kernels/base.h"

struct digest { void *context; }; /* owned by libcrypto until digest_end */

NODISCARD enum status digest_begin(struct digest *d, struct err *e);
void digest_add(struct digest *d, const void *bytes, int64_t count);
/* Writes 64 hexadecimal digits (hex may be NULL: the digest is dropped) and releases the context.
 * A digest that was never begun, zeroed, is fine. */
void digest_end(struct digest *d, char hex[65]);

#endif
