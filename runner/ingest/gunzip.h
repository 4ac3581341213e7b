/* Unpacks gzip (RFC 1952), member by member, and checks the CRC-32 and the length of each.
 * libarchive 3.6 checks neither. */
#ifndef FP8LAB_RUNNER_INGEST_GUNZIP_H
#define FP8LAB_RUNNER_INGEST_GUNZIP_H

#include "kernels/base.h"

struct gunzip;

NODISCARD enum status gunzip_create(struct gunzip **out, struct err *e);
void gunzip_destroy(struct gunzip *g);

/* Unpacks some of in[0..n-1]: *used bytes of it, into *made bytes at out, at most `room`. *made is
 * 0: it needs more input. Zeros behind members are skipped. ERR_FORMAT: damaged, or other bytes
 * behind a member. */
NODISCARD enum status gunzip_some(struct gunzip *g, const unsigned char *in, size_t n, size_t *used,
                                  unsigned char *out, size_t room, size_t *made, struct err *e);

/* ERR_FORMAT if the input ended within a member. */
NODISCARD enum status gunzip_end(const struct gunzip *g, struct err *e);

#endif
