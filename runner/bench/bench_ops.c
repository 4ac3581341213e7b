/* bench attention and bench quantise: operators of a step other than GEMMs. Attention is compared
 * with a large GEMM and with its plain version, quantisation with the bandwidth of a copy. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/bench/bench.h"
#include "runner/bench/bench_ceilings.h"
#include "runner/bench/plain_attention.h"
#include "runner/hardware/facts.h"
#include "runner/plan/mfu.h"

enum { REPEATS = 11, DIM_MAX = 1 << 20, COPY_BYTES = 1 << 28, COPY_BYTES_CPU = 1 << 25 };
static const double SAMPLE_US = 20000;

static enum status read_effort(const struct cli *cli, const struct energy_meter *m,
                               struct bench_effort *out, struct err *e) {
    *out = (struct bench_effort){ .samples = REPEATS, .sample_us = SAMPLE_US, .meter = m };
    return cli_int(cli, "repeats", 1, BENCH_SAMPLES_MAX, &out->samples, e);
}

static enum status append(json_t *rows, json_t *row, struct err *e) {
    bool failed = false;
    json_append(rows, row, &failed);
    return failed ? FAIL(e, ERR_MEMORY, "a row of JSON") : OK;
}

/* ---- attention --------------------------------------------------------------------------------*/

/* The backend's decision for this direction; way is "" if it records none. */
static struct decision attention_served(struct backend *b, const char *direction) {
    struct decision d, found = { .way = "" };
    for (int64_t i = 0; b->ops->decision(b, i, &d); i++)
        if (!strcmp(d.section, "attention") && !strcmp(d.direction, direction)) found = d;
    return found;
}

/* On a CPU the page cache is no obstacle, so its free memory is not asked for. */
static enum status plain_version(struct backend *b, const struct attention_shape *s,
                                 const struct bench_effort *effort, struct attention_version *out,
                                 struct err *e) {
    struct device_info info;
    TRY(b->ops->info(b, &info, e));
    bool cpu = !strcmp(b->ops->name, "cpu");
    int64_t have = cpu ? facts_memory_available() : info.memory_free;
    return plain_attention_measure(b, s, effort, have, out, e);
}

static double tflops_of(const struct attention_shape *s, const struct attention_version *v) {
    return attention_flop(s) / v->time.median_us * 1e-6;
}

/* A row of the table up to its remarks: what, time, rate, share, memory. */
static void print_version(const struct cli *cli, const char *what, const struct attention_shape *s,
                          const struct attention_version *v, double ceiling) {
    char name[128];
    double tflops = tflops_of(s, v);
    struct flop_rate rate = flop_rate_of(tflops);
    snprintf(name, sizeof name, "%s B%" PRId64 " T%" PRId64 " H%" PRId64 " G%" PRId64 " D%" PRId64,
             what, s->batch, s->seq_len, s->heads, s->kv_heads, s->head_dim);
    cli_out(cli, "%-36s %10.1f us  %9.1f %s  %5.1f%% of a large GEMM %10.2f MiB", name,
            v->time.median_us, rate.value, rate.unit, 100 * tflops / ceiling,
            (double)v->bytes / 0x1p20);
}

static void print_versions(const struct cli *cli, const struct attention_shape *s,
                           const struct bench_effort *effort, const struct attention_version *fused,
                           const struct attention_version *plain, double ceiling,
                           const struct decision *d) {
    print_version(cli, s->backward ? "backward" : "forward", s, fused, ceiling);
    cli_out(cli, "%s%s%s%s%s", *d->way ? "  by " : "", d->way, *d->detail ? " (" : "", d->detail,
            *d->detail ? ")" : "");
    energy_end_row(cli, effort->meter, fused->time.joules);
    if (*plain->why) {
        cli_out(cli, "  plain: not measured: %s\n", plain->why);
        return;
    }
    print_version(cli, "  plain", s, plain, ceiling);
    cli_out(cli, "  %.2fx the time, %.0fx the memory",
            plain->time.median_us / fused->time.median_us,
            (double)plain->bytes / (double)fused->bytes);
    energy_end_row(cli, effort->meter, plain->time.joules);
}

