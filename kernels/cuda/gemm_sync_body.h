/* The kernel of gemm_sync.cu, as C that is both device code and host code.
 *
 * On a device the primitives below are instructions. On the host a caller supplies them (struct
 * sync_port), and runs sync_body once for each thread of a block: tests/ops/test_gemm_sync.c.
 *
 * For each output, 128 bytes of K at a time, ascending: a chain of four instructions from +0. Then
 *   block factors           total = fma(chain, s_a * s_b, total), the product rounded to f32
 *   tensor or row factors   total = total + chain; at the end total * (s_a * s_b)
 *   BF16                    one chain over all of K
 * Then the bias, then the addend are added in f32; one rounding to out. Tiles change no bit. */
#ifndef FP8LAB_KERNELS_CUDA_GEMM_SYNC_BODY_H
#define FP8LAB_KERNELS_CUDA_GEMM_SYNC_BODY_H

#include <math.h>

#include "kernels/cuda/sync_problem.h"
#include "kernels/dtype.h"

typedef float sync_sums[SYNC_M][SYNC_N][4];

/* ---- primitives ---- */

#ifdef __CUDACC__

#define SYNC_CODE __device__ static __forceinline__
#define SYNC_UNROLL _Pragma("unroll")

/* A thread, and the address of its block's shared memory. */
struct sync_place { int thread; uint32_t shared; };

/* Copies `bytes` of 16, or of 4, to shared memory; the rest of them become zero. Queued. */
SYNC_CODE void sync_copy16(struct sync_place at, uint32_t to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at.shared + to), "l"(from),
                 "r"(bytes));
}
SYNC_CODE void sync_copy4(struct sync_place at, uint32_t to, const void *from, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at.shared + to), "l"(from),
                 "r"(bytes));
}
/* Closes the group of this thread's copies. */
SYNC_CODE void sync_commit(struct sync_place at) { asm volatile("cp.async.commit_group;"); }
/* Waits for all groups of this thread but the SYNC_STAGES - 2 last ones. */
SYNC_CODE void sync_wait(struct sync_place at) {
    asm volatile("cp.async.wait_group %0;" ::"n"(SYNC_STAGES - 2) : "memory");
}
SYNC_CODE void sync_barrier(struct sync_place at) { __syncthreads(); }

/* Four 8 x 16 byte matrices; each lane names one row. */
SYNC_CODE void sync_matrices(struct sync_place at, uint32_t r[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at.shared + from));
}
SYNC_CODE float sync_load(struct sync_place at, uint32_t from) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at.shared + from));
    return x;
}

