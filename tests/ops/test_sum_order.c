/* The CPU's sums under the arithmetic `hopper` beside the loops of a GPU's kernels, thread by
 * thread: all outputs are equal to the bit. So the orders of kernels/sum_order.h mean what the
 * kernels do. The functions of exactmath_fma.h against the C library's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/exactmath_f32.h"
#include "kernels/exactmath_fma.h"
#include "kernels/sum_order.h"
#include "tests/support/ops_support.h"

static const float EPS = 1e-5f;

static struct ops *hopper(void) {
    struct ops *o = ops_open(3);
    OPS_OK(o, cpu_backend_calculate(o->b, "hopper", &o->e));
    return o;
}

static float at(const struct tensor *x, int64_t i) { return (float)ops_get(x, i); }
static float stored(float x) { return bf16_decode(bf16_encode(x)); }

/* Element i of an F32 or BF16 tensor has the bits of x once stored. */
static void same(const struct tensor *t, int64_t i, float x, const char *what) {
    float want = t->dtype == DTYPE_BF16 ? stored(x) : f32_canonical(x), got = at(t, i);
    if (f32_bits(want) != f32_bits(got))
        fail_msg("%s, element %lld: %a, a GPU has %a", what, (long long)i, (double)got,
                 (double)want);
}

/* ---- a GPU's joins ---- */

/* Lane 0 after a butterfly of shuffles. */
static float butterfly(const float *lane) {
    float x[32], y[32];
    memcpy(x, lane, sizeof x);
    for (int step = 16; step; step /= 2) {
        for (int l = 0; l < 32; l++) y[l] = x[l] + x[l ^ step];
        memcpy(x, y, sizeof x);
    }
    return x[0];
}

static float block_sum(const float *thread, int threads) {
    float warp[32] = { 0 };
    for (int w = 0; w < threads / 32; w++) warp[w] = butterfly(thread + w * 32);
    return threads == 32 ? warp[0] : butterfly(warp);
}

/* Partial sums of blocks, joined by 32 threads a column, and added to the value before. */
static float column_join(const float *partial, int64_t blocks, int64_t stride, float before) {
    float lane[32], total;
    for (int l = 0; l < 32; l++) {
        lane[l] = 0;
        for (int64_t b = l; b < blocks; b += 32) lane[l] += partial[b * stride];
    }
    total = lane[0];
    for (int l = 1; l < 32; l++) total += lane[l];
    return before + total;
}

/* ---- norms ---- */

struct norm { int64_t rows, cols; bool centred, sums; };

/* The sum of term [cols] in a row: of one warp, of warps that share it, of a block. */
static float along(const float *term, int64_t cols, bool backward) {
    float thread[256] = { 0 };
    int64_t vector = cols % 8 ? 1 : 8, warps = 1;
    if (vector == 1 || cols > 4096) {
        int64_t threads = (cols + 7) / 8;
        threads = threads >= 256 ? 256 : (threads + 31) / 32 * 32;
        for (int64_t t = 0; t < threads; t++)
            for (int64_t c = t * vector; c < cols; c += threads * vector)
                for (int64_t i = 0; i < vector; i++) thread[t] += term[c + i];
        return block_sum(thread, (int)threads);
    }
    if (backward && cols > 1024) warps = cols > 2048 ? 4 : 2;
    float total = 0;
    for (int64_t w = 0; w < warps; w++) {
        float lane[32] = { 0 };
        int64_t first = w * 1024, end = warps == 1 || first + 1024 > cols ? cols : first + 1024;
        for (int l = 0; l < 32; l++)
            for (int64_t c = first + l * 8; c < end; c += 256)
                for (int64_t i = 0; i < 8; i++) lane[l] += term[c + i];
        total = w ? total + butterfly(lane) : butterfly(lane);
    }
    return total;
}

