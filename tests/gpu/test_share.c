/* Processes that share a GPU disturb one another in time alone: six of them run the same operators
 * again and again, interrupted by the device. None may fail, and each output keeps its bits. The
 * operators are a layer's forward, one by one, in pairs and in a graph, with other algorithms of
 * each class. A failure is followed up with longer runs of one row: SHARE_SECONDS of each row and
 * algorithm (default 2), SHARE_ROW the row's name, SHARE_PLACE the algorithm.
 *
 * SHARE_PLACE=99, a class's last algorithm, runs only when asked for: on an H200 it is a kernel of
 * cuBLASLt's in clusters of eight blocks, which fails beside attention (kernels/cuda/LOG.md). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runner/plan/backends.h"
#include "tests/gpu/place.h"

enum { PROCESSES = 6, CALLS = 100, TOKENS = 1024, WIDTH = 1024, FFN = 2816, HEADS = 8, KV = 2,
       DIM = 128, LENGTH = 512 };

struct share {
    struct backend_handle handle;
    struct backend *b;
    const struct backend_ops *o;
    struct tensor x, y, residual, weight, down, gate_up, h, qkv, rotated, lse, gain, rstd, rope;
    struct tensor codes;
    struct err e;
};

static enum status make(struct share *s, struct tensor *out, enum dtype t, int64_t d0, int64_t d1,
                        int64_t d2, int64_t d3) {
    void *data;
    TRY(s->o->memory_create(s->b, "a tensor", d0 * d1 * d2 * d3 * dtype_bytes(t), &data, &s->e));
    *out = tensor_make(data, t, d0, d1, d2, d3);
    return s->o->fill_normal(s->b, LANE_COMPUTE, out, 1.0f, 1, (uint32_t)(d0 + d1), 0, &s->e);
}

static enum status open_share(struct share *s, const char *head, int place) {
    struct tensor one;
    TRY(backend_open("cuda", 0, 0, &s->handle, &s->e));
    s->b = s->handle.backend;
    s->o = s->b->ops;
    if (place) TRY(place_load(s->b, head, place, &s->e));
    TRY(make(s, &s->x, DTYPE_BF16, TOKENS, WIDTH, 1, 1));
    TRY(make(s, &s->y, DTYPE_BF16, TOKENS, WIDTH, 1, 1));
    TRY(make(s, &s->residual, DTYPE_BF16, TOKENS, WIDTH, 1, 1));
    TRY(make(s, &s->weight, DTYPE_BF16, WIDTH, WIDTH, 1, 1));
    TRY(make(s, &s->down, DTYPE_BF16, WIDTH, FFN, 1, 1));
    TRY(make(s, &s->gate_up, DTYPE_BF16, TOKENS, 2 * FFN, 1, 1));
    TRY(make(s, &s->h, DTYPE_BF16, TOKENS, FFN, 1, 1));
    TRY(make(s, &s->qkv, DTYPE_BF16, TOKENS / LENGTH, LENGTH, HEADS + 2 * KV, DIM));
    TRY(make(s, &s->rotated, DTYPE_BF16, TOKENS / LENGTH, LENGTH, HEADS + 2 * KV, DIM));
    TRY(make(s, &s->lse, DTYPE_F32, TOKENS / LENGTH, HEADS, LENGTH, 1));
    TRY(make(s, &s->gain, DTYPE_BF16, WIDTH, 1, 1, 1));
    TRY(make(s, &s->rstd, DTYPE_F32, TOKENS, 1, 1, 1));
    TRY(make(s, &s->rope, DTYPE_F32, LENGTH, DIM, 1, 1));
    TRY(make(s, &one, DTYPE_F32, 1, 1, 1, 1));
    TRY(s->o->fill(s->b, LANE_COMPUTE, &one, 1.0f, &s->e));
    s->codes = tensor_fp8(s->h.data, DTYPE_E4M3, TOKENS, WIDTH); /* finite: BF16's upper bytes */
    s->codes.scale = scale_make(one.data, SCALE_TENSOR, TOKENS, WIDTH);
    return s->o->fill(s->b, LANE_COMPUTE, &s->h, 0.15625f, &s->e); /* 0x3E20: codes 1.75, 2^-4 */
}

/* ---- rows ---- */

static enum status product(struct share *s, const struct tensor *a, const struct tensor *b) {
    return s->o->matmul(s->b, LANE_COMPUTE,
                        &(struct matmul_args){ .out = &s->y, .a = a, .b = b,
                                               .residual = &s->residual, .fast_accumulate = true },
                        &s->e);
}
static enum status product_bf16(struct share *s) { return product(s, &s->x, &s->weight); }
static enum status product_long(struct share *s) { return product(s, &s->h, &s->down); }
static enum status product_fp8(struct share *s) { return product(s, &s->codes, &s->codes); }

static enum status attention(struct share *s) {
    struct sink o = sink_value(&s->y, NULL);
    return s->o->attention_fwd(s->b, LANE_COMPUTE,
                               &(struct attention_fwd_args){ .o = &o, .lse = &s->lse,
                                                             .qkv = &s->qkv, .heads = HEADS,
                                                             .kv_heads = KV },
                               &s->e);
}

static enum status norm(struct share *s) {
    struct sink y = sink_value(&s->y, NULL);
    return s->o->rmsnorm_fwd(s->b, LANE_COMPUTE,
                             &(struct norm_fwd_args){ .y = &y, .rstd = &s->rstd, .x = &s->x,
                                                      .gain = &s->gain, .eps = 1e-5f },
                             &s->e);
}

