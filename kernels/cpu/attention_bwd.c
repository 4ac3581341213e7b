/* Attention, backward. With s and the keys first_key[i] <= j <= i as in attention.c, for query row
 * i:
 *   p_ij = exp(s_ij - lse_i),   delta_i = sum16(do_i * o_i),
 *   dp_ij = fma chain over D of do_id v_jd,
 *   ds_ij = (p_ij * (dp_ij - delta_i)) * (1/sqrt D),
 *   dq_id = fma chain over j of ds_ij k_jd,
 *   dk_jd = fma chain of ds_ij q_id,   dv_jd = fma chain of p_ij do_id,   over the heads of the
 *   group in order and, within each, over i ascending. All chains start at +0; "+ 0" ends them.
 * FP8: the same of codes, with the factors and roundings of the contract in arguments.h.
 * One thread owns a key/value head of a sequence, so no other thread adds to its gradients. */
#include <omp.h>

#include "kernels/cpu/attention.h"
#include "kernels/exactmath_f32.h"

/* One tile of queries, a column each: query row + c sees the keys low[c] .. row + c. */
struct columns {
    int row;
    int32_t low[GEMM_NR_MAX];
    float lse[GEMM_NR_MAX], delta[GEMM_NR_MAX];
};

/* The keys begin .. end - 1. s: chains in, probabilities out. dp: chains in, ds out. Both
 * [key][nr], 0 for keys that a query does not see. */
static inline ALWAYS_INLINE void gradient_body(float *s, float *dp, int begin, int end, int nr,
                                               const struct attention *a,
                                          const struct columns *of) {
    const struct columns q = *of;
    const float scale = a->scale, score_scale = a->score_scale;
    for (int j = begin; j < end; j++)
        for (int c = 0; c < nr; c++) {
            float p = exact_expf(s[j * nr + c] * score_scale - q.lse[c]);
            float ds = (p * (dp[j * nr + c] - q.delta[c])) * scale;
            bool sees = (j - q.row <= c) & (j >= q.low[c]);
            s[j * nr + c] = sees ? p : 0.0f;
            dp[j * nr + c] = sees ? ds : 0.0f;
        }
}

CLONES static void gradient_columns(const struct attention *a, float *s, float *dp, int64_t begin,
                                    int64_t end, const struct columns *q) {
    if (a->nr == 32) gradient_body(s, dp, (int)begin, (int)end, 32, a, q);
    else if (a->nr == 16) gradient_body(s, dp, (int)begin, (int)end, 16, a, q);
    else gradient_body(s, dp, (int)begin, (int)end, (int)a->nr, a, q);
}

CLONES static float row_delta(const struct tensor *d_o, int64_t d_o_at, const struct tensor *o,
                              int64_t o_at, int64_t n, float factor, float *buffer) {
    attention_load(buffer, d_o, d_o_at, n);
    attention_load(buffer + n, o, o_at, n);
    return f32_canonical(sum16_dot(buffer, buffer + n, n) * factor);
}

/* out [rows][nr] = in [nr keys][nr]^T; keys from `keys` on are 0. */
static void transpose_panel(float *out, const float *in, int64_t rows, int64_t keys, int64_t nr) {
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < keys; j++) out[r * nr + j] = in[j * nr + r];
        for (int64_t j = keys; j < nr; j++) out[r * nr + j] = 0.0f;
    }
}

struct backward {
    struct attention a;
    struct rounding p, ds;
    float d_o_factor, delta_factor, kv_factor[2], q_factor; /* of dk and dv; of dq */
    const struct tensor *d_qkv, *d_o, *o;
    const float *lse;
    float *delta;
};

/* A thread's scratch. The k/v gradients are [T/nr][D/mr] micro-tiles, [D][nr] each, of dk^T,
 * dv^T. */
struct buffers {
    float *keys, *values;     /* [T/mr][D][mr] */
    float *keys_across;       /* [D/mr][T][mr] */
    float *dk, *dv;
    float *s, *dp;            /* [T][nr] */
    float *q, *d_o;           /* [D][nr] */
    float *q_across, *d_o_across; /* [D/mr][nr][mr] */
    float *panel_p, *panel_ds;    /* [nr][nr] */
    float *dq;                /* [D][nr] */
    bool finite;
};