/* The sum over rows of term [rows][cols], column c, as the backward of a norm adds it. */
static float over(const float *term, const struct norm *n, int64_t c, float before) {
    static float partial[1024];
    bool held = n->cols % 8 == 0 && n->cols <= 4096;
    int groups = 8;
    int64_t blocks, each = 32;
    if (held) {
        int on_one = n->cols <= 256 ? 6 : n->cols <= 768 ? 4 : n->centred ? 3 : 4;
        groups = n->cols <= 1024 ? 4 : n->cols <= 2048 ? 2 : 1;
        if (n->sums) on_one--;
        int64_t at_once = (int64_t)groups * 128 * on_one;
        each = (n->rows + at_once - 1) / at_once;
    }
    blocks = (n->rows + each * groups - 1) / (each * groups);
    assert_true(blocks <= 1024);
    for (int64_t b = 0; b < blocks; b++) {
        float sum[8] = { 0 };
        for (int64_t step = 0; step < each; step++)
            for (int g = 0; g < groups; g++) {
                int64_t row = (b * each + step) * groups + g;
                if (row < n->rows) sum[g] += term[row * n->cols + c];
            }
        partial[b] = sum[0];
        for (int g = 1; g < groups; g++) partial[b] += sum[g];
    }
    return column_join(partial, blocks, 1, before);
}

struct norm_data {
    struct tensor x, dy, gain, bias, residual, y, dx, mean, rstd, d_gain, d_bias, sums;
};

static struct norm_data norm_data(struct ops *o, const struct norm *n) {
    const int64_t r = n->rows, c = n->cols;
    struct norm_data d = {
        .x = ops_tensor(o, DTYPE_BF16, r, c, 1, 1), .dy = ops_tensor(o, DTYPE_BF16, r, c, 1, 1),
        .gain = ops_tensor(o, DTYPE_BF16, c, 1, 1, 1),
        .bias = ops_tensor(o, DTYPE_BF16, c, 1, 1, 1),
        .residual = ops_tensor(o, DTYPE_BF16, r, c, 1, 1),
        .y = ops_tensor(o, DTYPE_BF16, r, c, 1, 1), .dx = ops_tensor(o, DTYPE_BF16, r, c, 1, 1),
        .mean = ops_tensor(o, DTYPE_F32, r, 1, 1, 1), .rstd = ops_tensor(o, DTYPE_F32, r, 1, 1, 1),
        .d_gain = ops_tensor(o, DTYPE_F32, c, 1, 1, 1),
        .d_bias = ops_tensor(o, DTYPE_F32, c, 1, 1, 1),
        .sums = ops_tensor(o, DTYPE_F32, c, 1, 1, 1) };
    struct tensor *fill[] = { &d.x, &d.dy, &d.gain, &d.bias, &d.residual, &d.d_gain, &d.d_bias,
                              &d.sums };
    for (size_t i = 0; i < sizeof fill / sizeof *fill; i++) ops_fill(fill[i], i + 1, 2);
    return d;
}

/* Runs forward and backward; d's accumulators hold the results. */
static void run_norm(struct ops *o, const struct norm *n, struct norm_data *d) {
    struct sink y = sink_value(&d->y, NULL), dx = sink_value(&d->dx, NULL);
    struct norm_fwd_args f = { &y, n->centred ? &d->mean : NULL, &d->rstd, &d->x, &d->gain,
                               n->centred ? &d->bias : NULL, EPS };
    struct norm_bwd_args b = { &dx, &d->d_gain, n->centred ? &d->d_bias : NULL, &d->dy, &d->x,
                               &d->gain, n->centred ? &d->mean : NULL, &d->rstd, &d->residual };
    if (n->sums) dx.sums = &d->sums;
    if (n->centred) {
        OPS_OK(o, o->table->layernorm_fwd(o->b, 0, &f, &o->e));
        OPS_OK(o, o->table->layernorm_bwd(o->b, 0, &b, &o->e));
    } else {
        OPS_OK(o, o->table->rmsnorm_fwd(o->b, 0, &f, &o->e));
        OPS_OK(o, o->table->rmsnorm_bwd(o->b, 0, &b, &o->e));
    }
}

