#include "runner/bench/bench_measure.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- time -------------------------------------------------------------------------------------*/

static enum status time_calls(struct backend *b, enum status (*run)(void *, struct err *),
                              void *context, int64_t calls, double *us, struct err *e) {
    TRY(b->ops->timer_mark(b, LANE_COMPUTE, 0, e));
    for (int64_t i = 0; i < calls; i++) TRY(run(context, e));
    TRY(b->ops->timer_mark(b, LANE_COMPUTE, 1, e));
    TRY(b->ops->timer_read(b, 0, 1, us, e));
    *us /= (double)calls;
    return OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum status joules_of_call(struct backend *b, const struct energy_meter *m,
                                  enum status (*run)(void *, struct err *), void *context,
                                  double call_us, double *out, struct err *e) {
    struct energy_loop loop;
    *out = 0;
    if (!m || m->window_us == 0 || !energy_is_measurable(m)) return OK;
    energy_loop_begin(&loop, b, m, call_us);
    for (bool more = true; more;) {
        TRY(run(context, e));
        TRY(energy_loop_more(&loop, &more, e));
    }
    *out = loop.result.joules;
    return OK;
}

enum status bench_measure(struct backend *b, const struct bench_effort *effort,
                          enum status (*run)(void *context, struct err *e), void *context,
                          struct bench_time *out, struct err *e) {
    double sample[BENCH_SAMPLES_MAX], warm_us = 0;
    TRY(time_calls(b, run, context, 1, &warm_us, e));
    TRY(time_calls(b, run, context, 1, &warm_us, e));
    bool long_call = warm_us >= effort->sample_us;
    out->calls = long_call ? 1 : (int64_t)(effort->sample_us / (warm_us + 1)) + 1;
    for (int64_t i = 0; i < effort->samples; i++) {
        if (effort->pause_us) (void)usleep((useconds_t)effort->pause_us);
        TRY(time_calls(b, run, context, out->calls, &sample[i], e));
    }
    qsort(sample, (size_t)effort->samples, sizeof *sample, by_value);
    out->median_us = sample[effort->samples / 2];
    out->best_us = sample[0];
    return joules_of_call(b, effort->meter, run, context, out->median_us, &out->joules, e);
}

/* ---- memory -----------------------------------------------------------------------------------*/

void bench_free(struct bench_memory *m) {
    for (int i = 0; i < m->count; i++) m->b->ops->memory_destroy(m->b, m->block[i]);
    m->count = 0;
}

enum status bench_zeros(struct bench_memory *m, int64_t bytes, void **out, struct err *e) {
    if (m->count == BENCH_BLOCKS_MAX)
        return FAIL(e, ERR_STATE, "more than %d tensors in one benchmark", BENCH_BLOCKS_MAX);
    TRY(m->b->ops->memory_create(m->b, "bench", bytes, out, e));
    m->block[m->count++] = *out;
    return OK;
}

enum status bench_tensor(struct bench_memory *m, struct tensor *out, enum dtype t, int64_t d0,
                         int64_t d1, int64_t d2, int64_t d3, struct err *e) {
    *out = tensor_make(NULL, t, d0, d1, d2, d3);
    TRY(bench_zeros(m, tensor_count(out) * dtype_bytes(t), &out->data, e));
    if (t != DTYPE_F32 && t != DTYPE_BF16) return OK;
    struct tensor flat = tensor_1d(out->data, t, tensor_count(out));
    return m->b->ops->fill_normal(m->b, LANE_COMPUTE, &flat, 1.0f, 1, m->draws++, 0, e);
}

/* The default constants of each granularity (kernels/RECIPES.md). */
static struct quant_rule rule_of(enum scale_kind kind) {
    switch (kind) {
    case SCALE_ROW: return (struct quant_rule){ QUANT_TORCHAO, 1e-12f, true };
    case SCALE_1X128:
    case SCALE_128X128: return (struct quant_rule){ QUANT_TE_BLOCK, 0, true };
    case SCALE_1X32:
    case SCALE_32X32: return (struct quant_rule){ QUANT_MX, 0, false };
    case SCALE_1X16:
    case SCALE_16X16: return (struct quant_rule){ QUANT_NVFP4, 0, false };
    default: return (struct quant_rule){ QUANT_TE, 0, false };
    }
}

static enum status codes_tensor(struct bench_memory *m, struct tensor *out, enum dtype t,
                                int64_t rows, int64_t k, enum scale_kind kind, struct err *e) {
    *out = tensor_fp8(NULL, t, rows, k);
    out->scale = scale_make(NULL, kind, rows, k);
    TRY(bench_zeros(m, tensor_fp8_bytes(rows, k), &out->data, e));
    return bench_zeros(m, scale_bytes(&out->scale), &out->scale.data, e);
}

enum status bench_sink(struct bench_memory *m, struct sink *out, struct tensor *value,
                       struct tensor *codes, struct tensor *twin, enum dtype t, int64_t rows,
                       int64_t k, enum scale_kind kind, struct err *e) {
    if (!value->data) TRY(bench_tensor(m, value, DTYPE_BF16, rows, k, 1, 1, e));
    TRY(codes_tensor(m, codes, t, rows, k, kind, e));
    if (twin) TRY(codes_tensor(m, twin, t, k, rows, kind, e));
    if (twin && kind == SCALE_TENSOR) twin->scale.data = codes->scale.data; /* the tensor has one
                                                                               scale */
    codes->transposed = twin;
    *out = sink_value(value, NULL);
    out->codes = codes;
    bool amax = kind == SCALE_TENSOR || scale_is_nvfp4(kind);
    out->source = amax ? SCALE_SOURCE_AMAX : SCALE_SOURCE_BLOCK;
    out->rule = rule_of(kind);
    return OK;
}

static enum status fp8_operand(struct bench_memory *m, struct tensor *out, enum dtype t,
                               int64_t rows, int64_t k, enum scale_kind kind, struct err *e) {
    struct backend *b = m->b;
    struct bench_memory mine = { .b = b, .draws = m->draws++ };
    struct tensor value, amax = tensor_1d(NULL, DTYPE_U32, 1);
    struct sink sink;
    enum status st = bench_tensor(&mine, &value, DTYPE_BF16, rows, k, 1, 1, e);
    if (st == OK) st = bench_zeros(&mine, 4, &amax.data, e);
    if (st == OK) st = bench_sink(m, &sink, &value, out, NULL, t, rows, k, kind, e);
    if (st == OK) {
        sink.amax = &amax;
        st = b->ops->quantise(b, LANE_COMPUTE, &sink, &value, e);
    }
    if (st == OK) st = b->ops->quantise_finish(b, LANE_COMPUTE, &sink, e);
    if (st == OK) st = b->ops->sync(b, e);
    bench_free(&mine);
    return st;
}

enum status bench_operand(struct bench_memory *m, struct tensor *out, enum dtype t, int64_t rows,
                          int64_t k, enum scale_kind kind, bool transposed, struct err *e) {
    if (dtype_is_fp8(t)) return fp8_operand(m, out, t, rows, k, kind, e);
    if (!transposed) return bench_tensor(m, out, t, rows, k, 1, 1, e);
    TRY(bench_tensor(m, out, t, k, rows, 1, 1, e));
    out->dim[0] = rows; out->dim[1] = k;
    out->stride[0] = 1; out->stride[1] = rows;
    return OK;
}
