/* fp8lab bench: how fast this machine does what a training step is made of. So far: gemm, through
 * the operator table, so that every backend is measured by the same few lines. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/rng.h"
#include "runner/backends.h"
#include "runner/commands.h"

enum { REPEATS = 11, REPEATS_MAX = 1000, DIM_MAX = 1 << 20 };
static const double SAMPLE_US = 20000; /* a sample is as many calls as take this long */

struct gemm_bench {
    int64_t m, n, k, repeats;
    const char *dtype; /* of a and b; e5m2 is a gradient: a e5m2, b e4m3 */
    const char *scale; /* of FP8 operands */
};

struct gemm_result {
    double time_us_median, gflops_median, gflops_best;
    int64_t calls; /* in a sample */
};

/* What --scale and --dtype say. */
static const struct { const char *name; enum scale_kind a, b; } SCALES[] = {
    { "tensor", SCALE_TENSOR, SCALE_TENSOR },
    { "row", SCALE_ROW, SCALE_ROW },
    { "1x128", SCALE_1X128, SCALE_128X128 },
    { "1x32", SCALE_1X32, SCALE_1X32 },
};
static const struct { const char *name; enum dtype a, b, out; } DTYPES[] = {
    { "f32", DTYPE_F32, DTYPE_F32, DTYPE_F32 },
    { "bf16", DTYPE_BF16, DTYPE_BF16, DTYPE_BF16 },
    { "e4m3", DTYPE_E4M3, DTYPE_E4M3, DTYPE_BF16 },
    { "e5m2", DTYPE_E5M2, DTYPE_E4M3, DTYPE_BF16 },
};
enum { SCALE_KINDS = sizeof SCALES / sizeof *SCALES, DTYPE_KINDS = sizeof DTYPES / sizeof *DTYPES };

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* ---- operands ---- */

static int64_t data_bytes(const struct tensor *x) {
    return x->dim[0] * x->stride[0] * dtype_bytes(x->dtype);
}

/* Values in [-1, 1): zeros would take less power, and some machines then run faster. */
static void fill(const struct tensor *x, void *host, uint64_t seed) {
    int64_t count = data_bytes(x) / dtype_bytes(x->dtype);
    for (int64_t i = 0; i < count; i++) {
        float value = 2.0f * rng_uniform(rng_bits(seed, (uint64_t)i)) - 1.0f;
        if (x->dtype == DTYPE_F32) ((float *)host)[i] = value;
        else if (x->dtype == DTYPE_BF16) ((uint16_t *)host)[i] = bf16_encode(value);
        else ((uint8_t *)host)[i] = fp8_encode(x->dtype, value);
    }
}

/* Memory of the backend with `bytes` from fill() or, for a scale, ones. */
static enum status upload_new(struct backend *b, const struct tensor *x, bool scale, uint64_t seed,
                              void **out, struct err *e) {
    int64_t bytes = scale ? scale_bytes(&x->scale) : data_bytes(x);
    TRY(b->ops->memory_create(b, "bench gemm", bytes, out, e));
    void *host = malloc((size_t)bytes);
    if (!host) return FAIL(e, ERR_MEMORY, "bench gemm: %" PRId64 " bytes", bytes);
    if (!scale) fill(x, host, seed);
    else if (x->scale.dtype == DTYPE_E8M0) memset(host, 127, (size_t)bytes);
    else for (int64_t i = 0; i < bytes / 4; i++) ((float *)host)[i] = 1.0f;
    enum status st = b->ops->upload(b, LANE_COMPUTE, *out, host, bytes, e);
    free(host);
    return st;
}

/* Fills x; what it owns is released by operand_destroy, also after a failure. */
static enum status operand_create(struct backend *b, struct tensor *x, enum dtype t, int64_t rows,
                                  int64_t k, enum scale_kind kind, struct err *e) {
    *x = dtype_is_fp8(t) ? tensor_fp8(NULL, t, rows, k) : tensor_2d(NULL, t, rows, k);
    TRY(upload_new(b, x, false, (uint64_t)rows, &x->data, e));
    if (!dtype_is_fp8(t)) return OK;
    x->scale = scale_make(NULL, kind, rows, k);
    return upload_new(b, x, true, 0, &x->scale.data, e);
}