/* One row of both; writes the terms of the sums over rows. */
static void check_row(const struct norm *n, const struct norm_data *d, int64_t row, float *gain,
                      float *bias, float *sums) {
    float x[9000], g[9000], gx[9000], size = (float)n->cols, mean = 0;
    int64_t first = row * n->cols;
    for (int64_t c = 0; c < n->cols; c++) x[c] = at(&d->x, first + c);
    if (n->centred) mean = along(x, n->cols, false) / size;
    for (int64_t c = 0; c < n->cols; c++) {
        if (n->centred) x[c] = x[c] - mean;
        gx[c] = x[c] * x[c];
    }
    float rstd = 1.0f / sqrtf(along(gx, n->cols, false) / size + EPS);
    same(&d->rstd, row, rstd, "rstd");
    if (n->centred) same(&d->mean, row, mean, "mean");
    for (int64_t c = 0; c < n->cols; c++) {
        float dy = at(&d->dy, first + c), y = (x[c] * rstd) * at(&d->gain, c);
        same(&d->y, first + c, n->centred ? y + at(&d->bias, c) : y, "y");
        x[c] = x[c] * rstd;
        g[c] = dy * at(&d->gain, c);
        gx[c] = g[c] * x[c];
        gain[first + c] = dy * x[c];
        bias[first + c] = dy;
    }
    float g_mean = n->centred ? along(g, n->cols, true) / size : 0;
    float gx_mean = along(gx, n->cols, true) / size;
    for (int64_t c = 0; c < n->cols; c++) {
        float own = n->centred ? g[c] - g_mean : g[c];
        float dx = rstd * (own - x[c] * gx_mean) + at(&d->residual, first + c);
        same(&d->dx, first + c, dx, "dx");
        sums[first + c] = stored(dx);
    }
}

static void test_norms(void **state) {
    static const struct norm CASE[] = {
        { 3100, 8, false, false }, { 2600, 16, true, true }, { 9, 264, true, false },
        { 1500, 776, true, true }, { 1100, 1032, false, true }, { 520, 2056, true, false },
        { 300, 4104, false, true }, { 270, 100, true, false }, { 33, 1001, false, false } };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        const struct norm *n = &CASE[i];
        struct ops *o = hopper();
        struct norm_data d = norm_data(o, n), before = d;
        int64_t bytes = n->rows * n->cols * (int64_t)sizeof(float);
        float *gain = ops_memory(o, bytes), *bias = ops_memory(o, bytes);
        float *sums = ops_memory(o, bytes);
        before.d_gain = ops_copy(o, &d.d_gain, DTYPE_F32);
        before.d_bias = ops_copy(o, &d.d_bias, DTYPE_F32);
        before.sums = ops_copy(o, &d.sums, DTYPE_F32);
        run_norm(o, n, &d);
        for (int64_t r = 0; r < n->rows; r++) check_row(n, &d, r, gain, bias, sums);
        for (int64_t c = 0; c < n->cols; c++) {
            same(&d.d_gain, c, over(gain, n, c, at(&before.d_gain, c)), "d_gain");
            if (n->centred) same(&d.d_bias, c, over(bias, n, c, at(&before.d_bias, c)), "d_bias");
            if (n->sums) same(&d.sums, c, over(sums, n, c, at(&before.sums, c)), "sums of dx");
        }
        ops_close(o);
    }
}

/* ---- QK-norm ---- */

enum { QK_H = 5, QK_G = 2, QK_ALL = QK_H + 2 * QK_G };

static float head_sum(const float *x, const float *y, int64_t d) {
    float lane[8] = { 0 }, next[8];
    int group = (int)d / 16;
    for (int l = 0; l < group; l++)
        for (int i = l * 8; i < l * 8 + 8; i++)
            lane[l] += x[i] * y[i] + x[i + d / 2] * y[i + d / 2];
    for (int step = group / 2; step; step /= 2) {
        for (int l = 0; l < group; l++) next[l] = lane[l] + lane[l ^ step];
        memcpy(lane, next, sizeof lane);
    }
    return lane[0];
}

/* Element i of a gain's gradient over `rows` rows; gain 0: of q. term [rows][QK_ALL][d]. */
static float gain_sum(const float *term, int64_t rows, int64_t d, int gain, int64_t i) {
    static float partial[1024];
    int64_t parts = (QK_ALL + 3) / 4, items = rows * parts, slots = 256 / (d / 16);
    int64_t blocks = (items + slots - 1) / slots;
    blocks = blocks > 1024 ? 1024 : blocks;
    for (int64_t b = 0; b < blocks; b++) {
        float total = 0;
        for (int64_t slot = 0; slot < slots; slot++) {
            float sum = 0;
            for (int64_t item = b * slots + slot; item < items; item += slots * blocks)
                for (int k = 0; k < 4; k++) {
                    int64_t head = item % parts + k * parts;
                    bool q = head < QK_H, key = !q && head < QK_H + QK_G;
                    if (gain ? key : q) sum += term[(item / parts * QK_ALL + head) * d + i];
                }
            total += sum;
        }
        partial[b] = total;
    }
    return column_join(partial, blocks, 1, 0);
}

