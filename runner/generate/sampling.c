#include "runner/generate/sampling.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/exactmath.h"
#include "kernels/rng.h"

static enum status find_largest(const float *logits, int64_t count, int32_t *id, struct err *e) {
    *id = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(logits[i]))
            return FAIL(e, ERR_NUMERIC, "the logit of token %lld is not finite: the weights are "
                        "damaged, or do not fit this recipe", (long long)i);
        if (logits[i] > logits[*id]) *id = (int32_t)i;
    }
    return OK;
}

/* The most likely first. */
static int by_weight(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->weight > y->weight || x->weight < y->weight) return x->weight > y->weight ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The candidates that top_k and top_p leave; the rest of `room` is unspecified. */
static int64_t cut(const struct sampling *s, struct candidate *room, int64_t count) {
    bool some = s->top_k > 0 && s->top_k < count;
    if (!some && s->top_p >= 1) return count;
    qsort(room, (size_t)count, sizeof *room, by_weight);
    if (some) count = s->top_k;
    double all = 0, sum = 0;
    for (int64_t i = 0; i < count; i++) all += room[i].weight;
    for (int64_t i = 0; i < count; i++) {
        sum += room[i].weight;
        if (sum >= s->top_p * all) return i + 1;
    }
    return count;
}

/* Uniform in [0, 1): 53 bits. */
static double draw(const struct sampling *s, int64_t prompt, int64_t place) {
    uint64_t key = rng_key(s->seed, RNG_SAMPLE, 0, (uint64_t)prompt);
    return (double)(rng_bits(key, (uint64_t)place) >> 11) * 0x1p-53;
}

enum status sampling_next(const struct sampling *s, const float *logits, int64_t count,
                          int64_t prompt, int64_t place, struct candidate *room, int32_t *id,
                          struct err *e) {
    TRY(find_largest(logits, count, id, e));
    if (s->temperature <= 0) return OK;
    double largest = (double)logits[*id], all = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = ((double)logits[i] - largest) / s->temperature;
        room[i] = (struct candidate){ x < -700 ? 0 : exact_exp(x), (int32_t)i };
    }
    int64_t left = cut(s, room, count);
    for (int64_t i = 0; i < left; i++) all += room[i].weight;
    double at = draw(s, prompt, place) * all;
    for (int64_t i = 0; i < left; i++) {
        at -= room[i].weight;
        if (room[i].weight > 0) *id = room[i].id; /* the last one takes what rounding left */
        if (at < 0) break;
    }
    return OK;
}
