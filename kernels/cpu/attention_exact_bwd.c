/* The backward of our GPU kernels, tile by tile: gradients of keys and values, then of queries.
 * Both passes compute the scores they need again. */
#include "kernels/cpu/attention_exact.h"

#include <math.h>
#include <omp.h>

#include "kernels/exactmath_f32.h"

/* ---- delta = sum over D of dO * O ---- */

/* On mma.sync lane l of a warp has elements 2l, 2l + 1 of each 64; lanes 16 apart are joined first.
 * On wgmma a lane has 8 elements that follow each other, and neighbours are joined first. */
static float row_delta(const struct exact *x, const float *d_o, const float *o) {
    enum { LANES = 32 };
    float lane[LANES] = { 0 };
    int64_t dim = x->a->head_dim, lanes = x->wgmma ? dim / 8 : LANES;
    for (int64_t d = 0; d < dim; d += 2) {
        int64_t l = x->wgmma ? d / 8 : d / 2 % LANES;
        lane[l] += d_o[d] * o[d] + d_o[d + 1] * o[d + 1];
    }
    for (int64_t n = lanes; n > 1; n /= 2)
        for (int64_t l = 0; l < n / 2; l++)
            lane[l] = x->wgmma ? lane[2 * l] + lane[2 * l + 1] : lane[l] + lane[l + n / 2];
    return lane[0];
}

static void head_delta(const struct exact *x, const struct exact_gradients *g, int64_t i,
                       int64_t h) {
    const struct attention *a = x->a;
    float d_o[128], o[128];
    for (int64_t t = 0; t < a->length; t++) {
        int64_t at = ((i * a->length + t) * a->heads + h) * a->head_dim;
        load_span(d_o, g->d_o, at, a->head_dim);
        load_span(o, g->o, at, a->head_dim);
        g->delta[(i * a->heads + h) * a->length + t] = row_delta(x, d_o, o);
    }
}

/* ---- scores to probabilities and their gradients ---- */

/* A tile's queries: what the kernels subtract, and the keys that each sees, relative to the tile of
 * keys: low .. high. Queries after the last have probability 0. */
struct sight {
    float lse[ATTENTION_KEYS], delta[ATTENTION_KEYS];
    int32_t low[ATTENTION_KEYS], high[ATTENTION_KEYS];
};

static void look(const struct exact *x, const struct exact_gradients *g, int64_t i, int64_t h,
                 int64_t row0, int64_t n, int64_t key0, struct sight *s) {
    const struct attention *a = x->a;
    for (int64_t c = 0; c < n; c++) {
        int64_t row = row0 + c, at = (i * a->heads + h) * a->length + row;
        bool there = row < a->length;
        s->lse[c] = there ? g->lse[at] * ATTENTION_LOG2_E : INFINITY;
        s->delta[c] = there ? g->delta[at] : 0.0f;
        s->low[c] = there ? (int32_t)(first_key_of(a, i, row) - key0) : 0;
        s->high[c] = (int32_t)(row - key0);
    }
}

/* One score p and its product ds of dO and v: in place, the probability and ds. */
static inline ALWAYS_INLINE void gradient(float *p, float *ds, bool seen, float lse, float delta,
                                          float scale_log2, bool wgmma) {
    float score = wgmma && !seen ? -INFINITY : *p;
    float q = exact_exp2f(fmaf(score, scale_log2, -lse));
    if (wgmma) q = bf16_decode(bf16_encode(q));
    else q = seen ? q : 0.0f;
    *p = q;
    *ds = q * (*ds - delta);
}

/* Rows are keys, first + i; columns are queries. */
CLONES static void key_rows(float *p, float *ds, int64_t rows, int64_t n, int64_t first,
                            const struct sight *s, float scale_log2, bool wgmma) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < n; c++) {
            bool seen = (first + i >= s->low[c]) & (first + i <= s->high[c]);
            gradient(&p[i * n + c], &ds[i * n + c], seen, s->lse[c], s->delta[c], scale_log2,
                     wgmma);
        }
}