static void check_heads(int64_t rows, int64_t d) {
    struct ops *o = hopper();
    struct tensor in = ops_tensor(o, DTYPE_BF16, 1, rows, QK_ALL, d);
    struct tensor out = ops_tensor(o, DTYPE_BF16, 1, rows, QK_ALL, d);
    struct tensor d_out = ops_tensor(o, DTYPE_BF16, 1, rows, QK_ALL, d);
    struct tensor dx = ops_tensor(o, DTYPE_BF16, 1, rows, QK_ALL, d);
    struct tensor rstd = ops_tensor(o, DTYPE_F32, 1, rows, QK_H + QK_G, 1), gain[2], d_gain[2];
    float *term = ops_memory(o, rows * QK_ALL * d * 4), x[128], dy[128], scaled[128];
    for (int i = 0; i < 2; i++) {
        gain[i] = ops_tensor(o, DTYPE_BF16, d, 1, 1, 1);
        d_gain[i] = ops_tensor(o, DTYPE_F32, d, 1, 1, 1);
        ops_fill(&gain[i], 7 + (uint64_t)i, 1);
    }
    ops_fill(&in, 3, 1);
    ops_fill(&d_out, 4, 1);
    struct sink s = sink_value(&dx, NULL);
    OPS_OK(o, o->table->qk_fwd(o->b, 0, &(struct qk_fwd_args){
        .out = &out, .rstd = &rstd, .in = &in, .gain_q = &gain[0], .gain_k = &gain[1],
        .heads = QK_H, .kv_heads = QK_G, .eps = EPS }, &o->e));
    OPS_OK(o, o->table->qk_bwd(o->b, 0, &(struct qk_bwd_args){
        .dx = &s, .d_gain_q = &d_gain[0], .d_gain_k = &d_gain[1], .d_out = &d_out, .in = &in,
        .gain_q = &gain[0], .gain_k = &gain[1], .rstd = &rstd, .heads = QK_H,
        .kv_heads = QK_G }, &o->e));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < QK_H + QK_G; h++) {
            int64_t first = (r * QK_ALL + h) * d;
            for (int64_t i = 0; i < d; i++) x[i] = at(&in, first + i);
            float root = 1.0f / sqrtf(head_sum(x, x, d) / (float)d + EPS);
            same(&rstd, r * (QK_H + QK_G) + h, root, "rstd of a head");
            for (int64_t i = 0; i < d; i++) {
                dy[i] = at(&d_out, first + i);
                x[i] = x[i] * root;
                scaled[i] = dy[i] * at(&gain[h >= QK_H], i);
                term[first + i] = dy[i] * x[i];
            }
            float mean = head_sum(scaled, x, d) / (float)d;
            for (int64_t i = 0; i < d; i++)
                same(&dx, first + i, root * (scaled[i] - x[i] * mean), "dx of a head");
        }
    for (int g = 0; g < 2; g++)
        for (int64_t i = 0; i < d; i++)
            same(&d_gain[g], i, gain_sum(term, rows, d, g, i), "gradient of a gain");
    ops_close(o);
}

static void test_heads(void **state) {
    check_heads(7, 16);
    check_heads(900, 64);
    check_heads(11000, 128); /* more items than a grid's slots */
}

/* ---- whole tensors, column sums, positions ---- */

