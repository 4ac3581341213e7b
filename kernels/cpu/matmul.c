/* out = round(A B^T * scales + bias + beta * out + residual), bit for bit as backend.h defines it.
 *
 * Both operands are packed once into f32 panels (matmul_pack.c). Packing decodes FP8 and BF16, so
 * the inner loop is the same for all dtypes. Each output is one fma chain in k order. K is cut into
 * chunks for the caches, and a partial chain waits in f32 between chunks, which changes no bit.
 * Threads share the tiles of the output, so their number changes no bit either.
 *
 *   super-block  what the three GEMM_FLOATS buffers hold: nearly always the whole matmul
 *   tile         tile_m x tile_n panels: the unit of work of a thread; its partial sums stay in L2
 *   micro-tile   mr x nr outputs in registers (isa_kernels.h), stored contiguously in the buffer */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_mma.h"
#include "kernels/nvfp4.h"

enum {
    K_SUPER = 4096,    /* along K in a super-block: a multiple of every scale block */
    K_CHUNK = 256,     /* along K in a chunk: a panel of B this long stays in L1 */
    PACK_GROUP = 4,    /* panels packed at a time */
    TILE_PANELS_A = 10, TILE_PANELS_B = 8,
    TILES_PER_THREAD = 4 /* enough to balance the threads */
};

_Static_assert(K_SUPER % 128 == 0 && K_CHUNK % 128 == 0, "chunks hold whole scale blocks");

struct gemm {
    const struct matmul_args *args;
    const struct isa *isa;
    const struct mma_way *way; /* NULL: the reference's */
    struct operand a, b;
    int64_t block;           /* 128, 32 or 16: factors inside the sum; 0: none there */
    bool last_factor;        /* at the sum's end */
    int64_t part;            /* of split-K; 0: one */
    int64_t first;           /* elements of K before the first whole tile; 0: none */
    int64_t m_step, n_step, k_step; /* super-block */
    int64_t tile_m, tile_n;  /* panels */
    float *pack_a, *pack_b, *sums;
    float *totals;           /* of the parts before; as sums */
};

/* One super-block: rows [m0, m0+m) of A, [n0, n0+n) of B, [k0, k0+k). */
struct super {
    int64_t m0, m, n0, n, k0, k;
    int64_t panels_a, panels_b;
    int64_t stride_a, stride_b; /* floats of a packed panel: elements, exponents, factors */
    int64_t factors;            /* elements of K before them: k, or twice that with exponents */
    bool first, last;           /* along K */
};

/* ---- arguments ---- */

static enum status check_operand(const struct tensor *x, const char *what, struct err *e) {
    if (!x || !x->data) return FAIL(e, ERR_ARG, "%s is missing", what);
    if (x->dim[2] != 1 || x->dim[3] != 1)
        return FAIL(e, ERR_ARG, "%s has more than two dimensions", what);
    if (!dtype_is_fp8(x->dtype)) {
        if (!(1 << x->dtype & IS_ACT))
            return FAIL(e, ERR_ARG, "%s is %s", what, dtype_name(x->dtype));
        if (x->scale.kind != SCALE_NONE)
            return FAIL(e, ERR_ARG, "%s is %s and has a scale", what, dtype_name(x->dtype));
        if (x->stride[0] != 1 && x->stride[1] != 1)
            return FAIL(e, ERR_ARG, "%s has no stride of 1", what);
        return OK;
    }
    return x->stride[1] != 1 ? cpu_check_untransposed(x, what, e) : cpu_check_scale(x, what, e);
}

static int64_t scale_block(enum scale_kind kind) {
    if (kind == SCALE_1X128 || kind == SCALE_128X128) return 128;
    if (scale_is_nvfp4(kind)) return NVFP4_BLOCK;
    return kind == SCALE_1X32 || kind == SCALE_32X32 ? 32 : 0;
}

