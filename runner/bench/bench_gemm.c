/* bench gemm: one product through the operator table; the same code measures every backend. */
#include <inttypes.h>
#include <jansson.h>

#include "model/ground/json_safe.h"
#include "runner/bench/bench.h"
#include "runner/bench/bench_ceilings.h"
#include "runner/plan/mfu.h"

enum { REPEATS = 11, DIM_MAX = 1 << 20 };
static const double SAMPLE_US = 20000;

/* The scales of A and B: those of a forward product. --scale names A's. */
static const struct { enum scale_kind a, b; } SCALES[] = {
    { SCALE_TENSOR, SCALE_TENSOR }, { SCALE_ROW, SCALE_ROW }, { SCALE_1X128, SCALE_128X128 },
    { SCALE_1X32, SCALE_1X32 }, { SCALE_1X16, SCALE_16X16 },
};
static const struct { enum dtype a, b, out; } DTYPES[] = { /* --dtype names A's */
    { DTYPE_F32, DTYPE_F32, DTYPE_F32 },    { DTYPE_BF16, DTYPE_BF16, DTYPE_BF16 },
    { DTYPE_E4M3, DTYPE_E4M3, DTYPE_BF16 }, { DTYPE_E5M2, DTYPE_E4M3, DTYPE_BF16 },
    { DTYPE_E2M1, DTYPE_E2M1, DTYPE_BF16 },
};
enum { SCALE_PAIRS = sizeof SCALES / sizeof *SCALES, DTYPE_PAIRS = sizeof DTYPES / sizeof *DTYPES };

struct gemm_row {
    const char *dtype, *scale; /* names from the command line; scale NULL without codes */
    struct gemm_shape shape;
    struct bench_effort effort;
    struct bench_time time;
    double ceiling_tflops; /* rate of a large square product of this dtype; 0: the backend lacks
                              it */
};

/* scale: NULL is the dtype's default. */
static enum status row_shape(struct gemm_row *row, const char *scale, struct err *e) {
    struct gemm_shape *g = &row->shape;
    int d = 0, s = 0;
    while (d < DTYPE_PAIRS && strcmp(dtype_name(DTYPES[d].a), row->dtype) != 0) d++;
    if (d == DTYPE_PAIRS)
        return FAIL(e, ERR_ARG, "--dtype is f32, bf16, e4m3, e5m2 or e2m1, not \"%s\"",
                    row->dtype);
    bool nvfp4 = DTYPES[d].a == DTYPE_E2M1;
    if (!scale) scale = scale_kind_name(nvfp4 ? SCALE_1X16 : SCALE_TENSOR);
    while (s < SCALE_PAIRS && strcmp(scale_kind_name(SCALES[s].a), scale) != 0) s++;
    if (s == SCALE_PAIRS)
        return FAIL(e, ERR_ARG, "--scale is tensor, row, 1x128, 1x32 or 1x16, not \"%s\"", scale);
    g->a = DTYPES[d].a;
    g->b = DTYPES[d].b;
    g->out = DTYPES[d].out;
    bool codes = dtype_is_fp8(g->a);
    if (codes && scale_is_nvfp4(SCALES[s].a) != nvfp4)
        return FAIL(e, ERR_ARG, "--scale 1x16 and --dtype e2m1 (NVFP4) go together, not %s and %s",
                    scale, row->dtype);
    g->a_scale = codes ? SCALES[s].a : SCALE_NONE;
    g->b_scale = codes ? SCALES[s].b : SCALE_NONE;
    g->fast_accumulate = !nvfp4; /* as the recipe has it */
    row->scale = codes ? scale_kind_name(g->a_scale) : NULL;
    return OK;
}

static double gflops(const struct gemm_row *row, double us) {
    return gemm_flop(&row->shape) / us * 1e-3;
}

/* The share of the fastest rate of this dtype: the large square product, or the best sample of this
 * product. Another shape than a square may be faster. */
