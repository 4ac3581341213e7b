/* The secret of one job. Both ends of a connection prove that they know it, which keeps out other
 * jobs and other users. The secret encrypts nothing: messages are plain text, and the cluster's
 * network must be trusted. */
#ifndef FP8LAB_RUNNER_JOB_SECRET_H
#define FP8LAB_RUNNER_JOB_SECRET_H

#include "kernels/base.h"
#include "model/ground/sha256.h"

/* 64 hexadecimal digits from the system's generator: a secret, or a challenge. */
NODISCARD enum status secret_make(char out[SHA256_HEX], struct err *e);

/* HMAC-SHA-256 (RFC 2104) of `text` under `secret`, both NUL-terminated, as 64 hexadecimal digits.
 * ERR_MEMORY: libcrypto failed. */
NODISCARD enum status secret_sign(const char *secret, const char *text, char out[SHA256_HEX],
                                  struct err *e);

/* Derives the secret of one rendezvous from the job's secret and `nonce`. Only the nonce is sent,
 * so a process that reads the network cannot join the ranks. */
NODISCARD enum status secret_of_rendezvous(const char *secret, const char *nonce,
                                        char out[SHA256_HEX], struct err *e);

/* Compares two signatures in constant time. */
bool secret_equal(const char a[SHA256_HEX], const char b[SHA256_HEX]);

#endif
