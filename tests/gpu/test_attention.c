/* Attention against the reference, forward and backward: every head dimension, grouped heads,
 * lengths around the tiles, with every kernel that can serve. The same call runs five times and
 * must give the same bits.
 *
 *   test_attention [short]    few and small shapes that still reach every kernel and every path,
 *                             for tools that slow down each access
 *
 * Bounds (NMSE): probabilities and score gradients are rounded to BF16 before they are multiplied
 * (2^-9 each, 1.3e-6 in NMSE), and outputs once more: 1e-5. Gradients of scores are differences of
 * such rounded numbers: 1e-4. A tensor within its bound may still have a wrong row. So each head's
 * row is also checked alone: 1e-3, relative to it and a mean row together, since the first rows'
 * gradients nearly vanish. In a simulation of these roundings no row exceeded 1.7e-4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention_rule.h"
#include "tests/gpu/pair.h"

enum { ROUNDS = 5 };
static const double ROW_MAX = 1e-3;

static struct pair *p;
static bool only_short;
static char *table; /* the choice table after the first test; owned */

static int close_pair(void **state) {
    pair_close(p);
    p = NULL;
    return 0;
}

/* Which keys a query sees: those of its document, of up to `most` tokens; of its last `window`
 * ones; 0: all up to itself. */
struct sight { int64_t most, window; };

/* The decisions are told apart by the shape: no two rows have the same. */
static const struct {
    int64_t batch, length, heads, kv_heads, dim;
    bool is_short;
    struct sight sight;
} CASES[] = {
    { 1, 1, 1, 1, 16, 0, { 0, 0 } },      { 2, 64, 2, 2, 32, 0, { 0, 0 } },
    { 1, 65, 4, 1, 64, 0, { 0, 0 } },     { 2, 127, 6, 2, 128, 0, { 0, 0 } },
    { 1, 128, 3, 3, 128, 0, { 0, 0 } },   { 1, 300, 4, 2, 64, 1, { 0, 0 } },
    { 3, 200, 2, 1, 32, 1, { 0, 0 } },    { 1, 513, 8, 2, 128, 0, { 0, 0 } },
    { 2, 90, 5, 5, 16, 1, { 0, 0 } },     { 1, 1000, 2, 2, 64, 0, { 0, 0 } },
    { 2, 4, 2, 1, 64, 0, { 0, 0 } },      { 1, 260, 8, 1, 128, 0, { 0, 0 } },
    { 1, 1156, 8, 2, 128, 0, { 0, 0 } },  { 2, 640, 4, 4, 64, 0, { 0, 0 } },
    { 1, 1540, 8, 1, 64, 0, { 0, 0 } },   { 1, 772, 3, 3, 128, 0, { 0, 0 } },
    { 2, 200, 4, 2, 128, 1, { 0, 0 } },
    /* documents shorter and longer than a tile, of one token; windows; both */
    { 2, 210, 4, 2, 128, 1, { 40, 0 } },  { 2, 310, 4, 2, 64, 1, { 150, 0 } },
    { 2, 220, 4, 2, 32, 1, { 90, 0 } },   { 1, 150, 2, 2, 64, 0, { 1, 0 } },
    { 1, 150, 2, 2, 16, 0, { 1, 0 } },    { 2, 1540, 8, 2, 128, 0, { 700, 0 } },
    { 2, 1541, 8, 2, 64, 0, { 700, 0 } }, { 1, 1000, 4, 4, 128, 0, { 0, 100 } },
    { 1, 1001, 4, 4, 64, 0, { 0, 256 } }, { 1, 900, 6, 3, 64, 0, { 300, 37 } },
    { 1, 901, 6, 3, 128, 0, { 300, 37 } },
};
enum { CASES_COUNT = sizeof CASES / sizeof *CASES };

static bool is_ranged(struct sight s) { return s.most || s.window; }

/* first_key [n,t], by a hash of the position. */
static struct twin first_key_of(int64_t n, int64_t t, struct sight sight) {
    struct twin x = pair_tensor(p, DTYPE_I32, n, t, 1, 1);
    int32_t *first = test_malloc((size_t)(n * t) * 4);
    for (int64_t i = 0; i < n; i++) {
        int64_t begin = 0, end = sight.most ? 0 : t;
        for (int64_t at = 0; at < t; at++) {
            if (at == end) {
                begin = at;
                end += 1 + (at * 7919 + i * 104729 + 3) % sight.most;
            }
            int64_t least = sight.window ? at - sight.window + 1 : 0;
            first[i * t + at] = (int32_t)(begin > least ? begin : least);
        }
    }
    pair_set(p, &x, first, n * t * 4);
    test_free(first);
    return x;
}