/* The same of FP8, for the n columns that are queries. The others become 0. */
CLONES static void round_gradient(const struct backward *f, float *s, float *dp, int64_t begin,
                                  int64_t end, int64_t n, const struct columns *q,
                                  struct tally tally[2]) {
    const struct attention *a = &f->a;
    const float dp_factor = f->d_o_factor * a->factor;
    for (int64_t j = begin; j < end; j++)
        for (int64_t c = 0; c < a->nr; c++) {
            int64_t at = j * a->nr + c;
            bool sees = c < n && j - q->row <= c && j >= q->low[c];
            float p = exact_expf(s[at] * a->score_scale - q->lse[c]);
            float ds = (p * (dp[at] * dp_factor - q->delta[c])) * a->scale;
            s[at] = sees ? rounding_apply(&f->p, p, &tally[0]) : 0.0f;
            dp[at] = sees ? rounding_apply(&f->ds, ds, &tally[1]) : 0.0f;
        }
}

/* Divides the scratch; with base NULL it only counts. Returns the number of floats. */
static int64_t divide_scratch(struct buffers *u, const struct attention *a, float *base) {
    int64_t panels = ceil_div(a->length, a->nr), tile = a->dim_padded * a->nr;
    int64_t rows = a->keys_padded;
    struct { float **at; int64_t floats; } part[] = {
        { &u->keys, rows * a->head_dim },    { &u->values, rows * a->head_dim },
        { &u->keys_across, rows * a->dim_padded },
        { &u->dk, panels * tile },           { &u->dv, panels * tile },
        { &u->s, rows * a->nr },             { &u->dp, rows * a->nr },
        { &u->q, tile },                     { &u->d_o, tile },
        { &u->q_across, tile },              { &u->d_o_across, tile },
        { &u->panel_p, a->nr * a->nr },      { &u->panel_ds, a->nr * a->nr },
        { &u->dq, tile },
    };
    int64_t used = 0;
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
        *part[i].at = base ? base + used : NULL;
        used += round_up(part[i].floats, 16);
    }
    return used;
}

/* The finite case: micro-kernels over whole panels of keys, from a multiple of nr on. */
static void add_kv(const struct attention *a, struct buffers *u, int64_t n, int64_t begin,
                   int64_t seen) {
    int64_t nr = a->nr, mr = a->mr;
    for (int64_t j = begin; j < seen; j += nr) {
        int64_t keys = seen - j < nr ? seen - j : nr;
        transpose_panel(u->panel_p, u->s + j * nr, n, keys, nr);
        transpose_panel(u->panel_ds, u->dp + j * nr, n, keys, nr);
        for (int64_t d = 0; d < a->dim_padded; d += mr) {
            int64_t at = j * a->dim_padded + d * nr;
            a->isa->gemm(n, u->d_o_across + d * n, u->panel_p, u->dv + at);
            a->isa->gemm(n, u->q_across + d * n, u->panel_ds, u->dk + at);
        }
    }
}

/* One query row, exactly the keys it sees. q and d_o are [D][nr], column 0. */
CLONES static void add_kv_row(const struct attention *a, struct buffers *u, int64_t begin,
                              int64_t seen) {
    int64_t nr = a->nr;
    for (int64_t j = begin; j < seen; j++)
        for (int64_t d = 0; d < a->head_dim; d++) {
            int64_t at = j / nr * nr * a->dim_padded + d * nr + j % nr;
            u->dv[at] = __builtin_fmaf(u->s[j * nr], u->d_o[d * nr], u->dv[at]);
            u->dk[at] = __builtin_fmaf(u->dp[j * nr], u->q[d * nr], u->dk[at]);
        }
}

