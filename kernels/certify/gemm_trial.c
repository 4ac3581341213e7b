#include "kernels/certify/gemm_trial.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/certify/device_lines.h"
#include "kernels/nvfp4.h"

/* Streams of random numbers. */
enum { SEED = 2104, STREAM_A = 1, STREAM_W, STREAM_FACTORS_A, STREAM_FACTORS_W, STREAM_ADDED };

static uint64_t draw(uint64_t stream, int64_t i) {
    return rng_bits(SEED * 64 + stream, (uint64_t)i);
}

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for the operands of a certificate");
}

/* ---- values and factors ---- */

int64_t trial_block(enum scale_kind kind) {
    switch (kind) {
    case SCALE_1X128: case SCALE_128X128: return 128;
    case SCALE_1X32: case SCALE_32X32: return 32;
    case SCALE_1X16: case SCALE_16X16: return NVFP4_BLOCK;
    default: return 0;
    }
}

static float decode(enum dtype t, const unsigned char *lines, int64_t at) {
    if (t != DTYPE_BF16) return fp8_decode(t, lines[at]);
    uint16_t bits;
    memcpy(&bits, lines + 2 * at, sizeof bits);
    return bf16_decode(bits);
}

static void encode(enum dtype t, unsigned char *lines, int64_t at, float x) {
    uint16_t bits = bf16_encode(x);
    if (t == DTYPE_BF16) memcpy(lines + 2 * at, &bits, sizeof bits);
    else lines[at] = fp8_encode(t, x);
}

float trial_value(const struct trial_operand *o, int64_t row, int64_t k) {
    int64_t line = o->by_k ? k : row, at = o->by_k ? row : k;
    return o->values[line % TRIAL_PERIOD * o->line + at];
}

float trial_value_of_rows(const struct trial_operand *o, int64_t row, int64_t k) {
    int64_t at = row * round_up(o->k, FP8_ROW_ALIGN) + k;
    if (!o->by_k) return trial_value(o, row, k);
    if (at >= o->k * o->line) return 0.0f; /* beyond its codes */
    return o->values[at / o->line % TRIAL_PERIOD * o->line + at % o->line];
}

int64_t trial_factor_index(const struct trial_operand *o, int64_t row, int64_t block) {
    const struct scale *s = &o->view.scale;
    bool square = s->kind == SCALE_128X128 || s->kind == SCALE_32X32 || s->kind == SCALE_16X16;
    if (s->kind == SCALE_TENSOR) return 0;
    if (s->kind == SCALE_ROW) return row;
    return (square ? row / trial_block(s->kind) : row) * s->dim[1] + block;
}

int64_t trial_factor_count(const struct trial_operand *o) {
    return o->view.scale.dim[0] * o->view.scale.dim[1];
}

float trial_factor_at(const struct trial_operand *o, int64_t index) {
    const struct scale *s = &o->view.scale;
    float x;
    if (!o->factors) return 1.0f;
    if (scale_is_nvfp4(s->kind)) return e4m3_decode(o->factors[SCALE_HEADER + index]);
    if (s->dtype == DTYPE_E8M0) return e8m0_decode(o->factors[index]);
    memcpy(&x, o->factors + 4 * index, sizeof x);
    return x;
}

float trial_tensor_factor(const struct gemm_trial *t) {
    return scale_is_nvfp4(t->way->scale_a) ? nvfp4_product_factor(t->a.amax, t->w.amax) : 1.0f;
}

float trial_added(const struct gemm_trial *t, enum trial_addend what, int64_t row, int64_t col) {
    if (what == ADD_BIAS) row = 0;
    uint64_t bits = draw(STREAM_ADDED, (row * t->n + col) * 4 + what);
    /* Few bits hide whether the sum was rounded before they were added. */
    bool noise = t->fill == TRIAL_NOISE && t->way->out == DTYPE_F32 && what != ADD_BIAS;
    if (noise) return (float)(int64_t)(bits >> 40) * 0x1.8p-22f - 3.0f;
    return (float)(int64_t)(bits % 7) - 3.0f;
}

/* ---- filling ---- */

/* Whole numbers: of K products at most about 1024 are not zero, so that their sum, with factors up
 * to 4 and outliers, stays below 2^13. That many bits are in the narrowest accumulator. Where
 * scales are bytes the narrowest has 24: BF16's, of widened codes. There the sums have at most 20.
 * Operands stored as [k, rows] are BF16 or have such scales. A row of them repeats PERIOD numbers,
 * and few products of two would be left: up to a K of 2^17 none is zero. Their sums have at most
 * 24 bits. */