#define SYNC_INSTRUCTION(text)                                                  \
    asm volatile("mma.sync.aligned." text " {%0,%1,%2,%3}, {%4,%5,%6,%7}, "     \
                 "{%8,%9}, {%0,%1,%2,%3};"                                      \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

/* c += a b over SYNC_STEP bytes of K. Before sm_89 no instruction takes codes, and the host
 * launches none (gemm_sync_serves). */
SYNC_CODE void sync_multiply(struct sync_place at, int kind, float c[4], const uint32_t a[4],
                             const uint32_t b[2]) {
    if (kind == SYNC_BF16) SYNC_INSTRUCTION("m16n8k16.row.col.f32.bf16.bf16.f32");
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
    if (kind == SYNC_E4M3_E4M3) SYNC_INSTRUCTION("m16n8k32.row.col.f32.e4m3.e4m3.f32");
    if (kind == SYNC_E5M2_E4M3) SYNC_INSTRUCTION("m16n8k32.row.col.f32.e5m2.e4m3.f32");
    if (kind == SYNC_E4M3_E5M2) SYNC_INSTRUCTION("m16n8k32.row.col.f32.e4m3.e5m2.f32");
#endif
}

#else

#define SYNC_CODE static inline
#define SYNC_UNROLL

/* The primitives on the host, with the meanings above. */
struct sync_place;
struct sync_port {
    void (*copy)(struct sync_place at, uint32_t to, int size, const void *from, int bytes);
    void (*commit)(struct sync_place at);
    void (*wait)(struct sync_place at);
    void (*barrier)(struct sync_place at);
    void (*matrices)(struct sync_place at, uint32_t r[4], uint32_t from);
    void (*multiply)(struct sync_place at, int kind, float c[4], const uint32_t a[4],
                     const uint32_t b[2]);
    float (*load)(struct sync_place at, uint32_t from);
};
struct sync_place {
    int thread;
    const struct sync_port *port;
    void *machine; /* the port's own */
};

SYNC_CODE void sync_copy16(struct sync_place at, uint32_t to, const void *from, int bytes) {
    at.port->copy(at, to, 16, from, bytes);
}
SYNC_CODE void sync_copy4(struct sync_place at, uint32_t to, const void *from, int bytes) {
    at.port->copy(at, to, 4, from, bytes);
}
SYNC_CODE void sync_commit(struct sync_place at) { at.port->commit(at); }
SYNC_CODE void sync_wait(struct sync_place at) { at.port->wait(at); }
SYNC_CODE void sync_barrier(struct sync_place at) { at.port->barrier(at); }
SYNC_CODE void sync_matrices(struct sync_place at, uint32_t r[4], uint32_t from) {
    at.port->matrices(at, r, from);
}
SYNC_CODE float sync_load(struct sync_place at, uint32_t from) { return at.port->load(at, from); }
SYNC_CODE void sync_multiply(struct sync_place at, int kind, float c[4], const uint32_t a[4],
                             const uint32_t b[2]) {
    at.port->multiply(at, kind, c, a, b);
}

#endif

/* ---- loading ---- */

/* One operand of a stage: rows from `first` on, from byte `k` on. Chunks outside are zero. */
SYNC_CODE void sync_request_codes(struct sync_place at, uint32_t to, const uint8_t *codes,
                                  int64_t ld, int64_t first, int64_t rows, int64_t k,
                                  int64_t bytes) {
    const int chunks = SYNC_DEPTH / SYNC_CHUNK;
    SYNC_UNROLL
    for (int i = 0; i < SYNC_ROWS * chunks / SYNC_THREADS; i++) {
        int row = (i * SYNC_THREADS + at.thread) / chunks, chunk = at.thread % chunks;
        int64_t from = k + chunk * SYNC_CHUNK, left = bytes - from;
        bool in = first + row < rows && left > 0;
        int valid = !in ? 0 : left < SYNC_CHUNK ? (int)left : SYNC_CHUNK;
        sync_copy16(at, to + (uint32_t)sync_chunk_at(row, chunk),
                    in ? codes + (first + row) * ld + from : codes, valid);
    }
}

/* One thread copies one factor: the first half of them a's, the others b's. */
SYNC_CODE void sync_request_factors(const struct sync_product *g, struct sync_place at, uint32_t to,
                                    int64_t row, int64_t col, int64_t stage) {
    bool of_b = at.thread >= SYNC_ROWS;
    int64_t line = of_b ? col + at.thread - SYNC_ROWS : row + at.thread;
    bool in = line < (of_b ? g->cols : g->rows);
    const float *from = of_b ? g->factor_b : g->factor_a;
    if (in) from += (line >> (of_b ? g->shift_b : g->shift_a)) * g->blocks + stage;
    sync_copy4(at, to + SYNC_FACTORS_A + (uint32_t)at.thread * 4, from, in ? 4 : 0);
}

/* Requests a stage, if there is one, and closes the group. */
SYNC_CODE void sync_request(const struct sync_product *g, struct sync_place at, int slot,
                            int64_t row, int64_t col, int64_t stage, int scales) {
    uint32_t to = (uint32_t)(slot * SYNC_STAGE);
    if (stage < sync_stages(g)) {
        sync_request_codes(at, to, g->a, g->lda, row, g->rows, stage * SYNC_DEPTH, g->bytes);
        sync_request_codes(at, to + SYNC_CODES_B, g->b, g->ldb, col, g->cols, stage * SYNC_DEPTH,
                           g->bytes);
        if (scales == SYNC_BLOCKS) sync_request_factors(g, at, to, row, col, stage);
    }
    sync_commit(at);
}

/* ---- multiplying ---- */

/* sums += a b over the stage in `slot`. */
SYNC_CODE void sync_multiply_stage(struct sync_place at, int slot, int kind, sync_sums sums) {
    int lane = at.thread % 32, row = sync_warp_row(at.thread) + sync_a_row(lane);
    int col = sync_warp_col(at.thread) + sync_b_row(lane);
    uint32_t from = (uint32_t)(slot * SYNC_STAGE);
    SYNC_UNROLL
    for (int k = 0; k < SYNC_DEPTH / SYNC_STEP; k++) {
        uint32_t a[SYNC_M][4], b[SYNC_N / 2][4];
        int chunk = k * (SYNC_STEP / SYNC_CHUNK);
        SYNC_UNROLL
        for (int m = 0; m < SYNC_M; m++)
            sync_matrices(at, a[m], from + (uint32_t)sync_chunk_at(row + m * 16,
                                                                   chunk + sync_a_chunk(lane)));
        SYNC_UNROLL
        for (int n = 0; n < SYNC_N / 2; n++)
            sync_matrices(at, b[n], from + SYNC_CODES_B +
                          (uint32_t)sync_chunk_at(col + n * 16, chunk + sync_b_chunk(lane)));
        SYNC_UNROLL
        for (int m = 0; m < SYNC_M; m++) {
            SYNC_UNROLL
            for (int n = 0; n < SYNC_N; n++)
                sync_multiply(at, kind, sums[m][n], a[m], &b[n / 2][n % 2 * 2]);
        }
    }
}

/* This thread's factors of its rows, and of its columns, from the stage in `slot`. */
SYNC_CODE void sync_load_factors(struct sync_place at, int slot, float rows[SYNC_M][2],
                                 float cols[SYNC_N][2]) {
    int lane = at.thread % 32;
    uint32_t from = (uint32_t)(slot * SYNC_STAGE);
    uint32_t row = from + SYNC_FACTORS_A + (uint32_t)sync_warp_row(at.thread) * 4;
    uint32_t col = from + SYNC_FACTORS_B + (uint32_t)sync_warp_col(at.thread) * 4;
    SYNC_UNROLL
    for (int i = 0; i < 2; i++) {
        SYNC_UNROLL
        for (int m = 0; m < SYNC_M; m++)
            rows[m][i] = sync_load(at, row + (uint32_t)(m * 16 + sync_c_row(lane, 2 * i)) * 4);
        SYNC_UNROLL
        for (int n = 0; n < SYNC_N; n++)
            cols[n][i] = sync_load(at, col + (uint32_t)(n * 8 + sync_c_col(lane, i)) * 4);
    }
}

/* Adds a chain to the totals, times its factors if these go by blocks. */
SYNC_CODE void sync_promote(struct sync_place at, int slot, int scales, sync_sums total,
                            sync_sums chain) {
    float rows[SYNC_M][2], cols[SYNC_N][2];
    if (scales == SYNC_BLOCKS) sync_load_factors(at, slot, rows, cols);
    SYNC_UNROLL
    for (int m = 0; m < SYNC_M; m++) {
        SYNC_UNROLL
        for (int n = 0; n < SYNC_N; n++) {
            SYNC_UNROLL
            for (int i = 0; i < 4; i++) {
                float c = chain[m][n][i], t = total[m][n][i];
                total[m][n][i] = scales == SYNC_BLOCKS ? fmaf(c, rows[m][i / 2] * cols[n][i % 2], t)
                                                       : t + c;
            }
        }
    }
}

SYNC_CODE void sync_clear(sync_sums sums) {
    SYNC_UNROLL
    for (int m = 0; m < SYNC_M; m++) {
        SYNC_UNROLL
        for (int n = 0; n < SYNC_N; n++) {
            SYNC_UNROLL
            for (int i = 0; i < 4; i++) sums[m][n][i] = 0.0f;
        }
    }
}

/* ---- storing ---- */

SYNC_CODE float sync_read(const void *from, bool bf16, int64_t i) {
    return bf16 ? bf16_decode(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}

/* Output [row, col] from its sum. */
SYNC_CODE float sync_output(const struct sync_product *g, int scales, float x, int64_t row,
                            int64_t col) {
    if (scales == SYNC_LAST)
        x = x * (g->factor_a[row * g->step_a] * g->factor_b[col * g->step_b]);
    if (g->bias) x = x + sync_read(g->bias, g->bias_bf16, col);
    if (g->addend) x = x + sync_read(g->addend, g->out_bf16, row * g->ld + col);
    return x;
}

/* Stores one output, or two in a row. */
SYNC_CODE void sync_put(const struct sync_product *g, int64_t at, float x, float y, bool both) {
    bool pair = both && g->paired;
    if (g->out_bf16) {
        uint16_t *out = (uint16_t *)g->out + at, low = bf16_encode(x), high = bf16_encode(y);
        if (pair) *(uint32_t *)(void *)out = low | (uint32_t)high << 16;
        else out[0] = low;
        if (both && !pair) out[1] = high;
    } else {
        float *out = (float *)g->out + at;
        x = f32_canonical(x);
        y = f32_canonical(y);
        if (pair) *(uint64_t *)(void *)out = f32_bits(x) | (uint64_t)f32_bits(y) << 32;
        else out[0] = x;
        if (both && !pair) out[1] = y;
    }
}

SYNC_CODE void sync_store(const struct sync_product *g, struct sync_place at, int scales,
                          int64_t row, int64_t col, sync_sums total) {
    int lane = at.thread % 32;
    row += sync_warp_row(at.thread);
    col += sync_warp_col(at.thread);
    SYNC_UNROLL
    for (int m = 0; m < SYNC_M; m++) {
        SYNC_UNROLL
        for (int i = 0; i < 4; i += 2) {
            int64_t r = row + m * 16 + sync_c_row(lane, i);
            SYNC_UNROLL
            for (int n = 0; n < SYNC_N; n++) {
                int64_t c = col + n * 8 + sync_c_col(lane, i);
                if (r >= g->rows || c >= g->cols) continue;
                bool both = c + 1 < g->cols;
                float x = sync_output(g, scales, total[m][n][i], r, c);
                float y = both ? sync_output(g, scales, total[m][n][i + 1], r, c + 1) : 0.0f;
                sync_put(g, r * g->ld + c, x, y, both);
            }
        }
    }
}

/* ---- one thread of the block that computes `tile` ---- */

SYNC_CODE void sync_body(const struct sync_product *g, struct sync_place at, int64_t tile, int kind,
                         int scales) {
    sync_sums total, chain;
    int64_t row, col, stages = sync_stages(g);
    int slot = 0, free_slot = SYNC_STAGES - 1;
    sync_tile(g, tile, &row, &col);
    sync_clear(total);
    for (int i = 0; i < SYNC_STAGES - 1; i++) sync_request(g, at, i, row, col, i, scales);
    for (int64_t k = 0; k < stages; k++) {
        sync_wait(at);
        sync_barrier(at); /* stage k is there, and nobody reads the slot of stage k - 1 any more */
        sync_request(g, at, free_slot, row, col, k + SYNC_STAGES - 1, scales);
        if (scales == SYNC_UNSCALED) {
            sync_multiply_stage(at, slot, kind, total);
        } else {
            sync_clear(chain);
            sync_multiply_stage(at, slot, kind, chain);
            sync_promote(at, slot, scales, total, chain);
        }
        free_slot = slot;
        slot = slot + 1 < SYNC_STAGES ? slot + 1 : 0;
    }
    sync_store(g, at, scales, row, col, total);
}

#endif
