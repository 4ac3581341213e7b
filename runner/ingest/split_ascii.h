/* Pieces of 64 bytes of ASCII at once: a bit for each byte, and a few operations on such bits where
 * split.c takes one piece at a time. */
#ifndef FP8LAB_RUNNER_INGEST_SPLIT_ASCII_H
#define FP8LAB_RUNNER_INGEST_SPLIT_ASCII_H

#include "runner/ingest/eight_bytes.h"

enum { ASCII_BLOCK = 64 };

/* The patterns that are known. Llama-3's is cl100k's too. */
enum ascii_pattern { ASCII_GPT2, ASCII_LLAMA3, ASCII_QWEN2, ASCII_O200K, ASCII_TEKKEN };

/* Bit i is set if byte i of a block is of the class. */
struct ascii_bits {
    uint64_t letters, capitals, numbers;
    uint64_t spaces;   /* white space, with the next two */
    uint64_t newlines; /* \r and \n */
    uint64_t blanks;   /* U+0020 */
    uint64_t quotes;   /* ' */
    uint64_t slashes;  /* / */
    uint64_t foreign;  /* not ASCII */
};

/* Reads 64 bytes from p on. */
void ascii_bits(struct ascii_bits *out, const uint8_t *p);
/* The same without the processor's vectors, for other processors. */
void ascii_bits_portable(struct ascii_bits *out, const uint8_t *p);

/* A piece begins at p, and 64 bytes from there on are text. Writes where it and the next pieces end
 * as far as these bytes decide it, at most `most`; returns how many. *ascii: how many of the bytes
 * come before the first that is not ASCII, or that the pattern makes difficult. */
int split_ascii(enum ascii_pattern pattern, const uint8_t *p, const uint8_t **ends, int most,
                int *ascii);

#endif