/* Query rows [t, t+n) of head h of sequence i. */
static void backward_tile(const struct backward *f, struct buffers *u, int64_t i, int64_t h,
                          int64_t t, int64_t n, struct tally tally[2]) {
    const struct attention *a = &f->a;
    int64_t d = a->head_dim, row = f->d_o->stride[0], mr = a->mr, seen = t + n;
    /* Keys from `low` on are seen, those from `begin` on are in a panel of add_kv with them. */
    int64_t low = first_key_of(a, i, t), begin = low / a->nr * a->nr;
    int64_t panel = begin / mr, panels = ceil_div(seen, mr) - panel;
    int64_t tile = panel * mr * a->nr; /* where those scores begin */
    struct rows q = { a->qkv, attention_at(a, i, t, h), a->width, n };
    struct rows d_o = { f->d_o, (i * a->length + t) * row + h * d, row, n };
    struct rows dq = { f->d_qkv, (i * a->length + t) * a->row + h * d, a->row, n };
    struct columns column = { .row = (int)t };
    float factor[GEMM_NR_MAX];
    int64_t o_at = (i * a->length + t) * f->o->stride[0] + h * d;
    first_keys(a, i, t, n, column.low);
    for (int64_t c = 0; c < n; c++) {
        int64_t at = (i * a->heads + h) * a->length + t + c;
        column.lse[c] = f->lse[at];
        f->delta[at] = row_delta(f->d_o, d_o.offset + c * row, f->o, o_at + c * f->o->stride[0],
                                 d, f->delta_factor, u->dq);
        column.delta[c] = f->delta[at];
    }
    for (int c = 0; c < GEMM_NR_MAX; c++) factor[c] = f->q_factor;
    pack_columns(a, u->q, a->nr, q);
    pack_columns(a, u->d_o, a->nr, d_o);
    attention_multiply(a, u->s + tile, u->keys + panel * mr * d, mr * d, panels, u->q, d);
    attention_multiply(a, u->dp + tile, u->values + panel * mr * d, mr * d, panels, u->d_o, d);
    if (f->p.given) round_gradient(f, u->s, u->dp, begin, seen, n, &column, tally);
    else gradient_columns(a, u->s, u->dp, begin, seen, &column);
    attention_multiply(a, u->dq, u->keys_across + low * mr, mr * a->length, a->dim_padded / mr,
                       u->dp + low * a->nr, seen - low);
    unpack_columns(a, dq, u->dq, factor);
    if (!u->finite) { add_kv_row(a, u, low, seen); return; }
    pack_across(a, u->q_across, q);
    pack_across(a, u->d_o_across, d_o);
    add_kv(a, u, n, begin, seen);
}

CLONES static bool rows_finite(const struct attention *a, struct rows r, float *buffer) {
    uint32_t max = 0;
    for (int64_t c = 0; c < r.n; c++) {
        attention_load(buffer, r.x, r.offset + c * r.stride, a->head_dim);
        for (int64_t d = 0; d < a->head_dim; d++) {
            uint32_t bits = f32_bits(buffer[d]) & 0x7FFFFFFFu;
            max = bits > max ? bits : max;
        }
    }
    return max < 0x7F800000u;
}

/* Key/value head g of sequence i, with all its query heads. */
static void backward_group(const struct backward *f, int64_t i, int64_t g, float *scratch,
                           struct tally tally[2]) {
    const struct attention *a = &f->a;
    struct buffers u;
    divide_scratch(&u, a, scratch);
    int64_t share = a->heads / a->kv_heads, d = a->head_dim, tile = a->dim_padded * a->nr;
    int64_t panels = ceil_div(a->length, a->nr), row = f->d_o->stride[0];
    struct rows k = { a->qkv, attention_at(a, i, 0, a->heads + g), a->width, a->length };
    struct rows v = { a->qkv, attention_at(a, i, 0, a->heads + a->kv_heads + g), a->width,
                      a->length };
    u.finite = pack_panels_of_rows(a, u.keys, k);
    u.finite = pack_panels_of_rows(a, u.values, v) && u.finite;
    pack_across(a, u.keys_across, k);
    memset(u.dk, 0, (size_t)(panels * tile) * sizeof(float));
    memset(u.dv, 0, (size_t)(panels * tile) * sizeof(float));
    for (int64_t h = g * share; h < (g + 1) * share; h++) {
        struct rows q = { a->qkv, attention_at(a, i, 0, h), a->width, a->length };
        struct rows d_o = { f->d_o, i * a->length * row + h * d, row, a->length };
        u.finite = u.finite && rows_finite(a, q, u.dq) && rows_finite(a, d_o, u.dq);
    }
    int64_t step = u.finite ? a->nr : 1;
    for (int64_t h = g * share; h < (g + 1) * share; h++)
        for (int64_t t = 0; t < a->length; t += step)
            backward_tile(f, &u, i, h, t, a->length - t < step ? a->length - t : step, tally);
    float factor[2][GEMM_NR_MAX]; /* of dk, of dv */
    for (int c = 0; c < GEMM_NR_MAX; c++)
        for (int kv = 0; kv < 2; kv++) factor[kv][c] = f->kv_factor[kv];
    int64_t out = i * a->length * a->row + (a->heads + g) * d;
    for (int64_t p = 0; p < panels; p++) {
        int64_t t = p * a->nr, n = a->length - t < a->nr ? a->length - t : a->nr;
        struct rows dk = { f->d_qkv, out + t * a->row, a->row, n };
        struct rows dv = { f->d_qkv, dk.offset + a->kv_heads * d, a->row, n };
        unpack_columns(a, dk, u.dk + p * tile, factor[0]);
        unpack_columns(a, dv, u.dv + p * tile, factor[1]);
    }
}

