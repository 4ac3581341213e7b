/* Attention, backward. With s and the keys first_key[i] <= j <= i as in attention.c, for query row
 * i:
 *   p_ij = exp(s_ij - lse_i),   delta_i = sum16(do_i * o_i),
 *   dp_ij = fma chain over D of do_id v_jd,
 *   ds_ij = (p_ij * (dp_ij - delta_i)) * (1/sqrt D),
 *   dq_id = fma chain over j of ds_ij k_jd,
 *   dk_jd = fma chain of ds_ij q_id,   dv_jd = fma chain of p_ij do_id,   over the heads of the
 *   group in order and, within each, over i ascending. All chains start at +0; "+ 0" ends them.
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
                                               float scale, const struct columns *of) {
    const struct columns q = *of;
    for (int j = begin; j < end; j++)
        for (int c = 0; c < nr; c++) {
            float p = exact_expf(s[j * nr + c] * scale - q.lse[c]);
            float ds = (p * (dp[j * nr + c] - q.delta[c])) * scale;
            bool sees = (j - q.row <= c) & (j >= q.low[c]);
            s[j * nr + c] = sees ? p : 0.0f;
            dp[j * nr + c] = sees ? ds : 0.0f;
        }
}

CLONES static void gradient_columns(const struct attention *a, float *s, float *dp, int64_t begin,
                                    int64_t end, const struct columns *q) {
    if (a->nr == 32) gradient_body(s, dp, (int)begin, (int)end, 32, a->scale, q);
    else if (a->nr == 16) gradient_body(s, dp, (int)begin, (int)end, 16, a->scale, q);
    else gradient_body(s, dp, (int)begin, (int)end, (int)a->nr, a->scale, q);
}

CLONES static float row_delta(const struct tensor *d_o, const struct tensor *o, int64_t at,
                              int64_t n, float *buffer) {
    load_span(buffer, d_o, at, n);
    load_span(buffer + n, o, at, n);
    return f32_canonical(sum16_dot(buffer, buffer + n, n));
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
                          int64_t t, int64_t n) {
    const struct attention *a = &f->a;
    int64_t d = a->head_dim, row = a->heads * d, mr = a->mr, seen = t + n;
    /* Keys from `low` on are seen, those from `begin` on are in a panel of add_kv with them. */
    int64_t low = first_key_of(a, i, t), begin = low / a->nr * a->nr;
    int64_t panel = begin / mr, panels = ceil_div(seen, mr) - panel;
    int64_t tile = panel * mr * a->nr; /* where those scores begin */
    struct rows q = { a->qkv, attention_at(a, i, t, h), a->width, n };
    struct rows d_o = { f->d_o, (i * a->length + t) * row + h * d, row, n };
    struct rows dq = { f->d_qkv, q.offset, a->width, n };
    struct columns column = { .row = (int)t };
    float one[GEMM_NR_MAX];
    first_keys(a, i, t, n, column.low);
    for (int64_t c = 0; c < n; c++) {
        int64_t at = (i * a->heads + h) * a->length + t + c;
        column.lse[c] = f->lse[at];
        f->delta[at] = row_delta(f->d_o, f->o, d_o.offset + c * row, d, u->dq);
        column.delta[c] = f->delta[at];
    }
    for (int c = 0; c < GEMM_NR_MAX; c++) one[c] = 1.0f;
    pack_columns(a, u->q, a->nr, q);
    pack_columns(a, u->d_o, a->nr, d_o);
    attention_multiply(a, u->s + tile, u->keys + panel * mr * d, mr * d, panels, u->q, d);
    attention_multiply(a, u->dp + tile, u->values + panel * mr * d, mr * d, panels, u->d_o, d);
    gradient_columns(a, u->s, u->dp, begin, seen, &column);
    attention_multiply(a, u->dq, u->keys_across + low * mr, mr * a->length, a->dim_padded / mr,
                       u->dp + low * a->nr, seen - low);
    unpack_columns(a, dq, u->dq, one);
    if (!u->finite) { add_kv_row(a, u, low, seen); return; }
    pack_across(a, u->q_across, q);
    pack_across(a, u->d_o_across, d_o);
    add_kv(a, u, n, begin, seen);
}