static json_t *plain_json(const struct attention_shape *s, const struct attention_version *plain,
                          double ceiling) {
    if (*plain->why)
        return json_pack("{s:I,s:o}", "memory_bytes", (json_int_t)plain->bytes, "why",
                         json_from_text(plain->why));
    return json_pack("{s:f,s:f,s:f,s:I,s:o}", "time_us_median", plain->time.median_us,
                     "tflops_median", tflops_of(s, plain), "share", tflops_of(s, plain) / ceiling,
                     "memory_bytes", (json_int_t)plain->bytes, "energy_j",
                     energy_json(plain->time.joules));
}

static enum status attention_row(const struct cli *cli, struct backend *b,
                                 const struct attention_shape *s, const struct bench_effort *effort,
                                 double ceiling, json_t *rows, struct err *e) {
    struct attention_version fused = { .bytes = fused_attention_bytes(s) }, plain;
    const char *direction = s->backward ? "backward" : "forward";
    TRY(ceiling_attention(b, s, effort, &fused.time, e));
    struct decision d = attention_served(b, direction);
    TRY(plain_version(b, s, effort, &plain, e));
    if (!cli->json) {
        print_versions(cli, s, effort, &fused, &plain, ceiling, &d);
        return OK;
    }
    double tflops = tflops_of(s, &fused);
    return append(rows, json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:I,s:o,s:o,s:s*,s:s*}",
                                  "direction", direction, "batch", (json_int_t)s->batch, "seq_len",
                                  (json_int_t)s->seq_len,
                                  "heads", (json_int_t)s->heads, "kv_heads",
                                  (json_int_t)s->kv_heads, "head_dim", (json_int_t)s->head_dim,
                                  "time_us_median", fused.time.median_us, "tflops_median", tflops,
                                  "share", tflops / ceiling, "memory_bytes",
                                  (json_int_t)fused.bytes, "energy_j",
                                  energy_json(fused.time.joules), "plain",
                                  plain_json(s, &plain, ceiling), "way", *d.way ? d.way : NULL,
                                  "why", *d.detail ? d.detail : NULL), e);
}

enum status bench_attention(const struct cli *cli, struct backend *b, const struct energy_meter *m,
                            json_t *rows, struct err *e) {
    struct attention_shape s = { .batch = 1, .seq_len = 1024, .heads = 8, .head_dim = 64,
                                 .act = DTYPE_BF16, .out = DTYPE_BF16, .d_o = DTYPE_BF16 };
    struct bench_effort effort;
    double ceiling = 0;
    TRY(read_effort(cli, m, &effort, e));
    TRY(cli_int(cli, "batch", 1, DIM_MAX, &s.batch, e));
    TRY(cli_int(cli, "seq-len", 1, DIM_MAX, &s.seq_len, e));
    TRY(cli_int(cli, "heads", 1, DIM_MAX, &s.heads, e));
    TRY(cli_int(cli, "head-dim", 2, DIM_MAX, &s.head_dim, e));
    s.kv_heads = s.heads;
    TRY(cli_int(cli, "kv-heads", 1, DIM_MAX, &s.kv_heads, e));
    if (s.heads % s.kv_heads)
        return FAIL(e, ERR_ARG, "--heads %" PRId64 " is not a multiple of --kv-heads %" PRId64,
                    s.heads, s.kv_heads);
    TRY(ceiling_large_gemm(b, DTYPE_BF16, &ceiling, e));
    TRY(attention_row(cli, b, &s, &effort, ceiling, rows, e));
    s.backward = true;
    return attention_row(cli, b, &s, &effort, ceiling, rows, e);
}

/* ---- quantise ---------------------------------------------------------------------------------*/

struct quantise_run {
    struct backend *b;
    struct tensor value, codes, twin, amax;
    struct sink sink;
};

