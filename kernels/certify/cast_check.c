#include "kernels/certify/cast_check.h"

#include <stdio.h>
#include <stdlib.h>

/* Rows of a cast: two blocks of 128 along the rows, the second short. */
enum { ROWS_MAX = 144 };

const char *const CAST_PART_NAMES[CAST_WRITTEN] = { "codes", "scales", "codes of the twin",
                                                    "scales of the twin", "amax" };

/* One cast on one backend. */
struct cast {
    struct backend *b;
    const struct certify_way *way;
    int64_t rows, k;
    struct cast_views v;
    void *memory[CAST_PARTS];
    int64_t bytes[CAST_PARTS];
    unsigned char *got[CAST_WRITTEN]; /* owned */
};

struct tensor cast_twin(const struct certify_way *way, void *data, int64_t rows, int64_t k) {
    return way->untransposed ? tensor_fp8_untransposed(data, way->b, k, rows)
                             : tensor_fp8(data, way->b, k, rows);
}

bool cast_shares_codes(const struct certify_way *way) {
    return way->codes && way->twin && way->untransposed && way->scale_b == SCALE_32X32;
}

void cast_fill(unsigned char *to, const struct tensor *codes, int garbage) {
    int64_t used = codes->dim[fp8_is_untransposed(codes) ? 0 : 1], line = fp8_line(codes);
    memset(to, 0, (size_t)tensor_code_bytes(codes));
    for (int64_t at = 0; at < tensor_code_bytes(codes); at += line)
        memset(to + at, garbage, (size_t)used);
}

void cast_views_make(struct cast_views *v, const struct certify_way *way, int64_t rows, int64_t k,
                     void *const *memory) {
    bool one = way->scale_b == SCALE_TENSOR, shared = cast_shares_codes(way);
    v->value = tensor_2d(memory[CAST_VALUE], way->a, rows, k);
    v->codes = tensor_fp8(way->codes ? memory[CAST_CODES] : NULL, way->b, rows, k);
    v->codes.scale = scale_make(memory[CAST_FACTORS], way->scale_b, rows, k);
    v->twin = cast_twin(way, memory[shared ? CAST_CODES : CAST_TWIN], rows, k);
    v->twin.scale = scale_make(memory[one ? CAST_FACTORS : CAST_TWIN_FACTORS], way->scale_b, k,
                               rows);
    if (way->twin) v->codes.transposed = &v->twin;
    v->amax = tensor_1d(memory[CAST_AMAX], DTYPE_U32, 1);
    v->multiplier = tensor_1d(memory[CAST_MULTIPLIER], DTYPE_F32, 1);
    v->step = tensor_1d(memory[CAST_STEP], DTYPE_I32, 1);
    v->sequence = tensor_1d(memory[CAST_SEQUENCE], DTYPE_I32, 1);
    v->draws = (struct round_draws){ .step = &v->step, .sequence = &v->sequence,
                                     .sequence_rows = rows, .seed = 2104, .tensor = 3 };
    v->sink = (struct sink){ .value = &v->value, .codes = &v->codes, .multiplier = &v->multiplier,
                             .amax = &v->amax, .source = way->source, .rule = way->rule,
                             .keep_value = true, .own_amax = way->own_amax, .rotate = way->rotate,
                             .draws = way->draws ? &v->draws : NULL };
}

bool cast_writes(const struct certify_way *way, int part) {
    if (part == CAST_CODES) return way->codes;
    if (part == CAST_FACTORS) return way->codes || way->scale_b == SCALE_TENSOR;
    if (part == CAST_TWIN) return way->twin && !cast_shares_codes(way);
    if (part == CAST_TWIN_FACTORS) return way->twin && way->scale_b != SCALE_TENSOR;
    return part == CAST_AMAX;
}

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for a cast's certificate");
}

static void cast_close(struct cast *c) {
    for (int i = 0; i < CAST_PARTS; i++) {
        if (c->memory[i]) c->b->ops->memory_destroy(c->b, c->memory[i]);
        if (i < CAST_WRITTEN) free(c->got[i]);
    }
}

