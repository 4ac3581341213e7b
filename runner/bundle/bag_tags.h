/* The four tag files of a bag, as every reader meets them at its beginning. The tag manifest
 * vouches for the other three, and the manifest for all of data/. The identity of the bundle is the
 * hash of the tag manifest. */
#ifndef FP8LAB_RUNNER_BUNDLE_BAG_TAGS_H
#define FP8LAB_RUNNER_BUNDLE_BAG_TAGS_H

#include "kernels/base.h"
#include "model/sha256.h"
#include "runner/bundle/bag.h"
#include "runner/bundle/bundle_reader.h"

enum bag_tag { BAG_BAGIT, BAG_INFO, BAG_MANIFEST, BAG_TAGMANIFEST, BAG_TAG_COUNT };

/* Zero-initialise; bag_tags_free(). */
struct bag_tags {
    char *text[BAG_TAG_COUNT];               /* owned; NULL while the file has not come */
    char hex[BAG_TAG_COUNT][SHA256_HEX];     /* of the file */
    struct bag_manifest manifest;            /* of data/; empty while its file has not come */
    bool vouched;                            /* bag_tags_check() was content */
};

/* Which of them the file is; -1: none. */
int bag_tag_of(const char *path);
const char *bag_tag_name(int tag);

/* Takes the bundle's current entry, which is that file. ERR_FORMAT for one that is too large, holds
 * a NUL, or is no manifest where it should be one. */
NODISCARD enum status bag_tags_take(struct bag_tags *t, int tag, struct bundle *b, struct err *e);

/* Whether all four are there, and are what the tag manifest says. ERR_VERIFY names what is not. */
NODISCARD enum status bag_tags_check(struct bag_tags *t, struct err *e);

void bag_tags_free(struct bag_tags *t);

#endif