static double share(const struct gemm_row *row) {
    double best = gflops(row, row->time.best_us) * 1e-3;
    double ceiling = best > row->ceiling_tflops ? best : row->ceiling_tflops;
    return gflops(row, row->time.median_us) * 1e-3 / ceiling;
}

static json_t *row_json(const struct gemm_row *row) {
    const struct gemm_shape *g = &row->shape;
    return json_pack("{s:I,s:I,s:I,s:s,s:s?,s:b,s:I,s:I,s:f,s:f,s:f,s:f,s:o}", "m",
                     (json_int_t)g->m, "n", (json_int_t)g->n, "k", (json_int_t)g->k, "dtype",
                     row->dtype, "scale", row->scale, "fast", g->fast_accumulate, "repeats",
                     (json_int_t)row->effort.samples, "calls", (json_int_t)row->time.calls,
                     "time_us_median", row->time.median_us, "gflops_median",
                     gflops(row, row->time.median_us), "gflops_best",
                     gflops(row, row->time.best_us), "share", share(row), "energy_j",
                     energy_json(row->time.joules));
}

static void print_row(const struct cli *cli, const struct gemm_row *row) {
    const struct gemm_shape *g = &row->shape;
    struct flop_rate median = flop_rate_of(gflops(row, row->time.median_us) * 1e-3);
    struct flop_rate best = flop_rate_of(gflops(row, row->time.best_us) * 1e-3);
    cli_out(cli, "%-5s %-7s %8" PRId64 " x %" PRId64 " x %" PRId64 "  %10.1f us  %9.1f %s"
            "  (best %.1f %s), %.1f%% of the fastest one", row->dtype,
            row->scale ? row->scale : "-", g->m, g->n, g->k, row->time.median_us, median.value,
            median.unit, best.value, best.unit, 100 * share(row));
    energy_end_row(cli, row->effort.meter, row->time.joules);
}

/* One row for each dtype: the requested one, or those of a recipe's GEMMs. */
enum status bench_gemm(const struct cli *cli, struct backend *b, const struct energy_meter *m,
                       json_t *rows, struct err *e) {
    const char *asked = cli_value(cli, "dtype"), *scale = cli_value(cli, "scale");
    bool nvfp4 = scale && !strcmp(scale, scale_kind_name(SCALE_1X16));
    const char *usual[] = { "f32", "bf16", nvfp4 ? "e2m1" : "e4m3" };
    struct gemm_row row = { .shape = { .m = 1024, .n = 1024, .k = 1024 },
                            .effort = { .samples = REPEATS, .sample_us = SAMPLE_US,
                                        .meter = m } };
    TRY(cli_int(cli, "m", 1, DIM_MAX, &row.shape.m, e));
    TRY(cli_int(cli, "n", 1, DIM_MAX, &row.shape.n, e));
    TRY(cli_int(cli, "k", 1, DIM_MAX, &row.shape.k, e));
    TRY(cli_int(cli, "repeats", 1, BENCH_SAMPLES_MAX, &row.effort.samples, e));
    for (size_t i = 0; i < (asked ? 1 : sizeof usual / sizeof *usual); i++) {
        row.dtype = asked ? asked : usual[i];
        TRY(row_shape(&row, scale, e));
        if (asked && scale && !row.scale)
            return FAIL(e, ERR_ARG, "--scale is for FP8 and NVFP4: --dtype %s has none", asked);
        enum status st = ceiling_gemm(b, &row.shape, &row.effort, &row.time, e);
        if (st == ERR_UNSUPPORTED && !asked) {
            cli_note(cli, "%s: %s", row.dtype, e->text);
            continue;
        }
        TRY(st);
        TRY(ceiling_large_gemm(b, row.shape.a == DTYPE_E5M2 ? DTYPE_E4M3 : row.shape.a,
                               &row.ceiling_tflops, e));
        bool failed = false;
        if (!cli->json) print_row(cli, &row);
        else json_append(rows, row_json(&row), &failed);
        if (failed) return FAIL(e, ERR_MEMORY, "a row of JSON");
    }
    return OK;
}