/* Every row of `dim` numbers alone: within ROW_MAX of itself and a mean row together. */
static void rows_near(const char *what, const struct twin *x, int64_t dim) {
    int64_t n = tensor_count(&x->side[CPU]), rows = n / dim;
    const uint16_t *want = x->side[CPU].data;
    uint16_t *got = test_malloc((size_t)n * 2);
    double size = 0;
    assert_int_equal(p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, got, x->side[GPU].data, n * 2,
                                           &p->e), OK);
    for (int64_t i = 0; i < n; i++) size += bf16_decode(want[i]) * bf16_decode(want[i]);
    for (int64_t row = 0; row < rows; row++) {
        double error = 0, own = 0;
        for (int64_t i = row * dim; i < (row + 1) * dim; i++) {
            double w = bf16_decode(want[i]), g = bf16_decode(got[i]);
            error += (g - w) * (g - w);
            own += w * w;
        }
        if (!(error <= ROW_MAX * (own + size / (double)rows)))
            fail_msg("%s: row %lld of %lld is off by %.3g of itself and a mean row", what,
                     (long long)row, (long long)rows, error / (own + size / (double)rows));
    }
    test_free(got);
}

/* The slot has the largest of the GPU's values (after cuDNN, from another pass). */
static void assert_amax(const char *what, const struct twin_sink *s) {
    int64_t n = tensor_count(&s->value.side[GPU]);
    uint16_t *value = test_malloc((size_t)n * 2);
    uint32_t amax = 0, largest = 0;
    struct backend *b = p->b[GPU];
    if (b->ops->download(b, LANE_COMPUTE, value, s->value.side[GPU].data, n * 2, &p->e) != OK ||
        b->ops->download(b, LANE_COMPUTE, &amax, s->amax.side[GPU].data, 4, &p->e) != OK)
        fail_msg("%s: %s", what, p->e.text);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)(value[i] & 0x7FFF) << 16;
        if (bits > largest) largest = bits;
    }
    if (amax != largest) fail_msg("%s: amax %08x of %08x", what, amax, largest);
    test_free(value);
}

/* The decision log has exactly one way for a case and direction; it is `way`, unless that is
 * NULL. */
static void assert_way(size_t i, const char *direction, const char *way) {
    struct decision d;
    int found = 0;
    char name[sizeof d.name];
    snprintf(name, sizeof name, "%lldx%lld, heads %lld/%lld of %lld", (long long)CASES[i].batch,
             (long long)CASES[i].length, (long long)CASES[i].heads, (long long)CASES[i].kv_heads,
             (long long)CASES[i].dim);
    for (int64_t at = 0; p->ops[GPU]->decision(p->b[GPU], at, &d); at++) {
        if (strcmp(d.name, name) != 0 || strcmp(d.direction, direction) != 0) continue;
        found++;
        if (way && strcmp(d.way, way) != 0)
            fail_msg("%s %s was served by %s, not %s", name, direction, d.way, way);
        if (way && !strcmp(way, "cudnn")) assert_string_equal(d.detail, "by the choice table");
    }
    assert_int_equal(found, 1);
}

/* Gradients of one round, with their amax and column sums. */
struct gradients { struct twin value, amax, sums; };

static struct gradients gradients_of(int64_t rows, int64_t width) {
    return (struct gradients){ pair_tensor(p, DTYPE_BF16, rows, width, 1, 1),
                               pair_tensor(p, DTYPE_U32, 1, 1, 1, 1),
                               pair_tensor(p, DTYPE_F32, width, 1, 1, 1) };
}
static struct sink sink_of(struct gradients *g, int side) {
    struct sink s = sink_value(&g->value.side[side], &g->amax.side[side]);
    s.sums = &g->sums.side[side];
    return s;
}

/* Compares amax and column sums with the reference's for the same values. Sums differ by their
 * order: a few thousand terms in f32, by two parts in 10^6 of their size. */
