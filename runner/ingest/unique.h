/* The set of documents that were seen, by 128 bits of the SHA-256 of their text. */
#ifndef FP8LAB_RUNNER_INGEST_UNIQUE_H
#define FP8LAB_RUNNER_INGEST_UNIQUE_H

#include "model/ground/sha256.h"

enum { UNIQUE_KEY = 16 }; /* bytes */

/* Zero-initialise it. It takes 22 to 43 bytes a document, and half as much again while it grows. */
struct unique {
    unsigned char *slot; /* [slots][UNIQUE_KEY]; owned */
    size_t slots, count;
};
void unique_free(struct unique *u);

/* Adds a key. *fresh: it was not there. ERR_MEMORY. */
NODISCARD enum status unique_add(struct unique *u, const unsigned char key[UNIQUE_KEY],
                                 bool *fresh, struct err *e);

/* The key of a digest. */
void unique_key(const char hex[SHA256_HEX], unsigned char key[UNIQUE_KEY]);

#endif