/* The sum of squares (or of the values) of one block of x. */
static float extent_sum(const struct tensor *x, int64_t begin, int64_t end, bool squares) {
    static float thread[512];
    int64_t each = squares && x->dtype == DTYPE_BF16 ? 8 : 4;
    int64_t whole = squares ? begin + (end - begin) / each * each : end;
    for (int64_t t = 0; t < 512; t++) {
        float sum[4] = { 0 };
        for (int64_t i = begin + t * each; i < whole; i += 512 * each)
            for (int64_t j = 0; j < each && i + j < whole; j++) {
                float v = at(x, i + j);
                sum[j % 4] += squares ? v * v : v;
            }
        for (int64_t i = whole + t; i < end; i += 512) sum[0] += at(x, i) * at(x, i);
        thread[t] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
    return block_sum(thread, 512);
}

static void check_tensor(enum dtype t, int64_t n, bool squares) {
    struct ops *o = hopper();
    struct tensor x = ops_tensor(o, t, n, 1, 1, 1), total = ops_f32(o, 0);
    float thread[512] = { 0 };
    ops_fill(&x, 5, 2);
    if (squares) OPS_OK(o, o->table->sum_squares(o->b, 0, &total, &x, 1, &o->e));
    else OPS_OK(o, o->table->sum(o->b, 0, &total, &x, 1, 0, &o->e));
    for (int64_t b = 0; b * 65536 < n; b++)
        thread[b % 512] +=
            extent_sum(&x, b * 65536, b * 65536 + 65536 < n ? b * 65536 + 65536 : n, squares);
    same(&total, 0, block_sum(thread, 512), squares ? "sum of squares" : "sum");
    ops_close(o);
}

static void test_tensors(void **state) {
    static const int64_t N[] = { 1, 7, 2047, 65543, 3 * 65536 + 1001 };
    for (size_t i = 0; i < sizeof N / sizeof *N; i++) {
        check_tensor(DTYPE_F32, N[i], false);
        check_tensor(DTYPE_F32, N[i], true);
        check_tensor(DTYPE_BF16, N[i], true);
    }
}

static void test_columns(void **state) {
    enum { ROWS = 9000, COLS = 12 };
    struct ops *o = hopper();
    struct tensor x = ops_tensor(o, DTYPE_BF16, ROWS, COLS, 1, 1);
    struct tensor sums = ops_tensor(o, DTYPE_F32, COLS, 1, 1, 1);
    struct sink s = sink_value(&x, NULL);
    s.sums = &sums;
    ops_fill(&x, 9, 1);
    OPS_OK(o, o->table->quantise(o->b, 0, &s, &x, &o->e));
    for (int64_t c = 0; c < COLS; c++) {
        float partial[64] = { 0 };
        for (int64_t b = 0; b * 256 < ROWS; b++) {
            float lane[8] = { 0 };
            for (int64_t r = b * 256; r < b * 256 + 256 && r < ROWS; r++)
                lane[r % 8] += at(&x, r * COLS + c);
            for (int l = 0; l < 8; l++) partial[b] += lane[l];
        }
        same(&sums, c, column_join(partial, (ROWS + 255) / 256, 1, 0), "column sum");
    }
    ops_close(o);
}

static void test_positions(void **state) {
    enum { BATCH = 37, TIME = 3, COLS = 24 };
    struct ops *o = hopper();
    struct tensor dx = ops_tensor(o, DTYPE_BF16, BATCH * TIME, COLS, 1, 1);
    struct tensor table = ops_tensor(o, DTYPE_F32, 4, COLS, 1, 1);
    struct tensor position = ops_tensor(o, DTYPE_F32, TIME, COLS, 1, 1);
    struct tensor tokens = ops_tensor(o, DTYPE_I32, BATCH * TIME, 1, 1, 1);
    ops_fill(&dx, 2, 1);
    OPS_OK(o, o->table->embedding_bwd(o->b, 0, &table, &position, &dx, &tokens, NULL, &o->e));
    for (int64_t i = 0; i < TIME * COLS; i++) {
        float sum = 0;
        for (int64_t b = 0; b < BATCH; b++) sum += at(&dx, b * TIME * COLS + i);
        same(&position, i, 0.0f + sum, "gradient of a position");
    }
    ops_close(o);
}

/* ---- cross-entropy ---- */

struct part { float max, sum; };

/* 32 parts through shuffles. */
static struct part warp_join(const struct part *in) {
    float max = -INFINITY, lane[32];
    for (int l = 0; l < 32; l++) max = in[l].max > max ? in[l].max : max;
    for (int l = 0; l < 32; l++)
        lane[l] = in[l].max == -INFINITY ? in[l].sum : in[l].sum * fma_expf(in[l].max - max);
    return (struct part){ max, butterfly(lane) };
}

/* A row of logits, divided among `blocks` blocks of 512 threads with at most eight vectors each. */
static struct part row_part(const float *x, int64_t width, int64_t vocab, int64_t blocks) {
    struct part block[32], warp[32], thread[512];
    int64_t each = (width / 8 + blocks - 1) / blocks;
    for (int i = 0; i < 32; i++) block[i] = warp[i] = (struct part){ -INFINITY, 0 };
    for (int64_t b = 0; b < blocks; b++) {
        for (int t = 0; t < 512; t++) {
            float v[64];
            struct part p = { -INFINITY, 0 };
            for (int i = 0; i < 64; i++) {
                int64_t vector = b * each + t + i / 8 * 512, at = vector * 8 + i % 8;
                bool ours = vector < (b + 1) * each && vector < width / 8 && at < vocab;
                v[i] = ours ? x[at] : -INFINITY;
                if (v[i] > p.max) p.max = v[i];
            }
            for (int i = 0; i < 64; i++)
                p.sum += fma_expf(v[i] - (p.max == -INFINITY ? 0.0f : p.max));
            thread[t] = p;
        }
        for (int w = 0; w < 16; w++) warp[w] = warp_join(thread + w * 32);
        block[b] = warp_join(warp);
    }
    return warp_join(block);
}

static void check_entropy(int64_t vocab, int64_t width, int64_t blocks) {
    enum { ROWS = 3 };
    struct ops *o = hopper();
    struct tensor logits = ops_tensor(o, DTYPE_BF16, ROWS, width, 1, 1);
    struct tensor d = ops_tensor(o, DTYPE_BF16, ROWS, width, 1, 1), scale = ops_f32(o, 0.37f);
    struct tensor loss = ops_tensor(o, DTYPE_F32, ROWS, 1, 1, 1);
    struct tensor target = ops_tensor(o, DTYPE_I32, ROWS, 1, 1, 1);
    struct sink s = sink_value(&d, NULL);
    float *x = ops_memory(o, width * 4);
    ops_fill(&logits, 6, 20);
    for (int64_t i = 0; i < ROWS * width; i++) /* of columns that must not count */
        if (i % width >= vocab) ops_set(&logits, i, 25);
    ops_set(&target, 0, (double)(vocab - 1));
    ops_set(&target, 1, 5);
    ops_set(&target, 2, -1);
    struct cross_entropy_args args = { .loss = &loss, .logits = &logits, .targets = &target,
                                       .grad_scale = &scale, .vocab = width };
    OPS_OK(o, o->table->cross_entropy(o->b, 0, &args, &o->e)); /* leaves them in scratch memory */
    args.vocab = vocab;
    args.d_logits = &s;
    OPS_OK(o, o->table->cross_entropy(o->b, 0, &args, &o->e));
    for (int64_t r = 0; r < 2; r++) {
        for (int64_t c = 0; c < width; c++) x[c] = at(&logits, r * width + c);
        struct part p = row_part(x, width, vocab, blocks);
        int64_t right = r ? 5 : vocab - 1;
        float factor = 0.37f / p.sum;
        same(&loss, r, (p.max + exact_logf(p.sum)) - x[right], "loss");
        for (int64_t c = 0; c < width; c++) {
            float g = fma_expf(x[c] - p.max) * factor;
            if (c == right) g -= 0.37f;
            same(&d, r * width + c, c < vocab ? g : 0, "gradient of a logit");
        }
    }
    for (int64_t c = 0; c < width; c++) same(&d, 2 * width + c, 0, "gradient without a target");
    ops_close(o);
}

static void test_cross_entropy(void **state) {
    check_entropy(257, 264, 1);
    check_entropy(32768, 32768, 1);
    check_entropy(32769, 32776, 2);
    check_entropy(100001, 100352, 4);
}

/* ---- functions, and operators made of them ---- */

static void test_functions(void **state) {
    double worst = 0, sigmoid = 0;
    for (int64_t i = 0; i < 200000; i++) {
        float x = -87.6f + 175.6f * (float)i / 200000;
        double e = exp((double)x), s = 1 / (1 + exp(-(double)x));
        double bound = 0x1p-23 + fabs((double)x) * 0x1p-25;
        double off = fabs((double)fma_expf(x) / e - 1) / bound;
        double wrong = fabs((double)fma_sigmoidf(x) / s - 1) / (bound + 0x1p-22);
        worst = off > worst ? off : worst;
        sigmoid = wrong > sigmoid ? wrong : sigmoid;
    }
    for (int i = -4000; i < 4000; i++) {
        double x = i / 400.0, u = sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
        double slope = sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x), t = tanh(u);
        OPS_BELOW(fabs((double)fma_gelu((float)x) - x * (1 + t) / 2), 4e-6, "error of fma_gelu");
        OPS_BELOW(fabs((double)fma_gelu_slope((float)x) -
                       ((1 + t) / 2 + x / 2 * (1 - t * t) * slope)), 4e-6, "error of the slope");
    }
    OPS_BELOW(worst, 1, "error of fma_expf by its bound");
    OPS_BELOW(sigmoid, 1, "error of fma_sigmoidf by its bound");
    assert_true(fma_expf(0) == 1 && fma_expf(-INFINITY) == 0 && fma_expf(-88) == 0);
    assert_true(isnan(fma_expf(NAN)) && isnan(fma_sigmoidf(NAN)));
    assert_true(fma_sigmoidf(0) == 0.5f && fma_sigmoidf(INFINITY) == 1);
    assert_true(fma_sigmoidf(-INFINITY) == 0 && fma_sigmoidf(-1e30f) == 0);
}

