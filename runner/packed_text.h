/* The text of a packed file, for the figures of `fp8lab data`. */
#ifndef FP8LAB_RUNNER_PACKED_TEXT_H
#define FP8LAB_RUNNER_PACKED_TEXT_H

#include "kernels/base.h"
#include "model/ground/sha256.h"

enum { PACKED_TEXT_MAX = 64 << 20 }; /* bytes that are unpacked at most */

struct packed_text {
    char *text;              /* owned */
    int64_t bytes;           /* of text */
    bool whole;              /* the file holds no more text */
    int64_t files;           /* of a tar that text is from; 0: no tar */
    int64_t packed_bytes;    /* of the file on disk */
    char sha256[SHA256_HEX]; /* of the file on disk */
};

/* What the file is packed with by its first bytes: "gzip", "zstd", "tar"; NULL: nothing of these,
 * no regular file, or unreadable. */
const char *packed_text_kind(const char *path);

/* Unpacks the beginning as `data tokenise` reads it, and reads the file to its end. The files of a
 * tar are one text: a newline is put behind each that does not end with one. Errors of
 * runner/ingest/source.h; after an error there is nothing to free. */
NODISCARD enum status packed_text_read(struct packed_text *out, const char *path, struct err *e);
void packed_text_free(struct packed_text *p); /* allowed for a zeroed struct */

#endif
