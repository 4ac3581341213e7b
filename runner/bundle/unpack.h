/* Verifies a bundle, and extracts it: one pass, one code path. Bytes are hashed while they stream
 * by, and written only below a fresh directory of mode 0700. Once all is verified it gets the mode
 * that the umask leaves. */
#ifndef FP8LAB_RUNNER_BUNDLE_UNPACK_H
#define FP8LAB_RUNNER_BUNDLE_UNPACK_H

#include "kernels/base.h"
#include "runner/bundle/guard.h"
#include "model/ground/sha256.h"

struct unpack_report {
    char folder[256];           /* the run id: the name of the archive's folder or of the
                                   directory */
    char identity[SHA256_HEX];  /* sha256 of tagmanifest-sha256.txt */
    int64_t files, bytes;       /* of the payload */
};

/* Reads the bundle file or directory at path to its end and verifies it. Every file of the manifest
 * exists once, with its digest. No file is unlisted. Tag files and Payload-Oxum are right.
 * summary.json and results_sha256 match the records (recheck.h).
 * `dest`: NULL to verify only; otherwise a path that must not exist yet. dest appears complete at
 * the end or not at all: work happens in <dest>.partial.
 * ERR_VERIFY: well formed, but a file is missing, surplus or changed;
 * the text names it. ERR_FORMAT: refused by the guard, damaged or truncated. ERR_STATE: a run that
 * is not finished. ERR_IO: a file cannot be read or written. */
NODISCARD enum status bundle_unpack(const char *path, const char *dest,
                                    const struct bundle_limits *limits,
                                    struct unpack_report *report, struct err *e);

/* The same, but writes only files whose path begins with one of `heads` (ends with NULL). The whole
 * bundle is verified nevertheless. */
NODISCARD enum status bundle_unpack_part(const char *path, const char *dest,
                                         const char *const *heads,
                                         const struct bundle_limits *limits,
                                         struct unpack_report *report, struct err *e);

#endif