static enum status cast_open(struct cast *c, struct backend *b, const struct certify_way *way,
                             struct err *e) {
    *c = (struct cast){ .b = b, .way = way, .rows = way->m < ROWS_MAX ? way->m : ROWS_MAX,
                        .k = way->k };
    cast_views_make(&c->v, way, c->rows, c->k, c->memory);
    int64_t bytes[CAST_PARTS] = {
        [CAST_CODES] = tensor_fp8_bytes(c->rows, c->k),
        [CAST_FACTORS] = scale_bytes(&c->v.codes.scale),
        [CAST_TWIN] = tensor_code_bytes(&c->v.twin),
        [CAST_TWIN_FACTORS] = scale_bytes(&c->v.twin.scale), [CAST_AMAX] = 4,
        [CAST_VALUE] = c->rows * c->k * dtype_bytes(way->a), [CAST_MULTIPLIER] = 4, [CAST_STEP] = 4,
        [CAST_SEQUENCE] = 4,
    };
    memcpy(c->bytes, bytes, sizeof bytes);
    for (int i = 0; i < CAST_PARTS; i++) {
        TRY(b->ops->memory_create(b, "certify: a cast", bytes[i], &c->memory[i], e));
        if (i >= CAST_WRITTEN) continue;
        c->got[i] = calloc(1, (size_t)bytes[i]);
        if (!c->got[i]) return no_memory(e);
    }
    cast_views_make(&c->v, way, c->rows, c->k, c->memory);
    return OK;
}

static enum status fill_codes(struct cast *c, enum cast_part part, const struct tensor *codes,
                              int garbage, struct err *e) {
    cast_fill(c->got[part], codes, garbage);
    return c->b->ops->upload(c->b, LANE_COMPUTE, c->memory[part], c->got[part], c->bytes[part], e);
}

static enum status cast_run(struct cast *c, const unsigned char *value, int garbage,
                            struct err *e) {
    const struct backend_ops *ops = c->b->ops;
    const float multiplier = 4.0f, factor = 0.25f;
    const int32_t step = 7, sequence = 5;
    const uint32_t zero = 0;
    TRY(fill_codes(c, CAST_CODES, &c->v.codes, garbage, e));
    TRY(fill_codes(c, CAST_TWIN, &c->v.twin, garbage, e));
    TRY(ops->upload(c->b, LANE_COMPUTE, c->memory[CAST_VALUE], value, c->bytes[CAST_VALUE], e));
    TRY(ops->upload(c->b, LANE_COMPUTE, c->memory[CAST_MULTIPLIER], &multiplier, 4, e));
    TRY(ops->upload(c->b, LANE_COMPUTE, c->memory[CAST_STEP], &step, 4, e));
    TRY(ops->upload(c->b, LANE_COMPUTE, c->memory[CAST_SEQUENCE], &sequence, 4, e));
    TRY(ops->upload(c->b, LANE_COMPUTE, c->memory[CAST_AMAX], &zero, 4, e));
    if (c->way->source == SCALE_SOURCE_KNOWN)
        TRY(ops->upload(c->b, LANE_COMPUTE, c->memory[CAST_FACTORS], &factor, 4, e));
    TRY(ops->quantise(c->b, LANE_COMPUTE, &c->v.sink, &c->v.value, e));
    TRY(ops->quantise_finish(c->b, LANE_COMPUTE, &c->v.sink, e));
    for (int i = 0; i < CAST_WRITTEN; i++)
        TRY(ops->download(c->b, LANE_COMPUTE, c->got[i], c->memory[i], c->bytes[i], e));
    return OK;
}

/* ---- values ---- */

static void put(enum dtype t, unsigned char *value, int64_t at, float x) {
    uint16_t bits = bf16_encode(x);
    if (t == DTYPE_F32) memcpy(value + 4 * at, &x, sizeof x);
    else memcpy(value + 2 * at, &bits, sizeof bits);
}

/* Row 0 and a block of row 1 are zero; row 2 has an outlier; row 3 is close to zero. */
static void make_values(const struct cast *c, bool nan, unsigned char *value) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t k = 0; k < c->k; k++) {
            uint64_t bits = rng_bits(2104, (uint64_t)(row * c->k + k));
            float x = ((float)(int64_t)(bits & 65535) / 32768.0f - 1.0f) *
                      (float)(1 << (bits >> 20 & 7));
            if (row == 0 || (row == 1 && k < 128)) x = 0.0f;
            if (row == 2 && k == c->k / 2) x = 3.0e4f;
            if (row == 3) x *= 0x1p-120f;
            put(c->way->a, value, row * c->k + k, x);
        }
    if (nan) put(c->way->a, value, c->rows / 2 * c->k + c->k / 3, f32_from_bits(0x7FC00000u));
}

/* ---- what is wrong ---- */