static void fill_whole(struct trial_operand *o, uint64_t stream) {
    const int64_t most = o->by_k ? 1 << 17 : 1024;
    uint64_t nonzero = 65536;
    for (int64_t products = o->k; products > most; products -= products / 8)
        nonzero -= nonzero / 16;
#pragma omp parallel for schedule(static) if (o->line >= TRIAL_LONG)
    for (int64_t line = 0; line < TRIAL_PERIOD; line++)
        for (int64_t i = 0; i < (o->by_k ? o->rows : o->k); i++) {
            uint64_t bits = draw(stream, line * o->line + i);
            float x = (bits & 65535) < nonzero ? (bits >> 20 & 1 ? 1.0f : -1.0f) : 0.0f;
            encode(o->dtype, o->codes, line * o->line + i, x);
        }
}

/* The lines with zeros, an outlier and a NaN. Of a matrix stored as [k, rows] they are columns. */
static void fill_special(struct trial_operand *o, bool second) {
    int64_t apart = o->by_k ? o->line : 1, row = o->by_k ? 1 : o->line;
    int64_t count = o->by_k ? TRIAL_PERIOD : o->k;
    for (int64_t i = 0; i < count; i++) encode(o->dtype, o->codes, ROW_ZERO * row + i * apart, 0);
    if (o->rows > ROW_OUTLIER && count > 4) { /* not at the same k in both operands */
        float large = o->by_k ? 16.0f : o->dtype == DTYPE_E2M1 ? 6.0f : 256.0f;
        encode(o->dtype, o->codes, ROW_OUTLIER * row + (second ? 1 : 3) * apart, large);
        encode(o->dtype, o->codes, ROW_OUTLIER * row + (second ? 3 : 1) * apart, 0.0f);
    }
    if (o->rows > ROW_NAN && o->dtype != DTYPE_E2M1)
        encode(o->dtype, o->codes, ROW_NAN * row + count / 2 * apart, f32_from_bits(0x7FC00000u));
}

/* Exponents far apart: sums that fit an accumulator are the same in every arithmetic. */
static void fill_noise(struct trial_operand *o, uint64_t stream) {
    uint64_t spread = o->dtype == DTYPE_E2M1 ? 3 : 7; /* E2M1 ends at 6 */
#pragma omp parallel for schedule(static) if (o->line >= TRIAL_LONG)
    for (int64_t line = 0; line < TRIAL_PERIOD; line++)
        for (int64_t i = 0; i < (o->by_k ? o->rows : o->k); i++) {
            uint64_t bits = draw(stream, line * o->line + i);
            float x = (float)(int64_t)(bits & 65535) / 32768.0f - 1.0f;
            encode(o->dtype, o->codes, line * o->line + i, x * (float)(1 << (bits >> 20 & spread)));
        }
}

/* A number in [0.5, 1.5). */
static float noise_factor(uint64_t bits) { return 0.5f + (float)(bits >> 40 & 65535) / 65536.0f; }

/* 1 or 2, and for one factor a tensor 2; or noise. */
static float f32_factor(enum scale_kind kind, enum trial_fill fill, uint64_t bits) {
    if (fill == TRIAL_NOISE) return noise_factor(bits);
    return bits & 1 || kind == SCALE_TENSOR ? 2.0f : 1.0f;
}

/* 1/2 to 4: no bit of the code is the same in all. Or, as noise, 2^-6 to 2^6. */
static unsigned char e8m0_factor(enum trial_fill fill, uint64_t bits) {
    return (unsigned char)(fill == TRIAL_NOISE ? 121 + bits % 13 : 126 + (bits & 3));
}

/* 1 to 3.75 in all codes of two exponents; or noise, of eight. */
static unsigned char e4m3_factor(enum trial_fill fill, uint64_t bits) {
    float up = (float)(1 << (bits >> 20 & 7)) / 16.0f;
    return fill == TRIAL_NOISE ? e4m3_encode(noise_factor(bits) * up)
                               : (unsigned char)(e4m3_encode(1.0f) + (bits & 15));
}

/* The tensors' factors. Of whole numbers 8 and 1/2: f32 multiplies powers of two exactly, whichever
 * way a device forms the product's, and without one of them the product is another. */
static void fill_amax(struct trial_operand *o, enum trial_fill fill, bool second, uint64_t stream) {
    const float one = 2688.0f;
    o->amax = second ? one / 2.0f : one * 8.0f;
    if (fill == TRIAL_NOISE) o->amax = one * noise_factor(draw(stream, -1));
    memcpy(o->factors, &o->amax, sizeof o->amax);
}