CLONES static bool rows_finite(const struct attention *a, struct rows r, float *buffer) {
    uint32_t max = 0;
    for (int64_t c = 0; c < r.n; c++) {
        load_span(buffer, r.x, r.offset + c * r.stride, a->head_dim);
        for (int64_t d = 0; d < a->head_dim; d++) {
            uint32_t bits = f32_bits(buffer[d]) & 0x7FFFFFFFu;
            max = bits > max ? bits : max;
        }
    }
    return max < 0x7F800000u;
}

/* Key/value head g of sequence i, with all its query heads. */
static void backward_group(const struct backward *f, int64_t i, int64_t g, float *scratch) {
    const struct attention *a = &f->a;
    struct buffers u;
    divide_scratch(&u, a, scratch);
    int64_t share = a->heads / a->kv_heads, d = a->head_dim, tile = a->dim_padded * a->nr;
    int64_t panels = ceil_div(a->length, a->nr), row = a->heads * d;
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
            backward_tile(f, &u, i, h, t, a->length - t < step ? a->length - t : step);
    float one[GEMM_NR_MAX];
    for (int c = 0; c < GEMM_NR_MAX; c++) one[c] = 1.0f;
    for (int64_t p = 0; p < panels; p++) {
        int64_t t = p * a->nr, n = a->length - t < a->nr ? a->length - t : a->nr;
        struct rows dk = { f->d_qkv, k.offset + t * a->width, a->width, n };
        struct rows dv = { f->d_qkv, v.offset + t * a->width, a->width, n };
        unpack_columns(a, dk, u.dk + p * tile, one);
        unpack_columns(a, dv, u.dv + p * tile, one);
    }
}

enum status cpu_attention_bwd(struct backend *b, int lane, const struct attention_bwd_args *args,
                              struct err *e) {
    struct backward f;
    const struct sink *d_qkv = args->d_qkv;
    const struct tensor *delta = args->delta, *d_o = args->d_o, *o = args->o, *lse = args->lse;
    int64_t heads = args->heads, kv_heads = args->kv_heads;
    TRY(attention_setup(&f.a, b, "attention_bwd", args->qkv, heads, kv_heads, args->first_key,
                        e));
    int64_t batch = f.a.batch, length = f.a.length, rows = batch * length;
    int64_t row = heads * f.a.head_dim;
    int act = 1 << args->qkv->dtype;
    TRY(cpu_check_sink(d_qkv, "attention_bwd: d_qkv", rows, f.a.width, e));
    TRY(cpu_check_packed(d_o, "attention_bwd: d_o", act, rows, row, e));
    TRY(cpu_check_packed(o, "attention_bwd: o", act, rows, row, e));
    TRY(cpu_check_packed(lse, "attention_bwd: lse", IS_F32, batch, heads * length, e));
    TRY(cpu_check_packed(delta, "attention_bwd: delta", IS_F32, batch, heads * length, e));
    struct buffers count;
    if (divide_scratch(&count, &f.a, NULL) > SCRATCH_FLOATS)
        return FAIL(e, ERR_ARG, "attention_bwd: %lld rows of %lld exceed the scratch memory",
                    (long long)length, (long long)f.a.head_dim);
    f.d_qkv = d_qkv->value;
    f.d_o = d_o;
    f.o = o;
    f.lse = lse->data;
    f.delta = delta->data;
    #pragma omp parallel for schedule(dynamic) num_threads(cpu_of(b)->threads)
    for (int64_t piece = 0; piece < batch * kv_heads; piece++)
        backward_group(&f, piece / kv_heads, piece % kv_heads,
                       cpu_scratch(b, omp_get_thread_num()));
    cpu_sink_emit(b, d_qkv);
    return OK;
}