/* All BF16 values: one element's result depends on no other, and is the header's. */
static void test_activations(void **state) {
    enum { N = 65536 };
    struct ops *o = hopper();
    struct tensor x = ops_tensor(o, DTYPE_BF16, 1, N, 1, 1), y = x, g = x;
    struct tensor up = ops_tensor(o, DTYPE_BF16, 1, 2 * N, 1, 1);
    struct tensor d = ops_tensor(o, DTYPE_BF16, 1, 2 * N, 1, 1);
    struct sink s = sink_value(&y, NULL), wide = sink_value(&d, NULL);
    y.data = ops_memory(o, 2 * N);
    g.data = ops_memory(o, 2 * N);
    ops_fill(&g, 3, 2);
    ops_fill(&up, 4, 2);
    for (int i = 0; i < N; i++)
        ((uint16_t *)x.data)[i] = ((uint16_t *)up.data)[i] = (uint16_t)i;
    OPS_OK(o, o->table->gelu_fwd(o->b, 0, &s, &x, &o->e));
    for (int i = 0; i < N; i++)
        same(&y, i, fma_gelu(at(&x, i)), "gelu");
    OPS_OK(o, o->table->gelu_bwd(o->b, 0, &s, &g, &x, &o->e));
    for (int i = 0; i < N; i++)
        same(&y, i, at(&g, i) * fma_gelu_slope(at(&x, i)), "gelu's slope");
    OPS_OK(o, o->table->swiglu_fwd(o->b, 0, &s, &up, &o->e));
    for (int i = 0; i < N; i++)
        same(&y, i, swiglu_of(at(&x, i), at(&up, N + i), fma_sigmoidf(at(&x, i))), "swiglu");
    OPS_OK(o, o->table->swiglu_bwd(o->b, 0, &wide, &g, &up, &o->e));
    for (int i = 0; i < N; i++) {
        float gate = at(&x, i), dh = at(&g, i), sig = fma_sigmoidf(gate);
        same(&d, i, swiglu_d_gate(gate, at(&up, N + i), dh, sig), "d_gate");
        same(&d, N + i, swiglu_d_up(gate, dh, sig), "d_up");
    }
    ops_close(o);
}

