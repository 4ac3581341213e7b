#include "tests/gpu/pair.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/rng.h"
#include "kernels/transposed.h"

struct pair *pair_open(void) {
    struct pair *p = calloc(1, sizeof *p);
    assert_non_null(p);
    static const char *const NAME[SIDES] = { "cpu", "cuda" };
    for (int s = 0; s < SIDES; s++) {
        if (backend_open(NAME[s], 0, 0, &p->handle[s], &p->e) != OK) fail_msg("%s", p->e.text);
        p->b[s] = p->handle[s].backend;
        p->ops[s] = p->b[s]->ops;
    }
    return p;
}

void pair_clear(struct pair *p) {
    for (int s = 0; s < SIDES; s++)
        for (int i = 0; i < p->count; i++) p->ops[s]->memory_destroy(p->b[s], p->memory[s][i]);
    p->count = 0;
}

void pair_close(struct pair *p) {
    if (!p) return; /* it could not be opened */
    pair_clear(p);
    for (int s = 0; s < SIDES; s++) backend_close(&p->handle[s]);
    free(p);
}

/* Allocates the same number of bytes on both sides. */
static void take(struct pair *p, int64_t bytes, void *out[SIDES]) {
    assert_true(p->count < PAIR_MEMORY_MAX);
    for (int s = 0; s < SIDES; s++) {
        if (p->ops[s]->memory_create(p->b[s], "a test", bytes, &out[s], &p->e) != OK)
            fail_msg("%s", p->e.text);
        p->memory[s][p->count] = out[s];
    }
    p->count++;
}

struct twin pair_tensor(struct pair *p, enum dtype t, int64_t d0, int64_t d1, int64_t d2,
                        int64_t d3) {
    struct twin x;
    void *data[SIDES];
    take(p, d0 * d1 * d2 * d3 * dtype_bytes(t), data);
    for (int s = 0; s < SIDES; s++) x.side[s] = tensor_make(data[s], t, d0, d1, d2, d3);
    return x;
}

static int64_t data_bytes(const struct tensor *x) {
    if (dtype_is_fp8(x->dtype)) /* also AdamW's state, whose elements have no lines */
        return fp8_is_untransposed(x) ? tensor_code_bytes(x) : x->dim[0] * x->stride[0];
    return tensor_count(x) * dtype_bytes(x->dtype);
}

static void write_both(struct pair *p, void *const data[SIDES], const void *host, int64_t bytes) {
    for (int s = 0; s < SIDES; s++)
        if (p->ops[s]->upload(p->b[s], LANE_COMPUTE, data[s], host, bytes, &p->e) != OK ||
            p->ops[s]->sync(p->b[s], &p->e) != OK)
            fail_msg("%s", p->e.text);
}

void pair_set(struct pair *p, struct twin *x, const void *host, int64_t bytes) {
    void *data[SIDES] = { x->side[CPU].data, x->side[GPU].data };
    write_both(p, data, host, bytes);
}

struct twin pair_codes(struct pair *p, enum dtype t, int64_t rows, int64_t k,
                       enum scale_kind kind) {
    struct twin x;
    void *data[SIDES], *scale[SIDES];
    int64_t bytes = tensor_fp8_bytes(rows, k);
    struct scale shape = scale_make(NULL, kind, rows, k);
    take(p, bytes, data);
    take(p, scale_bytes(&shape), scale);
    for (int s = 0; s < SIDES; s++) {
        x.side[s] = tensor_fp8(data[s], t, rows, k);
        x.side[s].scale = scale_make(scale[s], kind, rows, k);
    }
    void *host = malloc((size_t)bytes + 1);
    assert_non_null(host);
    memset(host, 0xAA, (size_t)bytes);
    write_both(p, data, host, bytes);
    free(host);
    return x;
}

struct twin pair_f32(struct pair *p, float x) {
    struct twin t = pair_tensor(p, DTYPE_F32, 1, 1, 1, 1);
    pair_set(p, &t, &x, sizeof x);
    return t;
}
struct twin pair_i32(struct pair *p, int32_t x) {
    struct twin t = pair_tensor(p, DTYPE_I32, 1, 1, 1, 1);
    pair_set(p, &t, &x, sizeof x);
    return t;
}

static float draw(uint64_t seed, int64_t i, int spread, float scale) {
    uint64_t bits = rng_bits(rng_key(seed, RNG_INIT, 0, 0), (uint64_t)i);
    int exponent = (int)(bits % (uint64_t)(2 * spread + 1)) - spread;
    float size = scale * ldexpf(1.0f + rng_uniform(bits), exponent);
    return bits & 0x8000 ? -size : size;
}

