#include "tests/support/ops_support.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/cpu/cpu_backend.h"

struct ops *ops_open(int threads) {
    struct ops *o = calloc(1, sizeof *o);
    assert_non_null(o);
    if (cpu_backend_open(&o->b, threads, &o->e) != OK) fail_msg("%s", o->e.text);
    o->table = o->b->ops;
    return o;
}

void ops_close(struct ops *o) {
    for (int i = 0; i < o->count; i++) free(o->memory[i]);
    o->table->close(o->b);
    free(o);
}

void *ops_memory(struct ops *o, int64_t n) {
    assert_true(o->count < OPS_MEMORY_MAX);
    int64_t bytes = round_up(n ? n : 1, 64);
    void *memory = aligned_alloc(64, (size_t)bytes);
    assert_non_null(memory);
    memset(memory, 0, (size_t)bytes);
    return o->memory[o->count++] = memory;
}

struct tensor ops_tensor(struct ops *o, enum dtype t, int64_t d0, int64_t d1, int64_t d2,
                         int64_t d3) {
    return tensor_make(ops_memory(o, d0 * d1 * d2 * d3 * dtype_bytes(t)), t, d0, d1, d2, d3);
}

struct tensor ops_f32(struct ops *o, float x) {
    struct tensor t = ops_tensor(o, DTYPE_F32, 1, 1, 1, 1);
    *(float *)t.data = x;
    return t;
}

struct tensor ops_i32(struct ops *o, int32_t x) {
    struct tensor t = ops_tensor(o, DTYPE_I32, 1, 1, 1, 1);
    *(int32_t *)t.data = x;
    return t;
}

double ops_get(const struct tensor *x, int64_t i) {
    switch (x->dtype) {
    case DTYPE_F32: return ((const float *)x->data)[i];
    case DTYPE_BF16: return bf16_decode(((const uint16_t *)x->data)[i]);
    case DTYPE_I32: return ((const int32_t *)x->data)[i];
    case DTYPE_U32: return ((const uint32_t *)x->data)[i];
    default: fail_msg("ops_get of %s", dtype_name(x->dtype)); return 0;
    }
}

void ops_set(const struct tensor *x, int64_t i, double value) {
    switch (x->dtype) {
    case DTYPE_F32: ((float *)x->data)[i] = (float)value; break;
    case DTYPE_BF16: ((uint16_t *)x->data)[i] = bf16_encode((float)value); break;
    case DTYPE_I32: ((int32_t *)x->data)[i] = (int32_t)value; break;
    default: fail_msg("ops_set of %s", dtype_name(x->dtype));
    }
}

/* In [-1, 1). */
static double uniform(uint64_t seed, int64_t i) {
    return (double)(rng_bits(rng_mix(seed), (uint64_t)i) >> 11) * 0x1p-52 - 1.0;
}

void ops_fill(const struct tensor *x, uint64_t seed, double scale) {
    for (int64_t i = 0; i < tensor_count(x); i++) ops_set(x, i, scale * uniform(seed, i));
}

double *ops_doubles(struct ops *o, const struct tensor *x) {
    int64_t n = tensor_count(x);
    double *out = ops_memory(o, n * (int64_t)sizeof(double));
    for (int64_t i = 0; i < n; i++) out[i] = ops_get(x, i);
    return out;
}

struct tensor ops_copy(struct ops *o, const struct tensor *x, enum dtype t) {
    struct tensor y = ops_tensor(o, t, x->dim[0], x->dim[1], x->dim[2], x->dim[3]);
    for (int64_t i = 0; i < tensor_count(x); i++) ops_set(&y, i, ops_get(x, i));
    return y;
}

double ops_nmse(const struct tensor *got, const double *want) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < tensor_count(got); i++) {
        double d = ops_get(got, i) - want[i];
        error += d * d;
        size += want[i] * want[i];
    }
    return size > 0 ? error / size : error;
}

uint64_t ops_hash(const struct tensor *x) {
    uint64_t h = rng_mix((uint64_t)x->dtype + 1);
    for (int d = 0; d < 4; d++) h = rng_mix(h ^ (uint64_t)x->dim[d]);
    const unsigned char *byte = x->data;
    for (int64_t i = 0; i < tensor_count(x) * dtype_bytes(x->dtype); i++) h = rng_mix(h ^ byte[i]);
    return h;
}

double ops_along(const struct tensor *gradient, uint64_t seed) {
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(gradient); i++)
        sum += ops_get(gradient, i) * uniform(seed, i);
    return sum;
}

double ops_difference(double (*f)(void *context), void *context, double *x, int64_t n,
                      uint64_t seed, double step) {
    double *kept = malloc((size_t)n * sizeof *kept), value[2];
    assert_non_null(kept);
    memcpy(kept, x, (size_t)n * sizeof *kept);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < n; i++) x[i] = kept[i] + (side ? -step : step) * uniform(seed, i);
        value[side] = f(context);
    }
    memcpy(x, kept, (size_t)n * sizeof *kept);
    free(kept);
    return (value[0] - value[1]) / (2 * step);
}

void ops_expect(const char *file, int line, const struct ops *o, enum status got, enum status want,
                const char *words) {
    if (got != want)
        fail_msg("%s:%d: %s instead of %s: %s", file, line, status_name(got), status_name(want),
                 got == OK ? "" : o->e.text);
    if (words && !strstr(o->e.text, words))
        fail_msg("%s:%d: \"%s\" does not contain \"%s\"", file, line, o->e.text, words);
}

void ops_below(const char *file, int line, double value, double bound, const char *what) {
    if (!(value <= bound)) fail_msg("%s:%d: %s: %g, allowed %g", file, line, what, value, bound);
}
