/* The forward of our GPU kernels, tile by tile, and what their backward shares. */
#include "kernels/cpu/attention_exact.h"

#include <math.h>
#include <omp.h>

#include "kernels/exactmath_f32.h"

bool exact_serves(struct backend *b, const struct attention *a) {
    bool head = a->head_dim == 16 || a->head_dim == 32 || a->head_dim == 64 || a->head_dim == 128;
    return !arithmetic_is_reference(cpu_of(b)->arithmetic) && a->qkv->dtype == DTYPE_BF16 && head;
}

struct exact exact_open(struct backend *b, const struct attention *a) {
    const struct arithmetic *m = cpu_of(b)->arithmetic;
    const struct isa *isa = cpu_of(b)->isa;
    return (struct exact){ .a = a, .isa = isa, .mma = m->bf16,
                           .wgmma = m->wgmma && a->head_dim >= 64,
                           .mr = isa->mma_mr, .nr = isa->mma_nr,
                           .columns = round_up(a->head_dim, isa->mma_nr),
                           .scale_log2 = a->scale * ATTENTION_LOG2_E };
}

/* ---- panels ---- */

float *exact_take(float *base, int64_t *used, int64_t n) {
    float *at = base + *used;
    *used += round_up(n, 16);
    return at;
}

struct exact_panels exact_take_panels(float *base, int64_t *used, int64_t n) {
    float *value = exact_take(base, used, n), *exponent = exact_take(base, used, n);
    return (struct exact_panels){ value, (int32_t *)exponent };
}

/* Row c of r, or zeros. */
static void load_row_of(const struct exact *x, struct rows r, int64_t c, float *row) {
    if (c < r.n) load_span(row, r.x, r.offset + c * r.stride, x->a->head_dim);
    else memset(row, 0, (size_t)x->a->head_dim * sizeof *row);
}

void exact_pack_rows(const struct exact *x, struct exact_panels to, struct rows r, int64_t count,
                     int64_t width) {
    float row[128];
    int64_t dim = x->a->head_dim;
    for (int64_t c = 0; c < count; c++) {
        float *out = to.value + c / width * width * dim + c % width;
        load_row_of(x, r, c, row);
        for (int64_t d = 0; d < dim; d++) out[d * width] = row[d];
    }
    x->isa->mma_exponents(MMA_LEAST, to.value, to.exponent, count * dim);
}

void exact_pack_across(const struct exact *x, struct exact_panels to, struct rows r,
                       int64_t count) {
    float row[128] = { 0 }; /* head dims after the last stay 0 */
    int64_t nr = x->nr;
    for (int64_t c = 0; c < count; c++) {
        load_row_of(x, r, c, row);
        for (int64_t d = 0; d < x->columns; d += nr)
            memcpy(to.value + d * count + c * nr, row + d, (size_t)nr * sizeof *row);
    }
    x->isa->mma_exponents(MMA_LEAST, to.value, to.exponent, count * x->columns);
}

CLONES static void round_across(float *out, const float *in, int64_t mr, int64_t n) {
    for (int64_t i = 0; i < mr; i++)
        for (int64_t c = 0; c < n; c++) out[c * mr + i] = bf16_decode(bf16_encode(in[i * n + c]));
}

void exact_pack_left(const struct exact *x, struct exact_panels to, const float *in, int64_t n) {
    round_across(to.value, in, x->mr, n);
    x->isa->mma_exponents(MMA_LEAST, to.value, to.exponent, n * x->mr);
}

void exact_add(const struct exact *x, int64_t k, struct exact_panels left,
               struct exact_panels right, int64_t panels, float *sums) {
    for (int64_t p = 0; p < panels; p++)
        x->isa->mma(&x->mma, k, left.value, left.exponent, right.value + p * k * x->nr,
                    right.exponent + p * k * x->nr, sums + p * x->mr * x->nr);
}

void exact_scores(const struct exact *x, struct exact_panels left, struct exact_panels right,
                  int64_t n, float *sums, float *out) {
    int64_t mr = x->mr, nr = x->nr;
    memset(sums, 0, (size_t)(mr * n) * sizeof *sums);
    exact_add(x, x->a->head_dim, left, right, n / nr, sums);
    for (int64_t p = 0; p < n / nr; p++)
        for (int64_t i = 0; i < mr; i++)
            memcpy(out + i * n + p * nr, sums + (p * mr + i) * nr, (size_t)nr * sizeof *out);
}