static void fill_factors(struct trial_operand *o, enum trial_fill fill, bool second) {
    const struct scale *s = &o->view.scale;
    uint64_t stream = second ? STREAM_FACTORS_W : STREAM_FACTORS_A;
    unsigned char *codes = o->factors + SCALE_HEADER; /* of NVFP4 */
    if (scale_is_nvfp4(s->kind)) fill_amax(o, fill, second, stream);
#pragma omp parallel for schedule(static) if (o->line >= TRIAL_LONG)
    for (int64_t i = 0; i < trial_factor_count(o); i++) {
        uint64_t bits = draw(stream, i);
        float x = f32_factor(s->kind, fill, bits);
        if (s->dtype == DTYPE_F32) memcpy(o->factors + 4 * i, &x, sizeof x);
        else if (s->dtype == DTYPE_E8M0) o->factors[i] = e8m0_factor(fill, bits);
        else codes[i] = e4m3_factor(fill, bits);
    }
    /* Not of squares, which 16 rows share: these would all be NaN. */
    if (fill == TRIAL_WHOLE && s->kind == SCALE_1X16 && o->rows > ROW_NAN)
        codes[ROW_NAN * s->dim[1] + s->dim[1] / 2] = e4m3_encode(f32_from_bits(0x7FC00000u));
}

/* ---- operands ---- */

static enum status open_operand(struct gemm_trial *t, struct trial_operand *o, bool second,
                                struct err *e) {
    struct backend *b = t->b;
    o->dtype = second ? t->way->b : t->way->a;
    o->rows = second ? t->n : t->m;
    o->k = t->k;
    o->by_k = second ? t->way->transposed_b : t->way->transposed_a;
    o->view = certify_operand(t->way, second, o->rows, o->k);
    o->line = o->view.stride[o->by_k ? 1 : 0];
    int64_t bytes = o->line * dtype_bytes(o->dtype);
    o->codes = calloc((size_t)TRIAL_PERIOD, (size_t)bytes);
    o->values = malloc((size_t)(TRIAL_PERIOD * o->line) * sizeof *o->values);
    int64_t factor_bytes = scale_bytes(&o->view.scale);
    if (factor_bytes) o->factors = calloc(1, (size_t)factor_bytes);
    if (!o->codes || !o->values || (factor_bytes && !o->factors)) return no_memory(e);
    if (t->fill == TRIAL_WHOLE) {
        fill_whole(o, second ? STREAM_W : STREAM_A);
        fill_special(o, second);
    } else {
        fill_noise(o, second ? STREAM_W : STREAM_A);
    }
#pragma omp parallel for schedule(static) if (o->line >= TRIAL_LONG)
    for (int64_t i = 0; i < TRIAL_PERIOD * o->line; i++)
        o->values[i] = decode(o->dtype, o->codes, i);
    int64_t lines = o->by_k ? o->k : o->rows;
    TRY(b->ops->memory_create(b, "certify: an operand", bytes * lines, &o->view.data, e));
    TRY(device_lines(b, o->view.data, o->codes, TRIAL_PERIOD * bytes, lines * bytes, e));
    if (!factor_bytes) return OK;
    fill_factors(o, t->fill, second);
    TRY(b->ops->memory_create(b, "certify: factors", factor_bytes, &o->view.scale.data, e));
    return b->ops->upload(b, LANE_COMPUTE, o->view.scale.data, o->factors, factor_bytes, e);
}

/* ---- the product ---- */

/* One row of what is added to the outputs, in host memory. */
static void added_row(const struct gemm_trial *t, enum trial_addend what, enum dtype dtype,
                      int64_t row, unsigned char *out) {
    for (int64_t col = 0; col < t->n; col++) {
        float x = trial_added(t, what, row, col);
        uint16_t bits = bf16_encode(x);
        if (dtype == DTYPE_F32) memcpy(out + 4 * col, &x, sizeof x);
        else memcpy(out + 2 * col, &bits, sizeof bits);
    }
}

static enum status upload_row(struct gemm_trial *t, const struct tensor *to, int64_t row,
                              const unsigned char *host, struct err *e) {
    int64_t bytes = t->n * dtype_bytes(to->dtype);
    return t->b->ops->upload(t->b, LANE_COMPUTE, (char *)to->data + row * bytes, host, bytes, e);
}

static enum status open_added(struct gemm_trial *t, struct err *e) {
    const struct certify_way *w = t->way;
    struct backend *b = t->b;
    t->out = tensor_2d(NULL, w->out, t->m, t->n);
    t->residual = t->out;
    t->bias = tensor_1d(NULL, w->bias_dtype, t->n);
    int64_t bytes = t->m * t->n * dtype_bytes(w->out);
    unsigned char *line = malloc((size_t)(4 * t->n));
    if (!line) return no_memory(e);
    enum status st = b->ops->memory_create(b, "certify: a product", bytes, &t->out.data, e);
    if (st == OK && w->bias) {
        st = b->ops->memory_create(b, "certify: a bias", 4 * t->n, &t->bias.data, e);
        added_row(t, ADD_BIAS, w->bias_dtype, 0, line);
        if (st == OK) st = upload_row(t, &t->bias, 0, line, e);
    }
    if (st == OK && w->residual)
        st = b->ops->memory_create(b, "certify: a residual", bytes, &t->residual.data, e);
    for (int i = 0; i < t->rows && st == OK && w->residual; i++) {
        added_row(t, ADD_RESIDUAL, w->out, t->row[i], line);
        st = upload_row(t, &t->residual, t->row[i], line, e);
    }
    free(line);
    return st;
}

