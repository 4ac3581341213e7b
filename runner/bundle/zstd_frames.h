/* Walks over the frames of a zstd file without unpacking them (RFC 8878). A decoder skips skippable
 * frames silently, so a bundle could hide data in one. */
#ifndef FP8LAB_RUNNER_BUNDLE_ZSTD_FRAMES_H
#define FP8LAB_RUNNER_BUNDLE_ZSTD_FRAMES_H

#include "kernels/base.h"

enum zstd_field { ZSTD_MAGIC, ZSTD_DESCRIPTOR, ZSTD_BLOCK };

/* Zero-initialise at the beginning of a file. */
struct zstd_frames {
    enum zstd_field field;   /* the next field to read */
    unsigned char bytes[4];  /* bytes of that field so far */
    size_t have;
    uint64_t skip;           /* bytes to skip before it */
    int64_t at;              /* bytes of the file so far */
    bool checksum;           /* of the current frame: follows its last block */
};

/* Walks over the next n bytes of the file. ERR_FORMAT, with the position, if they begin a frame
 * without zstd data. Other damage is left to the decoder. */
NODISCARD enum status zstd_frames_pass(struct zstd_frames *z, const void *bytes, size_t n,
                                       struct err *e);

/* Whether the bytes so far end with a frame. */
bool zstd_frames_whole(const struct zstd_frames *z);

#endif
