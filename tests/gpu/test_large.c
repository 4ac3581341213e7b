/* Every operator family on more than 2^31 elements: a narrower index would write to another place.
 * Rows are independent, so the CPU backend computes some of them again, from the same inputs by
 * element number. These are the first rows, those around element 2^31, and the last. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/rng.h"
#include "tests/gpu/pair.h"

enum { HEADS = 16, KV = 4, VOCAB = 50000 };
#include "tests/gpu/operators.h"

enum { ARGS_MAX = 10, SLICE = 4, SLICES = 3, DIM = 64, T = 256, WIDE = (HEADS + 2 * KV) * DIM };
static const int64_t LIMIT = (int64_t)1 << 31;

#define H DTYPE_BF16
#define F DTYPE_F32
#define I DTYPE_I32

/* An argument: [d1, d2, d3] for each row, or shared by all rows, then d0 is its number of rows. */
enum role { IN, OUT, SHARED };
struct argument { enum role role; enum dtype t; int64_t d[4]; };
struct row {
    const char *name;
    operator_call call;
    struct argument arg[ARGS_MAX];
    double nmse_max; /* 0: to the bit */
};

#define ROW(role, t, cols) { role, t, { 0, cols, 1, 1 } }
#define VALUE(role, t) { role, t, { 0, 1, 1, 1 } }
#define GAIN(t, n) { SHARED, t, { n, 1, 1, 1 } }
#define QKV(role) { role, H, { 0, T, HEADS + 2 * KV, DIM } }

/* Bounds of BF16 outputs as in test_ops.c; f32 outputs have F32_NEAR. */
static const double NEAR = 1e-6, LOGITS_NEAR = 2e-6, F32_NEAR = 1e-10;
static const struct row ROWS[] = {
    { "copy", copy, { ROW(OUT, F, 4096), ROW(IN, H, 4096) }, 0 },
    { "add", add, { ROW(OUT, F, 4096), ROW(IN, H, 4096) }, 0 },
    { "swiglu_fwd", swiglu_fwd, { ROW(OUT, H, 2048), ROW(IN, H, 4096) }, NEAR },
    { "swiglu_bwd", swiglu_bwd, { ROW(OUT, H, 4096), ROW(IN, H, 2048), ROW(IN, H, 4096) }, NEAR },
    { "gelu_fwd", gelu_fwd, { ROW(OUT, H, 4096), ROW(IN, H, 4096) }, NEAR },
    { "gelu_bwd", gelu_bwd, { ROW(OUT, H, 4096), ROW(IN, H, 4096), ROW(IN, H, 4096) }, NEAR },
    { "rmsnorm_fwd", rmsnorm_fwd, { ROW(OUT, H, 4096), VALUE(OUT, F), ROW(IN, H, 4096),
                                    GAIN(H, 4096) }, NEAR },
    { "layernorm_fwd", layernorm_fwd, { ROW(OUT, H, 4096), VALUE(OUT, F), VALUE(OUT, F),
                                        ROW(IN, H, 4096), GAIN(H, 4096), GAIN(H, 4096) }, NEAR },
    { "rmsnorm_bwd", rmsnorm_bwd, { ROW(OUT, H, 4096), GAIN(F, 4096), ROW(IN, H, 4096),
                                    ROW(IN, H, 4096), GAIN(H, 4096), VALUE(IN, F),
                                    ROW(IN, H, 4096) }, NEAR },
    { "layernorm_bwd", layernorm_bwd, { ROW(OUT, H, 4096), GAIN(F, 4096), GAIN(F, 4096),
                                        ROW(IN, H, 4096), ROW(IN, H, 4096), GAIN(H, 4096),
                                        VALUE(IN, F), VALUE(IN, F), ROW(IN, H, 4096) }, NEAR },
    { "embedding_fwd", embedding_fwd, { ROW(OUT, H, 4096), VALUE(IN, I),
                                        { SHARED, H, { 64, 4096, 1, 1 } },
                                        { SHARED, H, { SLICE, 4096, 1, 1 } } }, 0 },
    { "cross_entropy", cross_entropy, { VALUE(OUT, F), ROW(OUT, H, VOCAB + 48),
                                        ROW(IN, H, VOCAB + 48), VALUE(IN, I), GAIN(F, 1) },
      LOGITS_NEAR },
    { "qk_fwd", qk_fwd, { QKV(OUT), { OUT, F, { 0, T, HEADS + KV, 1 } }, QKV(IN), GAIN(H, DIM),
                          GAIN(H, DIM), { SHARED, F, { T, DIM, 1, 1 } } }, NEAR },
    { "qk_bwd", qk_bwd, { { OUT, H, { 0, T, HEADS + 2 * KV, DIM } }, GAIN(F, DIM), GAIN(F, DIM),
                          QKV(IN), QKV(IN), GAIN(H, DIM), GAIN(H, DIM),
                          { IN, F, { 0, T, HEADS + KV, 1 } }, { SHARED, F, { T, DIM, 1, 1 } } },
      NEAR },
    { "fill_normal", fill_normal, { ROW(OUT, H, 4096) }, 0 },
};

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

