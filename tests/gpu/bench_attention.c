/* Times attention on a GPU with every kernel that can serve a shape: medians of several samples,
 * and products a second. Products are those of the causal half; a backward counts as 2.5 forwards.
 *
 *   bench_attention [WAY..] [documents=N] [length=N]    chosen, wgmma or mma limits it to these
 *
 * documents: each sequence holds N documents of equal length, and attention stays within them.
 * length: only shapes with sequences of this length.
 * For "wgmma" the choice table names no cuDNN plans; for "mma" the backend takes another device's
 * features. Each line names the kernel that served, and the reason if there was a choice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/gpu/pair.h"

enum { SAMPLES = 7, WAYS = 3 };
static const double SAMPLE_US = 20e3; /* approximate time of the calls in one sample */
static const char *const WAY[WAYS] = { "chosen", "wgmma", "mma" };

static const struct shape { int64_t batch, length, heads, kv_heads, dim; } SHAPE[] = {
    { 8, 2048, 16, 4, 128 }, { 4, 4096, 16, 4, 128 },  { 1, 8192, 32, 8, 128 },
    { 32, 1024, 12, 12, 64 }, { 1, 32768, 32, 8, 128 },
};
enum { SHAPES = sizeof SHAPE / sizeof *SHAPE };

struct bench {
    struct backend_handle handle;
    struct backend *b;
    const struct backend_ops *ops;
    struct tensor qkv, d_qkv, o, d_o, lse, delta, amax;
    struct tensor first_key; /* with documents */
    struct shape s;
    int documents; /* in a sequence; 0: none */
    struct err e;
};

static void need(struct bench *t, enum status st) {
    if (st == OK) return;
    fprintf(stderr, "%s\n", t->e.text);
    exit(1);
}

static double now_us(void) {
    struct timespec s;
    clock_gettime(CLOCK_MONOTONIC, &s);
    return (double)s.tv_sec * 1e6 + (double)s.tv_nsec * 1e-3;
}

static struct tensor make(struct bench *t, enum dtype type, int64_t d0, int64_t d1, int64_t d2,
                          int64_t d3) {
    void *data;
    need(t, t->ops->memory_create(t->b, "bench", d0 * d1 * d2 * d3 * dtype_bytes(type), &data,
                                  &t->e));
    struct tensor x = tensor_make(data, type, d0, d1, d2, d3);
    if (type == DTYPE_BF16)
        need(t, t->ops->fill_normal(t->b, LANE_COMPUTE, &x, 1.0f, 1, (uint32_t)(d0 + d1), 0,
                                    &t->e));
    return x;
}

static void make_documents(struct bench *t) {
    int64_t n = t->s.batch * t->s.length, each = ceil_div(t->s.length, t->documents);
    int32_t *first = malloc((size_t)n * sizeof *first);
    if (!first) exit(1);
    for (int64_t i = 0; i < n; i++) first[i] = (int32_t)(i % t->s.length / each * each);
    t->first_key = make(t, DTYPE_I32, t->s.batch, t->s.length, 1, 1);
    need(t, t->ops->upload(t->b, LANE_COMPUTE, t->first_key.data, first, 4 * n, &t->e));
    free(first);
}

static void make_all(struct bench *t) {
    const struct shape *s = &t->s;
    t->qkv = make(t, DTYPE_BF16, s->batch, s->length, s->heads + 2 * s->kv_heads, s->dim);
    t->d_qkv = make(t, DTYPE_BF16, s->batch, s->length, s->heads + 2 * s->kv_heads, s->dim);
    t->o = make(t, DTYPE_BF16, s->batch * s->length, s->heads * s->dim, 1, 1);
    t->d_o = make(t, DTYPE_BF16, s->batch * s->length, s->heads * s->dim, 1, 1);
    t->lse = make(t, DTYPE_F32, s->batch, s->heads, s->length, 1);
    t->delta = make(t, DTYPE_F32, s->batch, s->heads, s->length, 1);
    t->amax = make(t, DTYPE_U32, 1, 1, 1, 1);
    if (t->documents) make_documents(t);
}

static void drop_all(struct bench *t) {
    struct tensor *x[] = { &t->qkv, &t->d_qkv, &t->o, &t->d_o, &t->lse, &t->delta, &t->amax };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) t->ops->memory_destroy(t->b, x[i]->data);
    if (t->documents) t->ops->memory_destroy(t->b, t->first_key.data);
}

