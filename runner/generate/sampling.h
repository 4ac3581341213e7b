/* The choice of the next token from its logits. */
#ifndef FP8LAB_RUNNER_GENERATE_SAMPLING_H
#define FP8LAB_RUNNER_GENERATE_SAMPLING_H

#include "kernels/base.h"

struct sampling {
    double temperature; /* 0: the most likely token; at most 100 */
    int64_t top_k;      /* only the k most likely tokens; 0: all */
    double top_p;       /* only the most likely ones that together have this share; 1: all */
    uint64_t seed;
};

/* A token and its weight relative to the most likely one's. */
struct candidate { double weight; int32_t id; };

/* *id = one of the ids 0 .. count-1. The draw is that of place `place` in prompt `prompt`, so it
 * depends on nothing else that is generated. Equal logits: the smaller id comes first. `room` has
 * `count` elements. The functions are exact (kernels/exactmath.h): equal logits give equal tokens
 * on every machine. ERR_NUMERIC for a logit that is not finite. */
NODISCARD enum status sampling_next(const struct sampling *s, const float *logits, int64_t count,
                                    int64_t prompt, int64_t place, struct candidate *room,
                                    int32_t *id, struct err *e);

#endif
