/* The order of sums on a GPU, as a function of sizes alone, written once. Kernels of kernels/cuda
 * take their constants from here. Under an arithmetic that `follows` (arithmetic.h), kernels/cpu
 * adds in the same order, so both have the same bits.
 *
 * A partial sum starts at +0. "In halves" over 32 lanes: lane l adds lane l + 16, then l + 8, 4, 2,
 * 1. A GPU's butterfly has the same bits, since a + b == b + a. */
#ifndef FP8LAB_KERNELS_SUM_ORDER_H
#define FP8LAB_KERNELS_SUM_ORDER_H

#include "kernels/base.h"

#ifdef __cplusplus
#define SUM_ORDER static constexpr inline /* also a template's argument */
extern "C" {
#else
#define SUM_ORDER static inline
#endif

enum { SUM_WARP = 32, SUM_LANES_MAX = 512 };

/* ---- along a row ---- */

/* Lane l adds, ascending, the elements i with i / each % lanes == l. Each 32 lanes are joined in
 * halves; then their sums are, with +0 for those that are missing of 32. part > 0: each `part`
 * consecutive elements have such a sum of their own, and these are added ascending. */
struct row_order { int lanes, each; int64_t part; };

enum {
    NORM_WARP_COLUMNS = SUM_WARP * 8,            /* of one vector a lane */
    NORM_ROW_MAX = 16 * NORM_WARP_COLUMNS,       /* a warp, or a group of them, holds such a row */
    NORM_PART = 4 * NORM_WARP_COLUMNS,           /* of a row that several warps share */
    NORM_BLOCK_WARPS = 4
};

/* Lanes of a block that takes a row. */
SUM_ORDER int norm_block_lanes(int64_t cols) {
    int64_t lanes = ((cols + 7) / 8 + SUM_WARP - 1) / SUM_WARP * SUM_WARP;
    return lanes > 256 ? 256 : lanes < SUM_WARP ? (int)SUM_WARP : (int)lanes;
}

/* Forward of the norms. vectors: rows can be read eight elements at a time. */
SUM_ORDER struct row_order norm_fwd_order(int64_t cols, bool vectors) {
    bool warp = vectors && cols <= NORM_ROW_MAX;
    struct row_order o = { warp ? (int)SUM_WARP : norm_block_lanes(cols), vectors ? 8 : 1, 0 };
    return o;
}

/* Warps that share a row in backward. */
SUM_ORDER int norm_bwd_warps(int64_t cols) {
    return cols <= NORM_PART ? 1 : cols <= 2 * NORM_PART ? 2 : (int)NORM_BLOCK_WARPS;
}

SUM_ORDER struct row_order norm_bwd_order(int64_t cols, bool vectors) {
    struct row_order o = norm_fwd_order(cols, vectors);
    if (vectors && cols <= NORM_ROW_MAX && norm_bwd_warps(cols) > 1) o.part = NORM_PART;
    return o;
}

/* Softmax of whole score matrices: a block takes a row. */
enum { SOFTMAX_THREADS = 256 };
SUM_ORDER struct row_order softmax_order(bool vectors) {
    struct row_order o = { SOFTMAX_THREADS, vectors ? 8 : 1, 0 };
    return o;
}

/* ---- over rows, column by column ---- */

/* A block has groups * group_rows consecutive rows; row r of it belongs to group r % groups. A
 * group adds its rows ascending, a block its groups ascending. 32 lanes add the blocks: lane l has
 * every 32nd from l on, ascending. The lanes are added ascending, then to the output. */
struct rows_order { int64_t group_rows; int groups; };

enum { COLUMN_ROWS = 256 /* of a block */, COLUMN_GROUPS = 8 };
SUM_ORDER struct rows_order column_order(void) {
    struct rows_order o = { COLUMN_ROWS / COLUMN_GROUPS, COLUMN_GROUPS };
    return o;
}

/* Blocks of a norm's backward that one multiprocessor runs. centred: LayerNorm. sums: dx is summed
 * too. */
SUM_ORDER int norm_bwd_resident(int64_t cols, bool centred, bool sums) {
    return (cols <= NORM_WARP_COLUMNS       ? 6
            : cols <= 3 * NORM_WARP_COLUMNS ? 4
                                            : 4 - centred) -
           sums;
}
/* For rows that warps hold; longer or unaligned ones follow column_order. 128 multiprocessors: a
 * constant, so that the order depends on the shape alone. */
SUM_ORDER struct rows_order norm_bwd_rows_order(int64_t rows, int64_t cols, bool centred,
                                                bool sums) {
    int groups = NORM_BLOCK_WARPS / norm_bwd_warps(cols);
    int64_t all = (int64_t)groups * 128 * norm_bwd_resident(cols, centred, sums);
    struct rows_order o = { (rows + all - 1) / all, groups };
    return o;
}

/* ---- QK-norm ---- */

/* A head's sum: lane l of head_dim / 16 has the elements 8 l .. 8 l + 7 and those half a head
 * further, adds the sum of each such pair, and the lanes are joined in halves. For the gains' sums
 * an item is a row's heads p, p + parts, ...; a block's slot has an item in each round. A slot adds
 * its heads ascending, round after round; a block its slots ascending; then as in rows_order. */
enum { QK_THREADS = 256, QK_BLOCKS_MAX = 1024, QK_HEADS = 4 /* of an item */ };
SUM_ORDER int64_t qk_parts(int64_t all_heads) { return (all_heads + QK_HEADS - 1) / QK_HEADS; }
SUM_ORDER int64_t qk_slots(int64_t head_dim) { return QK_THREADS / (head_dim / 16); }
SUM_ORDER int64_t qk_blocks(int64_t items, int64_t head_dim) {
    int64_t blocks = (items + qk_slots(head_dim) - 1) / qk_slots(head_dim);
    if (blocks < 1) return 1;
    return blocks > QK_BLOCKS_MAX ? (int64_t)QK_BLOCKS_MAX : blocks;
}

/* ---- whole tensors ---- */

/* Blocks of SUM_EXTENT elements. Thread t of SUM_THREADS reads `each` consecutive elements at a
 * time, and adds element i of them to its sum i % 4: (s0 + s1) + (s2 + s3). Threads are joined as
 * the lanes of a row, and so are the blocks' sums, one element at a time. */
enum { SUM_THREADS = 512, SUM_EXTENT = 1 << 16 };

/* ---- cross-entropy ---- */

/* A row of `width` logits is divided among blocks; each has loss_each() vectors of eight, the last
 * one what is left. Thread t of LOSS_THREADS has every LOSS_THREADS-th vector of its block from t
 * on. A part is a maximum and a sum of exponentials relative to it; parts are brought to the
 * largest maximum of 32, and joined in halves: of a warp's lanes, a block's warps, the blocks. */
enum {
    LOSS_THREADS = 512, LOSS_VECTORS = 8 /* of a thread, at most */,
    LOSS_COLUMNS = LOSS_THREADS * LOSS_VECTORS * 8 /* of a block */, LOSS_BLOCKS_MAX = 8
};
SUM_ORDER int loss_blocks(int64_t width) {
    int blocks = 1;
    while ((int64_t)blocks * LOSS_COLUMNS < width) blocks *= 2;
    return blocks;
}
SUM_ORDER int loss_each(int64_t width) {
    return (int)((width / 8 + loss_blocks(width) - 1) / loss_blocks(width));
}
/* Whether rows can be divided so. vectors: as above. */
SUM_ORDER bool loss_divides(int64_t width, bool vectors) {
    return vectors && width <= (int64_t)LOSS_BLOCKS_MAX * LOSS_COLUMNS;
}

#ifdef __cplusplus
}
#endif
#endif