static void operand_destroy(struct backend *b, struct tensor *x) {
    if (x->data) b->ops->memory_destroy(b, x->data);
    if (x->scale.data) b->ops->memory_destroy(b, x->scale.data);
}

/* ---- measurement ---- */

static enum status time_calls(struct backend *b, const struct matmul_args *args, int64_t calls,
                              double *us, struct err *e) {
    double start = now_us();
    for (int64_t i = 0; i < calls; i++) TRY(b->ops->matmul(b, LANE_COMPUTE, args, e));
    TRY(b->ops->sync(b, e));
    *us = (now_us() - start) / (double)calls;
    return OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum status measure(struct backend *b, const struct gemm_bench *g,
                           const struct matmul_args *args, struct gemm_result *out, struct err *e) {
    double sample[REPEATS_MAX], warm_us, flop = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    TRY(time_calls(b, args, 1, &warm_us, e));
    TRY(time_calls(b, args, 1, &warm_us, e));
    out->calls = warm_us >= SAMPLE_US ? 1 : (int64_t)(SAMPLE_US / (warm_us + 1)) + 1;
    for (int64_t i = 0; i < g->repeats; i++) TRY(time_calls(b, args, out->calls, &sample[i], e));
    qsort(sample, (size_t)g->repeats, sizeof *sample, by_value);
    out->time_us_median = sample[g->repeats / 2];
    out->gflops_median = flop / out->time_us_median * 1e-3;
    out->gflops_best = flop / sample[0] * 1e-3;
    return OK;
}

static enum status bench_gemm(struct backend *b, const struct gemm_bench *g,
                              struct gemm_result *out, struct err *e) {
    int d = 0, s = 0;
    while (d < DTYPE_KINDS && strcmp(DTYPES[d].name, g->dtype) != 0) d++;
    while (s < SCALE_KINDS && strcmp(SCALES[s].name, g->scale) != 0) s++;
    if (d == DTYPE_KINDS)
        return FAIL(e, ERR_ARG, "--dtype is f32, bf16, e4m3 or e5m2, not \"%s\"", g->dtype);
    if (s == SCALE_KINDS)
        return FAIL(e, ERR_ARG, "--scale is tensor, row, 1x128 or 1x32, not \"%s\"", g->scale);
    struct tensor a = { 0 }, x = { 0 }, y = { 0 };
    struct matmul_args args = { .out = &y, .a = &a, .b = &x, .fast_accumulate = true };
    enum status st = operand_create(b, &a, DTYPES[d].a, g->m, g->k, SCALES[s].a, e);
    if (st == OK) st = operand_create(b, &x, DTYPES[d].b, g->n, g->k, SCALES[s].b, e);
    if (st == OK) st = operand_create(b, &y, DTYPES[d].out, g->m, g->n, SCALE_NONE, e);
    if (st == OK) st = measure(b, g, &args, out, e);
    operand_destroy(b, &a);
    operand_destroy(b, &x);
    operand_destroy(b, &y);
    return st;
}

/* ---- the verb ---- */

static json_t *row_json(const struct gemm_bench *g, bool fp8, const struct gemm_result *r) {
    json_t *scale = fp8 ? json_string(g->scale) : json_null();
    return json_pack("{s:I,s:I,s:I,s:s,s:o,s:I,s:I,s:f,s:f,s:f}", "m", (json_int_t)g->m, "n",
                     (json_int_t)g->n, "k", (json_int_t)g->k, "dtype", g->dtype, "scale", scale,
                     "repeats", (json_int_t)g->repeats, "calls", (json_int_t)r->calls,
                     "time_us_median", r->time_us_median, "gflops_median", r->gflops_median,
                     "gflops_best", r->gflops_best);
}

static void print_row(const struct cli *cli, const struct gemm_bench *g, bool fp8,
                      const struct gemm_result *r) {
    cli_out(cli, "%-5s %-7s %8" PRId64 " x %" PRId64 " x %" PRId64 "  %10.1f us  %9.1f GFLOP/s"
            "  (best %.1f)\n", g->dtype, fp8 ? g->scale : "-", g->m, g->n, g->k, r->time_us_median,
            r->gflops_median, r->gflops_best);
}

/* One row a dtype: the one asked for, or those that a recipe's GEMMs are made of. */
static enum status bench_rows(const struct cli *cli, struct backend *b, struct gemm_bench *g,
                              json_t *rows, struct err *e) {
    static const char *const USUAL[] = { "f32", "bf16", "e4m3" };
    const char *asked = cli_value(cli, "dtype");
    for (size_t i = 0; i < (asked ? 1 : sizeof USUAL / sizeof *USUAL); i++) {
        struct gemm_result r = { 0 };
        g->dtype = asked ? asked : USUAL[i];
        bool fp8 = g->dtype[0] == 'e';
        enum status st = bench_gemm(b, g, &r, e);
        if (st == ERR_UNSUPPORTED && !asked) {
            cli_note(cli, "%s: %s", g->dtype, e->text);
            continue;
        }
        TRY(st);
        if (!cli->json) print_row(cli, g, fp8, &r);
        else if (json_array_append_new(rows, row_json(g, fp8, &r)) != 0)
            return FAIL(e, ERR_MEMORY, "a row of JSON");
    }
    return OK;
}

static enum status bench(const struct cli *cli, json_t *rows, struct err *e) {
    struct gemm_bench g = { .m = 1024, .n = 1024, .k = 1024, .repeats = REPEATS };
    int64_t threads = 0, device = 0;
    if (strcmp(cli->args[0], "gemm") != 0)
        return FAIL(e, ERR_ARG, "bench %s: only gemm is measured so far", cli->args[0]);
    TRY(cli_int(cli, "m", 1, DIM_MAX, &g.m, e));
    TRY(cli_int(cli, "n", 1, DIM_MAX, &g.n, e));
    TRY(cli_int(cli, "k", 1, DIM_MAX, &g.k, e));
    TRY(cli_int(cli, "repeats", 1, REPEATS_MAX, &g.repeats, e));
    TRY(cli_int(cli, "threads", 0, 1024, &threads, e));
    TRY(cli_int(cli, "device", 0, 1024, &device, e));
    g.scale = cli_value(cli, "scale") ? cli_value(cli, "scale") : "tensor";
    struct backend_handle h = { 0 };
    struct device_info info;
    const char *name = cli_value(cli, "backend") ? cli_value(cli, "backend") : "auto";
    TRY(backend_open(name, threads, device, &h, e));
    enum status st = h.backend->ops->info(h.backend, &info, e);
    if (st == OK) cli_note(cli, "%s", info.name);
    if (st == OK) st = bench_rows(cli, h.backend, &g, rows, e);
    if (st == OK && cli->json) {
        json_t *object = json_pack("{s:s,s:s,s:s,s:s,s:s,s:O}", "schema", "fp8lab.bench/1", "kind",
                                   "gemm", "backend", h.backend->ops->name, "device", info.name,
                                   "architecture", info.architecture, "rows", rows);
        cli_out_json(cli, object);
        json_decref(object);
    }
    backend_close(&h);
    return st;
}

static int cmd_bench(const struct cli *cli) {
    struct err e = { 0 };
    json_t *rows = json_array();
    enum status st = bench(cli, rows, &e);
    json_decref(rows);
    if (st != OK) return cli_fail(cli, &e);
    cli_next(cli, "bench", "gemm", "--dtype", "e4m3", "--scale", "1x128", NULL);
    return EXIT_OK;
}

static const struct flag FLAGS[] = {
    { "m", "ROWS", "rows of A and of the product (1024)", false },
    { "n", "ROWS", "rows of B, columns of the product (1024)", false },
    { "k", "LENGTH", "what is summed over (1024)", false },
    { "dtype", "TYPE", "f32, bf16, e4m3, e5m2 (A e5m2, B e4m3); default: three", false },
    { "scale", "KIND", "of FP8: tensor, row, 1x128 (B 128x128) or 1x32", false },
    { "repeats", "N", "samples, of which the median is printed (11)", false },
    { "threads", "N", "of the cpu backend; 0, the default: all", false },
    { "backend", "NAME", "cpu, cuda or auto (the default)", false },
    { "device", "INDEX", "of the cuda backend (0)", false },
};

const struct verb VERB_BENCH = {
    .name = "bench",
    .arguments = "gemm",
    .about = "measure what a training step is made of",
    .more = "out [m,n] = A [m,k] B^T [n,k]: 2 m n k operations. A sample is as many calls as take\n"
            "20 ms; the median of the samples and the best one are printed.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_bench,
};
