/* What a bundle from a stranger may contain. Every entry of every archive or directory passes here
 * before one byte of it is used; each refusal has its own sentence.
 *
 * Names: relative, '/'-separated, printable ASCII without \ % : * ? " < > |, no empty, "." or ".."
 * component; no name twice, none that differs from another in letter case only, none that is both
 * a file and a directory. The writer keeps to the same alphabet, so that a bundle means the same
 * on every system and needs no escaping in a BagIt manifest. */
#ifndef FP8LAB_RUNNER_BUNDLE_GUARD_H
#define FP8LAB_RUNNER_BUNDLE_GUARD_H

#include "kernels/base.h"

struct bundle_limits {
    int64_t entries;     /* files and directories */
    int64_t names;       /* the same, with the directories that names imply */
    int64_t path_bytes;  /* of one name */
    int64_t depth;       /* components of one name */
    int64_t file_bytes;  /* of one file */
    int64_t total_bytes; /* of all files */
    int64_t ratio;       /* unpacked to packed bytes, once more than RATIO_FREE came out */
};

/* 20,000 entries, 40,000 names, 512 bytes, 64 components, 1 TiB, 4 TiB, 1000:1. */
extern const struct bundle_limits BUNDLE_LIMITS;
enum { RATIO_FREE = 64 << 20 };

struct guard;

NODISCARD enum status guard_create(const struct bundle_limits *limits, struct guard **out,
                                   struct err *e);
void guard_destroy(struct guard *g); /* NULL is fine */

/* Whether a name is acceptable by itself. ERR_FORMAT says why not. */
NODISCARD enum status guard_name(const char *path, const struct bundle_limits *limits,
                                 struct err *e);

/* Admits one file of `size` bytes, or one directory (size 0), or refuses it with ERR_FORMAT. */
NODISCARD enum status guard_admit(struct guard *g, const char *path, bool directory, int64_t size,
                                  struct err *e);

/* Called while unpacking with the bytes read from the archive and the bytes that came out of it. */
NODISCARD enum status guard_ratio(const struct guard *g, int64_t packed, int64_t unpacked,
                                  struct err *e);

#endif
