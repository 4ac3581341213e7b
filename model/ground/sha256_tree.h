/* The tree hash, for large files and files that several processes write. The file is cut into
 * leaves of SHA256_LEAF_BYTES; the tree hash is the digest of their digests (32 bytes each). In a
 * shell:
 *   split -b 1M --filter='sha256sum | head -c 64' FILE |
 *       tr a-f A-F | basenc --base16 -d | sha256sum */
#ifndef FP8LAB_GROUND_SHA256_TREE_H
#define FP8LAB_GROUND_SHA256_TREE_H

#include "model/ground/input_file.h"

enum { SHA256_LEAF_BYTES = 1 << 20 };

/* Hashes the file on all processors. ERR_IO when reading fails. */
NODISCARD enum status sha256_tree(const struct input_file *f, char hex[SHA256_HEX], struct err *e);

#endif
