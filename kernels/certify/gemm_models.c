/* A product on noise beside the published arithmetics, and the bound where none is known. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/certify/gemm_check.h"

/* K from which several threads share the samples of one order: each takes a millisecond. */
enum { SAMPLE_LONG = 1 << 15 };
enum { CLASS_SAMPLES = 24, SCALE_COLUMNS = 3 };

/* ---- one sampled output on the host ---- */

/* Operands of one output: a row of a and a row of w, decoded once for all arithmetics, with their
 * factors. */
struct sample {
    struct tensor a, w, out, bias, residual;
    struct matmul_args args;
    void *memory[4]; /* owned: values and factors of a, of w */
    float added[3];           /* what the three addends point to, as f32 */
};

static enum status open_row(const struct trial_operand *o, int64_t row, struct tensor *x,
                            void **values, void **factors, struct err *e) {
    int64_t blocks = o->view.scale.dim[1], each = dtype_bytes(o->view.scale.dtype);
    int64_t header = scale_is_nvfp4(o->view.scale.kind) ? SCALE_HEADER : 0;
    float *value = *values = malloc((size_t)o->k * sizeof *value);
    unsigned char *factor = *factors = calloc(1, (size_t)(SCALE_HEADER + 4 * (blocks + 1)));
    if (!value || !factor) return FAIL(e, ERR_MEMORY, "no memory for a sampled output");
    for (int64_t k = 0; k < o->k; k++) value[k] = trial_value(o, row, k);
    *x = tensor_2d(value, DTYPE_F32, 1, o->k);
    x->scale = o->view.scale;
    x->scale.data = factor;
    if (!o->factors) return OK;
    memcpy(factor, o->factors, (size_t)header);
    memcpy(factor + header, o->factors + header + trial_factor_index(o, row, 0) * each,
           (size_t)(blocks * each));
    return OK;
}

static void free_sample(struct sample *s) {
    for (int i = 0; i < 4; i++) free(s->memory[i]);
}

static enum status open_sample(const struct gemm_trial *t, int64_t row, int64_t col,
                               struct sample *s, struct err *e) {
    const struct certify_way *w = t->way;
    *s = (struct sample){ .added = { 0 } };
    enum status st = open_row(&t->a, row, &s->a, &s->memory[0], &s->memory[1], e);
    if (st == OK) st = open_row(&t->w, col, &s->w, &s->memory[2], &s->memory[3], e);
    for (int i = 0; i < 3; i++) s->added[i] = trial_added(t, (enum trial_addend)i, row, col);
    s->bias = tensor_1d(&s->added[ADD_BIAS], DTYPE_F32, 1);
    s->out = tensor_2d(&s->added[ADD_OUT], DTYPE_F32, 1, 1);
    s->residual = tensor_2d(&s->added[ADD_RESIDUAL], DTYPE_F32, 1, 1);
    s->args = (struct matmul_args){ .out = &s->out, .a = &s->a, .b = &s->w,
                                    .bias = w->bias ? &s->bias : NULL,
                                    .residual = w->residual ? &s->residual : NULL,
                                    .beta = w->beta ? 1.0f : 0.0f, .fast_accumulate = w->fast };
    return st;
}

/* The reference's chains, as the contract of matmul has them. */
static float reference_output(const struct gemm_trial *t, int64_t row, int64_t col) {
    int64_t block = trial_block(t->way->scale_a), length = block ? block : t->k;
    float total = 0.0f;
    for (int64_t k = 0; k < t->k; k += length) {
        float c = 0.0f;
        for (int64_t i = k; i < k + length && i < t->k; i++)
            c = fmaf(trial_value(&t->a, row, i), trial_value(&t->w, col, i), c);
        float s = trial_factor_at(&t->a, trial_factor_index(&t->a, row, k / length)) *
                  trial_factor_at(&t->w, trial_factor_index(&t->w, col, k / length));
        if (block) total = fmaf(c, s, total);
        else total = t->way->scale_a == SCALE_NONE ? c : c * s;
    }
    total *= trial_tensor_factor(t);
    if (t->way->bias) total += trial_added(t, ADD_BIAS, row, col);
    if (t->way->beta) total += trial_added(t, ADD_OUT, row, col);
    if (t->way->residual) total += trial_added(t, ADD_RESIDUAL, row, col);
    return total;
}

/* ---- classes ---- */