static enum status run_quantise(void *context, struct err *e) {
    struct quantise_run *r = context;
    TRY(r->b->ops->quantise(r->b, LANE_COMPUTE, &r->sink, &r->value, e));
    return r->b->ops->quantise_finish(r->b, LANE_COMPUTE, &r->sink, e);
}

/* Reads 2 bytes and writes 1 for each element, 1 more for the transposed copy. NVFP4's codes are
 * kept one a byte. */
static enum status quantise_row(const struct cli *cli, struct backend *b, enum scale_kind kind,
                                bool twin, const int64_t dim[2], const struct bench_effort *effort,
                                double copy, json_t *rows, struct err *e) {
    enum dtype code = scale_is_nvfp4(kind) ? DTYPE_E2M1 : DTYPE_E4M3;
    struct bench_memory m = { .b = b };
    struct quantise_run r = { .b = b, .amax = tensor_1d(NULL, DTYPE_U32, 1) };
    struct bench_time time;
    enum status st = bench_sink(&m, &r.sink, &r.value, &r.codes, twin ? &r.twin : NULL, code,
                                dim[0], dim[1], kind, e);
    if (st == OK) st = bench_zeros(&m, 4, &r.amax.data, e);
    r.sink.amax = &r.amax;
    if (st == OK) st = bench_measure(b, effort, run_quantise, &r, &time, e);
    bench_free(&m);
    TRY(st);
    double rate = (double)dim[0] * (double)dim[1] * (twin ? 4 : 3) / time.median_us * 1e6;
    if (!cli->json) {
        cli_out(cli, "%-8s %-16s %8" PRId64 " x %" PRId64 "  %10.1f us  %9.1f GB/s  %5.1f%% of a "
                "copy", scale_kind_name(kind), twin ? "and transposed" : "", dim[0], dim[1],
                time.median_us, rate * 1e-9, 100 * rate / copy);
        energy_end_row(cli, effort->meter, time.joules);
        return OK;
    }
    json_t *row = json_pack("{s:s,s:b,s:I,s:I,s:f,s:f,s:f,s:o}", "scale", scale_kind_name(kind),
                            "transposed", twin, "m", (json_int_t)dim[0], "k", (json_int_t)dim[1],
                            "time_us_median", time.median_us, "bytes_per_s", rate, "share",
                            rate / copy, "energy_j", energy_json(time.joules));
    return append(rows, row, e);
}

enum status bench_quantise(const struct cli *cli, struct backend *b, const struct energy_meter *m,
                           json_t *rows, struct err *e) {
    const char *asked = cli_value(cli, "scale");
    int64_t dim[2] = { 1024, 1024 };
    bool cpu = !strcmp(b->ops->name, "cpu"), known = !asked;
    struct bench_effort effort;
    double copy = 0;
    TRY(read_effort(cli, m, &effort, e));
    TRY(cli_int(cli, "m", 1, DIM_MAX, &dim[0], e));
    TRY(cli_int(cli, "k", 1, DIM_MAX, &dim[1], e));
    for (int k = SCALE_TENSOR; k < SCALE_KIND_COUNT; k++)
        known = known || !strcmp(asked, scale_kind_name((enum scale_kind)k));
    if (!known)
        return FAIL(e, ERR_ARG, "--scale is tensor, row, 1x128, 128x128, 1x32, 32x32, 1x16 or "
                    "16x16, not \"%s\"", asked);
    struct bench_effort of_copy = effort;
    of_copy.meter = NULL;
    TRY(ceiling_copy(b, cpu ? COPY_BYTES_CPU : COPY_BYTES, &of_copy, &copy, e));
    for (int k = SCALE_TENSOR; k < SCALE_KIND_COUNT; k++) {
        enum scale_kind kind = (enum scale_kind)k;
        if (asked && strcmp(asked, scale_kind_name(kind)) != 0) continue;
        for (int twin = 0; twin < 2; twin++)
            TRY(quantise_row(cli, b, kind, twin != 0, dim, &effort, copy, rows, e));
    }
    return OK;
}
