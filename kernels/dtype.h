/* Number formats: F32, BF16, the two FP8 formats, E2M1 (NVFP4), and E8M0 block scales.
 *
 * Every encoder rounds to nearest, ties to even, from the f32 value it is given; E8M0's rounds up.
 * NaN is canonical: BF16 0x7FC0, F32 0x7FC00000, E4M3 0x7F, E5M2 0x7F, E8M0 0xFF. The sign is
 * dropped, so every machine has the same bits (x86 and Arm disagree on the sign of 0/0). E2M1 has
 * no NaN: its code is then that of 6, and the scale of its block is NaN.
 * Sources: OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats 1.0 (E8M0). */
#ifndef FP8LAB_KERNELS_DTYPE_H
#define FP8LAB_KERNELS_DTYPE_H

#include "kernels/f32_bits.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dtype {
    DTYPE_F32,
    DTYPE_BF16,
    DTYPE_E4M3, /* 1-4-3, bias 7, no infinity, max 448, NaN 0x7F/0xFF */
    DTYPE_E5M2, /* 1-5-2, bias 15, infinity 0x7C, max 57344 */
    DTYPE_E8M0, /* a power of two, 2^(e-127), NaN 0xFF; block scales only */
    DTYPE_I32,  /* tokens, targets, steps */
    DTYPE_U32,  /* amax slots: |x| bits */
    DTYPE_U64,  /* fingerprints, counts */
    DTYPE_E2M1, /* 1-2-1, bias 1, no infinity, no NaN, max 6; NVFP4's codes, one a byte */
    DTYPE_COUNT
};

/* Bytes of one element: 4 2 1 1 1 4 4 8 1. */
int64_t dtype_bytes(enum dtype t);
/* "f32", "bf16", "e4m3" ...: the spelling of logs, JSON and error texts. Never NULL. */
const char *dtype_name(enum dtype t);
/* The formats of codes under a scale: the two FP8 formats and E2M1. */
static inline bool dtype_is_fp8(enum dtype t) {
    return t == DTYPE_E4M3 || t == DTYPE_E5M2 || t == DTYPE_E2M1;
}
/* Largest finite magnitude of a code: 448, 57344 or 6. 0 for every other dtype. */
float dtype_max(enum dtype t);

/* f32 -> bf16, nearest even; overflow goes to infinity; NaN -> 0x7FC0. */
HOST_DEVICE static inline uint16_t bf16_encode(float x) {
    uint32_t u = f32_bits(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0;
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}
HOST_DEVICE static inline float bf16_decode(uint16_t b) { return f32_from_bits((uint32_t)b << 16); }

/* f32 -> FP8, nearest even, saturating: beyond the maximum, infinity included, becomes the maximum
 * of that sign (TransformerEngine and cvt.rn.satfinite do the same); NaN -> 0x7F. */
uint8_t e4m3_encode(float x);
uint8_t e5m2_encode(float x);
/* The same for E2M1, but NaN -> 6, as TransformerEngine's casts have it. */
uint8_t e2m1_encode(float x);
float e2m1_decode(uint8_t code);
/* Exact. E4M3 0x7F/0xFF and E5M2 0x7D-0x7F/0xFD-0xFF decode to the canonical NaN. */
float e4m3_decode(uint8_t code);
float e5m2_decode(uint8_t code);
uint8_t fp8_encode(enum dtype t, float x);
float fp8_decode(enum dtype t, uint8_t code);

/* f32 -> E8M0, rounded up to the next power of two (cvt.rp.satfinite.ue8m0x2): NaN -> 0xFF,
 * infinity -> 0xFE, zero and below 2^-127 -> 0x00. x must not be negative. */
uint8_t e8m0_encode_up(float x);
/* 2^(e-127); 0xFF -> NaN. */
float e8m0_decode(uint8_t e);
/* The multiplier of the data under scale e: 2^-(e-127), exact, subnormal for e = 254; 0xFF ->
 * NaN. */
float e8m0_decode_inverse(uint8_t e);

#ifdef __cplusplus
}
#endif
#endif