static bool same_bits(const struct gemm_trial *t, int i, int j, float x) {
    uint32_t bits;
    float got = gemm_trial_got(t, 0, i, j, &bits);
    if (x == 0.0f && got == 0.0f) return true;
    return bits == (t->way->out == DTYPE_F32 ? f32_bits(f32_canonical(x)) : bf16_encode(x));
}

/* The samples, made once for all orders. */
struct samples {
    struct sample at[CLASS_SAMPLES];
    int i[CLASS_SAMPLES], j[CLASS_SAMPLES], count;
};

static bool has_sample(const struct gemm_trial *t, const struct samples *s, int n,
                       const struct mma_way *way) {
    return same_bits(t, s->i[n], s->j[n], arithmetic_output(way, &s->at[n].args, 0, 0));
}

/* Most orders that are wrong are wrong in the first sample: the others are then not computed. */
static bool has_order(const struct gemm_trial *t, const struct samples *s,
                      const struct mma_way *way) {
    bool all = !s->count || has_sample(t, s, 0, way);
    if (!all) return false;
#pragma omp parallel for schedule(dynamic) reduction(&& : all) if (t->k >= SAMPLE_LONG)
    for (int n = 1; n < s->count; n++) all = all && has_sample(t, s, n, way);
    return all;
}

static void say_order(const struct mma_way *way, char *out, size_t size) {
    if (!way->mma.group) {
        snprintf(out, size, "the reference's");
        return;
    }
    const char *factors = !way->block ? ""
                          : way->factors == FACTOR_A_FIRST ? ", a's factor first"
                          : way->factors == FACTOR_B_FIRST ? ", b's factor first" : "";
    int n = way->order.chain ? snprintf(out, size, "chains of %lld", (long long)way->order.chain)
                             : snprintf(out, size, "one chain");
    if (n > 0 && (size_t)n < size && way->order.part)
        n += snprintf(out + n, size - (size_t)n, ", parts of %lld", (long long)way->order.part);
    if (n > 0 && (size_t)n < size && way->order.tile)
        n += snprintf(out + n, size - (size_t)n, ", the rest of a tile of %lld first",
                      (long long)way->order.tile);
    if (n > 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, "%s%s", factors,
                 way->term && way->fused ? ", addend fused" : "");
}

/* Split-K, with chains and without. */
static bool find_parts(const struct gemm_trial *t, const struct samples *s, struct mma_way *way) {
    static const int64_t UNITS[] = { 128, 64, 32 };
    enum { PARTS_MAX = 32 };
    for (int parts = 1; parts <= PARTS_MAX; parts++)
        for (size_t u = 0; u < (parts > 1 ? sizeof UNITS / sizeof *UNITS : 1); u++)
            for (int chains = 0; chains < (way->block ? 1 : 2); chains++) {
                int64_t part = round_up(ceil_div(t->k, parts), UNITS[u]);
                if (ceil_div(t->k, part) != parts) continue;
                if (!way->block) way->order.chain = chains ? 128 : 0;
                if (way->order.chain && part % way->order.chain) continue;
                way->order.part = parts > 1 ? part : 0;
                if (has_order(t, s, way)) return true;
            }
    return false;
}

/* NVFP4: in parts or not. What is added may be in one rounding with the tensors' factor, as in
 * CUTLASS's epilogue. */
static bool find_terms(const struct gemm_trial *t, const struct samples *s, struct mma_way *way) {
    bool adds = t->way->beta || t->way->residual;
    for (int fused = 0; fused <= adds; fused++) {
        way->order = (struct k_order){ 0 };
        way->fused = fused;
        if (has_order(t, s, way) || find_parts(t, s, way)) return true;
    }
    return false;
}

/* BF16 rows that are not aligned: the rest of a tile comes first, in instructions of 8 or 16. */
static bool find_tile(const struct gemm_trial *t, const struct samples *s, struct mma_way *way) {
    way->order = (struct k_order){ 0 };
    for (int group = 8; group <= 16; group *= 2)
        for (int64_t tile = 16; tile <= 128; tile *= 2) {
            way->mma.group = group;
            way->order.tile = tile;
            if (has_order(t, s, way)) return true;
        }
    return false;
}

static bool has_reference(const struct gemm_trial *t, const struct samples *s) {
    for (int n = 0; n < s->count; n++)
        if (!same_bits(t, s->i[n], s->j[n], reference_output(t, t->row[s->i[n]],
                                                             t->col[s->j[n]])))
            return false;
    return true;
}