/* A word for different codes: rounding that gives zeros, rows or columns at the end, or others. */
static const char *fault_of_codes(const struct cast *good, const struct cast *bad, int part,
                                  bool nan) {
    bool by_rows = part == CAST_CODES || good->way->untransposed;
    int64_t rows = by_rows ? good->rows : good->k, k = by_rows ? good->k : good->rows;
    int64_t ld = round_up(k, FP8_ROW_ALIGN), wrong = 0, zero = 0, tail = 0;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < k; i++) {
            int64_t at = row * ld + i;
            if (good->got[part][at] == bad->got[part][at]) continue;
            wrong++;
            zero += !(bad->got[part][at] & 0x7F);
            tail += row >= rows / 16 * 16 || i >= k / 16 * 16 || row == rows - 1 || i == k - 1;
        }
    if (wrong == zero) return good->way->draws ? "zeroed rounding" : "zeroed codes";
    if (wrong == tail) return "tail not written";
    return nan ? "NaN swallowed" : "wrong codes";
}

static void compare(const struct cast *good, const struct cast *bad, bool nan,
                    struct certificate *out) {
    for (int i = 0; i < CAST_WRITTEN; i++) {
        int64_t bytes = good->bytes[i], wrong = 0;
        if (!cast_writes(good->way, i)) continue;
        out->outputs += bytes;
#pragma omp parallel for schedule(static) reduction(+ : wrong)
        for (int64_t k = 0; k < bytes; k++) wrong += good->got[i][k] != bad->got[i][k];
        if (!wrong) continue;
        bool codes = i == CAST_CODES || i == CAST_TWIN;
        certify_fail(out, codes ? fault_of_codes(good, bad, i, nan)
                                : nan ? "NaN swallowed" : "wrong scale",
                     "%s: %lld of %lld bytes differ from the reference%s", CAST_PART_NAMES[i],
                     (long long)wrong, (long long)bytes,
                     nan ? ", with a NaN among the values" : "");
        return;
    }
}

static bool same_twice(const struct cast *c, unsigned char *const before[CAST_WRITTEN]) {
    for (int i = 0; i < CAST_WRITTEN; i++)
        if (cast_writes(c->way, i) && memcmp(c->got[i], before[i], (size_t)c->bytes[i]) != 0)
            return false;
    return true;
}

/* Runs the cast twice, over different bytes; *same: with the same results. */
static enum status run_twice(struct cast *c, const unsigned char *value, bool *same,
                             struct err *e) {
    unsigned char *first[CAST_WRITTEN] = { NULL };
    enum status st = cast_run(c, value, 0x11, e);
    for (int i = 0; i < CAST_WRITTEN && st == OK; i++) {
        first[i] = malloc((size_t)c->bytes[i] + 1);
        if (first[i]) memcpy(first[i], c->got[i], (size_t)c->bytes[i]);
        else st = no_memory(e);
    }
    if (st == OK) st = cast_run(c, value, 0x22, e);
    *same = st == OK && same_twice(c, first);
    for (int i = 0; i < CAST_WRITTEN; i++) free(first[i]);
    return st;
}

static enum status run_all(struct cast *good, struct cast *bad, unsigned char *value,
                           struct certificate *out, struct err *e) {
    bool same;
    make_values(good, false, value);
    TRY(run_twice(bad, value, &same, e));
    if (!same) {
        certify_fail(out, "stale output", "the same cast over other bytes gives other codes");
        return OK;
    }
    TRY(cast_run(good, value, 0x33, e));
    compare(good, bad, false, out);
    if (out->outcome != CERTIFY_PASSED) return OK;
    make_values(good, true, value);
    TRY(cast_run(bad, value, 0x44, e));
    TRY(cast_run(good, value, 0x44, e));
    compare(good, bad, true, out);
    return OK;
}

enum status certify_cast(struct backend *b, struct backend *reference,
                         const struct certify_way *way, struct certificate *out, struct err *e) {
    struct cast good, bad;
    snprintf(out->how, sizeof out->how, "own");
    snprintf(out->reason, sizeof out->reason, "codes, scales and amax are defined to the bit");
    enum status st = cast_open(&good, reference, way, e);
    if (st != OK) {
        cast_close(&good);
        return st;
    }
    st = cast_open(&bad, b, way, e);
    unsigned char *value = malloc((size_t)(good.bytes[CAST_VALUE] + 1));
    if (st == OK) st = value ? run_all(&good, &bad, value, out, e) : no_memory(e);
    free(value);
    cast_close(&bad);
    cast_close(&good);
    return st;
}
