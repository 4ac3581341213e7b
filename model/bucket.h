/* Buckets: how ranks share parameters, gradients and optimizer state.
 *
 * Parameters are in buckets. A bucket is a flat range of elements; one collective moves one bucket.
 * The buckets are in the order in which forward reads them:
 *   0  gains and biases of the whole model      1  embed.weight, position.weight
 *   2+N  the GEMM weights of layer N             last  head.weight, if it is not the embedding
 * A bucket is cut into `world` equal shards in rank order; the last shards are padded. A parameter
 * begins at a multiple of SHARD_ALIGN in its bucket. So a block of 8-bit state belongs to one rank
 * and does not depend on the number of ranks. Random draws are keyed by the element's index in its
 * parameter. With one rank the shard is the bucket.
 *
 * What a rank holds, by train.shard:
 *                  value          gradient       master, m, v
 *   none           whole          whole          whole
 *   optimizer      whole          whole          shard          (ZeRO-1, arXiv:1910.02054)
 *   gradients      whole          shard          shard          (ZeRO-2)
 *   parameters     shard          shard          shard          (ZeRO-3)
 * Bucket 0 is small: its values and gradients are whole in every mode. A tied embedding's value is
 * whole too, because forward reads it at both ends. With a recipe's param_gather, gathered FP8
 * codes replace whole values; a rank then holds only its shard of the values. */
#ifndef FP8LAB_MODEL_BUCKET_H
#define FP8LAB_MODEL_BUCKET_H

#include "kernels/tensor.h"

enum shard_kind { SHARD_NONE, SHARD_OPTIMIZER, SHARD_GRADIENTS, SHARD_PARAMETERS };

/* This rank's shard, and the number of shards. */
struct shard_place { enum shard_kind kind; int rank, world; };

/* Whether a rank updates only its shard. False with one rank. */
static inline bool shard_divides(const struct shard_place *s) {
    return s->world > 1 && s->kind != SHARD_NONE;
}

enum { SHARD_ALIGN = 128, BUCKET_VECTORS = 0, BUCKET_EMBEDDING = 1, BUCKET_LAYER = 2 };

struct span { int64_t first, count; };

struct bucket {
    const char *name; /* of its memory in the plan: "layers" */
    int64_t elements; /* used, with every parameter on SHARD_ALIGN */
    int64_t added;    /* the first of them: operators add to their gradients, so they are cleared */
    int64_t shard;    /* elements of one rank */
    int ring;         /* 0 or 1: which of two alternating buffers holds its gathered weights and
                         unreduced gradients; neighbours differ */
    bool value_transient; /* the whole value exists only while it is read, in the ring */
    bool codes_transient; /* the value stays whole; codes are made before each use, in memory that
                             all such buckets share (train.weight_codes) */
    bool grad_transient;  /* the whole gradient exists only until its micro-batch is reduced */
    bool gathers_codes;   /* ranks gather FP8 codes, not values */
    bool frozen;          /* all its parameters are: it has no gradients */
    bool stays;           /* what ranks gather of it never changes, and is not in the ring */
    /* Flat views. A whole view has shard * world elements; data is NULL if there is no view. */
    struct tensor value, codes, grad;
    struct tensor value_shard, codes_shard, grad_shard; /* this rank's */
    struct tensor grad_part; /* one micro-batch's share of grad_shard, before it is added */
    struct span slots;       /* amax slots of its GEMM weights */
    /* Used while memory is planned: the shared regions of values, codes and transposed codes, and
     * the bytes taken so far of the last two. */
    struct { int value, codes, twin; int64_t codes_at, twin_at; } home;
};

/* The elements that rank r holds of a parameter with n elements at `offset` in the bucket. */
static inline struct span bucket_span(const struct bucket *b, int r, int64_t offset, int64_t n) {
    int64_t first = r * b->shard - offset, end = first + b->shard;
    if (first < 0) first = 0;
    if (end > n) end = n;
    struct span s = { first, end - first };
    if (s.count <= 0) s.first = s.count = 0;
    return s;
}

/* `count` elements of a flat view, starting at `first`. */
static inline struct tensor tensor_span(const struct tensor *x, int64_t first, int64_t count) {
    return tensor_1d(x->data ? (char *)x->data + first * dtype_bytes(x->dtype) : NULL, x->dtype,
                     count);
}

#endif