static void assert_observed(const char *what, struct gradients *g) {
    struct tensor *values = g->value.side;
    int64_t bytes = tensor_count(&values[GPU]) * 2;
    struct twin amax = pair_tensor(p, DTYPE_U32, 1, 1, 1, 1);
    struct twin sums = pair_tensor(p, DTYPE_F32, g->sums.side[GPU].dim[0], 1, 1, 1);
    struct sink again = sink_value(&values[CPU], &amax.side[CPU]);
    again.sums = &sums.side[CPU];
    if (p->ops[GPU]->download(p->b[GPU], 0, values[CPU].data, values[GPU].data, bytes, &p->e) !=
            OK ||
        p->ops[CPU]->quantise(p->b[CPU], 0, &again, &values[CPU], &p->e) != OK)
        fail_msg("%s: %s", what, p->e.text);
    amax.side[GPU] = g->amax.side[GPU];
    sums.side[GPU] = g->sums.side[GPU];
    pair_same(p, what, &amax);
    pair_near(p, what, &sums, 4e-12);
}

/* Runs one case with the named kernels for forward and backward; NULL: any. False if the choice
 * table names a plan that cuDNN does not offer. */
static bool one_case(size_t i, const char *forward, const char *backward) {
    int64_t n = CASES[i].batch, t = CASES[i].length, h = CASES[i].heads, g = CASES[i].kv_heads;
    int64_t d = CASES[i].dim, all = h + 2 * g;
    const char *way = forward ? forward : "any";
    struct twin qkv = pair_tensor(p, DTYPE_BF16, n, t, all, d);
    struct gradients d_qkv[ROUNDS];
    struct twin d_o = pair_tensor(p, DTYPE_BF16, n * t, h * d, 1, 1);
    struct twin lse = pair_tensor(p, DTYPE_F32, n, h, t, 1);
    struct twin delta = pair_tensor(p, DTYPE_F32, n, h, t, 1);
    struct twin first = first_key_of(n, t, CASES[i].sight);
    bool ranged = is_ranged(CASES[i].sight);
    struct twin_sink o;
    pair_sink(p, &o, n * t, h * d, DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE,
              (struct quant_rule){ QUANT_TE, 0, false }, false);
    pair_fill(p, &qkv, 31 + i, 2, 0.5f);
    pair_fill(p, &d_o, 32 + i, 2, 0.5f);
    if (p->ops[GPU]->attention_fwd(p->b[GPU], LANE_COMPUTE, &(struct attention_fwd_args){
            .o = &o.side[GPU], .lse = &lse.side[GPU], .qkv = &qkv.side[GPU],
            .first_key = ranged ? &first.side[GPU] : NULL, .heads = h,
            .kv_heads = g }, &p->e) == ERR_DEVICE &&
        strstr(p->e.text, "this cuDNN does not offer")) {
        pair_clear(p);
        return false;
    }
    ON_BOTH(p, ops->attention_fwd(b, LANE_COMPUTE, &(struct attention_fwd_args){
            .o = S(o), .lse = S(lse), .qkv = S(qkv), .first_key = ranged ? S(first) : NULL,
            .heads = h, .kv_heads = g }, e));
    int rounds = only_short ? 2 : ROUNDS;
    for (int round = 0; round < rounds; round++) {
        d_qkv[round] = gradients_of(n * t, all * d);
        for (int s = 0; s < SIDES; s++) { /* the reference runs once */
            struct sink to = sink_of(&d_qkv[round], s);
            if ((s == GPU || round == 0) &&
                (p->ops[s]->attention_bwd(p->b[s], LANE_COMPUTE, &(struct attention_bwd_args){
                    .d_qkv = &to, .delta = S(delta), .d_o = S(d_o), .o = S(o.value), .qkv = S(qkv),
                    .lse = S(lse), .first_key = ranged ? S(first) : NULL, .heads = h,
                    .kv_heads = g }, &p->e) != OK ||
                 p->ops[s]->sync(p->b[s], &p->e) != OK))
                fail_msg("attention_bwd: %s", p->e.text);
        }
    }
    char what[96];
    snprintf(what, sizeof what, "attention row %zu by %s: o", i, way);
    pair_near(p, what, &o.value, 1e-5);
    rows_near(what, &o.value, d);
    assert_amax(what, &o);
    pair_near(p, "attention lse", &lse, 1e-9);
    snprintf(what, sizeof what, "attention row %zu by %s: d_qkv", i, way);
    pair_near(p, what, &d_qkv[0].value, 1e-4);
    rows_near(what, &d_qkv[0].value, d);
    assert_observed(what, &d_qkv[0]);
    for (int round = 1; round < rounds; round++) {
        pair_same_on_gpu(p, &d_qkv[0].value, &d_qkv[round].value);
        pair_same_on_gpu(p, &d_qkv[0].sums, &d_qkv[round].sums);
    }
    assert_way(i, "forward", forward);
    assert_way(i, "backward", backward);
    pair_clear(p);
    return true;
}