void exact_store(const struct exact *x, struct rows to, int64_t first, const float *sums,
                 const float *factor) {
    float row[128];
    for (int64_t i = 0; i < x->mr && first + i < to.n; i++) {
        for (int64_t d = 0; d < x->a->head_dim; d++)
            row[d] = sums[(d / x->nr * x->mr + i) * x->nr + d % x->nr] * factor[i];
        store_span(to.x, to.offset + (first + i) * to.stride, row, x->a->head_dim);
    }
}

/* ---- forward ---- */

/* A row's running maximum, and the sums of the four lanes that share it. */
struct row_so_far { float max, sum[ATTENTION_LANES]; };

/* Scores of n keys to probabilities under the new maximum. Keys outside [low, high] are not seen.
 * Returns the factor of earlier sums. ranged: a row may have seen no key yet. */
CLONES static float softmax_row(float *s, int64_t n, int64_t low, int64_t high, bool ranged,
                                float scale_log2, struct row_so_far *r) {
    float top = r->max, sum[ATTENTION_LANES] = { 0 };
    for (int64_t j = 0; j < n; j++) s[j] = ((j >= low) & (j <= high)) ? s[j] : -INFINITY;
    for (int64_t j = 0; j < n; j++) top = s[j] > top ? s[j] : top; /* NaN is never the maximum */
    float base = ranged && top == -INFINITY ? 0.0f : top, shift = base * scale_log2;
    float keep = exact_exp2f((r->max - base) * scale_log2);
    for (int64_t j = 0; j < n; j++) s[j] = exact_exp2f(fmaf(s[j], scale_log2, -shift));
    for (int64_t j = 0; j < n; j += 2 * ATTENTION_LANES)
        for (int i = 0; i < 2; i++)
            for (int lane = 0; lane < ATTENTION_LANES; lane++) sum[lane] += s[j + 2 * lane + i];
    r->max = top;
    for (int lane = 0; lane < ATTENTION_LANES; lane++)
        r->sum[lane] = fmaf(r->sum[lane], keep, sum[lane]);
    return keep;
}

/* A block of queries of one head. */
struct block {
    int64_t i, h, row0, n; /* sequence, head, rows */
    struct exact_panels q, k, v, p;
    struct row_so_far *row;
    float *out, *sums, *scores;
};

/* mr rows of the block, from `first` on, and a tile of keys from key0 on. */
static void forward_rows(const struct exact *x, const struct block *b, int64_t first, int64_t key0,
                         int64_t keys) {
    int64_t mr = x->mr, nr = x->nr, dim = x->a->head_dim, panels = x->columns / nr;
    struct exact_panels q = { b->q.value + first * dim, b->q.exponent + first * dim };
    float *out = b->out + first * x->columns;
    exact_scores(x, q, b->k, keys, b->sums, b->scores);
    for (int64_t i = 0; i < mr; i++) {
        int64_t row = b->row0 + first + i;
        int64_t low = row < x->a->length ? first_key_of(x->a, b->i, row) - key0 : 0;
        float keep = softmax_row(b->scores + i * keys, keys, low, row - key0, x->a->first_key,
                                 x->scale_log2, &b->row[first + i]);
        for (int64_t p = 0; p < panels; p++)
            for (int64_t c = 0; c < nr; c++) out[(p * mr + i) * nr + c] *= keep;
    }
    exact_pack_left(x, b->p, b->scores, keys);
    exact_add(x, keys, b->p, b->v, panels, out);
}