static void fill_codes(const struct tensor *x, uint8_t *host, uint64_t seed) {
    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t j = 0; j < x->dim[1]; j++) {
            uint8_t code = (uint8_t)(rng_bits(seed, (uint64_t)(i * x->dim[1] + j)) >> 40);
            if (x->dtype == DTYPE_E2M1) code &= 15;
            bool finite = isfinite(fp8_decode(x->dtype, code));
            host[i * x->stride[0] + j] = finite ? code : code & 0x83;
        }
}

static void fill_scale(struct pair *p, struct twin *x, uint64_t seed) {
    const struct scale *shape = &x->side[CPU].scale;
    int64_t n = shape->dim[0] * shape->dim[1];
    void *host = calloc((size_t)n + SCALE_HEADER, 4);
    void *data[SIDES] = { shape->data, x->side[GPU].scale.data };
    assert_non_null(host);
    for (int64_t i = 0; i < n; i++) {
        float factor = fabsf(draw(seed, i, 2, 1.0f));
        if (shape->dtype == DTYPE_F32) ((float *)host)[i] = factor;
        else if (shape->dtype == DTYPE_E4M3)
            ((uint8_t *)host)[SCALE_HEADER + i] = e4m3_encode(factor);
        else ((uint8_t *)host)[i] = e8m0_encode_up(factor);
    }
    if (scale_is_nvfp4(shape->kind)) *(float *)host = fabsf(draw(seed, n, 2, 1.0f)); /* the amax */
    write_both(p, data, host, scale_bytes(shape));
    free(host);
}

void pair_fill(struct pair *p, struct twin *x, uint64_t seed, int spread, float scale) {
    const struct tensor *t = &x->side[CPU];
    int64_t bytes = data_bytes(t);
    void *host = calloc((size_t)bytes + 1, 1);
    assert_non_null(host);
    if (dtype_is_fp8(t->dtype)) {
        fill_codes(t, host, seed);
        fill_scale(p, x, seed + 1);
    } else {
        for (int64_t i = 0; i < tensor_count(t); i++) {
            float v = draw(seed, i, spread, scale);
            if (t->dtype == DTYPE_F32) ((float *)host)[i] = v;
            else ((uint16_t *)host)[i] = bf16_encode(v);
        }
    }
    pair_set(p, x, host, bytes);
    free(host);
}

void pair_sink(struct pair *p, struct twin_sink *s, int64_t rows, int64_t k, enum dtype code,
               enum scale_kind kind, enum scale_source source, struct quant_rule rule,
               bool transposed) {
    memset(s, 0, sizeof *s);
    s->value = pair_tensor(p, DTYPE_BF16, rows, k, 1, 1);
    s->amax = pair_tensor(p, DTYPE_U32, 1, 1, 1, 1);
    if (kind != SCALE_NONE) {
        s->codes = pair_codes(p, code, rows, k, kind);
        s->transposed = pair_codes(p, code, k, rows, kind);
        s->multiplier = pair_f32(p, 37.5f);
        s->stats = pair_tensor(p, DTYPE_U64, 2, 1, 1, 1);
    }
    for (int i = 0; i < SIDES; i++) {
        struct sink *out = &s->side[i];
        out->value = &s->value.side[i];
        out->amax = &s->amax.side[i];
        out->keep_value = true;
        if (kind == SCALE_NONE) continue;
        out->codes = &s->codes.side[i];
        if (transposed) out->codes->transposed = &s->transposed.side[i];
        out->multiplier = &s->multiplier.side[i];
        out->stats = &s->stats.side[i];
        out->source = source;
        out->rule = rule;
    }
}

void pair_untranspose(struct pair *p, struct twin_sink *s, bool shared) {
    const struct tensor *codes = &s->codes.side[CPU];
    struct twin stored = s->codes;
    if (!shared)
        stored = pair_codes(p, codes->dtype, codes->dim[0], codes->dim[1], codes->scale.kind);
    for (int i = 0; i < SIDES; i++) {
        struct tensor *twin = &s->transposed.side[i];
        struct scale scale = twin->scale;
        *twin = tensor_transposed(&stored.side[i]);
        twin->scale = scale;
        twin->transposed = NULL;
    }
}

static void gpu_bytes(struct pair *p, void *data, int byte, int64_t bytes) {
    void *host = malloc((size_t)bytes + 1);
    assert_non_null(host);
    memset(host, byte, (size_t)bytes);
    if (p->ops[GPU]->upload(p->b[GPU], LANE_COMPUTE, data, host, bytes, &p->e) != OK)
        fail_msg("%s", p->e.text);
    free(host);
}

void pair_poison_sink(struct pair *p, struct twin_sink *s) {
    struct tensor *codes[] = { &s->codes.side[GPU], &s->transposed.side[GPU] };
    gpu_bytes(p, s->amax.side[GPU].data, 0, 4);
    gpu_bytes(p, s->stats.side[GPU].data, 0, 16);
    for (int i = 0; i < 2; i++) {
        gpu_bytes(p, codes[i]->data, 0xAA, data_bytes(codes[i]));
        if (s->side[GPU].source != SCALE_SOURCE_KNOWN)
            gpu_bytes(p, codes[i]->scale.data, 0xAA, scale_bytes(&codes[i]->scale));
    }
}