/* What a product is compared with: one arithmetic, and what it found. */
struct model {
    const struct arithmetic *of;
    struct mma_way way; /* where it agrees: with its order */
    bool describes, agrees;
};

/* The arithmetic's own way of this product. */
static void open_model(const struct gemm_trial *t, const struct arithmetic *of, bool native,
                       struct model *m) {
    struct err ignored;
    struct matmul_args whole = gemm_trial_args(t); /* the shape selects the class */
    *m = (struct model){ .of = of };
    enum status st = native ? arithmetic_way(of, &whole, &m->way, &ignored)
                            : arithmetic_way_as(of, &whole, false, &m->way, &ignored);
    m->describes = st == OK;
}

/* Looks for an order in which all samples have the bits. */
static void find_order(const struct gemm_trial *t, const struct samples *s, struct model *m) {
    struct mma_way *way = &m->way;
    if (arithmetic_is_reference(m->of)) {
        m->agrees = has_reference(t, s);
        return;
    }
    if (!m->describes) return;
    if (way->term) {
        m->agrees = find_terms(t, s, way);
        return;
    }
    m->agrees = has_order(t, s, way);
    for (int f = 0; f < SCALE_COLUMNS && !m->agrees && (way->block || way->last_factor); f++) {
        way->factors = (enum factor_order)f;
        m->agrees = has_order(t, s, way);
    }
    if (!m->agrees && !way->block) m->agrees = find_parts(t, s, way);
    if (!m->agrees && t->way->a == DTYPE_BF16) m->agrees = find_tile(t, s, way);
}

/* Where the device's order is known: only the arithmetic's own order and that one. */
static void try_order(const struct gemm_trial *t, const struct samples *s,
                      const struct mma_way *like, struct model *m) {
    if (arithmetic_is_reference(m->of)) m->agrees = has_reference(t, s);
    else if (m->describes) m->agrees = has_order(t, s, &m->way);
    if (m->agrees || !m->describes || arithmetic_is_reference(m->of)) return;
    if (m->way.block && m->way.block != like->order.chain) return;
    m->way.order = like->order;
    m->way.factors = like->factors;
    m->agrees = has_order(t, s, &m->way);
}

/* Whether a way that the backend states is one of the arithmetic m: its order may be another. */
static bool is_way_of(const struct mma_way *told, const struct model *m) {
    return m->describes && !told->mma.group == arithmetic_is_reference(m->of) &&
           told->mma.fraction == m->way.mma.fraction && told->mma.mantissa == m->way.mma.mantissa &&
           told->widened == m->way.widened && told->block == m->way.block &&
           told->term == m->way.term;
}

/* ---- the bound ---- */

/* The kind of an accumulator, and the bits that the narrowest published one keeps. Those of MXFP8
 * and NVFP4 have 25 and 35, but their sums are f32. */
struct kept { const char *kind; int bits; };
static struct kept kept_by(const struct gemm_trial *t, bool native) {
    int64_t block = trial_block(t->way->scale_a);
    if (!native || !dtype_is_fp8(t->way->a)) return (struct kept){ "BF16", 23 };
    if (block == 32) return (struct kept){ "MXFP8", 23 };
    return block == 16 ? (struct kept){ "NVFP4", 23 } : (struct kept){ "FP8", 13 };
}

/* How far an output may be from the exact one, on a device whose arithmetic is not known: the
 * narrowest published accumulator, in any order. */
static double bound_of(const struct gemm_trial *t, bool native, int64_t row, int64_t col,
                       double sum) {
    bool fp8 = native && dtype_is_fp8(t->way->a);
    const double cut = ldexp(1, -kept_by(t, native).bits);
    const int64_t group = fp8 ? 16 : 8;
    double all = 0, largest = 0, partial = 0, highest = 0, steps = 0, bound;
    double s_all = (double)trial_tensor_factor(t);
    for (int64_t k = 0; k < t->k; k++) {
        const struct trial_operand *o[] = { &t->a, &t->w };
        const int64_t at[] = { row, col };
        double product = 1;
        for (int i = 0; i < 2; i++) {
            int64_t block = trial_block(o[i]->view.scale.kind);
            product *= (double)trial_value(o[i], at[i], k) *
                       (double)trial_factor_at(o[i], o[i]->factors ?
                           trial_factor_index(o[i], at[i], block ? k / block : 0) : 0);
        }
        all += fabs(product);
        partial += product;
        if (fabs(product) > largest) largest = fabs(product);
        if (fabs(partial) > highest) highest = fabs(partial);
        if ((k + 1) % group == 0 || k + 1 == t->k) {
            steps += (double)(group + 2) * cut * (largest > 2 * highest ? largest : 2 * highest);
            largest = 0;
        }
    }
    bound = s_all * (steps + all * 0x1p-22);
    if (!native && trial_block(t->way->scale_a)) bound += s_all * all * 0x1p-7;
    double more = t->way->beta || t->way->residual || t->way->bias ? 9 : 0;
    return bound + (fabs(sum) + bound + more) * (t->way->out == DTYPE_F32 ? 0x1p-22 : 0x1p-7);
}

