/* The secret of one job, which proves to a process that the other end of a connection belongs to
 * the same run. It keeps out strangers and other jobs; it hides nothing: what travels afterwards is
 * plain, on a network that is taken to be the cluster's own. */
#ifndef FP8LAB_RUNNER_JOB_SECRET_H
#define FP8LAB_RUNNER_JOB_SECRET_H

#include "kernels/base.h"
#include "model/sha256.h"

/* 64 hexadecimal digits from the system's generator: a secret, or a challenge. */
NODISCARD enum status secret_make(char out[SHA256_HEX], struct err *e);

/* HMAC-SHA-256 (RFC 2104) of `text` under `secret`, both NUL-terminated, as hexadecimal digits. */
NODISCARD enum status secret_sign(const char *secret, const char *text, char out[SHA256_HEX],
                                  struct err *e);

/* The secret of one rendezvous of ranks, which whoever knows the job's makes of `nonce`: that alone
 * travels, and may be overheard. */
NODISCARD enum status secret_of_rendezvous(const char *secret, const char *nonce,
                                        char out[SHA256_HEX], struct err *e);

/* Whether two signatures are equal, in a time that does not depend on where they differ. */
bool secret_equal(const char a[SHA256_HEX], const char b[SHA256_HEX]);

#endif