/* ---- one side's arguments: rows [first, first + rows) of the whole ---- */

static struct tensor allocate(int side, enum dtype t, const int64_t d[4]) {
    void *data;
    int64_t n = d[0] * d[1] * d[2] * d[3];
    if (p->ops[side]->memory_create(p->b[side], "a test", n * dtype_bytes(t), &data, &p->e) != OK)
        fail_msg("%s", p->e.text);
    assert_true(p->count < PAIR_MEMORY_MAX);
    p->memory[side][p->count] = data;
    p->memory[!side][p->count++] = NULL;
    return tensor_make(data, t, d[0], d[1], d[2], d[3]);
}

/* Tokens and targets: below 64, by row number. */
static void fill_tokens(int side, struct tensor *x, int64_t first) {
    int32_t *host = malloc((size_t)x->dim[0] * sizeof *host);
    assert_non_null(host);
    for (int64_t i = 0; i < x->dim[0]; i++)
        host[i] = (int32_t)(rng_mix((uint64_t)(first + i)) % 64);
    if (p->ops[side]->upload(p->b[side], LANE_COMPUTE, x->data, host, x->dim[0] * 4, &p->e) != OK)
        fail_msg("%s", p->e.text);
    free(host);
}

static struct tensor make_arg(int side, const struct argument *a, int which, int64_t first,
                              int64_t rows) {
    bool shared = a->role == SHARED;
    const int64_t d[4] = { shared ? a->d[0] : rows, a->d[1], a->d[2], a->d[3] };
    int64_t base = shared ? 0 : first * a->d[1] * a->d[2] * a->d[3];
    struct tensor x = allocate(side, a->t, d);
    if (a->t == I) fill_tokens(side, &x, first);
    else if (a->role != OUT || a->t == F) /* some operators add to the old value */
        if (p->ops[side]->fill_normal(p->b[side], LANE_COMPUTE, &x, 1, 7, (uint32_t)which, base,
                                      &p->e) != OK)
            fail_msg("%s", p->e.text);
    return x;
}

static int64_t row_elements(const struct argument *a) { return a->d[1] * a->d[2] * a->d[3]; }

/* ---- comparing one slice ---- */

static void same_slice(const struct row *row, int which, const struct tensor *whole,
                       const struct tensor *cpu, int64_t first) {
    int64_t n = tensor_count(cpu), size = dtype_bytes(cpu->dtype);
    struct tensor slice = *cpu;
    char what[96];
    slice.data = (char *)whole->data + first * row_elements(&row->arg[which]) * size;
    struct twin x = { { *cpu, slice } };
    snprintf(what, sizeof what, "%s, argument %d, %lld elements from row %lld", row->name, which,
             (long long)n, (long long)first);
    if (row->nmse_max == 0) pair_same(p, what, &x);
    else pair_near(p, what, &x, cpu->dtype == F ? F32_NEAR : row->nmse_max);
}

