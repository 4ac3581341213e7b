#include "kernels/dtype.h"

#include <assert.h>

#include "kernels/fp8_inline.h"

int64_t dtype_bytes(enum dtype t) {
    static const int8_t BYTES[DTYPE_COUNT] = { 4, 2, 1, 1, 1, 4, 4, 8, 1 };
    assert((unsigned)t < DTYPE_COUNT);
    return BYTES[t];
}

const char *dtype_name(enum dtype t) {
    static const char *const NAME[DTYPE_COUNT] = { "f32",  "bf16", "e4m3", "e5m2",
                                                   "e8m0", "i32",  "u32",  "u64",
                                                   "e2m1" };
    return (unsigned)t < DTYPE_COUNT ? NAME[t] : "unknown";
}

float dtype_max(enum dtype t) {
    return t == DTYPE_E4M3   ? 448.0f
           : t == DTYPE_E5M2 ? 57344.0f
           : t == DTYPE_E2M1 ? 6.0f
                             : 0.0f;
}

uint8_t e4m3_encode(float x) { return e4m3_encode_inline(x); }
uint8_t e5m2_encode(float x) { return e5m2_encode_inline(x); }
float e4m3_decode(uint8_t code) { return e4m3_decode_inline(code); }
float e5m2_decode(uint8_t code) { return e5m2_decode_inline(code); }
uint8_t e2m1_encode(float x) { return e2m1_encode_inline(x); }
float e2m1_decode(uint8_t code) { return e2m1_decode_inline(code); }

uint8_t fp8_encode(enum dtype t, float x) {
    assert(dtype_is_fp8(t));
    if (t == DTYPE_E2M1) return e2m1_encode_inline(x);
    return t == DTYPE_E4M3 ? e4m3_encode_inline(x) : e5m2_encode_inline(x);
}
float fp8_decode(enum dtype t, uint8_t code) {
    assert(dtype_is_fp8(t));
    if (t == DTYPE_E2M1) return e2m1_decode_inline(code);
    return t == DTYPE_E4M3 ? e4m3_decode_inline(code) : e5m2_decode_inline(code);
}

uint8_t e8m0_encode_up(float x) { return e8m0_encode_up_inline(x); }
float e8m0_decode(uint8_t e) { return e8m0_decode_inline(e); }
float e8m0_decode_inverse(uint8_t e) { return e8m0_decode_inverse_inline(e); }
