/* BagIt (RFC 8493) around a run: bagit.txt, bag-info.txt, manifest-sha256.txt over data/, and
 * tagmanifest-sha256.txt over those three. The SHA-256 of the tag manifest names the bundle: it
 * covers every byte of the payload and no byte of any compression. */
#ifndef FP8LAB_RUNNER_BUNDLE_BAG_H
#define FP8LAB_RUNNER_BUNDLE_BAG_H

#include "kernels/base.h"
#include "runner/base/run_files.h"
#include "model/ground/sha256.h"

struct bag_info {
    const char *identifier;  /* External-Identifier: the run id */
    const char *description; /* External-Description; one line */
    const char *date;        /* Bagging-Date: YYYY-MM-DD */
    const char *agent;       /* Bag-Software-Agent */
};

/* Whether a bag in the run's directory holds this path: it is in data/, or the bag's own file. */
bool bag_holds(const char *path);

/* Hashes every file of data/ and writes the four files, each atomically. `list` receives all files
 * of the bag in archive_sort()'s order; the caller frees it. identity is the bundle's. */
NODISCARD enum status bag_write(const char *dir, const struct bag_info *info, struct tree *list,
                                char identity[SHA256_HEX], int64_t *payload_bytes, struct err *e);

/* ---- reading ------------------------------------------------------------------------------- */
struct bag_line {
    char *path; /* owned */
    char hex[SHA256_HEX];
    bool seen; /* set by a reader when the file was read */
};
struct bag_manifest {
    struct bag_line *line; /* owned; sorted by path, bytewise */
    int64_t count;
};

/* Parses a manifest. `text` is NUL-terminated; `name` is for messages. ERR_FORMAT, naming the line,
 * for a bad digest, a refused name, or a name listed twice. */
NODISCARD enum status bag_manifest_parse(const char *text, const char *name,
                                         struct bag_manifest *out, struct err *e);
void bag_manifest_free(struct bag_manifest *m);
struct bag_line *bag_manifest_find(const struct bag_manifest *m, const char *path);

enum bag_part { BAG_ALL, BAG_CHECKPOINTS, BAG_OTHERS }; /* files of the payload */

/* Compares this part of the files that a directory's manifest lists with their hashes. ERR_VERIFY
 * names the first that changed or is gone; ERR_IO one that cannot be read. */
NODISCARD enum status bag_unchanged(const char *dir, enum bag_part part, struct err *e);

/* Reads Payload-Oxum ("bytes.files") from bag-info.txt's text; false when absent or malformed. */
bool bag_oxum(const char *info, int64_t *bytes, int64_t *files);

#endif
