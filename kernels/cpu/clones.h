/* CLONES compiles one function for three x86-64 levels; the loader picks one. Each has the same
 * bits: no contraction, and the source fixes the lanes of every sum. On other machines the
 * compiler's base level already has vectors (NEON), and the attribute is empty.
 *
 * Put it on the function with the inner loop, called from inside a parallel region. The compiler
 * outlines the body of an OpenMP construct before cloning, so it would stay at the base level. */
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

/* For a function body that a cloned function calls with different constants. */
#if defined(__GNUC__)
#define ALWAYS_INLINE __attribute__((always_inline))
#else
#define ALWAYS_INLINE
#endif

#endif
