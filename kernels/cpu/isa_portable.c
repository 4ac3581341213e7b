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
#define MMA_FLOATS 4 /* the compiler splits them where the machine has no vectors */
#define MMA_MAX(a, b) (((a) & ((a) > (b))) | ((b) & ~((a) > (b))))
#define MMA_FMA(a, b, c) \
    ((mma_f){ fmaf((a)[0], (b)[0], (c)[0]), fmaf((a)[1], (b)[1], (c)[1]), \
              fmaf((a)[2], (b)[2], (c)[2]), fmaf((a)[3], (b)[3], (c)[3]) })
enum { MMA_MR = 8, MMA_NV = 2 };
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
