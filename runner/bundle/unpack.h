/* Verifying a bundle, and extracting it: one pass, one code path. Bytes are hashed while they
 * stream by, and written only below a fresh directory of mode 0700. */
#ifndef FP8LAB_RUNNER_BUNDLE_UNPACK_H
#define FP8LAB_RUNNER_BUNDLE_UNPACK_H

#include "kernels/base.h"
#include "runner/bundle/guard.h"
#include "model/sha256.h"

struct unpack_report {
    char folder[256];           /* the run id, as the archive's folder or the directory says */
    char identity[SHA256_HEX];  /* sha256 of tagmanifest-sha256.txt */
    int64_t files, bytes;       /* of the payload */
};

/* Reads the bundle file or directory at path to its end and checks that it is what it says: every
 * file of the manifest present once, with its digest; no file that is not listed; tag files and
 * Payload-Oxum right; summary.json and results_sha256 those of the columns (recheck.h).
 * `dest`: NULL to verify only; otherwise a path that must not exist yet, and that appears whole at
 * the end or not at all (work happens in <dest>.partial).
 * ERR_VERIFY: well formed, but something is missing, surplus or changed; the text names it.
 * ERR_FORMAT: refused by the guard, damaged or truncated. ERR_STATE: a run that is not finished. */
NODISCARD enum status bundle_unpack(const char *path, const char *dest,
                                    const struct bundle_limits *limits,
                                    struct unpack_report *report, struct err *e);

/* The same, writing only the files whose path begins as one of `heads` (ends with NULL) does. All
 * of the bundle is verified none the less. */
NODISCARD enum status bundle_unpack_part(const char *path, const char *dest,
                                         const char *const *heads,
                                         const struct bundle_limits *limits,
                                         struct unpack_report *report, struct err *e);

#endif
