/* The tiles of our product on mma.sync, for host and device: sizes, and which byte is where.
 *
 * A block of threads computes ROWS x COLS outputs. Along K it goes by 128 bytes: 128 codes, or 64
 * BF16 values. m16n8k32 of codes and m16n8k16 of BF16 have the same fragments in bytes, so only the
 * instruction differs. gemm_sync_body.h is the kernel; tests/ops/test_gemm_sync.c runs it on the
 * host with an emulator of the instructions. */
#ifndef FP8LAB_KERNELS_CUDA_SYNC_PROBLEM_H
#define FP8LAB_KERNELS_CUDA_SYNC_PROBLEM_H

#include "kernels/base.h"

enum {
    SYNC_ROWS = 128, SYNC_COLS = 128, /* outputs of a block of threads */
    SYNC_DEPTH = 128,                 /* bytes along K in a stage */
    SYNC_CHUNK = 16,                  /* bytes of one copy, and of a row of ldmatrix */
    SYNC_STAGES = 3,
    SYNC_WARPS_ACROSS = 4, SYNC_THREADS = 256,
    SYNC_M = 4, SYNC_N = 4,           /* 16 x 8 tiles of a warp: it has 64 x 32 outputs */
    SYNC_STEP = 32,                   /* bytes along K of one instruction */
    SYNC_SWEEP = 8,                   /* tiles of rows that are swept together */
    /* A stage: codes of a, codes of b, a factor for each row of a and of b. */
    SYNC_CODES_B = SYNC_ROWS * SYNC_DEPTH,
    SYNC_FACTORS_A = SYNC_CODES_B + SYNC_COLS * SYNC_DEPTH,
    SYNC_FACTORS_B = SYNC_FACTORS_A + SYNC_ROWS * 4,
    SYNC_STAGE = SYNC_FACTORS_B + SYNC_COLS * 4,
    SYNC_SHARED = SYNC_STAGES * SYNC_STAGE /* 99 KB: all that sm_89 and sm_120 give a block */
};

/* What the instruction multiplies: a by b. */
enum sync_kind { SYNC_E4M3_E4M3, SYNC_E5M2_E4M3, SYNC_E4M3_E5M2, SYNC_BF16, SYNC_KIND_COUNT };

/* When the factors apply. */
enum sync_scales {
    SYNC_UNSCALED, /* BF16: one chain */
    SYNC_LAST,     /* tensor and row scales: chains of 128 are added, then scaled once */
    SYNC_BLOCKS    /* a pair of factors for each 128 along K */
};

/* out [rows, cols] = a [rows, K] b [cols, K]^T. */
struct sync_product {
    const uint8_t *a, *b;   /* 16-byte aligned, as are lda and ldb */
    const float *factor_a, *factor_b; /* NULL if unscaled */
    const void *bias;       /* [cols], or NULL */
    const void *addend;     /* [rows, cols] of out's type and ld; out itself is allowed; or NULL */
    void *out;              /* f32 or BF16 */
    int64_t rows, cols, bytes; /* bytes: K in bytes */
    int64_t lda, ldb, ld;      /* bytes, bytes, elements */
    int64_t blocks;            /* SYNC_BLOCKS: factors in a row of factors */
    int shift_a, shift_b; /* SYNC_BLOCKS: 2^shift rows share factors: 0 or 7 */
    int step_a, step_b;   /* SYNC_LAST: 1: a factor for each row; 0: one in all */
    bool out_bf16, bias_bf16;
    bool paired; /* two outputs in a row may be stored at once */
};

/* ---- tiles ---- */

/* How many pieces of `size` cover n. */
HOST_DEVICE static inline int64_t sync_pieces(int64_t n, int64_t size) {
    return (n + size - 1) / size;
}
HOST_DEVICE static inline int64_t sync_stages(const struct sync_product *g) {
    return sync_pieces(g->bytes, SYNC_DEPTH);
}
HOST_DEVICE static inline int64_t sync_tiles(const struct sync_product *g) {
    return sync_pieces(g->rows, SYNC_ROWS) * sync_pieces(g->cols, SYNC_COLS);
}
/* The first row and column of a tile. SYNC_SWEEP tiles of rows are swept together, from column to
 * column, so that repeated reads hit the L2 cache. */
HOST_DEVICE static inline void sync_tile(const struct sync_product *g, int64_t tile, int64_t *row,
                                         int64_t *col) {
    int64_t down = sync_pieces(g->rows, SYNC_ROWS), across = sync_pieces(g->cols, SYNC_COLS);
    int64_t sweep = SYNC_SWEEP * across, first = tile / sweep * SYNC_SWEEP, rest = tile % sweep;
    int64_t height = down - first;
    if (height > SYNC_SWEEP) height = SYNC_SWEEP;
    *row = (first + rest % height) * SYNC_ROWS;
    *col = rest / height * SYNC_COLS;
}

/* The first row and column of a warp in its tile. */
HOST_DEVICE static inline int sync_warp_row(int thread) {
    return thread / 32 / SYNC_WARPS_ACROSS * SYNC_M * 16;
}
HOST_DEVICE static inline int sync_warp_col(int thread) {
    return thread / 32 % SYNC_WARPS_ACROSS * SYNC_N * 8;
}

/* ---- shared memory ---- */

/* Where a chunk of a row of codes is, from the operand's first byte. Eight rows with the same chunk
 * are in eight different groups of banks. */
HOST_DEVICE static inline int sync_chunk_at(int row, int chunk) {
    return row * SYNC_DEPTH + ((chunk ^ row) & 7) * SYNC_CHUNK;
}
/* The row and chunk that lane `lane` names to ldmatrix.x4, from the fragment's first row and chunk.
 * Of a the four matrices are rows 0-7, rows 8-15, then the same of the next chunk. Of b they are
 * both chunks of columns 0-7, then of columns 8-15: the operands of two instructions. */
HOST_DEVICE static inline int sync_a_row(int lane) { return lane % 16; }
HOST_DEVICE static inline int sync_a_chunk(int lane) { return lane / 16; }
HOST_DEVICE static inline int sync_b_row(int lane) { return lane % 8 + lane / 16 * 8; }
HOST_DEVICE static inline int sync_b_chunk(int lane) { return lane / 8 % 2; }

/* ---- the accumulator of m16n8 ----
 * Lane l has rows l/4 and l/4 + 8, columns 2 (l%4) and the next. */

HOST_DEVICE static inline int sync_c_row(int lane, int i) { return lane / 4 + i / 2 * 8; }
HOST_DEVICE static inline int sync_c_col(int lane, int i) { return lane % 4 * 2 + i % 2; }

#endif
