/* How cuBLASLt wants block scales of one byte, and codes of half a byte: the order of bytes, inline
 * for host and device. Sources: cuBLAS documentation, "1D block scaling"; helpers.h of NVIDIA's
 * CUDALibrarySamples; pytorch PR #166752.
 *
 * The scales of an operand [rows, K] are [rows, blocks]: rows padded to 128, blocks to 4. They are
 * stored as tiles of 128 rows by 4 blocks, 512 bytes each; tiles along K follow one another.
 * Within a tile the byte of row r and block j is at (r % 32) * 16 + (r / 32) * 4 + j. So a word has
 * four neighbours along K. This order has no meaning in a part of a tensor: collectives move the
 * plain order, and each rank reorders what it has. */
#ifndef FP8LAB_KERNELS_CUDA_BYTE_SCALES_H
#define FP8LAB_KERNELS_CUDA_BYTE_SCALES_H

#include "kernels/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SWIZZLE_ROWS = 128, SWIZZLE_BLOCKS = 4, SWIZZLE_WORDS = SWIZZLE_ROWS };

/* Scales in the plain order, and where they go. */
struct swizzle {
    const uint8_t *from; /* [ceil(rows / share)][blocks] */
    uint32_t *to;        /* [swizzle_words()] */
    int64_t rows, blocks, share; /* share: rows that have one scale: 1, or the side of a square */
};

HOST_DEVICE static inline int64_t swizzle_tiles_along(int64_t blocks) {
    return (blocks + SWIZZLE_BLOCKS - 1) / SWIZZLE_BLOCKS;
}
HOST_DEVICE static inline int64_t swizzle_words(int64_t rows, int64_t blocks) {
    return (rows + SWIZZLE_ROWS - 1) / SWIZZLE_ROWS * swizzle_tiles_along(blocks) * SWIZZLE_WORDS;
}

/* Word i of the library's order, little-endian: four scales of one row. Padding is 0: E4M3's zero
 * and E8M0's 2^-127, beside codes that are zero or rows that are not stored. */
HOST_DEVICE static inline uint32_t swizzle_word(const struct swizzle *s, int64_t i) {
    int64_t along = swizzle_tiles_along(s->blocks), tile = i / SWIZZLE_WORDS;
    int64_t in = i % SWIZZLE_WORDS; /* 32 rows of 4 words: words of one row are 32 rows apart */
    int64_t row = tile / along * SWIZZLE_ROWS + in % 4 * 32 + in / 4;
    int64_t block = tile % along * SWIZZLE_BLOCKS;
    uint32_t word = 0;
    if (row >= s->rows) return 0;
    for (int j = 0; j < SWIZZLE_BLOCKS && block + j < s->blocks; j++)
        word |= (uint32_t)s->from[row / s->share * s->blocks + block + j] << 8 * j;
    return word;
}

/* Four codes of a byte each become 16 bits; the first is in the lowest four. */
HOST_DEVICE static inline uint32_t nibbles_of(uint32_t codes) {
    uint32_t pairs = codes & 0x0F0F0F0Fu;
    pairs = (pairs | pairs >> 4) & 0x00FF00FFu;
    return (pairs | pairs >> 8) & 0xFFFFu;
}

#ifdef __cplusplus
}
#endif
#endif