static bool is_wanted(size_t i) { return CASES[i].is_short || !only_short; }

/* The kernels that this machine chooses. Leaves the table of its choices for the next tests. */
static void as_chosen(void **state) {
    p = pair_open();
    for (size_t i = 0; i < CASES_COUNT; i++)
        if (is_wanted(i)) assert_true(one_case(i, NULL, NULL));
    if (p->ops[GPU]->choices_save(p->b[GPU], &table, &p->e) != OK) fail_msg("%s", p->e.text);
}

/* The kernels for any device, even where others would be chosen. */
static void on_mma(void **state) {
    p = pair_open();
    if (p->ops[GPU]->assume_architecture(p->b[GPU], "sm_121", &p->e) != OK)
        fail_msg("%s", p->e.text);
    for (size_t i = 0; i < CASES_COUNT; i++)
        if (is_wanted(i)) assert_true(one_case(i, "mma", "mma"));
}

/* Loads the first test's table with this plan for every attention; the caller frees the result. */
static char *load_with_plan(const char *plan) {
    assert_non_null(table);
    char *text = choices_with("attention", table, plan);
    if (p->ops[GPU]->choices_load(p->b[GPU], text, &p->e) != OK) fail_msg("%s", p->e.text);
    return text;
}

/* Hopper's kernels wherever they can serve, even where cuDNN would be chosen. */
static void on_wgmma(void **state) {
    struct device_info info;
    p = pair_open();
    if (p->ops[GPU]->info(p->b[GPU], &info, &p->e) != OK) fail_msg("%s", p->e.text);
    if (strcmp(info.architecture, "sm_90") != 0) skip();
    free(load_with_plan("-"));
    for (size_t i = 0; i < CASES_COUNT; i++)
        if (is_wanted(i) && CASES[i].dim >= 64) assert_true(one_case(i, "wgmma", "wgmma"));
}

/* cuDNN's version; 0: it is not usable. The header of the first test's table has it. */
static int64_t cudnn_version(void) {
    struct device_info info;
    if (p->ops[GPU]->info(p->b[GPU], &info, &p->e) != OK) fail_msg("%s", p->e.text);
    bool known = !strcmp(info.architecture, "sm_90") || !strcmp(info.architecture, "sm_100");
    const char *at = known ? strstr(table, ", cudnn ") : NULL;
    return at ? atoll(at + strlen(", cudnn ")) : 0;
}

static bool may_have_plan(size_t i) {
    return is_wanted(i) && CASES[i].dim >= 64 && CASES[i].length >= 256 &&
           !is_ranged(CASES[i].sight);
}

/* Returns how many cases, not yet `done`, this plan served. The table must not change: nothing is
 * chosen; a plan of the table serves or is rejected. */
static int serve_by(int place, int engine, bool done[CASES_COUNT]) {
    char plan[32], *loaded, *saved = NULL;
    int served = 0;
    p = pair_open();
    snprintf(plan, sizeof plan, "%02x000000%02x000000", (unsigned)place, (unsigned)engine);
    loaded = load_with_plan(plan);
    for (size_t i = 0; i < CASES_COUNT; i++) {
        if (!may_have_plan(i) || done[i] || !one_case(i, "cudnn", NULL)) continue;
        done[i] = true;
        served++;
    }
    if (p->ops[GPU]->choices_save(p->b[GPU], &saved, &p->e) != OK) fail_msg("%s", p->e.text);
    assert_string_equal(saved, loaded);
    free(saved);
    free(loaded);
    close_pair(NULL);
    return served;
}

/* cuDNN wherever it has a plan, even where ours would be chosen. The test finds its plans by trying
 * names. */