/* A sampled output beside the exact one. */
struct bounded {
    float got;
    double error, limit;
};

static struct bounded measure(const struct gemm_trial *t, bool native, int i, int j) {
    uint32_t bits;
    struct bounded b = { .got = gemm_trial_got(t, 0, i, j, &bits) };
    int64_t row = t->row[i], col = t->col[j];
    double sum = gemm_sum(t, row, col), exact = sum;
    b.limit = bound_of(t, native, row, col, sum);
    if (t->way->bias) exact += (double)trial_added(t, ADD_BIAS, row, col);
    if (t->way->beta) exact += (double)trial_added(t, ADD_OUT, row, col);
    if (t->way->residual) exact += (double)trial_added(t, ADD_RESIDUAL, row, col);
    b.error = fabs((double)b.got - exact);
    return b;
}

static void check_bound(const struct gemm_trial *t, bool native, struct certificate *out) {
    struct bounded found[TRIAL_ROWS * TRIAL_COLS];
    double worst = -1;
    int count = t->rows * t->cols;
#pragma omp parallel for schedule(static) if (t->k >= TRIAL_LONG)
    for (int n = 0; n < count; n++) found[n] = measure(t, native, n / t->cols, n % t->cols);
    for (int n = 0; n < count; n++) {
        const struct bounded *b = &found[n];
        double share = b->limit > 0 ? b->error / b->limit : b->error > 0 ? INFINITY : 0;
        if (share <= worst) continue; /* NaN is no number and replaces the worst */
        worst = share;
        out->error = b->error;
        out->bound = b->limit;
        if (!(share <= 1))
            certify_fail(out, "beyond the bound", "noise, %lld x %lld x %lld: row %lld, column "
                         "%lld is %.9g, %.3g from the exact sum; the bound is %.3g",
                         (long long)t->m, (long long)t->n, (long long)t->k,
                         (long long)t->row[n / t->cols], (long long)t->col[n % t->cols],
                         (double)b->got, b->error, b->limit);
        if (isnan(share)) return;
    }
}

/* ---- both ---- */

/* Whether kernels/EXACT.md knows the order along K: not of BF16 in place, nor of rows that are not
 * aligned, nor of NVFP4. */
static bool order_is_known(const struct gemm_trial *t) {
    const struct certify_way *w = t->way;
    bool bf16 = w->a == DTYPE_BF16;
    if (scale_is_nvfp4(w->scale_a)) return false;
    return !(bf16 && (t->k % 8 || t->n % 8 || t->m % 8)) && !(w->beta && w->out == DTYPE_BF16);
}

static enum status open_samples(const struct gemm_trial *t, struct samples *s, struct err *e) {
    int outputs = t->rows * t->cols, failed = 0;
    s->count = outputs < CLASS_SAMPLES ? outputs : CLASS_SAMPLES;
#pragma omp parallel for schedule(static) reduction(+ : failed) if (t->k >= SAMPLE_LONG)
    for (int n = 0; n < s->count; n++) {
        struct err ignored;
        int at = (int)((int64_t)n * outputs / s->count);
        s->i[n] = at / t->cols;
        s->j[n] = at % t->cols;
        failed += open_sample(t, t->row[s->i[n]], t->col[s->j[n]], &s->at[n], &ignored) != OK;
    }
    return failed ? FAIL(e, ERR_MEMORY, "no memory for sampled outputs") : OK;
}

enum { MODELS_MAX = 8 };

/* What is compared on noise. */
struct comparison {
    struct model model[MODELS_MAX];
    int count, known; /* known: the device's; -1: not known */
    struct mma_way told;
    bool tells, kept, demanded; /* the backend states `told`, and keeps its word */
};