static void run_slice(const struct row *row, int n, const struct tensor *whole, int64_t first) {
    struct tensor arg[ARGS_MAX], *t[ARGS_MAX] = { NULL };
    for (int i = 0; i < n; i++) {
        arg[i] = make_arg(CPU, &row->arg[i], i, first, SLICE);
        t[i] = &arg[i];
    }
    if (row->call == fill_normal) /* has element numbers of its own */
        assert_int_equal(p->ops[CPU]->fill_normal(p->b[CPU], 0, t[0], 1, 1, 1,
                                                  first * row_elements(&row->arg[0]), &p->e), OK);
    else if (row->call(p->b[CPU], t, &p->e) != OK) fail_msg("%s: %s", row->name, p->e.text);
    for (int i = 0; i < n; i++)
        if (row->arg[i].role == OUT) same_slice(row, i, &whole[i], &arg[i], first);
}

static void check(const struct row *row) {
    struct tensor whole[ARGS_MAX], *t[ARGS_MAX] = { NULL };
    int64_t widest = 0;
    int n = 0;
    for (; n < ARGS_MAX && row->arg[n].d[1]; n++)
        if (row->arg[n].role != SHARED && row_elements(&row->arg[n]) > widest)
            widest = row_elements(&row->arg[n]);
    int64_t rows = round_up(LIMIT / widest + 2 * SLICE, SLICE);
    for (int i = 0; i < n; i++) {
        whole[i] = make_arg(GPU, &row->arg[i], i, 0, rows);
        t[i] = &whole[i];
    }
    if (row->call(p->b[GPU], t, &p->e) != OK || p->ops[GPU]->sync(p->b[GPU], &p->e) != OK)
        fail_msg("%s of %lld rows: %s", row->name, (long long)rows, p->e.text);
    const int64_t first[SLICES] = { 0, LIMIT / widest / SLICE * SLICE, rows - SLICE };
    for (int i = 0; i < SLICES; i++) run_slice(row, n, whole, first[i]);
    pair_clear(p);
}

static void rows_of_operators(void **state) {
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        print_message("    %s\n", ROWS[i].name);
        check(&ROWS[i]);
    }
}

/* ---- operators without independent rows ---- */

static struct tensor normal(int side, enum dtype t, int64_t rows, int64_t cols, uint32_t id,
                            int64_t base) {
    struct tensor x = allocate(side, t, (const int64_t[4]){ rows, cols, 1, 1 });
    if (p->ops[side]->fill_normal(p->b[side], LANE_COMPUTE, &x, 1, 7, id, base, &p->e) != OK)
        fail_msg("%s", p->e.text);
    return x;
}

/* out [M,N] with more than 2^31 elements; then A with as many, so that K is the long side. */
static void products(void **state) {
    /* Bounds: nmse_bound of test_matmul.c for these K. */
    static const struct { int64_t m, n, k; double nmse_max; } SHAPES[] = {
        { 65664, 32768, 32, 2e-8 }, { 65664, 16, 32768, 3.5e-5 },
    };
    for (size_t i = 0; i < 2; i++) {
        int64_t m = SHAPES[i].m, n = SHAPES[i].n, k = SHAPES[i].k, first = m - SLICE;
        struct tensor out = allocate(GPU, H, (const int64_t[4]){ m, n, 1, 1 });
        struct tensor a = normal(GPU, H, m, k, 1, 0), b = normal(GPU, H, n, k, 2, 0);
        struct tensor part = allocate(CPU, H, (const int64_t[4]){ SLICE, n, 1, 1 });
        struct tensor ca = normal(CPU, H, SLICE, k, 1, first * k), cb = normal(CPU, H, n, k, 2, 0);
        struct matmul_args whole = { .out = &out, .a = &a, .b = &b };
        struct matmul_args slice = { .out = &part, .a = &ca, .b = &cb };
        if (p->ops[GPU]->matmul(p->b[GPU], 0, &whole, &p->e) != OK) fail_msg("%s", p->e.text);
        if (p->ops[CPU]->matmul(p->b[CPU], 0, &slice, &p->e) != OK) fail_msg("%s", p->e.text);
        struct tensor seen = part;
        seen.data = (char *)out.data + first * n * 2;
        pair_near(p, "the last rows of a product", &(struct twin){ { part, seen } },
                  SHAPES[i].nmse_max);
        pair_clear(p);
    }
}