/* Checks the operands that differ in FP8, and the factors of the products. */
static enum status set_factors(struct backward *f, const struct attention_bwd_args *args,
                               int64_t rows, int64_t row, struct err *e) {
    bool fp8 = args->p != NULL;
    float o_factor;
    if (fp8 != (args->ds != NULL))
        return FAIL(e, ERR_ARG, "attention_bwd: FP8 needs the casts of p and of ds");
    TRY(rounding_setup(&f->p, args->p, "attention_bwd: p", e));
    TRY(rounding_setup(&f->ds, args->ds, "attention_bwd: ds", e));
    int act = fp8 ? IS_ACT : 1 << args->qkv->dtype;
    TRY(attention_check_rows(args->d_o, "attention_bwd: d_o", fp8 ? IS_E4M3 | IS_E5M2 : act, rows,
                             row, &f->d_o_factor, e));
    TRY(attention_check_rows(args->o, "attention_bwd: o", fp8 ? IS_E4M3 | act : act, rows, row,
                             &o_factor, e));
    f->d_o = args->d_o;
    f->o = args->o;
    f->delta_factor = f->d_o_factor * o_factor;
    f->q_factor = f->kv_factor[0] = f->ds.factor * f->a.factor;
    f->kv_factor[1] = f->p.factor * f->d_o_factor;
    return OK;
}

enum status cpu_attention_bwd(struct backend *b, int lane, const struct attention_bwd_args *args,
                              struct err *e) {
    struct backward f;
    const struct sink *d_qkv = args->d_qkv;
    const struct tensor *delta = args->delta, *lse = args->lse;
    int64_t heads = args->heads, kv_heads = args->kv_heads;
    TRY(attention_setup(&f.a, b, "attention_bwd", args->qkv, heads, kv_heads, args->first_key,
                        args->p != NULL, e));
    int64_t batch = f.a.batch, length = f.a.length, rows = batch * length;
    TRY(cpu_check_sink(d_qkv, "attention_bwd: d_qkv", rows, f.a.row, e));
    TRY(set_factors(&f, args, rows, heads * f.a.head_dim, e));
    TRY(cpu_check_packed(lse, "attention_bwd: lse", IS_F32, batch, heads * length, e));
    TRY(cpu_check_packed(delta, "attention_bwd: delta", IS_F32, batch, heads * length, e));
    if (exact_serves(b, &f.a)) {
        exact_attention_bwd(b, &f.a, &(struct exact_gradients){
            d_qkv->value, args->d_o, args->o, lse->data, delta->data });
        cpu_sink_emit(b, d_qkv);
        return OK;
    }
    struct buffers count;
    if (divide_scratch(&count, &f.a, NULL) > SCRATCH_FLOATS)
        return FAIL(e, ERR_ARG, "attention_bwd: %lld rows of %lld exceed the scratch memory",
                    (long long)length, (long long)f.a.head_dim);
    f.d_qkv = d_qkv->value;
    f.lse = lse->data;
    f.delta = delta->data;
    uint32_t amax = 0; /* of ds; forward has recorded that of p */
    uint64_t saturated = 0, flushed = 0;
    #pragma omp parallel for schedule(dynamic) num_threads(cpu_of(b)->threads) \
        reduction(max : amax) reduction(+ : saturated, flushed)
    for (int64_t piece = 0; piece < batch * kv_heads; piece++) {
        struct tally tally[2] = { { 0 }, { 0 } };
        backward_group(&f, piece / kv_heads, piece % kv_heads,
                       cpu_scratch(b, omp_get_thread_num()), tally);
        amax = amax > tally[1].amax ? amax : tally[1].amax;
        saturated += tally[1].saturated;
        flushed += tally[1].flushed;
    }
    rounding_add(&f.ds, &(struct tally){ amax, saturated, flushed });
    cpu_sink_emit(b, d_qkv);
    return OK;
}
