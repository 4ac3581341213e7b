/* The four tag files at the beginning of a bag. The tag manifest holds the hashes of the other
 * three, and the manifest those of all files of data/. The identity of the bundle is the hash of
 * the tag manifest. */
#ifndef FP8LAB_RUNNER_BUNDLE_BAG_TAGS_H
#define FP8LAB_RUNNER_BUNDLE_BAG_TAGS_H

#include "kernels/base.h"
#include "model/ground/sha256.h"
#include "runner/bundle/bag.h"
#include "runner/bundle/bundle_reader.h"

enum bag_tag { BAG_BAGIT, BAG_INFO, BAG_MANIFEST, BAG_TAGMANIFEST, BAG_TAG_COUNT };

/* Zero-initialise; bag_tags_free(). */
struct bag_tags {
    char *text[BAG_TAG_COUNT];               /* owned; NULL until the file was read */
    char hex[BAG_TAG_COUNT][SHA256_HEX];     /* of the file */
    struct bag_manifest manifest;            /* of data/; empty until its file was read */
    bool vouched;                            /* bag_tags_check() succeeded */
};

/* The index of the tag file with this name; -1: none. */
int bag_tag_of(const char *path);
const char *bag_tag_name(int tag);

/* Reads the bundle's current entry, which is this tag file. ERR_FORMAT if it is too large, holds a
 * NUL, or is a manifest that does not parse. */
NODISCARD enum status bag_tags_take(struct bag_tags *t, int tag, struct bundle *b, struct err *e);

/* Checks that all four files were read and match the tag manifest. ERR_VERIFY names the file that
 * does not. */
NODISCARD enum status bag_tags_check(struct bag_tags *t, struct err *e);

/* Checks a file of data/ against the manifest, and marks it as seen there. OK without a manifest.
 * ERR_VERIFY. */
NODISCARD enum status bag_tags_check_file(struct bag_tags *t, const char *name, const char *bytes,
                                          size_t n, struct err *e);
/* The same for a file whose digest is `hex`. */
NODISCARD enum status bag_tags_check_hash(struct bag_tags *t, const char *name, const char *hex,
                                          struct err *e);

void bag_tags_free(struct bag_tags *t);

#endif
