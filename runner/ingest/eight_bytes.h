/* Eight bytes of a text at once, in one number: the first byte is the lowest. */
#ifndef FP8LAB_RUNNER_INGEST_EIGHT_BYTES_H
#define FP8LAB_RUNNER_INGEST_EIGHT_BYTES_H

#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte is the lowest");

#define EACH(byte) ((byte) * 0x0101010101010101u)

static inline uint64_t load8(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

/* The high bit of each byte that is in from..to, both below 80h. */
static inline uint64_t bytes_within(uint64_t v, uint8_t from, uint8_t to) {
    uint64_t low = v & EACH(0x7full);
    return (low + EACH(0x80ull - from)) & ~(low + EACH(0x7full - to)) & ~v & EACH(0x80ull);
}

/* The byte of the first high bit, of some, in what was loaded from p. */
static inline const uint8_t *first_of(uint64_t bytes, const uint8_t *p) {
    return p + ((unsigned)__builtin_ctzll(bytes) >> 3);
}

#endif