static struct tensor empty_codes(int side, int64_t rows, int64_t k) {
    struct tensor x = allocate(side, DTYPE_E4M3, (const int64_t[4]){ rows, k, 1, 1 });
    struct scale s = scale_make(NULL, SCALE_1X128, rows, k);
    x = tensor_fp8(x.data, DTYPE_E4M3, rows, k);
    s.data = allocate(side, F, (const int64_t[4]){ s.dim[0], s.dim[1], 1, 1 }).data;
    x.scale = s;
    return x;
}

/* Codes, their factors and their transpose. */
static void codes(void **state) {
    const int64_t k = 4096, rows = LIMIT / k + 256, first = rows - 128;
    struct tensor value[SIDES], code[SIDES], twin[SIDES];
    for (int s = 0; s < SIDES; s++) {
        int64_t n = s == GPU ? rows : 128;
        value[s] = normal(s, H, n, k, 1, s == GPU ? 0 : first * k);
        code[s] = empty_codes(s, n, k);
        twin[s] = empty_codes(s, k, n);
        code[s].transposed = &twin[s];
        struct sink sink = { .value = &value[s], .codes = &code[s], .keep_value = true,
                             .source = SCALE_SOURCE_BLOCK, .rule = { QUANT_TE, 0, true } };
        if (p->ops[s]->quantise(p->b[s], 0, &sink, &value[s], &p->e) != OK ||
            p->ops[s]->quantise_finish(p->b[s], 0, &sink, &p->e) != OK)
            fail_msg("%s", p->e.text);
    }
    struct tensor seen = code[CPU];
    seen.data = (char *)code[GPU].data + first * k;
    seen.scale.data = (char *)code[GPU].scale.data + first * (k / 128) * 4;
    pair_same(p, "the last codes", &(struct twin){ { code[CPU], seen } });
    /* The last 128 columns of the transposed codes, packed. */
    struct tensor view = twin[GPU];
    view.dim[1] = 128;
    view.data = (char *)twin[GPU].data + first;
    view.scale.kind = SCALE_NONE;
    struct tensor packed = allocate(GPU, DTYPE_E4M3, (const int64_t[4]){ k, 128, 1, 1 });
    if (p->ops[GPU]->copy(p->b[GPU], 0, &packed, &view, &p->e) != OK) fail_msg("%s", p->e.text);
    packed = tensor_fp8(packed.data, DTYPE_E4M3, k, 128);
    twin[CPU].scale.kind = SCALE_NONE;
    pair_same(p, "the last columns of the transpose", &(struct twin){ { twin[CPU], packed } });
    pair_clear(p);
}

/* AdamW draws by element number: a slice has its own base. */
static void update(void **state) {
    const int64_t cols = 4096, rows = LIMIT / cols + 2 * SLICE, first = rows - SLICE;
    struct tensor w[SIDES], m[SIDES], v[SIDES], grad[SIDES], one[SIDES], step[SIDES], flag[SIDES];
    for (int s = 0; s < SIDES; s++) {
        int64_t n = s == GPU ? rows : SLICE, base = s == GPU ? 0 : first * cols;
        w[s] = normal(s, H, n, cols, 1, base);
        m[s] = normal(s, H, n * cols, 1, 2, base);
        v[s] = allocate(s, H, (const int64_t[4]){ n * cols, 1, 1, 1 });
        grad[s] = normal(s, H, n, cols, 3, base);
        one[s] = allocate(s, F, (const int64_t[4]){ 1, 1, 1, 1 });
        step[s] = allocate(s, I, (const int64_t[4]){ 1, 1, 1, 1 });
        flag[s] = allocate(s, I, (const int64_t[4]){ 2, 1, 1, 1 });
        const int32_t none[2] = { -1, -1 };
        struct sink weight = sink_value(&w[s], NULL);
        struct adamw_args a = {
            .weight = &weight, .m = &m[s], .v = &v[s], .grad = &grad[s], .lr = &one[s],
            .clip = &one[s], .bias1 = &one[s], .bias2 = &one[s], .step = &step[s], .flag = &flag[s],
            .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .seed = 5, .element_base = base,
        };
        if (p->ops[s]->fill(p->b[s], 0, &one[s], 0.01f, &p->e) != OK ||
            p->ops[s]->upload(p->b[s], 0, flag[s].data, none, sizeof none, &p->e) != OK ||
            p->ops[s]->adamw(p->b[s], 0, &a, 1, &p->e) != OK)
            fail_msg("%s", p->e.text);
    }
    struct tensor *all[3] = { w, m, v };
    for (int i = 0; i < 3; i++) {
        struct tensor seen = all[i][CPU];
        seen.data = (char *)all[i][GPU].data + first * cols * 2;
        pair_same(p, "the last weights and moments", &(struct twin){ { all[i][CPU], seen } });
    }
    pair_clear(p);
}