static void on_cudnn(void **state) {
    enum { PLACES = 2, ENGINES = 16 };
    bool done[CASES_COUNT] = { false };
    int left = 0, served = 0;
    p = pair_open();
    int64_t version = cudnn_version();
    close_pair(NULL);
    for (size_t i = 0; i < CASES_COUNT; i++) /* an older one is asked for fewer lengths */
        left += may_have_plan(i) &&
                version >= cudnn_version_for(90, CUDNN_BF16_FORWARD, CASES[i].length);
    if (!left) skip();
    for (int at = 0; at < PLACES * ENGINES && served < left; at++)
        served += serve_by(at / ENGINES, at % ENGINES, done);
    print_message("    cuDNN served %d of %d cases\n", served, left);
    assert_true(served > 0);
}

/* One sequence and key/value head with more tiles of keys than an H200 has multiprocessors: a block
 * then has one tile. The first is the short one. */
struct long_case { int64_t length, heads, dim; struct sight sight; };
static const struct long_case LONG[] = {
    { 17024, 1, 128, { 0, 0 } },       { 24640, 4, 64, { 0, 0 } },
    { 17024, 1, 128, { 5000, 1000 } }, { 24640, 4, 64, { 9000, 0 } },
};
enum { LONGS = sizeof LONG / sizeof *LONG };

static int64_t long_count(const struct long_case *c) { return c->length * (c->heads + 2) * c->dim; }

/* Its gradients on a backend of its own, downloaded. Choices are loaded from *chosen, or stored
 * there if it is NULL. The caller frees both. */
static uint16_t *long_gradients(const struct long_case *c, const char *caps, const char *way,
                                char **chosen) {
    int64_t t = c->length, h = c->heads, dim = c->dim, bytes = long_count(c) * 2;
    uint16_t *host = test_malloc((size_t)bytes);
    struct decision d;
    p = pair_open();
    if (caps && p->ops[GPU]->assume_architecture(p->b[GPU], caps, &p->e) != OK)
        fail_msg("%s", p->e.text);
    if (*chosen && p->ops[GPU]->choices_load(p->b[GPU], *chosen, &p->e) != OK)
        fail_msg("%s", p->e.text);
    struct twin qkv = pair_tensor(p, DTYPE_BF16, 1, t, h + 2, dim);
    struct twin d_qkv = pair_tensor(p, DTYPE_BF16, 1, t, h + 2, dim);
    struct twin d_o = pair_tensor(p, DTYPE_BF16, t, h * dim, 1, 1);
    struct twin o = pair_tensor(p, DTYPE_BF16, t, h * dim, 1, 1);
    struct twin lse = pair_tensor(p, DTYPE_F32, 1, h, t, 1);
    struct twin delta = pair_tensor(p, DTYPE_F32, 1, h, t, 1);
    struct twin ranges = first_key_of(1, t, c->sight);
    const struct tensor *first = is_ranged(c->sight) ? &ranges.side[GPU] : NULL;
    pair_fill(p, &qkv, 51, 2, 0.5f);
    pair_fill(p, &d_o, 52, 2, 0.5f);
    struct backend *b = p->b[GPU];
    struct sink to = sink_value(&o.side[GPU], NULL), into = sink_value(&d_qkv.side[GPU], NULL);
    if (b->ops->attention_fwd(b, 0, &(struct attention_fwd_args){
            .o = &to, .lse = &lse.side[GPU], .qkv = &qkv.side[GPU], .first_key = first,
            .heads = h, .kv_heads = 1 }, &p->e) != OK ||
        b->ops->attention_bwd(b, 0, &(struct attention_bwd_args){
            .d_qkv = &into, .delta = &delta.side[GPU], .d_o = &d_o.side[GPU], .o = &o.side[GPU],
            .qkv = &qkv.side[GPU], .lse = &lse.side[GPU], .first_key = first, .heads = h,
            .kv_heads = 1 }, &p->e) != OK ||
        b->ops->download(b, 0, host, d_qkv.side[GPU].data, bytes, &p->e) != OK ||
        (!*chosen && b->ops->choices_save(b, chosen, &p->e) != OK))
        fail_msg("%s", p->e.text);
    for (int64_t i = 0; b->ops->decision(b, i, &d); i++)
        if (way && !strcmp(d.direction, "backward")) assert_string_equal(d.way, way);
    close_pair(NULL);
    return host;
}

