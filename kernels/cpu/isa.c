#include "kernels/cpu/isa.h"

/* Best first. NULL: this machine does not have it. */
enum { ISA_COUNT = 3 };
static void isa_here(const struct isa *found[ISA_COUNT]) {
    memset(found, 0, ISA_COUNT * sizeof *found);
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        found[0] = &ISA_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found[1] = &ISA_AVX2;
#elif defined(__aarch64__)
    found[0] = &ISA_NEON;
#endif
    found[2] = &ISA_PORTABLE;
}

const struct isa *isa_find(const char *name) {
    const struct isa *found[ISA_COUNT];
    isa_here(found);
    for (int i = 0; i < ISA_COUNT; i++)
        if (found[i] && (!name || strcmp(name, found[i]->name) == 0)) return found[i];
    return NULL;
}