/* Rows are queries, first + i; columns are keys. */
CLONES static void query_rows(float *p, float *ds, int64_t rows, int64_t n, int64_t first,
                              const struct sight *s, float scale_log2, bool wgmma) {
    for (int64_t i = 0; i < rows; i++) {
        int32_t low = s->low[first + i], high = s->high[first + i];
        float lse = s->lse[first + i], delta = s->delta[first + i];
        for (int64_t c = 0; c < n; c++)
            gradient(&p[i * n + c], &ds[i * n + c], (c >= low) & (c <= high), lse, delta,
                     scale_log2, wgmma);
    }
}

/* ---- a thread's tiles ---- */

/* Rows of one side, as left panels; of the other, as both kinds of right panels. */
struct tiles {
    struct exact_panels left[2];           /* k, v or q, dO: [rows / mr][D][mr] */
    struct exact_panels right[2];          /* q, dO or k, v: [n / nr][D][nr] */
    struct exact_panels across[2];         /* q, dO or k: [columns / nr][n][nr] */
    struct exact_panels p, ds;             /* [n][mr] */
    float *scores, *d_scores, *sums;       /* [mr][n] */
    float *first, *second;                 /* gradients: [rows / mr][columns / nr][mr][nr] */
};

/* 500,000 floats at most, of heads of 128. */
static struct tiles tiles_in(const struct exact *x, float *scratch) {
    int64_t used = 0, most = ATTENTION_KEYS, dim = x->a->head_dim;
    struct tiles t;
    for (int which = 0; which < 2; which++) {
        t.left[which] = exact_take_panels(scratch, &used, most * dim);
        t.right[which] = exact_take_panels(scratch, &used, most * dim);
        t.across[which] = exact_take_panels(scratch, &used, most * x->columns);
    }
    t.p = exact_take_panels(scratch, &used, most * x->mr);
    t.ds = exact_take_panels(scratch, &used, most * x->mr);
    t.scores = exact_take(scratch, &used, most * x->mr);
    t.d_scores = exact_take(scratch, &used, most * x->mr);
    t.sums = exact_take(scratch, &used, most * x->mr);
    t.first = exact_take(scratch, &used, most * x->columns);
    t.second = exact_take(scratch, &used, most * x->columns);
    return t;
}

static struct exact_panels panels_from(struct exact_panels p, int64_t at) {
    return (struct exact_panels){ p.value + at, p.exponent + at };
}

/* Rows t .. t + n - 1 of a head of qkv, and of dO: those that exist. */
static struct rows qkv_rows(const struct exact *x, int64_t i, int64_t t, int64_t head, int64_t n) {
    const struct attention *a = x->a;
    int64_t there = a->length - t < n ? a->length - t : n;
    return (struct rows){ a->qkv, attention_at(a, i, t, head), a->width, there };
}
static struct rows d_o_rows(const struct exact *x, const struct exact_gradients *g, int64_t i,
                            int64_t t, int64_t head, int64_t n) {
    const struct attention *a = x->a;
    int64_t stride = a->heads * a->head_dim, there = a->length - t < n ? a->length - t : n;
    return (struct rows){ g->d_o, (i * a->length + t) * stride + head * a->head_dim, stride,
                          there };
}

/* ---- keys and values ---- */