static float fetch_f32(const struct tensor *x) {
    float value;
    if (p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, &value, x->data, 4, &p->e) != OK)
        fail_msg("%s", p->e.text);
    return value;
}

/* Sums over all elements: of ones; and a fingerprint of zeros, which depends on positions only. */
static void sums(void **state) {
    const int64_t cols = 4096, rows = LIMIT / cols + 16, n = rows * cols;
    struct backend *b = p->b[GPU];
    const struct backend_ops *ops = p->ops[GPU];
    struct tensor x = allocate(GPU, F, (const int64_t[4]){ n, 1, 1, 1 });
    struct tensor total = allocate(GPU, F, (const int64_t[4]){ 1, 1, 1, 1 });
    struct tensor print = allocate(GPU, DTYPE_U64, (const int64_t[4]){ 1, 1, 1, 1 });
    struct tensor columns = allocate(GPU, F, (const int64_t[4]){ cols, 1, 1, 1 });
    struct tensor narrow = allocate(GPU, H, (const int64_t[4]){ rows, cols, 1, 1 });
    uint64_t want = 0, got = 0;
    if (ops->fingerprint(b, 0, &print, &x, &p->e) != OK) fail_msg("%s", p->e.text);
    for (int64_t i = 0; i < n; i++) want += 2 * rng_mix((uint64_t)i) + 1;
    assert_int_equal(ops->download(b, 0, &got, print.data, sizeof got, &p->e), OK);
    assert_true(want == got);
    if (ops->fill(b, 0, &x, 2, &p->e) != OK || ops->sum(b, 0, &total, &x, 0.5f, 0, &p->e) != OK)
        fail_msg("%s", p->e.text);
    assert_float_equal(fetch_f32(&total), (float)n, (float)n * 1e-6f);
    if (ops->sum_squares(b, 0, &total, &x, 1, &p->e) != OK) fail_msg("%s", p->e.text);
    assert_float_equal(fetch_f32(&total), 4 * (float)n, (float)n * 4e-6f);
    struct sink sink = sink_value(&narrow, NULL);
    sink.sums = &columns;
    if (ops->fill(b, 0, &narrow, 1, &p->e) != OK ||
        ops->quantise(b, 0, &sink, &narrow, &p->e) != OK)
        fail_msg("%s", p->e.text);
    columns.data = (char *)columns.data + (cols - 1) * 4;
    assert_float_equal(fetch_f32(&columns), (float)rows, 1);
    pair_clear(p);
}

/* Sequences are independent rows of attention too. Head dimensions 64 and 128 use cuDNN and wgmma,
 * 32 uses mma. */
