/* The frames of a zstd file, walked over without unpacking them (RFC 8878): a reader of what
 * comes out never sees a skippable frame, so a bundle could hide anything in one. */
#ifndef FP8LAB_RUNNER_BUNDLE_ZSTD_FRAMES_H
#define FP8LAB_RUNNER_BUNDLE_ZSTD_FRAMES_H

#include "kernels/base.h"

enum zstd_field { ZSTD_MAGIC, ZSTD_DESCRIPTOR, ZSTD_BLOCK };

/* Zero-initialise at the beginning of a file. */
struct zstd_frames {
    enum zstd_field field;   /* the next one that is read */
    unsigned char bytes[4];  /* of that field, as far as they have come */
    size_t have;
    uint64_t skip;           /* bytes before it that are not read */
    int64_t at;              /* bytes of the file so far */
    bool checksum;           /* of the current frame: stands behind its last block */
};

/* Walks over the next n bytes of the file. ERR_FORMAT: they belong to a frame that holds no data of
 * zstd's, which is named by its place. What is damaged otherwise is left to the decoder. */
NODISCARD enum status zstd_frames_pass(struct zstd_frames *z, const void *bytes, size_t n,
                                       struct err *e);

/* Whether the bytes so far end with a frame. */
bool zstd_frames_whole(const struct zstd_frames *z);

#endif
