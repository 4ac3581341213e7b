/* Limits for the contents of a foreign bundle. Every entry of every archive or directory is checked
 * here before any byte of it is used. Each refusal has its own text.
 *
 * Names: relative, '/'-separated, printable ASCII without \ % : * ? " < > |. No component is empty,
 * "." or "..". No name occurs twice, and no two names differ in letter case only. No name is both a
 * file and a directory. The writer uses the same alphabet, so a bundle means the same on every
 * system and needs no escaping in a BagIt manifest. */
#ifndef FP8LAB_RUNNER_BUNDLE_GUARD_H
#define FP8LAB_RUNNER_BUNDLE_GUARD_H

#include "kernels/base.h"

struct bundle_limits {
    int64_t entries;     /* files and directories */
    int64_t names;       /* entries and the directories that their names imply */
    int64_t path_bytes;  /* of one name */
    int64_t depth;       /* components of one name */
    int64_t file_bytes;  /* of one file */
    int64_t total_bytes; /* of all files */
    int64_t ratio;       /* unpacked bytes to packed bytes, checked after RATIO_FREE bytes */
};

/* 20,000 entries, 40,000 names, 512 bytes, 64 components, 1 TiB, 4 TiB, 1000:1. */
extern const struct bundle_limits BUNDLE_LIMITS;
enum { RATIO_FREE = 64 << 20 };

struct guard;

NODISCARD enum status guard_create(const struct bundle_limits *limits, struct guard **out,
                                   struct err *e);
void guard_destroy(struct guard *g); /* g may be NULL. */

/* Checks a name by itself. ERR_FORMAT says what is wrong. */
NODISCARD enum status guard_name(const char *path, const struct bundle_limits *limits,
                                 struct err *e);

/* Admits one file of `size` bytes, or one directory (size 0), or refuses it with ERR_FORMAT. */
NODISCARD enum status guard_admit(struct guard *g, const char *path, bool directory, int64_t size,
                                  struct err *e);

/* Call after the last entry. ERR_FORMAT if a directory was admitted and no file in it. */
NODISCARD enum status guard_end(const struct guard *g, struct err *e);

/* Call while unpacking, with the bytes read from the archive and the bytes unpacked. */
NODISCARD enum status guard_ratio(const struct guard *g, int64_t packed, int64_t unpacked,
                                  struct err *e);

#endif
