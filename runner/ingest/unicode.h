/* UTF-8 and the classes of code points, for splitting text into words; NFC. */
#ifndef FP8LAB_RUNNER_INGEST_UNICODE_H
#define FP8LAB_RUNNER_INGEST_UNICODE_H

#include "kernels/base.h"

enum {
    UC_LETTER = 1,       /* \p{L} */
    UC_NUMBER = 2,       /* \p{N} */
    UC_MARK = 4,         /* \p{M} */
    UC_SPACE = 8,        /* \s: White_Space */
    UC_PUNCTUATION = 16, /* \p{P} */
    UC_SYMBOL = 32,      /* \p{S} */
    UC_UPPER = 64,       /* Lu, Lt */
    UC_LOWER = 128,      /* Ll */
    UC_DIGIT = 256,      /* Rust's char::is_numeric */
    UC_NFC = 512         /* NFC may change it, or join it to what stands before */
};

enum { UNICODE_COUNT = 0x110000, UNICODE_REPLACEMENT = 0xfffd };

/* Read-only after unicode_create. */
struct unicode {
    uint16_t class_of[UNICODE_COUNT]; /* UC_... */
    uint8_t combining[UNICODE_COUNT]; /* canonical combining class */
    int *pair_of_composed;            /* pairs of the tables by (first, second); owned */
    int composed_count;
};

NODISCARD enum status unicode_create(struct unicode **out, struct err *e);
void unicode_destroy(struct unicode *u);

/* A growing buffer of bytes; owned by its user, who frees `bytes`. */
struct bytes {
    uint8_t *bytes;
    size_t count, room;
};
NODISCARD enum status bytes_add(struct bytes *b, const void *from, size_t n, struct err *e);
/* Room for n more bytes. */
NODISCARD enum status bytes_reserve(struct bytes *b, size_t n, struct err *e);

/* The code point at p, of valid UTF-8, and its length. */
static inline uint32_t utf8_at(const uint8_t *p, int *length) {
    if (p[0] < 0x80) return *length = 1, p[0];
    if (p[0] < 0xe0) return *length = 2, (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    if (p[0] < 0xf0)
        return *length = 3, (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 |
                            (p[2] & 0x3f);
    return *length = 4, (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 |
                        (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}

/* Writes 1 to 4 bytes; returns how many. */
int utf8_put(uint32_t code, uint8_t out[4]);

/* How many bytes from the start are valid UTF-8. */
size_t utf8_valid(const uint8_t *p, size_t n);

/* How many of the last bytes begin a character that a continuation could complete: 0 to 3. */
size_t utf8_torn(const uint8_t *p, size_t n);

/* Appends the text with U+FFFD for each maximal subpart that is not UTF-8, as Python's "replace"
 * and Rust's from_utf8_lossy do. *replaced counts them. */
NODISCARD enum status utf8_lossy(struct bytes *out, const uint8_t *p, size_t n, int64_t *replaced,
                                 struct err *e);

/* Whether NFC certainly leaves the valid text as it is. */
bool nfc_unchanged(const struct unicode *u, const uint8_t *p, size_t n);

/* Appends the NFC of a valid text. Time is linear in its length. *head is the number of the text's
 * first bytes that are marked, and then of those of the NFC. A code point belongs to the first
 * character that begins in it; one in which none begins belongs to what stands before it. */
NODISCARD enum status nfc_add(const struct unicode *u, struct bytes *out, const uint8_t *p,
                              size_t n, size_t *head, struct err *e);

#endif