static void long_sequences(void **state) {
    for (int k = 0; k < (only_short ? 1 : LONGS); k++) {
        const struct long_case *c = &LONG[k];
        char *chosen = NULL, *none = NULL;
        uint16_t *x = long_gradients(c, NULL, NULL, &chosen);
        uint16_t *again = long_gradients(c, NULL, NULL, &chosen);
        uint16_t *y = long_gradients(c, "sm_121", "mma", &none);
        double apart = 0.0, size = 0.0;
        assert_memory_equal(x, again, (size_t)long_count(c) * 2);
        for (int64_t i = 0; i < long_count(c); i++) {
            double u = bf16_decode(x[i]), v = bf16_decode(y[i]);
            apart += (u - v) * (u - v);
            size += v * v;
        }
        if (!(apart <= 1e-4 * size))
            fail_msg("%lld positions: NMSE %.3g of 1e-4", (long long)c->length, apart / size);
        test_free(x);
        test_free(again);
        test_free(y);
        free(chosen);
        free(none);
    }
}

/* first_key 0 everywhere gives the bits of a call without it, by our own kernels: cuDNN serves no
 * sequence this short. `caps`: the device to be, or NULL. */
static void whole_window(const char *caps, int64_t dim) {
    enum { N = 2, T = 250, HEADS = 4, KV = 2, ALL = HEADS + 2 * KV };
    const struct sight all = { 0, T };
    struct twin got[2][3];
    p = pair_open();
    if (caps && p->ops[GPU]->assume_architecture(p->b[GPU], caps, &p->e) != OK)
        fail_msg("%s", p->e.text);
    struct twin qkv = pair_tensor(p, DTYPE_BF16, N, T, ALL, dim);
    struct twin d_o = pair_tensor(p, DTYPE_BF16, N * T, HEADS * dim, 1, 1);
    struct twin delta = pair_tensor(p, DTYPE_F32, N, HEADS, T, 1);
    struct twin first = first_key_of(N, T, all);
    pair_fill(p, &qkv, 61, 2, 0.5f);
    pair_fill(p, &d_o, 62, 2, 0.5f);
    for (int ranged = 0; ranged < 2; ranged++) {
        struct twin *to = got[ranged];
        to[0] = pair_tensor(p, DTYPE_BF16, N * T, HEADS * dim, 1, 1);
        to[1] = pair_tensor(p, DTYPE_F32, N, HEADS, T, 1);
        to[2] = pair_tensor(p, DTYPE_BF16, N * T, ALL * dim, 1, 1);
        ON_GPU(p, ops->attention_fwd(b, LANE_COMPUTE, &(struct attention_fwd_args){
                .o = &(struct sink){ .value = S(to[0]), .keep_value = true }, .lse = S(to[1]),
                .qkv = S(qkv), .first_key = ranged ? S(first) : NULL, .heads = HEADS,
                .kv_heads = KV }, e));
        ON_GPU(p, ops->attention_bwd(b, LANE_COMPUTE, &(struct attention_bwd_args){
                .d_qkv = &(struct sink){ .value = S(to[2]), .keep_value = true },
                .delta = S(delta), .d_o = S(d_o), .o = S(to[0]), .qkv = S(qkv), .lse = S(to[1]),
                .first_key = ranged ? S(first) : NULL, .heads = HEADS, .kv_heads = KV }, e));
    }
    for (int i = 0; i < 3; i++) pair_same_on_gpu(p, &got[0][i], &got[1][i]);
    close_pair(NULL);
}

static void whole_windows(void **state) {
    for (int64_t dim = 16; dim <= 128; dim *= 2) {
        whole_window("sm_121", dim);
        if (dim >= 64) whole_window(NULL, dim);
    }
}

int main(int argc, char **argv) {
    only_short = argc > 1 && !strcmp(argv[1], "short");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(as_chosen, close_pair),
        cmocka_unit_test_teardown(on_mma, close_pair),
        cmocka_unit_test_teardown(on_wgmma, close_pair),
        cmocka_unit_test_teardown(on_cudnn, close_pair),
        cmocka_unit_test_teardown(long_sequences, close_pair),
        cmocka_unit_test_teardown(whole_windows, close_pair),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(table);
    return failed;
}