static enum status check_pair(const struct tensor *a, const struct tensor *b, struct err *e) {
    if (a->dim[1] != b->dim[1])
        return FAIL(e, ERR_ARG, "matmul: K is %lld in a, %lld in b", (long long)a->dim[1],
                    (long long)b->dim[1]);
    if (dtype_is_fp8(a->dtype) != dtype_is_fp8(b->dtype) ||
        (!dtype_is_fp8(a->dtype) && a->dtype != b->dtype))
        return FAIL(e, ERR_ARG, "matmul: a is %s, b is %s", dtype_name(a->dtype),
                    dtype_name(b->dtype));
    if (a->dtype == DTYPE_E5M2 && b->dtype == DTYPE_E5M2)
        return FAIL(e, ERR_ARG, "matmul: e5m2 with e5m2, which no library multiplies");
    if (a->scale.kind == SCALE_128X128 && b->scale.kind == SCALE_128X128)
        return FAIL(e, ERR_ARG, "matmul: 128x128 with 128x128 scales, which no library multiplies");
    if (scale_block(a->scale.kind) != scale_block(b->scale.kind))
        return FAIL(e, ERR_ARG, "matmul: scale blocks of %lld along K in a, %lld in b",
                    (long long)scale_block(a->scale.kind), (long long)scale_block(b->scale.kind));
    return OK;
}

static enum status check_args(const struct matmul_args *m, struct err *e) {
    TRY(check_operand(m->a, "matmul: a", e));
    TRY(check_operand(m->b, "matmul: b", e));
    TRY(check_pair(m->a, m->b, e));
    int64_t rows = m->a->dim[0], cols = m->b->dim[0];
    TRY(cpu_check(m->out, "matmul: out", IS_ACT, rows, cols, e));
    if (m->bias) {
        TRY(cpu_check(m->bias, "matmul: bias", IS_ACT, cols, 1, e));
        if (cols > 1 && m->bias->stride[0] != 1) return FAIL(e, ERR_ARG, "matmul: bias is strided");
    }
    if (m->residual)
        TRY(cpu_check(m->residual, "matmul: residual", 1 << m->out->dtype, rows, cols, e));
    if (m->beta != 0.0f && m->beta != 1.0f)
        return FAIL(e, ERR_ARG, "matmul: beta is %g, not 0 or 1", (double)m->beta);
    if (m->beta != 0.0f && m->residual && m->residual->data == m->out->data)
        return FAIL(e, ERR_ARG, "matmul: out is its own residual with beta 1");
    return OK;
}

/* ---- plan ---- */

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Floats of one row of a panel over k elements: the elements, their exponents, and factors. */
static int64_t row_floats(const struct gemm *g, int64_t k) {
    return (g->way ? 2 * k : k) + (g->block ? ceil_div(k, g->block) : 0);
}

/* How many rows of an operand a buffer holds, in whole panels. */
static int64_t rows_held(const struct gemm *g, const struct operand *o) {
    int64_t held = GEMM_FLOATS / max64(row_floats(g, g->k_step), 1) / o->width * o->width;
    return min64(held, round_up(o->rows, o->width));
}

static void plan(struct gemm *g, int threads) {
    int64_t mr = g->a.width, nr = g->b.width;
    g->k_step = min64(g->a.k, K_SUPER);
    g->m_step = rows_held(g, &g->a);
    g->n_step = rows_held(g, &g->b);
    int64_t room = g->part ? GEMM_FLOATS / 2 : GEMM_FLOATS; /* for the totals, too */
    g->totals = g->sums + room;
    while (g->m_step * g->n_step > room) {
        if (g->m_step > g->n_step) g->m_step = round_up(g->m_step / 2, mr);
        else g->n_step = round_up(g->n_step / 2, nr);
    }
    int64_t panels_a = ceil_div(min64(g->a.rows, g->m_step), mr);
    int64_t panels_b = ceil_div(min64(g->b.rows, g->n_step), nr);
    g->tile_m = TILE_PANELS_A;
    g->tile_n = TILE_PANELS_B;
    while (ceil_div(panels_a, g->tile_m) * ceil_div(panels_b, g->tile_n) <
           (int64_t)threads * TILES_PER_THREAD) {
        if (g->tile_m == 1 && g->tile_n == 1) break;
        if (g->tile_m * mr >= g->tile_n * nr && g->tile_m > 1) g->tile_m = ceil_div(g->tile_m, 2);
        else if (g->tile_n > 1) g->tile_n = ceil_div(g->tile_n, 2);
        else g->tile_m = ceil_div(g->tile_m, 2);
    }
}

