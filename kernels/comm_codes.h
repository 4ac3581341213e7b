/* Terms of a sum over ranks as 8-bit codes: each block of COMM_BLOCK elements is E4M3 codes and one
 * E8M0 scale. Inline: loops of the CPU and of a device share it.
 *
 *   scale = amax/448, rounded up to a power of two; code = E4M3(x / scale); x' = code * scale
 *
 * A power of two, not an f32: E4M3 is a floating-point format, so a finer scale would keep no more
 * bits of a value that is normal. With a power of two x / scale and x' are exact, so a code is the
 * only rounding of a term. The scale takes a byte instead of four.
 * A block that holds a NaN or an infinity becomes NaN: the search for such gradients finds it. */
#ifndef FP8LAB_KERNELS_COMM_CODES_H
#define FP8LAB_KERNELS_COMM_CODES_H

#include "kernels/fp8_inline.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COMM_BLOCK = 128 };

/* The scale's byte. top: the largest |x| bits of the block. */
HOST_DEVICE static inline uint8_t comm_block_scale(uint32_t top) {
    if (top >= 0x7F800000u) return 0xFF;
    return e8m0_encode_up_inline(f32_from_bits(top) * (1.0f / 448.0f));
}

/* One piece of n elements on its way: the codes, padding to 16 bytes, the scales. */
HOST_DEVICE static inline int64_t comm_scales_at(int64_t n) { return (n + 15) / 16 * 16; }
HOST_DEVICE static inline int64_t comm_codes_bytes(int64_t n) {
    return comm_scales_at(n) + (n + COMM_BLOCK - 1) / COMM_BLOCK;
}

#ifdef __cplusplus
}
#endif
#endif
