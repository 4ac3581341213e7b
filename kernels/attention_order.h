/* What determines the bits of our GPU kernels for attention, besides what one instruction adds
 * (arithmetic.h): sizes of tiles, and the order of sums over tiles. The device's kernels and their
 * twin on the CPU (cpu/attention_exact.c) both take it from here.
 *
 * Heads of 64 and 128 on Hopper have the kernels on wgmma, all others those on mma.sync. Forward,
 * in both: keys come in tiles, ascending. The sums of a row are multiplied by 2^(old maximum - new
 * one), then continue over the tile's probabilities, rounded to BF16. Four lanes share a row: of
 * each 8 columns lane t sums 2t and 2t + 1.
 *
 * Backward, on mma.sync: the gradients of a key are one chain over its queries, ascending, head
 * after head; the gradient of a query is one chain over its keys.
 *
 * Backward, on wgmma: the gradients of a key are one chain over tiles of queries, from the last to
 * the first; of each tile come all heads that share the key, ascending. The gradient of a query is
 * a sum in f32 over tiles of keys, ascending; each tile is one chain from 0. There the score's
 * gradient takes the probability as rounded to BF16, on mma.sync before rounding. */
#ifndef FP8LAB_KERNELS_ATTENTION_ORDER_H
#define FP8LAB_KERNELS_ATTENTION_ORDER_H

#include "kernels/dtype.h"

enum {
    ATTENTION_QUERIES = 128,    /* of a forward block: they share their tiles of keys */
    ATTENTION_MMA_KEYS = 64,    /* of a forward tile on mma.sync */
    ATTENTION_WGMMA_KEYS = 128, /* of a forward tile on wgmma */
    ATTENTION_MMA_TILE = 64,    /* backward on mma.sync: queries and keys */
    ATTENTION_KEYS = 128,       /* backward on wgmma: keys of a block */
    ATTENTION_STEP = 64,        /* backward on wgmma: queries at a time */
    ATTENTION_LANES = 4         /* that share a row */
};

#define ATTENTION_LOG2_E 1.44269504f

#endif