/* ---- packing ---- */

/* Packs group `i` of PACK_GROUP panels of one operand, for all of the super-block's K. */
static void pack_group(const struct gemm *g, const struct super *s, bool is_b, int64_t i,
                       float *scratch) {
    const struct operand *o = is_b ? &g->b : &g->a;
    int64_t panels = is_b ? s->panels_b : s->panels_a, stride = is_b ? s->stride_b : s->stride_a;
    float *out = (is_b ? g->pack_b : g->pack_a) + i * PACK_GROUP * stride;
    int64_t row = (is_b ? s->n0 : s->m0) + i * PACK_GROUP * o->width;
    int64_t count = min64(PACK_GROUP, panels - i * PACK_GROUP);
    pack_panels(g->isa, o, row, count, s->k0, s->k, out, stride, scratch);
    for (int64_t p = 0; p < count; p++, row += o->width, out += stride) {
        if (g->way && !g->way->term)
            mma_pack(g->isa, g->way, is_b ? g->way->least_b : g->way->least_a, o, row, s->k0, s->k,
                     out, (int32_t *)(out + s->k * o->width), scratch);
        if (g->block) pack_scales(o, row, s->k0, s->k, out + s->factors * o->width);
    }
}

/* ---- one tile ---- */

/* Continues the micro-tile's chains over [k, k + kn) of the super-block. */
static void micro_tile(const struct gemm *g, const struct super *s, const float *a, const float *b,
                       int64_t k, int64_t kn, float *sums) {
    int64_t mr = g->a.width, nr = g->b.width;
    const float *factors_a = a + s->factors * mr, *factors_b = b + s->factors * nr;
    if (g->way) {
        const int32_t *ea = (const int32_t *)(a + s->k * mr);
        const int32_t *eb = (const int32_t *)(b + s->k * nr);
        struct mma_panel pa = { a, ea, g->block ? factors_a : NULL };
        struct mma_panel pb = { b, eb, g->block ? factors_b : NULL };
        if (g->way->term) mma_term_tile(g->isa, g->way, pa, pb, k, kn, sums);
        else mma_micro_tile(g->isa, g->way, pa, pb, k, kn, sums);
        return;
    }
    if (!g->block) {
        g->isa->gemm(kn, a + k * mr, b + k * nr, sums);
        return;
    }
    for (int64_t end = k + kn; k < end; k += g->block) {
        int64_t j = k / g->block;
        g->isa->gemm_scaled(min64(g->block, end - k), a + k * mr, b + k * nr, factors_a + j * mr,
                            factors_b + j * nr, sums);
    }
}

/* The factors of tensors and rows, as the reference or a tensor core's way orders them. */
static void multiply_factors(const struct gemm *g, int64_t row, int64_t col, int64_t n,
                             float *values) {
    const struct scale *b = &g->args->b->scale;
    const float *factors_b = b->data;
    float factor_a = operand_row_scale(&g->a, row);
    int64_t at = b->kind == SCALE_TENSOR ? 0 : col, step = b->kind != SCALE_TENSOR;
    if (g->way && g->way->factors == FACTOR_B_FIRST)
        for (int64_t j = 0; j < n; j++, at += step)
            values[j] = values[j] * factors_b[at] * factor_a;
    else if (g->way && g->way->factors == FACTOR_A_FIRST)
        for (int64_t j = 0; j < n; j++, at += step)
            values[j] = values[j] * factor_a * factors_b[at];
    else
        for (int64_t j = 0; j < n; j++, at += step)
            values[j] = values[j] * (factor_a * factors_b[at]);
}

/* Adds n elements of t from `at` on. other: of n elements, overwritten. */
static void add_span(const struct tensor *t, int64_t at, int64_t n, float *values, float *other) {
    load_span(other, t, at, n);
    for (int64_t j = 0; j < n; j++) values[j] = values[j] + other[j];
}

/* The same and the residual in one rounding, then the bias. */
static void finish_fused(const struct gemm *g, int64_t row, int64_t col, int64_t n, float *values,
                         float *other) {
    const struct matmul_args *args = g->args;
    float factor = operand_row_scale(&g->a, row) * *(const float *)args->b->scale.data;
    load_span(other, args->residual, row * args->residual->stride[0] + col, n);
    for (int64_t j = 0; j < n; j++) values[j] = fmaf(values[j], factor, other[j]);
    if (args->bias) add_span(args->bias, col, n, values, other);
}

