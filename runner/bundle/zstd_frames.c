#include "runner/bundle/zstd_frames.h"

#include <inttypes.h>

static const uint32_t MAGIC = 0xfd2fb528, SKIPPABLE = 0x184d2a50; /* to ...5f */

static size_t field_bytes(enum zstd_field field) {
    return field == ZSTD_MAGIC ? 4 : field == ZSTD_BLOCK ? 3 : 1;
}

static uint32_t little_endian(const unsigned char *bytes, size_t n) {
    uint32_t v = 0;
    for (size_t i = n; i-- > 0;) v = v << 8 | bytes[i];
    return v;
}

static enum status take_magic(struct zstd_frames *z, uint32_t magic, struct err *e) {
    z->field = ZSTD_DESCRIPTOR;
    if (magic == MAGIC) return OK;
    bool skippable = (magic & ~UINT32_C(15)) == SKIPPABLE;
    return FAIL(e, ERR_FORMAT, "%s refused: byte %" PRId64 " of the file begins one",
                skippable ? "skippable zstd frame" : "data that are not a zstd frame", z->at - 4);
}

/* RFC 8878, 3.1.1.1.1: the size of the frame header, from its descriptor. */
static void take_descriptor(struct zstd_frames *z, uint32_t d) {
    static const unsigned char DICTIONARY_ID[4] = { 0, 1, 2, 4 }, CONTENT_SIZE[4] = { 0, 2, 4, 8 };
    bool single_segment = d >> 5 & 1;
    uint32_t size = d >> 6;
    z->skip = DICTIONARY_ID[d & 3] + (single_segment ? 0u : 1u) +
              (single_segment && size == 0 ? 1u : CONTENT_SIZE[size]);
    z->checksum = d >> 2 & 1;
    z->field = ZSTD_BLOCK;
}

/* RFC 8878, 3.1.1.2: one bit for the last block, two for its type, 21 for its size. */
static void take_block(struct zstd_frames *z, uint32_t header) {
    bool last = header & 1, repeated = (header >> 1 & 3) == 1; /* one byte, repeated */
    z->skip = repeated ? 1 : header >> 3;
    if (!last) return;
    z->skip += z->checksum ? 4 : 0;
    z->field = ZSTD_MAGIC;
}

enum status zstd_frames_pass(struct zstd_frames *z, const void *bytes, size_t n, struct err *e) {
    const unsigned char *at = bytes, *end = at + n;
    while (at < end) {
        uint64_t left = (uint64_t)(end - at);
        if (z->skip > 0) {
            uint64_t step = z->skip < left ? z->skip : left;
            z->skip -= step;
            z->at += (int64_t)step;
            at += step;
            continue;
        }
        z->bytes[z->have++] = *at++;
        z->at++;
        if (z->have < field_bytes(z->field)) continue;
        uint32_t value = little_endian(z->bytes, z->have);
        z->have = 0;
        if (z->field == ZSTD_MAGIC) TRY(take_magic(z, value, e));
        else if (z->field == ZSTD_DESCRIPTOR) take_descriptor(z, value);
        else take_block(z, value);
    }
    return OK;
}

bool zstd_frames_whole(const struct zstd_frames *z) {
    return z->field == ZSTD_MAGIC && z->have == 0 && z->skip == 0;
}
