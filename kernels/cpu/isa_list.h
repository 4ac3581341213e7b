/* The instruction sets that this build holds, for isa.c and the files that define them. */
#ifndef FP8LAB_KERNELS_CPU_ISA_LIST_H
#define FP8LAB_KERNELS_CPU_ISA_LIST_H

#include "kernels/cpu/isa.h"

#if defined(__x86_64__)
extern const struct isa ISA_AVX512, ISA_AVX2;
#endif
#if defined(__aarch64__)
extern const struct isa ISA_NEON;
#endif
extern const struct isa ISA_PORTABLE;

#endif