/* All steps after the sum, for `n` outputs of one row. values: the sums; overwritten. */
static void finish_span(const struct gemm *g, int64_t row, int64_t col, int64_t n, float *values,
                        float *other) {
    const struct matmul_args *args = g->args;
    if (g->way && g->way->fused) {
        finish_fused(g, row, col, n, values, other);
        store_span(args->out, row * args->out->stride[0] + col, values, n);
        return;
    }
    if (scale_is_nvfp4(args->a->scale.kind)) {
        float factor = nvfp4_product_factor(*(const float *)args->a->scale.data,
                                            *(const float *)args->b->scale.data);
        for (int64_t j = 0; j < n; j++) values[j] = values[j] * factor;
    } else if (g->last_factor) {
        multiply_factors(g, row, col, n, values);
    }
    bool bias_last = g->way && g->way->bias_last;
    if (args->bias && !bias_last) add_span(args->bias, col, n, values, other);
    if (g->way && g->way->rounded)
        for (int64_t j = 0; j < n; j++) values[j] = bf16_decode(bf16_encode(values[j]));
    if (args->beta != 0.0f)
        add_span(args->out, row * args->out->stride[0] + col, n, values, other);
    if (args->residual)
        add_span(args->residual, row * args->residual->stride[0] + col, n, values, other);
    if (args->bias && bias_last) add_span(args->bias, col, n, values, other);
    store_span(args->out, row * args->out->stride[0] + col, values, n);
}

/* Panels [pa, pa_end) x [pb, pb_end); sums: their micro-tiles in row-major order. */
struct tile { int64_t pa, pa_end, pb, pb_end; float *sums; };

static void finish_tile(const struct gemm *g, const struct super *s, const struct tile *t) {
    enum { SPAN_MAX = TILE_PANELS_B * GEMM_NR_MAX };
    float values[SPAN_MAX], other[SPAN_MAX];
    int64_t mr = g->a.width, nr = g->b.width, col = s->n0 + t->pb * nr;
    int64_t cols = min64(t->pb_end * nr, s->n) - t->pb * nr, panels = t->pb_end - t->pb;
    for (int64_t i = t->pa * mr; i < min64(t->pa_end * mr, s->m); i++) {
        const float *from = t->sums + (i / mr - t->pa) * panels * mr * nr + i % mr * nr;
        for (int64_t p = 0; p < panels; p++)
            memcpy(values + p * nr, from + p * mr * nr, (size_t)nr * sizeof(float));
        finish_span(g, s->m0 + i, col, cols, values, other);
    }
}

/* Split-K: adds a part's sums to the totals of the parts before it, and begins the next part. */
static void end_part(float *sums, float *totals, int64_t n, bool is_first) {
    for (int64_t i = 0; i < n; i++) {
        totals[i] = is_first ? sums[i] : totals[i] + sums[i];
        sums[i] = 0.0f;
    }
}

static void compute_tile(const struct gemm *g, const struct super *s, int64_t index) {
    int64_t mr = g->a.width, nr = g->b.width, tiles_b = ceil_div(s->panels_b, g->tile_n);
    struct tile t;
    t.pa = index / tiles_b * g->tile_m;
    t.pb = index % tiles_b * g->tile_n;
    t.pa_end = min64(t.pa + g->tile_m, s->panels_a);
    t.pb_end = min64(t.pb + g->tile_n, s->panels_b);
    /* Tiles of one row of tiles are consecutive in the buffer. */
    t.sums = g->sums + (t.pa * s->panels_b + t.pb * (t.pa_end - t.pa)) * mr * nr;
    int64_t count = (t.pa_end - t.pa) * (t.pb_end - t.pb);
    int64_t floats = count * mr * nr;
    float *totals = g->totals + (t.sums - g->sums);
    if (s->first) memset(t.sums, 0, (size_t)floats * sizeof(float));
    for (int64_t k = 0, kn; k < s->k; k += kn) {
        kn = min64(K_CHUNK, s->k - k);
        if (g->part) kn = min64(kn, g->part - (s->k0 + k) % g->part);
        if (g->part && s->k0 + k > 0 && (s->k0 + k) % g->part == 0)
            end_part(t.sums, totals, floats, s->k0 + k == g->part);
        for (int64_t pb = t.pb; pb < t.pb_end; pb++)
            for (int64_t pa = t.pa; pa < t.pa_end; pa++)
                micro_tile(g, s, g->pack_a + pa * s->stride_a, g->pack_b + pb * s->stride_b, k, kn,
                           t.sums + ((pa - t.pa) * (t.pb_end - t.pb) + pb - t.pb) * mr * nr);
    }
    if (s->last && g->part)
        for (int64_t i = 0; i < floats; i++) t.sums[i] = totals[i] + t.sums[i];
    if (s->last) finish_tile(g, s, &t);
}