/* ---- comparing ---- */

static void *fetch(struct pair *p, int side, const void *data, int64_t bytes) {
    void *host = malloc((size_t)bytes + 1);
    assert_non_null(host);
    if (p->ops[side]->download(p->b[side], LANE_COMPUTE, host, data, bytes, &p->e) != OK)
        fail_msg("%s", p->e.text);
    return host;
}

static void same_bytes(struct pair *p, const char *what, const char *part, const void *cpu,
                       const void *gpu, int64_t bytes, int64_t element) {
    uint8_t *want = fetch(p, CPU, cpu, bytes), *got = fetch(p, GPU, gpu, bytes);
    int64_t differ = 0, first = -1;
    for (int64_t i = 0; i < bytes; i++) {
        if (want[i] == got[i]) continue;
        if (first < 0) first = i;
        differ++;
    }
    if (differ)
        fail_msg("%s: %s: %lld of %lld bytes differ, the first in element %lld: %02X, not %02X",
                 what, part, (long long)differ, (long long)bytes, (long long)(first / element),
                 got[first], want[first]);
    free(want);
    free(got);
}

void pair_same(struct pair *p, const char *what, const struct twin *x) {
    const struct tensor *t = &x->side[CPU];
    same_bytes(p, what, "data", t->data, x->side[GPU].data, data_bytes(t), dtype_bytes(t->dtype));
    if (t->scale.kind != SCALE_NONE)
        same_bytes(p, what, "scale", t->scale.data, x->side[GPU].scale.data, scale_bytes(&t->scale),
                   dtype_bytes(t->scale.dtype));
}

void pair_same_on_gpu(struct pair *p, const struct twin *x, const struct twin *y) {
    const struct tensor *t[2] = { &x->side[GPU], &y->side[GPU] };
    int64_t bytes = data_bytes(t[0]);
    void *host[2];
    for (int i = 0; i < 2; i++) {
        host[i] = test_malloc((size_t)bytes);
        assert_int_equal(p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, host[i], t[i]->data, bytes,
                                               &p->e), OK);
    }
    assert_memory_equal(host[0], host[1], (size_t)bytes);
    test_free(host[0]);
    test_free(host[1]);
}

void pair_same_sink(struct pair *p, const char *what, const struct twin_sink *s) {
    char name[160];
    snprintf(name, sizeof name, "%s, amax", what);
    pair_same(p, name, &s->amax);
    if (!s->side[CPU].codes) return;
    snprintf(name, sizeof name, "%s, codes", what);
    if (s->side[CPU].codes->data) pair_same(p, name, &s->codes);
    snprintf(name, sizeof name, "%s, transposed codes", what);
    if (s->side[CPU].codes->transposed) pair_same(p, name, &s->transposed);
    snprintf(name, sizeof name, "%s, stats", what);
    if (s->side[GPU].stats) pair_same(p, name, &s->stats);
}

static double value_at(const struct tensor *x, const void *host, int64_t i) {
    if (x->dtype == DTYPE_F32) return ((const float *)host)[i];
    return bf16_decode(((const uint16_t *)host)[i]);
}

void pair_near(struct pair *p, const char *what, const struct twin *x, double nmse_max) {
    const struct tensor *t = &x->side[CPU];
    int64_t bytes = data_bytes(t);
    void *want = fetch(p, CPU, t->data, bytes), *got = fetch(p, GPU, x->side[GPU].data, bytes);
    double error = 0, size = 0;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        double w = value_at(t, want, i), g = value_at(t, got, i);
        if (isnan(w) && isnan(g)) continue;
        error += (g - w) * (g - w);
        size += w * w;
    }
    double nmse = size > 0 ? error / size : error;
    if (getenv("DISTANCES")) printf("    %s: NMSE %.3g of %.3g\n", what, nmse, nmse_max);
    if (!(nmse <= nmse_max)) fail_msg("%s: NMSE %.3g, at most %.3g", what, nmse, nmse_max);
    free(want);
    free(got);
}

char *choices_with(const char *kind, const char *table, const char *value) {
    char *text = NULL;
    size_t bytes = 0, name = strlen(kind);
    FILE *out = open_memstream(&text, &bytes);
    if (!out) fail_msg("no memory for a choice table");
    for (const char *line = table; *line;) {
        size_t length = strcspn(line, "\n"), next = length + (line[length] == '\n');
        const char *colon = strstr(line, " : ");
        if (!strncmp(line, kind, name) && line[name] == ' ' && colon)
            fprintf(out, "%.*s%s\n", (int)(colon + 3 - line), line, value);
        else fwrite(line, 1, next, out);
        line += next;
    }
    if (fclose(out) != 0) fail_msg("no memory for a choice table");
    return text;
}
