/* Which kernel serves attention in FP8: a function of device, library and shape, and of what a run
 * asks for. No time decides. C and C++; no device is needed. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_RULE_H
#define FP8LAB_KERNELS_CUDA_ATTENTION_RULE_H

#include "kernels/backend.h"
#include "kernels/device.h"

/* ---- graphs for cuDNN ---- */

enum cudnn_pass { CUDNN_BF16_FORWARD, CUDNN_FP8_FORWARD, CUDNN_FP8_BACKWARD };

/* Outputs are BF16, as operators have them. */
struct cudnn_spec {
    enum cudnn_pass pass;
    bool gradient_e5m2, o_codes; /* backward: d_o and dS are E5M2, else E4M3; o is E4M3 codes */
    /* For tests that no operator depends on: outputs are codes (E4M3; gradients as d_o), and a plan
     * need not be deterministic. */
    bool codes_out, any_order;
};

/* In the choice table: 0 BF16's forward, 2 FP8's, from 3 on FP8's backward. 1 was a backward. */
enum { CUDNN_KEY_FP8_FORWARD = 2, CUDNN_KEY_FP8_BACKWARD = 3, CUDNN_KEYS = 7 };
static inline int64_t cudnn_spec_key(const struct cudnn_spec *s) {
    if (s->pass == CUDNN_BF16_FORWARD) return 0;
    if (s->pass == CUDNN_FP8_FORWARD) return CUDNN_KEY_FP8_FORWARD;
    return CUDNN_KEY_FP8_BACKWARD + (s->gradient_e5m2 ? 1 : 0) + (s->o_codes ? 2 : 0);
}
/* False: no spec has this key. */
static inline bool cudnn_spec_of_key(int64_t key, struct cudnn_spec *out) {
    struct cudnn_spec s = { CUDNN_BF16_FORWARD, false, false, false, false };
    if (key < 0 || key == 1 || key >= CUDNN_KEYS) return false;
    if (key == CUDNN_KEY_FP8_FORWARD) s.pass = CUDNN_FP8_FORWARD;
    if (key >= CUDNN_KEY_FP8_BACKWARD) {
        s.pass = CUDNN_FP8_BACKWARD;
        s.gradient_e5m2 = (key - CUDNN_KEY_FP8_BACKWARD) & 1;
        s.o_codes = (key - CUDNN_KEY_FP8_BACKWARD) & 2;
    }
    *out = s;
    return true;
}

/* ---- limits ---- */

enum { CUDNN_LENGTH_MIN = 256 }; /* a shorter one takes microseconds, its plan up to seconds */

/* The oldest cuDNN that is asked for a plan (91500: 9.15.0). cudnn-frontend 1.23: FP8 attention is
 * broken in 9.10.0; with outputs in BF16 it needs 9.13 on sm_10x, where the backward is
 * deterministic from 9.19 on. Below sm_100 cudnn-frontend lists no outputs in BF16: there the
 * library itself is asked, and may have no plan. */
static inline int64_t cudnn_version_for(int cc, enum cudnn_pass pass, int64_t length) {
    int64_t least = 91100; /* 9.10 computes attention wrongly */
    if (pass == CUDNN_FP8_FORWARD && cc >= 100) least = 91300;
    if (pass == CUDNN_FP8_BACKWARD && cc >= 100) least = 91900;
    /* older: lengths that are no multiple of 128 fail in graphs */
    if (length % 128 && least < 91501) least = 91501;
    return least;
}

/* Whether FP8 attention of this shape may have a plan: all ranks of a group get the same answer,
 * whatever cuDNN they have. cc: 90 for 9.0. masked: it has a first key, which our graphs lack. The
 * backward of sm_90 has heads of 128 alone (cudnn-frontend 1.23, sdpa_fp8_bwd.h). */
static inline bool cudnn_fp8_may_serve(int cc, const struct attention_size *s,
                                       enum cudnn_pass pass, bool masked) {
    if ((cc != 90 && cc != 100) || masked || s->batch < 1) return false;
    if (s->length < CUDNN_LENGTH_MIN || s->length % 128) return false;
    if (pass == CUDNN_FP8_BACKWARD && cc == 90) return s->head_dim == 128;
    return s->head_dim >= 64 && s->head_dim <= 128 && s->head_dim % 16 == 0;
}

/* ---- the rule ---- */

enum attention_server { SERVED_BY_OWN, SERVED_BY_CUDNN, SERVED_BY_NONE };

/* Which kernel serves one direction. has_plan: cuDNN may serve, no certificate forbids it, and it
 * has a deterministic plan. A run that asks for cuDNN demands it of the forward alone. */
static inline enum attention_server attention_fp8_rule(enum attention_backend asked,
                                                       enum cudnn_pass pass, bool has_plan) {
    if (asked == ATTENTION_OWN) return SERVED_BY_OWN;
    if (has_plan) return SERVED_BY_CUDNN;
    return asked == ATTENTION_CUDNN && pass == CUDNN_FP8_FORWARD ? SERVED_BY_NONE : SERVED_BY_OWN;
}

#endif
