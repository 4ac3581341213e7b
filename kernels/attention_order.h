/* What determines the bits of our GPU kernels for attention, besides what one instruction adds
 * (arithmetic.h): sizes of tiles, and the order of sums over tiles. The device's kernels and their
 * twin on the CPU (cpu/attention_exact.c) both take it from here.
 *
 * Heads of 64 and 128 on Hopper have the kernels on wgmma, all others those on mma.sync. Forward,
 * in both: keys come in tiles, ascending. The sums of a row are multiplied by 2^(old maximum - new
 * one), then continue over the tile's probabilities, rounded to BF16. Four lanes share a row: of
 * each 8 columns lane t sums 2t and 2t + 1.
 *
 * Backward: the gradients of a key are one chain over its queries, ascending, head after head. On
 * mma.sync the gradient of a query is one chain over its keys. On wgmma it is a sum over tiles of
 * keys, each one chain from 0; attention_place has their order. There the score's gradient takes
 * the probability as rounded to BF16, on mma.sync before rounding. */
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
    ATTENTION_LANES = 4,        /* that share a row */
    ATTENTION_MULTIPROCESSORS = 132 /* of an H200 */
};

#define ATTENTION_LOG2_E 1.44269504f

/* Backward on wgmma: the first late tile of keys; 0: all are late. Blocks take pairs of an early
 * and a late tile if all of them can run together. */
HOST_DEVICE static inline int attention_half(int tiles, int multiprocessors) {
    return tiles <= multiprocessors ? tiles / 2 : 0;
}

/* Backward on wgmma: the place of a tile of keys among those that add to a tile of queries, which
 * are `first` up to `diagonal`: late ones from the diagonal down, then early ones from the first
 * up. The first stores, each other adds to what is there, in f32. */
HOST_DEVICE static inline int attention_place(int half, int tile, int first, int diagonal) {
    int late = diagonal - half + 1;
    return tile >= half ? diagonal - tile : (late > 0 ? late : 0) + tile - first;
}

#endif
