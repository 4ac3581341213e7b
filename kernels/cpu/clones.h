/* CLONES compiles one function for three x86-64 levels and picks at load time. The bits are the
 * same in each: no contraction, and the lane structure of every sum is written in the source.
 * Elsewhere the compiler's base level is already a vector machine (NEON) and the attribute is
 * empty.
 *
 * It belongs on the function with the inner loop, called from inside a parallel region: the body
 * of an OpenMP construct is outlined before cloning and would stay at the base level. */
#ifndef FP8LAB_KERNELS_CPU_CLONES_H
#define FP8LAB_KERNELS_CPU_CLONES_H

/* Not with clang: version 14 gives the resolver of a static function external linkage, so that
 * equal names in two files collide. Not with the thread sanitizer: the resolver runs before its
 * runtime is loaded. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

/* For the body that a cloned function calls with different constants. */
#if defined(__GNUC__)
#define ALWAYS_INLINE __attribute__((always_inline))
#else
#define ALWAYS_INLINE
#endif

#endif
