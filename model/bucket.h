/* Buckets: how parameters, gradients and optimizer state are divided among ranks.
 *
 * Parameters lie in buckets, flat ranges of elements that one collective moves:
 *   0  gains and biases of the whole model      1  embed.weight, position.weight
 *   2+N  the GEMM weights of layer N             last  head.weight, where it is not the embedding
 * in the order in which forward reads them. A bucket is cut into `world` equal shards, rank by
 * rank; what the last ones lack is padding. A parameter begins on a multiple of SHARD_ALIGN in its
 * bucket, so that a block of 8-bit state belongs to one rank and is the same block for any number
 * of ranks; draws are keyed by the element's place in its parameter. With one rank a bucket is its
 * shard.
 *
 * What a rank holds, by train.shard:
 *                  value          gradient       master, m, v
 *   none           whole          whole          whole
 *   optimizer      whole          whole          shard          (ZeRO-1, arXiv:1910.02054)
 *   gradients      whole          shard          shard          (ZeRO-2)
 *   parameters     shard          shard          shard          (ZeRO-3)
 * Bucket 0 is small: its values and gradients are whole in every mode. So is a tied embedding's
 * value, which forward reads at both ends. Where FP8 codes are gathered (a recipe's param_gather),
 * they replace whole values, of which a rank then holds its shard only. */
#ifndef FP8LAB_MODEL_BUCKET_H
#define FP8LAB_MODEL_BUCKET_H

#include "kernels/tensor.h"

enum shard_kind { SHARD_NONE, SHARD_OPTIMIZER, SHARD_GRADIENTS, SHARD_PARAMETERS };

/* Which shard of how many is this rank's. */
struct shard_place { enum shard_kind kind; int rank, world; };

/* Whether a rank updates its shard only. With one rank nothing is divided. */
static inline bool shard_divides(const struct shard_place *s) {
    return s->world > 1 && s->kind != SHARD_NONE;
}

enum { SHARD_ALIGN = 128, BUCKET_VECTORS = 0, BUCKET_EMBEDDING = 1, BUCKET_LAYER = 2 };

struct span { int64_t first, count; };

struct bucket {
    const char *name; /* of its memory in the plan: "layers" */
    int64_t elements; /* used, with every parameter on SHARD_ALIGN */
    int64_t added;    /* of these in front: gradients that operators add to, cleared beforehand */
    int64_t shard;    /* elements of one rank */
    int ring;         /* neighbours differ: which of two places its gathered weights and unreduced
                         gradients take, in turn with others */
    bool value_passes; /* the whole value is there while somebody reads it, in the ring */
    bool grad_passes;  /* the whole gradient is there until it is reduced, after each micro-batch */
    bool by_codes;     /* FP8 codes are gathered, the value is not */
    /* Flat views. Whole ones have shard * world elements; data NULL where there is none. */
    struct tensor value, codes, grad;
    struct tensor value_shard, codes_shard, grad_shard; /* this rank's */
    struct tensor grad_part; /* one micro-batch's share of grad_shard, before it is added */
    struct span slots;       /* amax slots of its GEMM weights */
    /* While memory is planned: the shared regions of values, codes and their twins, and how far the
     * latter two are taken. */
    struct { int value, codes, twin; int64_t codes_at, twin_at; } home;
};

/* Elements of a parameter, which lies at `offset` in the bucket and has n, that rank r holds. */
static inline struct span bucket_span(const struct bucket *b, int r, int64_t offset, int64_t n) {
    int64_t first = r * b->shard - offset, end = first + b->shard;
    if (first < 0) first = 0;
    if (end > n) end = n;
    struct span s = { first, end - first };
    if (s.count <= 0) s.first = s.count = 0;
    return s;
}

/* `count` elements of a flat view from `first` on. */
static inline struct tensor tensor_span(const struct tensor *x, int64_t first, int64_t count) {
    return tensor_1d(x->data ? (char *)x->data + first * dtype_bytes(x->dtype) : NULL, x->dtype,
                     count);
}

#endif
