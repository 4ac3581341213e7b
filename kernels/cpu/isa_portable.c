/* Kernels for any machine, one float at a time. fmaf is exact in every C library. Without a fused
 * multiply-add instruction it is slow, but the bits are the same. */
#include "kernels/cpu/isa.h"

#include <math.h>

#define ISA_TARGET
#define VEC float
#define VEC_FLOATS 1
#define VEC_LOAD(p) (*(p))
#define VEC_STORE(p, v) (*(p) = (v))
#define VEC_SPLAT(x) (x)
#define VEC_MUL(a, b) ((a) * (b))
#define VEC_FMA(a, b, c) fmaf((a), (b), (c))
enum { MR = 4, NV = 4 };
#include "kernels/cpu/isa_kernels.h"

#if defined(__x86_64__)
#define ARCHITECTURE "x86_64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#else
#define ARCHITECTURE "other"
#endif

const struct isa ISA_PORTABLE = { .name = "portable", .title = "portable C",
                                  .architecture = ARCHITECTURE, ISA_KERNELS };
