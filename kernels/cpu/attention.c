/* Attention, forward. For query row i of a head, over its keys j = first_key[i]..i:
 *   s_j = (fma chain over D of q_d k_jd) * (1/sqrt D),   m = max s_j,
 *   p_j = exp(s_j - m),   l = sum16(p_j), p_j in lane j % 16,   lse = m + ln l,
 *   o_d = (fma chain over j of p_j v_jd, from +0) * (1/l) + 0.
 * FP8: s_j as its contract says; o_d = (fma chain of code(p_j * (1/l)) v_jd) * factors + 0. */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/attention.h"
#include "kernels/exactmath_f32.h"

/* Query rows of one head that share its packed keys: a thread's unit of work. */
enum { CHUNK = 256 };

/* The keys of a tile: begin .. end - 1. Column c is query row + c, which sees low[c] .. row + c. */
struct sight { int begin, end, row; int32_t low[GEMM_NR_MAX]; };

/* s [key][nr] in: chains; out: probabilities before division, 0 for keys that a query does not
 * see. */
static inline ALWAYS_INLINE void softmax_body(float *s, const struct sight *seen, int nr,
                                              float scale, float *max_out, float *total) {
    float max[GEMM_NR_MAX], lane[16][GEMM_NR_MAX];
    int32_t low[GEMM_NR_MAX];
    const int row = seen->row;
    memset(lane, 0, sizeof lane);
    memcpy(low, seen->low, sizeof low);
    for (int c = 0; c < nr; c++) max[c] = -INFINITY;
    for (int j = seen->begin; j < seen->end; j++)
        for (int c = 0; c < nr; c++) {
            float x = s[j * nr + c] * scale;
            s[j * nr + c] = x;
            x = ((j - row <= c) & (j >= low[c])) ? x : -INFINITY;
            max[c] = x > max[c] ? x : max[c];
        }
    for (int j = seen->begin; j < seen->end; j++)
        for (int c = 0; c < nr; c++) {
            float p = exact_expf(s[j * nr + c] - max[c]);
            p = ((j - row <= c) & (j >= low[c])) ? p : 0.0f;
            s[j * nr + c] = p;
            lane[j & 15][c] = lane[j & 15][c] + p;
        }
    for (int half = 8; half; half /= 2)
        for (int k = 0; k < half; k++)
            for (int c = 0; c < nr; c++) lane[k][c] = lane[k][c] + lane[k + half][c];
    memcpy(max_out, max, (size_t)nr * sizeof(float));
    memcpy(total, lane[0], (size_t)nr * sizeof(float));
}

/* The tile widths of the vector kernels as constants, so that a tile's row fills whole
 * registers. */
CLONES static void softmax_columns(const struct attention *a, float *s, const struct sight *seen,
                                   float *max, float *total) {
    if (a->nr == 32) softmax_body(s, seen, 32, a->score_scale, max, total);
    else if (a->nr == 16) softmax_body(s, seen, 16, a->score_scale, max, total);
    else softmax_body(s, seen, (int)a->nr, a->score_scale, max, total);
}

/* FP8: s <- the codes of s * inverse. n: columns that are queries. */
CLONES static void round_columns(const struct rounding *r, float *s, const struct sight *seen,
                                 int64_t nr, int64_t n, const float *inverse, struct tally *t) {
    for (int j = seen->begin; j < seen->end; j++)
        for (int c = 0; c < n; c++)
            if ((j - seen->row <= c) & (j >= seen->low[c]))
                s[j * nr + c] = rounding_apply(r, s[j * nr + c] * inverse[c], t);
}

struct forward {
    struct attention a;
    struct rounding p;
    const struct tensor *o;
    float *lse; /* [B,H,T] */
};

/* Floats of scratch: keys [T/mr][D][mr], values [D/mr][T][mr], scores [T][nr], queries, outputs. */
static int64_t forward_floats(const struct attention *a) {
    int64_t keys = a->keys_padded;
    return round_up(keys * a->head_dim, 16) + round_up(keys * a->dim_padded, 16) + keys * a->nr +
           2 * a->dim_padded * a->nr + 64;
}