static enum status rows(struct share *s) {
    struct sink h = sink_value(&s->h, NULL);
    TRY(s->o->qk_fwd(s->b, LANE_COMPUTE,
                     &(struct qk_fwd_args){ .out = &s->rotated, .in = &s->qkv, .rope = &s->rope,
                                            .heads = HEADS, .kv_heads = KV, .eps = 1e-5f },
                     &s->e));
    TRY(s->o->swiglu_fwd(s->b, LANE_COMPUTE, &h, &s->gate_up, &s->e));
    return norm(s);
}

static enum status norm_product(struct share *s) {
    TRY(norm(s));
    return product_bf16(s);
}
static enum status attention_norm(struct share *s) {
    TRY(attention(s));
    return norm(s);
}
static enum status attention_product(struct share *s) {
    TRY(attention(s));
    return product_bf16(s);
}
static enum status layer(struct share *s) {
    TRY(rows(s));
    TRY(attention(s));
    TRY(product_bf16(s));
    return product_long(s);
}

static const struct row {
    const char *name;
    enum status (*run)(struct share *s);
    int places; /* 0: has no algorithms to choose among; else the first ones and the last */
    bool graph;
} ROWS[] = {
    { "bf16 product and residual", product_bf16, 8, false },
    { "the same, K of 2816", product_long, 8, false },
    { "fp8 product and residual", product_fp8, 8, false },
    { "attention", attention, 0, false },
    { "rotation, SwiGLU, norm", rows, 0, false },
    { "norm, product", norm_product, 1, false },
    { "attention, norm", attention_norm, 0, false },
    { "attention, product", attention_product, 1, false },
    { "a layer", layer, 4, false },
    { "a layer in a graph", layer, 4, true },
};
enum { ROW_COUNT = sizeof ROWS / sizeof *ROWS, LAST_PLACE = 99 };

/* ---- a process ---- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

enum { BYTES = TOKENS * WIDTH * 2 };
static enum status output(struct share *s, void *out) {
    return s->o->download(s->b, LANE_COMPUTE, out, s->y.data, BYTES, &s->e);
}

static enum status run_once(struct share *s, const struct row *r) {
    const enum graph_key key = GRAPH_FIRST_MICRO;
    bool replayed = false;
    if (r->graph) TRY(s->o->graph_replay(s->b, key, &replayed, &s->e));
    if (replayed) return OK;
    if (r->graph) TRY(s->o->graph_begin(s->b, key, &s->e));
    for (int i = 0; i < CALLS; i++) TRY(r->run(s));
    return r->graph ? s->o->graph_end(s->b, key, &s->e) : OK;
}

/* Loops until `end`; *same: with the bits of the first call. outputs: room for two. */
static enum status loop(struct share *s, const struct row *r, double end, char *outputs,
                        bool *same, int64_t *calls) {
    TRY(r->run(s)); /* chooses, outside the graph */
    TRY(output(s, outputs));
    *same = true;
    while (*same && now() < end) {
        TRY(run_once(s, r));
        TRY(output(s, outputs + BYTES));
        *same = memcmp(outputs, outputs + BYTES, BYTES) == 0;
        *calls += CALLS;
    }
    return OK;
}

/* One row with one algorithm; 0: it held. */
static int share_row(const struct row *r, const char *head, int place, double end) {
    struct share s = { 0 };
    bool same = false;
    int64_t calls = 0;
    char *outputs = test_malloc(2 * BYTES);
    enum status st = open_share(&s, head, place);
    if (st == OK) st = loop(&s, r, end, outputs, &same, &calls);
    if (st != OK || !same)
        printf("    FAILED: %s, algorithm %d, after %lld calls: %s\n", r->name, place,
               (long long)calls, st != OK ? s.e.text : "other bits");
    else printf("    %s, algorithm %d: %lld calls\n", r->name, place, (long long)calls);
    fflush(stdout);
    backend_close(&s.handle);
    test_free(outputs);
    return st != OK || !same;
}

static int process(double begin, double seconds) {
    char head[PLACE_HEAD_CAP];
    struct backend_handle h;
    struct err e;
    int slot = 0;
    if (backend_open("cuda", 0, 0, &h, &e) != OK || place_head(h.backend, head, &e) != OK) {
        printf("    FAILED: %s\n", e.text);
        fflush(stdout);
        return 1;
    }
    backend_close(&h);
    const char *row = getenv("SHARE_ROW"), *only = getenv("SHARE_PLACE");
    for (int i = 0; i < ROW_COUNT; i++)
        for (int n = 0; n <= ROWS[i].places; n++) {
            int place = n && n == ROWS[i].places ? LAST_PLACE : n;
            if ((row && strcmp(row, ROWS[i].name) != 0) ||
                (only ? atoi(only) != place : place == LAST_PLACE)) continue;
            double end = begin + seconds * ++slot; /* all processes are in the same row */
            if (share_row(&ROWS[i], head, place, end)) return 1; /* the device may be lost */
        }
    return slot == 0; /* nothing has this name */
}

static void sharing_fails_nothing_and_changes_no_bit(void **state) {
    const char *given = getenv("SHARE_SECONDS");
    double seconds = given ? atof(given) : 2.0, begin = now() + 2.0;
    pid_t child[PROCESSES];
    int failed = 0;
    fflush(stdout);
    for (int i = 0; i < PROCESSES; i++) {
        child[i] = fork(); /* before this process has used the device */
        if (child[i] == 0) _exit(process(begin, seconds));
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        if (child[i] < 0 || waitpid(child[i], &status, 0) < 0 || status != 0) failed++;
    }
    if (failed) fail_msg("%d of %d processes failed", failed, PROCESSES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharing_fails_nothing_and_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