static void call(struct bench *t, bool backward) {
    struct sink o = sink_value(&t->o, &t->amax), d_qkv = sink_value(&t->d_qkv, &t->amax);
    const struct tensor *first = t->documents ? &t->first_key : NULL;
    int64_t h = t->s.heads, g = t->s.kv_heads;
    if (backward)
        need(t, t->ops->attention_bwd(t->b, 0, &(struct attention_bwd_args){
                .d_qkv = &d_qkv, .delta = &t->delta, .d_o = &t->d_o, .o = &t->o, .qkv = &t->qkv,
                .lse = &t->lse, .first_key = first, .heads = h, .kv_heads = g }, &t->e));
    else
        need(t, t->ops->attention_fwd(t->b, 0, &(struct attention_fwd_args){
                .o = &o, .lse = &t->lse, .qkv = &t->qkv, .first_key = first, .heads = h,
                .kv_heads = g }, &t->e));
}

/* Microseconds for one of `calls` consecutive calls. */
static double sample(struct bench *t, bool backward, int calls) {
    need(t, t->ops->sync(t->b, &t->e));
    double start = now_us();
    for (int i = 0; i < calls; i++) call(t, backward);
    need(t, t->ops->sync(t->b, &t->e));
    return (now_us() - start) / calls;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The kernel that last served this shape and direction, from the log of decisions. */
static const char *served_by(struct bench *t, bool backward, struct decision *d) {
    for (int64_t i = 0; t->ops->decision(t->b, i, d); i++) {
        char name[sizeof d->name];
        snprintf(name, sizeof name, "%lldx%lld, heads %lld/%lld of %lld", (long long)t->s.batch,
                 (long long)t->s.length, (long long)t->s.heads, (long long)t->s.kv_heads,
                 (long long)t->s.dim);
        if (!strcmp(d->name, name) && !strcmp(d->direction, backward ? "backward" : "forward"))
            return d->way;
    }
    *d->detail = '\0';
    return "?";
}

static void measure(struct bench *t, bool backward) {
    const struct shape *s = &t->s;
    double us[SAMPLES], flop = 2.0 * (double)s->batch * (double)s->heads * (double)s->length *
                               (double)s->length * (double)s->dim * (backward ? 2.5 : 1.0);
    if (t->documents) flop /= t->documents;
    sample(t, backward, 1);
    double once = sample(t, backward, 2);
    int calls = once < SAMPLE_US ? (int)(SAMPLE_US / once) : 1;
    for (int i = 0; i < SAMPLES; i++) us[i] = sample(t, backward, calls);
    qsort(us, SAMPLES, sizeof *us, ascending);
    struct decision d;
    printf("%2lld x %5lld, %2lld/%2lld heads of %3lld  %-8s  %-5s  %9.1f us (%.1f to %.1f)  %4.0f "
           "TFLOP/s  %s\n", (long long)s->batch, (long long)s->length, (long long)s->heads,
           (long long)s->kv_heads, (long long)s->dim, backward ? "backward" : "forward",
           served_by(t, backward, &d), us[SAMPLES / 2], us[0], us[SAMPLES - 1],
           flop / us[SAMPLES / 2] * 1e-6, d.detail);
    fflush(stdout);
}

static void open_as(struct bench *t, const char *way, char *table) {
    need(t, backend_open("cuda", 0, 0, &t->handle, &t->e));
    t->b = t->handle.backend;
    t->ops = t->b->ops;
    if (!strcmp(way, "mma")) need(t, t->ops->assume_architecture(t->b, "sm_121", &t->e));
    if (!strcmp(way, "wgmma") && table) need(t, t->ops->choices_load(t->b, table, &t->e));
}

int main(int argc, char **argv) {
    char *table = NULL;
    int documents = 0, length = 0, ways = 0;
    for (int i = 1; i < argc; i++)
        if (sscanf(argv[i], "documents=%d", &documents) != 1 &&
            sscanf(argv[i], "length=%d", &length) != 1)
            ways++;
    if (documents < 0) {
        fprintf(stderr, "documents=%d: it must be 0 or more\n", documents);
        return 2;
    }
    for (int w = 0; w < WAYS; w++) {
        struct bench t = { .documents = documents };
        bool wanted = ways == 0;
        for (int i = 1; i < argc; i++) wanted = wanted || !strcmp(argv[i], WAY[w]);
        if (!wanted && w != 0) continue; /* the first table is needed: others are made from it */
        open_as(&t, WAY[w], table);
        for (int i = 0; i < SHAPES; i++) {
            t.s = SHAPE[i];
            if (length && t.s.length != length) continue;
            make_all(&t);
            for (int backward = 0; backward < 2; backward++) {
                if (wanted) measure(&t, backward);
                else call(&t, backward);
            }
            need(&t, t.ops->sync(t.b, &t.e));
            drop_all(&t);
        }
        if (w == 0) {
            char *chosen = NULL;
            need(&t, t.ops->choices_save(t.b, &chosen, &t.e));
            table = choices_with("attention", chosen, "-");
            free(chosen);
        }
        backend_close(&t.handle);
    }
    free(table);
    return 0;
}