/* ---- super-blocks ---- */

static struct super super_at(const struct gemm *g, int64_t m0, int64_t n0, int64_t k0) {
    struct super s = { .m0 = m0, .n0 = n0, .k0 = k0 };
    s.m = min64(g->m_step, g->a.rows - m0);
    s.n = min64(g->n_step, g->b.rows - n0);
    s.k = min64(g->first && k0 == 0 ? g->first : g->k_step, g->a.k - k0);
    s.panels_a = ceil_div(s.m, g->a.width);
    s.panels_b = ceil_div(s.n, g->b.width);
    s.factors = g->way ? 2 * s.k : s.k;
    s.stride_a = row_floats(g, s.k) * g->a.width;
    s.stride_b = row_floats(g, s.k) * g->b.width;
    s.first = k0 == 0;
    s.last = k0 + s.k == g->a.k;
    return s;
}

/* Called by every thread of the parallel region. */
static void compute_super(const struct gemm *g, const struct super *s, float *scratch) {
    int64_t groups_a = ceil_div(s->panels_a, PACK_GROUP);
    int64_t groups = groups_a + ceil_div(s->panels_b, PACK_GROUP);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < groups; i++)
        pack_group(g, s, i >= groups_a, i < groups_a ? i : i - groups_a, scratch);
    int64_t tiles = ceil_div(s->panels_a, g->tile_m) * ceil_div(s->panels_b, g->tile_n);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < tiles; i++) compute_tile(g, s, i);
}

enum status cpu_matmul(struct backend *b, int lane, const struct matmul_args *args, struct err *e) {
    TRY(check_args(args, e));
    struct cpu_backend *cpu = cpu_of(b);
    struct mma_way way;
    bool mma = !arithmetic_is_reference(cpu->arithmetic);
    if (mma) TRY(arithmetic_way(cpu->arithmetic, args, &way, e));
    int64_t k = args->a->dim[1], block = scale_block(args->a->scale.kind);
    bool values = mma && !way.term; /* the tensor core's own micro-kernel adds */
    struct gemm g = {
        .args = args, .isa = cpu->isa, .way = mma ? &way : NULL,
        .block = values ? way.block : block,
        .last_factor = dtype_is_fp8(args->a->dtype) && !block,
        .part = mma && way.order.part < k ? way.order.part : 0,
        .first = mma && way.order.tile ? k % way.order.tile : 0,
        .a = { args->a, args->a->dim[0], k, block, values ? cpu->isa->mma_mr : cpu->isa->mr },
        .b = { args->b, args->b->dim[0], k, block, values ? cpu->isa->mma_nr : cpu->isa->nr },
        .pack_a = cpu->gemm_a, .pack_b = cpu->gemm_b, .sums = cpu->gemm_c,
    };
    plan(&g, cpu->threads);
#pragma omp parallel num_threads(cpu->threads)
    for (int64_t m0 = 0; m0 < g.a.rows; m0 += g.m_step)
        for (int64_t n0 = 0; n0 < g.b.rows; n0 += g.n_step) {
            int64_t k0 = 0;
            do { /* K may be 0: the sums are then 0 */
                struct super s = super_at(&g, m0, n0, k0);
                compute_super(&g, &s, cpu_scratch(b, omp_get_thread_num()));
                k0 += s.k;
            } while (k0 < k);
        }
    return OK;
}