/* Rows of a block of 256 threads. */
static void check_softmax(int64_t length) {
    struct ops *o = hopper();
    struct tensor s = ops_tensor(o, DTYPE_BF16, 1, length, length, 1), p = s;
    float thread[256] = { 0 }, x[1100], max = -INFINITY;
    int64_t row = length - 1, vector = length % 8 ? 1 : 8;
    p.data = ops_memory(o, length * length * 2);
    ops_fill(&s, 8, 9);
    OPS_OK(o, o->table->softmax_fwd(o->b, 0, &p, &s, 0.3f, &o->e));
    for (int64_t c = 0; c < length; c++) {
        x[c] = at(&s, row * length + c) * 0.3f;
        max = x[c] > max ? x[c] : max;
    }
    for (int64_t c = 0; c < length; c++) {
        x[c] = fma_expf(x[c] - max);
        thread[c / vector % 256] += x[c];
    }
    float inverse = 1.0f / block_sum(thread, 256);
    for (int64_t c = 0; c < length; c++)
        same(&p, row * length + c, x[c] * inverse, "softmax");
    ops_close(o);
}

static void test_softmax(void **state) {
    check_softmax(7);
    check_softmax(300);
    check_softmax(1032);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms),         cmocka_unit_test(test_heads),
        cmocka_unit_test(test_tensors),       cmocka_unit_test(test_columns),
        cmocka_unit_test(test_positions),     cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_functions),     cmocka_unit_test(test_activations),
        cmocka_unit_test(test_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