/* Adds what queries row0 .. of head h give to the gradients of `keys` keys. */
static void add_queries(const struct exact *x, const struct exact_gradients *g, struct tiles *t,
                        int64_t i, int64_t h, int64_t key0, int64_t keys, int64_t row0) {
    enum { N = ATTENTION_STEP };
    int64_t mr = x->mr, dim = x->a->head_dim, panels = x->columns / x->nr;
    struct sight s;
    struct rows q = qkv_rows(x, i, row0, h, N), d_o = d_o_rows(x, g, i, row0, h, N);
    exact_pack_rows(x, t->right[0], q, N, x->nr);
    exact_pack_rows(x, t->right[1], d_o, N, x->nr);
    exact_pack_across(x, t->across[0], q, N);
    exact_pack_across(x, t->across[1], d_o, N);
    look(x, g, i, h, row0, N, key0, &s);
    for (int64_t first = 0; first < keys; first += mr) {
        exact_scores(x, panels_from(t->left[0], first * dim), t->right[0], N, t->sums, t->scores);
        exact_scores(x, panels_from(t->left[1], first * dim), t->right[1], N, t->sums,
                     t->d_scores);
        key_rows(t->scores, t->d_scores, mr, N, first, &s, x->scale_log2, x->wgmma);
        exact_pack_left(x, t->p, t->scores, N);
        exact_pack_left(x, t->ds, t->d_scores, N);
        exact_add(x, N, t->p, t->across[1], panels, t->second + first * x->columns);
        exact_add(x, N, t->ds, t->across[0], panels, t->first + first * x->columns);
    }
}

/* How many tiles of queries see the keys from key0 on. They are those from the diagonal on: later
 * queries begin no earlier. */
static int64_t query_tiles(const struct attention *a, int64_t i, int64_t key0, int64_t keys) {
    int64_t n = 0;
    for (int64_t row0 = key0; row0 < a->length; row0 += ATTENTION_STEP, n++)
        if (first_key_of(a, i, row0) >= key0 + keys) break;
    return n;
}

/* The keys from key0 on, of key/value head `group`. */
static void keys_tile(const struct exact *x, const struct exact_gradients *g, struct tiles t,
                      int64_t i, int64_t group, int64_t key0) {
    const struct attention *a = x->a;
    int64_t keys = x->wgmma ? ATTENTION_KEYS : ATTENTION_MMA_TILE, share = a->heads / a->kv_heads;
    int64_t head = a->heads + group;
    struct rows k = qkv_rows(x, i, key0, head, keys);
    struct rows v = qkv_rows(x, i, key0, head + a->kv_heads, keys);
    float scale[ATTENTION_KEYS], one[ATTENTION_KEYS];
    exact_pack_rows(x, t.left[0], k, keys, x->mr);
    exact_pack_rows(x, t.left[1], v, keys, x->mr);
    memset(t.first, 0, (size_t)(keys * x->columns) * sizeof *t.first);
    memset(t.second, 0, (size_t)(keys * x->columns) * sizeof *t.second);
    int64_t tiles = query_tiles(a, i, key0, keys), all = tiles * share;
    for (int64_t n = 0; n < all; n++) {
        int64_t at = x->wgmma ? tiles - 1 - n / share : n % tiles;
        int64_t h = group * share + (x->wgmma ? n % share : n / tiles);
        add_queries(x, g, &t, i, h, key0, keys, key0 + at * ATTENTION_STEP);
    }
    k.x = v.x = g->d_qkv;
    for (int64_t c = 0; c < keys; c++) scale[c] = a->scale, one[c] = 1.0f;
    for (int64_t first = 0; first < k.n; first += x->mr) {
        exact_store(x, k, first, t.first + first * x->columns, scale + first);
        exact_store(x, v, first, t.second + first * x->columns, one + first);
    }
}

/* ---- queries ---- */