/* The first rows and columns have the special lines; the last are the tail. */
static int choose(int64_t *at, int most, int64_t n) {
    const int64_t fixed[] = { 0, 1, 2, n - 1, n / 2, n - 2 };
    int count = 0;
    for (int i = 0; i < most; i++) {
        int64_t x = i < 6 ? fixed[i] : (int64_t)(draw(STREAM_ADDED, n * 64 + i) % (uint64_t)n);
        bool have = x < 0 || x >= n;
        for (int j = 0; j < count; j++) have = have || at[j] == x;
        if (!have) at[count++] = x;
    }
    return count;
}

enum status gemm_trial_open(struct gemm_trial *t, struct backend *b, const struct certify_way *way,
                            const int64_t shape[3], enum trial_fill fill, struct err *e) {
    *t = (struct gemm_trial){ .b = b, .way = way, .m = shape[0], .n = shape[1], .k = shape[2],
                              .fill = fill };
    t->rows = choose(t->row, TRIAL_ROWS, t->m);
    t->cols = choose(t->col, TRIAL_COLS, t->n);
    TRY(open_operand(t, &t->a, false, e));
    TRY(open_operand(t, &t->w, true, e));
    TRY(open_added(t, e));
    for (int i = 0; i < 2; i++) {
        t->got[i] = calloc((size_t)t->rows, (size_t)(t->n * dtype_bytes(way->out)));
        if (!t->got[i]) return no_memory(e);
    }
    return OK;
}

void gemm_trial_free(struct gemm_trial *t) {
    struct backend *b = t->b;
    struct trial_operand *o[] = { &t->a, &t->w };
    for (int i = 0; i < 2; i++) {
        if (o[i]->view.data) b->ops->memory_destroy(b, o[i]->view.data);
        if (o[i]->view.scale.data) b->ops->memory_destroy(b, o[i]->view.scale.data);
        free(o[i]->codes);
        free(o[i]->values);
        free(o[i]->factors);
        free(t->got[i]);
    }
    void *const memory[] = { t->out.data, t->bias.data, t->residual.data };
    for (int i = 0; i < 3; i++)
        if (memory[i]) b->ops->memory_destroy(b, memory[i]);
}

struct matmul_args gemm_trial_args(const struct gemm_trial *t) {
    const struct certify_way *w = t->way;
    return (struct matmul_args){ .out = &t->out, .a = &t->a.view, .b = &t->w.view,
                                 .bias = w->bias ? &t->bias : NULL,
                                 .residual = w->residual ? &t->residual : NULL,
                                 .beta = w->beta ? 1.0f : 0.0f, .fast_accumulate = w->fast };
}

enum status gemm_trial_run(struct gemm_trial *t, int run, int garbage, struct err *e) {
    const struct backend_ops *ops = t->b->ops;
    int64_t bytes = t->n * dtype_bytes(t->way->out);
    struct matmul_args args = gemm_trial_args(t);
    for (int i = 0; i < t->rows; i++) {
        unsigned char *line = t->got[run] + i * bytes;
        if (t->way->beta) added_row(t, ADD_OUT, t->way->out, t->row[i], line);
        else memset(line, garbage, (size_t)bytes);
        TRY(upload_row(t, &t->out, t->row[i], line, e));
    }
    TRY(ops->matmul(t->b, LANE_COMPUTE, &args, e));
    for (int i = 0; i < t->rows; i++)
        TRY(ops->download(t->b, LANE_COMPUTE, t->got[run] + i * bytes,
                          (const char *)t->out.data + t->row[i] * bytes, bytes, e));
    return OK;
}

float gemm_trial_got(const struct gemm_trial *t, int run, int i, int j, uint32_t *bits) {
    const unsigned char *row = t->got[run] + i * t->n * dtype_bytes(t->way->out);
    uint16_t half;
    if (t->way->out == DTYPE_F32) {
        memcpy(bits, row + 4 * t->col[j], sizeof *bits);
        return f32_from_bits(*bits);
    }
    memcpy(&half, row + 2 * t->col[j], sizeof half);
    *bits = half;
    return bf16_decode(half);
}