static void forward_finish(const struct exact *x, const struct block *b, const struct tensor *o,
                           float *lse) {
    const struct attention *a = x->a;
    int64_t stride = a->heads * a->head_dim;
    float inverse[ATTENTION_QUERIES];
    struct rows to = { o, (b->i * a->length + b->row0) * stride + b->h * a->head_dim, stride,
                       b->n };
    for (int64_t c = 0; c < ATTENTION_QUERIES; c++) {
        const struct row_so_far *r = &b->row[c];
        float sum = (r->sum[0] + r->sum[1]) + (r->sum[2] + r->sum[3]);
        inverse[c] = 1.0f / sum;
        if (c < b->n)
            lse[(b->i * a->heads + b->h) * a->length + b->row0 + c] =
                f32_canonical(r->max * a->scale + exact_logf(sum));
    }
    for (int64_t first = 0; first < b->n; first += x->mr)
        exact_store(x, to, first, b->out + first * x->columns, inverse + first);
}

static void forward_block(const struct exact *x, struct block b, const struct tensor *o,
                          float *lse) {
    const struct attention *a = x->a;
    int64_t group = b.h * a->kv_heads / a->heads, key_head = a->heads + group;
    int64_t keys = x->wgmma ? ATTENTION_WGMMA_KEYS : ATTENTION_MMA_KEYS;
    int64_t end = b.row0 + (x->wgmma ? ATTENTION_QUERIES : b.n);
    struct rows q = { a->qkv, attention_at(a, b.i, b.row0, b.h), a->width, b.n };
    exact_pack_rows(x, b.q, q, ATTENTION_QUERIES, x->mr);
    memset(b.out, 0, (size_t)(ATTENTION_QUERIES * x->columns) * sizeof *b.out);
    for (int64_t c = 0; c < ATTENTION_QUERIES; c++)
        b.row[c] = (struct row_so_far){ .max = -INFINITY };
    for (int64_t key0 = first_key_of(a, b.i, b.row0) / keys * keys; key0 < end; key0 += keys) {
        int64_t there = a->length - key0 < keys ? a->length - key0 : keys;
        struct rows k = { a->qkv, attention_at(a, b.i, key0, key_head), a->width, there };
        struct rows v = { a->qkv, attention_at(a, b.i, key0, key_head + a->kv_heads), a->width,
                          there };
        exact_pack_rows(x, b.k, k, keys, x->nr);
        exact_pack_across(x, b.v, v, keys);
        for (int64_t first = 0; first < b.n; first += x->mr)
            forward_rows(x, &b, first, key0, keys);
    }
    forward_finish(x, &b, o, lse);
}

/* Divides a thread's scratch memory: 300,000 floats at most, of heads of 128. */
static struct block block_in(const struct exact *x, float *scratch) {
    int64_t used = 0, keys = ATTENTION_WGMMA_KEYS, dim = x->a->head_dim;
    struct block b = { .q = exact_take_panels(scratch, &used, ATTENTION_QUERIES * dim) };
    b.k = exact_take_panels(scratch, &used, keys * dim);
    b.v = exact_take_panels(scratch, &used, keys * x->columns);
    b.p = exact_take_panels(scratch, &used, keys * x->mr);
    b.row = (struct row_so_far *)exact_take(scratch, &used, ATTENTION_QUERIES * 5);
    b.out = exact_take(scratch, &used, ATTENTION_QUERIES * x->columns);
    b.sums = exact_take(scratch, &used, x->mr * keys);
    b.scores = exact_take(scratch, &used, x->mr * keys);
    return b;
}

void exact_attention_fwd(struct backend *b, const struct attention *a, const struct tensor *o,
                         float *lse) {
    struct exact x = exact_open(b, a);
    int64_t blocks = ceil_div(a->length, ATTENTION_QUERIES), heads = a->batch * a->heads;
    /* Later blocks have more keys, so they go first. */
    #pragma omp parallel for schedule(dynamic) num_threads(cpu_of(b)->threads)
    for (int64_t piece = 0; piece < blocks * heads; piece++) {
        struct block block = block_in(&x, cpu_scratch(b, omp_get_thread_num()));
        int64_t head = piece % heads;
        block.row0 = (blocks - 1 - piece / heads) * ATTENTION_QUERIES;
        block.n = a->length - block.row0 < ATTENTION_QUERIES ? a->length - block.row0
                                                             : ATTENTION_QUERIES;
        block.i = head / a->heads;
        block.h = head % a->heads;
        forward_block(&x, block, o, lse);
    }
}