/* sums of one row panel <- its products with n keys, `add`ed as the kernels do. */
static void add_keys(const struct exact *x, const struct exact_gradients *g, struct tiles *t,
                     const struct sight *s, int64_t first, int64_t n, bool add) {
    int64_t mr = x->mr, dim = x->a->head_dim, panels = x->columns / x->nr, size = mr * x->columns;
    float *sums = t->first + first * x->columns;
    exact_scores(x, panels_from(t->left[0], first * dim), t->right[0], n, t->sums, t->scores);
    exact_scores(x, panels_from(t->left[1], first * dim), t->right[1], n, t->sums, t->d_scores);
    query_rows(t->scores, t->d_scores, mr, n, first, s, x->scale_log2, x->wgmma);
    exact_pack_left(x, t->ds, t->d_scores, n);
    if (!x->wgmma) {
        exact_add(x, n, t->ds, t->across[0], panels, sums);
        return;
    }
    memset(t->second, 0, (size_t)size * sizeof *t->second);
    exact_add(x, n, t->ds, t->across[0], panels, t->second);
    for (int64_t c = 0; c < size; c++) sums[c] = add ? sums[c] + t->second[c] : t->second[c];
}

/* The queries from row0 on, of head h. */
static void queries_tile(const struct exact *x, const struct exact_gradients *g, struct tiles t,
                         int64_t i, int64_t h, int64_t row0) {
    const struct attention *a = x->a;
    int64_t n = ATTENTION_STEP, keys = x->wgmma ? ATTENTION_KEYS : ATTENTION_MMA_TILE;
    int64_t head = a->heads + h * a->kv_heads / a->heads;
    int64_t from = first_key_of(a, i, row0) / keys, diagonal = row0 / keys;
    struct rows q = qkv_rows(x, i, row0, h, n);
    struct sight s;
    float scale[ATTENTION_STEP];
    exact_pack_rows(x, t.left[0], q, n, x->mr);
    exact_pack_rows(x, t.left[1], d_o_rows(x, g, i, row0, h, n), n, x->mr);
    memset(t.first, 0, (size_t)(n * x->columns) * sizeof *t.first);
    for (int64_t tile = from; tile <= diagonal; tile++) {
        int64_t key0 = tile * keys;
        struct rows k = qkv_rows(x, i, key0, head, keys);
        exact_pack_rows(x, t.right[0], k, keys, x->nr);
        exact_pack_rows(x, t.right[1], qkv_rows(x, i, key0, head + a->kv_heads, keys), keys,
                        x->nr);
        exact_pack_across(x, t.across[0], k, keys);
        look(x, g, i, h, row0, n, key0, &s);
        for (int64_t first = 0; first < q.n; first += x->mr)
            add_keys(x, g, &t, &s, first, keys, tile > from);
    }
    q.x = g->d_qkv;
    for (int64_t c = 0; c < n; c++) scale[c] = a->scale;
    for (int64_t first = 0; first < q.n; first += x->mr)
        exact_store(x, q, first, t.first + first * x->columns, scale + first);
}

void exact_attention_bwd(struct backend *b, const struct attention *a,
                         const struct exact_gradients *g) {
    struct exact x = exact_open(b, a);
    int threads = cpu_of(b)->threads;
    int64_t own = x.wgmma ? ATTENTION_KEYS : ATTENTION_MMA_TILE, heads = a->batch * a->heads;
    int64_t groups = a->batch * a->kv_heads, tiles = ceil_div(a->length, own);
    int64_t steps = ceil_div(a->length, ATTENTION_STEP);
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t head = 0; head < heads; head++)
        head_delta(&x, g, head / a->heads, head % a->heads);
    /* Early keys have more queries, so they go first; of queries, late ones. */
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t piece = 0; piece < tiles * groups; piece++) {
        struct tiles t = tiles_in(&x, cpu_scratch(b, omp_get_thread_num()));
        int64_t group = piece % groups;
        keys_tile(&x, g, t, group / a->kv_heads, group % a->kv_heads, piece / groups * own);
    }
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t piece = 0; piece < steps * heads; piece++) {
        struct tiles t = tiles_in(&x, cpu_scratch(b, omp_get_thread_num()));
        int64_t head = piece % heads;
        queries_tile(&x, g, t, head / a->heads, head % a->heads,
                     (steps - 1 - piece / heads) * ATTENTION_STEP);
    }
}