static enum status open_comparison(struct gemm_trial *t, const struct arithmetic *known,
                                   bool native, struct comparison *c, struct err *e) {
    struct matmul_args args = gemm_trial_args(t);
    const struct arithmetic *m;
    *c = (struct comparison){ .known = -1 };
    for (int i = 0; i < MODELS_MAX && (m = arithmetic_at(i)); i++) {
        open_model(t, m, native, &c->model[i]);
        c->count = i + 1;
        if (m == known) c->known = i;
    }
    if (c->known >= 0) TRY(t->b->ops->product_way(t->b, &args, &c->told, &c->tells, e));
    c->demanded = c->known >= 0 && (c->tells || order_is_known(t));
    return OK;
}

/* The order that the backend states; without one, or if it is not true, any order. */
static void compare_known(const struct gemm_trial *t, const struct samples *s,
                          struct comparison *c) {
    struct model *m = &c->model[c->known];
    if (c->tells && is_way_of(&c->told, m) && has_order(t, s, &c->told)) {
        m->way = c->told;
        m->agrees = c->kept = true;
        return;
    }
    find_order(t, s, m);
}

/* Each arithmetic alone; the known one came before. */
static void compare_others(const struct gemm_trial *t, const struct samples *s,
                           struct comparison *c) {
    const struct model *known = c->known >= 0 ? &c->model[c->known] : NULL;
    struct mma_way like = known ? known->way : (struct mma_way){ .order.chain = 0 };
#pragma omp parallel for schedule(dynamic) if (t->k >= TRIAL_LONG)
    for (int i = 0; i < c->count; i++) {
        if (i == c->known) continue;
        if (known && known->agrees) try_order(t, s, &like, &c->model[i]);
        else find_order(t, s, &c->model[i]);
    }
}

static void demand(const struct gemm_trial *t, const struct comparison *c,
                   struct certificate *out) {
    const struct model *m = &c->model[c->known];
    char stated[sizeof out->order], where[160];
    if (m->agrees) snprintf(where, sizeof where, "with %s", out->order);
    else snprintf(where, sizeof where, "in no known order along K");
    if (c->tells) say_order(&c->told, stated, sizeof stated);
    if (c->tells && !c->kept)
        certify_fail(out, "other bits", "noise, %lld x %lld x %lld: the backend states %s, and "
                     "sampled outputs have the bits of %s %s; the largest error is %.3g",
                     (long long)t->m, (long long)t->n, (long long)t->k, stated, m->of->name, where,
                     out->error);
    else if (!m->agrees)
        certify_fail(out, "other bits", "noise, %lld x %lld x %lld: sampled outputs have the bits "
                     "of %s in no known order along K; the largest error is %.3g", (long long)t->m,
                     (long long)t->n, (long long)t->k, m->of->name, out->error);
    out->bound = 0;
    snprintf(out->reason, sizeof out->reason, "this device's arithmetic is %s, to the bit%s",
             m->of->name, c->tells ? ", in the order that the backend states" : "");
}

static void judge(const struct gemm_trial *t, const struct comparison *c, bool native,
                  struct certificate *out) {
    struct kept kept = kept_by(t, native);
    for (int i = 0; i < c->count; i++) {
        if (!c->model[i].agrees) continue;
        out->agreed |= 1u << i;
        if (i == c->known || !*out->order)
            say_order(&c->model[i].way, out->order, sizeof out->order);
    }
    check_bound(t, native, out);
    if (out->outcome == CERTIFY_FAILED) return;
    if (c->demanded) demand(t, c, out);
    else
        snprintf(out->reason, sizeof out->reason, "%s of %s: each group cut %d bits below its "
                 "largest term, in any order", kept.kind,
                 "the narrowest published accumulator", kept.bits);
}

enum status gemm_check_noise(struct gemm_trial *t, const struct arithmetic *known, bool native,
                             struct certificate *out, struct err *e) {
    struct samples s = { .count = 0 };
    struct comparison c;
    TRY(gemm_trial_run(t, 0, 0, e));
    out->outputs += (int64_t)t->rows * t->cols;
    TRY(open_comparison(t, known, native, &c, e));
    enum status st = open_samples(t, &s, e);
    if (st == OK) {
        if (c.known >= 0) compare_known(t, &s, &c);
        compare_others(t, &s, &c);
        judge(t, &c, native, out);
    }
    for (int n = 0; n < s.count; n++) free_sample(&s.at[n]);
    return st;
}
