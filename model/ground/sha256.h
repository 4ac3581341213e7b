/* SHA-256 of bytes, streams and files, by libcrypto. Digests are 64 lowercase hexadecimal digits,
 * as in manifests, run.json and file names. */
#ifndef FP8LAB_GROUND_SHA256_H
#define FP8LAB_GROUND_SHA256_H

#include "kernels/base.h"

enum { SHA256_BYTES = 32, SHA256_HEX = 65 }; /* 64 digits and the terminating NUL */

/* One running digest. Opaque; owned by the caller through create/destroy. */
struct sha256;

NODISCARD enum status sha256_create(struct sha256 **out, struct err *e);
void sha256_destroy(struct sha256 *s); /* NULL is fine */

/* Adds n bytes. */
void sha256_add(struct sha256 *s, const void *bytes, size_t n);

/* The digest of the bytes added so far; more may follow. ERR_MEMORY. */
NODISCARD enum status sha256_so_far(const struct sha256 *s, char hex[SHA256_HEX], struct err *e);

/* A second digest that goes on from the same bytes; the caller owns it. ERR_MEMORY. */
NODISCARD enum status sha256_copy(struct sha256 **out, const struct sha256 *s, struct err *e);

/* Writes the digest of all bytes added. No byte can be added afterwards. */
void sha256_finish(struct sha256 *s, char hex[SHA256_HEX]);

/* The digest of one buffer. */
NODISCARD enum status sha256_bytes(const void *bytes, size_t n, char hex[SHA256_HEX],
                                   struct err *e);

/* The same in binary. */
NODISCARD enum status sha256_digest(const void *bytes, size_t n, unsigned char out[SHA256_BYTES],
                                    struct err *e);

/* The digest of everything that can still be read from `fd`; *size (may be NULL) is the number of
 * bytes read. `name` is used in messages only. ERR_IO when reading fails. */
NODISCARD enum status sha256_fd(int fd, const char *name, char hex[SHA256_HEX], int64_t *size,
                                struct err *e);

/* The digest of a regular file; symbolic links are followed. */
NODISCARD enum status sha256_file(const char *path, char hex[SHA256_HEX], int64_t *size,
                                  struct err *e);

/* Whether text is exactly 64 lowercase hexadecimal digits. */
bool sha256_is_hex(const char *text);

#endif