/* Query rows [begin, end) of head h of sequence i. */
static void forward_chunk(const struct forward *f, int64_t i, int64_t h, int64_t begin, int64_t end,
                          float *scratch, struct tally *tally) {
    const struct attention *a = &f->a;
    int64_t group = h * a->kv_heads / a->heads, d = a->head_dim, mr = a->mr;
    int64_t base = first_key_of(a, i, begin) / mr * mr, held = end - base; /* keys of the chunk */
    float *keys = scratch, *values = keys + round_up(a->keys_padded * d, 16);
    float *scores = values + round_up(a->keys_padded * a->dim_padded, 16);
    float *queries = scores + a->keys_padded * a->nr, *out = queries + a->dim_padded * a->nr;
    struct rows k = { a->qkv, attention_at(a, i, base, a->heads + group), a->width, held };
    struct rows v = { a->qkv, attention_at(a, i, base, a->heads + a->kv_heads + group), a->width,
                      held };
    pack_panels_of_rows(a, keys, k);
    bool finite = pack_across(a, values, v);
    int64_t step = finite ? a->nr : 1;
    for (int64_t t = begin; t < end; t += step) {
        int64_t n = end - t < step ? end - t : step, low = first_key_of(a, i, t);
        int64_t panel = low / mr, panels = ceil_div(t + n, mr) - panel; /* of keys */
        float max[GEMM_NR_MAX], total[GEMM_NR_MAX], inverse[GEMM_NR_MAX];
        struct sight seen = { .begin = (int)low, .end = (int)(t + n), .row = (int)t };
        struct rows q = { a->qkv, attention_at(a, i, t, h), a->width, n };
        first_keys(a, i, t, n, seen.low);
        pack_columns(a, queries, a->nr, q);
        attention_multiply(a, scores + panel * mr * a->nr, keys + (panel * mr - base) * d, mr * d,
                           panels, queries, d);
        softmax_columns(a, scores, &seen, max, total);
        for (int64_t c = 0; c < n; c++) inverse[c] = 1.0f / total[c];
        if (f->p.given) {
            round_columns(&f->p, scores, &seen, a->nr, n, inverse, tally);
            for (int64_t c = 0; c < n; c++) inverse[c] = f->p.factor * a->factor;
        }
        attention_multiply(a, out, values + (low - base) * mr, mr * held, a->dim_padded / mr,
                           scores + low * a->nr, t + n - low);
        for (int64_t c = 0; c < n; c++)
            f->lse[(i * a->heads + h) * a->length + t + c] =
                f32_canonical(max[c] + exact_logf(total[c]));
        int64_t row = a->heads * d;
        struct rows o = { f->o, (i * a->length + t) * row + h * d, row, n };
        unpack_columns(a, o, out, inverse);
    }
}

enum status cpu_attention_fwd(struct backend *b, int lane, const struct attention_fwd_args *args,
                              struct err *e) {
    struct forward f;
    const struct sink *o = args->o;
    const struct tensor *lse = args->lse;
    int64_t heads = args->heads;
    TRY(attention_setup(&f.a, b, "attention_fwd", args->qkv, heads, args->kv_heads,
                        args->first_key, args->p != NULL, e));
    TRY(rounding_setup(&f.p, args->p, "attention_fwd: p", e));
    int64_t batch = f.a.batch, length = f.a.length;
    TRY(cpu_check_sink(o, "attention_fwd: o", batch * length, heads * f.a.head_dim, e));
    TRY(cpu_check_packed(lse, "attention_fwd: lse", IS_F32, batch, heads * length, e));
    if (exact_serves(b, &f.a)) {
        exact_attention_fwd(b, &f.a, o->value, lse->data);
        cpu_sink_emit(b, o);
        return OK;
    }
    if (forward_floats(&f.a) > SCRATCH_FLOATS)
        return FAIL(e, ERR_ARG, "attention_fwd: %lld rows of %lld exceed the scratch memory",
                    (long long)length, (long long)f.a.head_dim);
    struct tensor value = sink_rows(o, batch * length, heads * f.a.head_dim);
    f.o = &value;
    f.lse = lse->data;
    /* Later chunks have more keys, so they go first. */
    int64_t chunks = ceil_div(length, CHUNK), pieces = batch * heads * chunks;
    uint32_t amax = 0;
    uint64_t saturated = 0, flushed = 0;
    #pragma omp parallel for schedule(dynamic) num_threads(cpu_of(b)->threads) \
        reduction(max : amax) reduction(+ : saturated, flushed)
    for (int64_t piece = 0; piece < pieces; piece++) {
        struct tally tally = { 0 };
        int64_t chunk = chunks - 1 - piece / (batch * heads), head = piece % (batch * heads);
        int64_t begin = chunk * CHUNK, end = length < begin + CHUNK ? length : begin + CHUNK;
        forward_chunk(&f, head / heads, head % heads, begin, end,
                      cpu_scratch(b, omp_get_thread_num()), &tally);
        amax = amax > tally.amax ? amax : tally.amax;
        saturated += tally.saturated;
        flushed += tally.flushed;
    }
    rounding_add(&f.p, &(struct tally){ amax, saturated, flushed });
    cpu_sink_emit(b, o);
    return OK;
}
