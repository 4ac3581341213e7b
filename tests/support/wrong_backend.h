/* The CPU backend with one mistake of a kind that real kernels have made: a stand-in for a device.
 * It makes no mistake in a way that forbid() named. It asks for untransposed twins where a device
 * of its architecture does. */
#ifndef FP8LAB_TESTS_SUPPORT_WRONG_BACKEND_H
#define FP8LAB_TESTS_SUPPORT_WRONG_BACKEND_H

#include "kernels/backend.h"

enum wrong_kind {
    WRONG_NOTHING, WRONG_ORDER, /* correct: another order of K, another NaN */
    WRONG_IGNORED, WRONG_SWAPPED, WRONG_TRANSPOSED, WRONG_STALE, WRONG_TAIL, WRONG_NAN,
    /* The mistakes of a GEMM; LARGE: only if M is at least 256; ODD: the tail of odd rows. */
    WRONG_K_TAIL, WRONG_LARGE, WRONG_ODD,
    WRONG_ROUNDING, WRONG_CAST_STALE, WRONG_CAST_NAN, /* of a cast */
    /* Of attention; LONG: only from 256 tokens on. */
    WRONG_ATTENTION, WRONG_ATTENTION_STALE, WRONG_ATTENTION_NAN, WRONG_ATTENTION_NAN_LONG,
    WRONG_CRASH, /* kills the process in a product of E4M3 with one scale per tensor */
    WRONG_TOLD, /* states another order along K than it computes in */
    /* Attention: no first key, at all or backward; no window; first keys of whole tiles of 64; one
     * key too many. */
    WRONG_FIRST_KEY, WRONG_FIRST_KEY_BACKWARD, WRONG_WINDOW, WRONG_FIRST_TILE, WRONG_FIRST_BEFORE,
    /* FP8 attention: v's scale is 1; P is rounded with scales of 1; dS with a factor of 1; zeroed
     * gradients; outputs and gradients not written; an amax not raised, or written over. */
    WRONG_FP8_VALUES, WRONG_FP8_P, WRONG_FP8_DS, WRONG_FP8_ZERO, WRONG_FP8_STALE,
    WRONG_FP8_STALE_BACKWARD, WRONG_FP8_NO_AMAX, WRONG_FP8_NEW_AMAX, WRONG_FP8_NAN,
    /* NVFP4: without the factor of the tensors, as cuBLASLt 13.4.0; a's block scales cut to powers
     * of two. */
    WRONG_TENSOR_FACTOR, WRONG_MANTISSA,
    WRONG_FUSED, /* correct: NVFP4's tensor factor and C in one rounding, into f32 */
    /* Untransposed twins alone: read as if they were transposed; with scales read so; the codes of
     * the other direction instead of their own. */
    WRONG_TWIN_CODES, WRONG_TWIN_SCALES, WRONG_TWIN_CAST,
    WRONG_KINDS
};

/* Takes b over, an open CPU backend, which then is a device of this architecture. Closing b closes
 * both. name: "cuda", or the CPU's own for NULL. */
NODISCARD enum status wrong_backend_open(struct backend *b, enum wrong_kind kind,
                                         const char *architecture, const char *name,
                                         struct err *e);

#endif