static void attention(void **state) {
    static const struct { int64_t heads, kv, dim; } OF[] = {
        { 16, 4, 64 }, { 16, 4, 128 }, { 16, 4, 32 },
    };
    for (size_t i = 0; i < sizeof OF / sizeof *OF; i++) {
        int64_t h = OF[i].heads, g = OF[i].kv, d = OF[i].dim, all = h + 2 * g, row = T * all * d;
        int64_t batch = LIMIT / row + 2, first = batch - 1;
        struct tensor qkv[SIDES], o[SIDES], lse[SIDES], delta[SIDES], d_qkv[SIDES], d_o[SIDES];
        for (int s = 0; s < SIDES; s++) {
            int64_t n = s == GPU ? batch : 1, base = s == GPU ? 0 : first;
            const int64_t heads_of[4] = { n, T, all, d }, rows[4] = { n, h, T, 1 };
            qkv[s] = normal(s, H, n, row, 1, base * row);
            qkv[s] = tensor_make(qkv[s].data, H, n, T, all, d);
            d_o[s] = normal(s, H, n * T, h * d, 2, base * T * h * d);
            o[s] = allocate(s, H, (const int64_t[4]){ n * T, h * d, 1, 1 });
            d_qkv[s] = allocate(s, H, heads_of);
            lse[s] = allocate(s, F, rows);
            delta[s] = allocate(s, F, rows);
            struct sink out = sink_value(&o[s], NULL), into = sink_value(&d_qkv[s], NULL);
            if (p->ops[s]->attention_fwd(p->b[s], 0, &(struct attention_fwd_args){
                    .o = &out, .lse = &lse[s], .qkv = &qkv[s], .heads = h,
                    .kv_heads = g }, &p->e) != OK ||
                p->ops[s]->attention_bwd(p->b[s], 0, &(struct attention_bwd_args){
                    .d_qkv = &into, .delta = &delta[s], .d_o = &d_o[s], .o = &o[s], .qkv = &qkv[s],
                    .lse = &lse[s], .heads = h, .kv_heads = g }, &p->e) != OK ||
                p->ops[s]->sync(p->b[s], &p->e) != OK)
                fail_msg("%s", p->e.text);
        }
        struct tensor seen = o[CPU], gradient = d_qkv[CPU];
        seen.data = (char *)o[GPU].data + first * T * h * d * 2;
        gradient.data = (char *)d_qkv[GPU].data + first * row * 2;
        pair_near(p, "the last sequence's o", &(struct twin){ { o[CPU], seen } }, 1e-5);
        pair_near(p, "the last sequence's d_qkv", &(struct twin){ { d_qkv[CPU], gradient } },
                  1e-4);
        pair_clear(p);
    }
}

/* A table with more than 2^31 elements: the last token's row, forward and backward. */
static void embedding(void **state) {
    const int64_t cols = 4096, vocab = LIMIT / cols + 8, n = 16;
    struct tensor table = normal(GPU, H, vocab, cols, 1, 0), x = normal(GPU, H, n, cols, 2, 0);
    struct tensor tokens = allocate(GPU, I, (const int64_t[4]){ n, 1, 1, 1 });
    struct tensor d_table = allocate(GPU, F, (const int64_t[4]){ vocab, cols, 1, 1 });
    struct tensor last = normal(CPU, H, 1, cols, 1, (vocab - 1) * cols);
    struct tensor sum = allocate(CPU, F, (const int64_t[4]){ 1, cols, 1, 1 });
    struct tensor dx = normal(CPU, H, n, cols, 2, 0);
    struct tensor zeros = allocate(CPU, I, (const int64_t[4]){ n, 1, 1, 1 });
    int32_t id[16];
    for (int i = 0; i < 16; i++) id[i] = (int32_t)(vocab - 1);
    if (p->ops[GPU]->upload(p->b[GPU], 0, tokens.data, id, sizeof id, &p->e) != OK ||
        p->ops[GPU]->embedding_bwd(p->b[GPU], 0, &d_table, NULL, &x, &tokens, NULL, &p->e) != OK ||
        p->ops[GPU]->embedding_fwd(p->b[GPU], 0, &x, &tokens, &table, NULL, NULL, &p->e) != OK ||
        p->ops[CPU]->embedding_bwd(p->b[CPU], 0, &sum, NULL, &dx, &zeros, NULL, &p->e) != OK)
        fail_msg("%s", p->e.text);
    struct tensor row = last, gradient = sum;
    row.data = (char *)x.data + (n - 1) * cols * 2;
    gradient.data = (char *)d_table.data + (vocab - 1) * cols * 4;
    pair_same(p, "the last row of a large table", &(struct twin){ { last, row } });
    pair_same(p, "its gradient", &(struct twin){ { sum, gradient } });
    pair_clear(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_operators), cmocka_unit_test(products),
        cmocka_unit_test(codes),             cmocka_unit_test(update),
        cmocka_unit_test(sums),              cmocka_unit_test(attention),
        cmocka_unit_test(embedding),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
