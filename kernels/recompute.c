#include "kernels/recompute.h"

#include <math.h>

float recomputed_value(enum dtype dtype, uint32_t bits) {
    if (dtype == DTYPE_F32) return f32_from_bits(bits);
    if (dtype == DTYPE_BF16) return bf16_decode((uint16_t)bits);
    if (dtype == DTYPE_E8M0) return e8m0_decode((uint8_t)bits);
    return fp8_decode(dtype, (uint8_t)bits);
}

static uint32_t bits_at(const void *data, enum dtype dtype, int64_t at) {
    int64_t bytes = dtype_bytes(dtype);
    if (bytes == 4) return ((const uint32_t *)data)[at];
    return bytes == 2 ? ((const uint16_t *)data)[at] : ((const uint8_t *)data)[at];
}

/* Fills *r and returns whether the bits agree. */
static bool compare(struct recomputed *r, const char *what, enum dtype dtype, int64_t row,
                    int64_t col, uint32_t found, uint32_t expected) {
    *r = (struct recomputed){ what, row, col, dtype, found, expected, found == expected };
    if (!r->equal)
        r->equal = isnan(recomputed_value(dtype, found)) &&
                   isnan(recomputed_value(dtype, expected));
    return r->equal;
}

/* ---- products ---- */

void recompute_product(const struct mma_way *way, const struct matmul_args *args, int64_t row,
                       int64_t col, const void *found, struct recomputed *r) {
    enum dtype t = args->out->dtype;
    float value = arithmetic_output(way, args, row, col);
    uint32_t expected = t == DTYPE_BF16 ? bf16_encode(value) : f32_bits(f32_canonical(value));
    (void)compare(r, "product", t, row, col, bits_at(found, t, 0), expected);
}

/* ---- casts ---- */

bool recompute_knows_cast(enum scale_kind kind) {
    return kind != SCALE_NONE && !scale_is_nvfp4(kind);
}

struct cast_block recompute_block(enum scale_kind kind, int64_t k) {
    switch (kind) {
    case SCALE_ROW: return (struct cast_block){ 1, k };
    case SCALE_1X128: return (struct cast_block){ 1, 128 };
    case SCALE_128X128: return (struct cast_block){ 128, 128 };
    case SCALE_1X32: return (struct cast_block){ 1, 32 };
    case SCALE_32X32: return (struct cast_block){ 32, 32 };
    case SCALE_1X16: return (struct cast_block){ 1, 16 };
    case SCALE_16X16: return (struct cast_block){ 16, 16 };
    default: return (struct cast_block){ 1, 1 };
    }
}

static float value_at(const struct tensor *x, int64_t row, int64_t col) {
    int64_t at = row * x->stride[0] + col * x->stride[1];
    return recomputed_value(x->dtype, bits_at(x->data, x->dtype, at));
}

/* The elements that share a factor: [row, row_end) x [col, col_end) of the part. */
struct block { int64_t row, row_end, col, col_end; };

static uint32_t amax_of(const struct tensor *x, const struct block *b) {
    uint32_t most = 0;
    for (int64_t i = b->row; i < b->row_end; i++)
        for (int64_t j = b->col; j < b->col_end; j++) {
            uint32_t bits = f32_bits(value_at(x, i, j)) & 0x7FFFFFFFu;
            if (bits > most) most = bits;
        }
    return most;
}

/* The codes of a block under its multiplier. */
static bool codes_agree(const struct cast_part *p, const struct block *b, float m,
                        struct recomputed *r) {
    const struct tensor *codes = &p->codes;
    for (int64_t i = b->row; i < b->row_end; i++)
        for (int64_t j = b->col; j < b->col_end; j++) {
            int64_t at = i * codes->stride[0] + j * codes->stride[1];
            uint32_t expected = fp8_encode(codes->dtype, value_at(&p->x, i, j) * m);
            if (!compare(r, "code", codes->dtype, i, j, bits_at(codes->data, codes->dtype, at),
                         expected))
                return false;
        }
    return true;
}

/* The factor stored at `at`, for the elements from (row, col) on. */
static bool factor_agrees(const struct cast_part *p, int64_t at, int64_t row, int64_t col,
                          float stored, struct recomputed *r) {
    const struct scale *s = &p->codes.scale;
    uint32_t expected = s->dtype == DTYPE_E8M0 ? e8m0_encode_up(stored) : f32_bits(stored);
    return compare(r, "factor", s->dtype, row, col, bits_at(s->data, s->dtype, at), expected);
}

/* One scale for the whole tensor, of which this is a part: its amax cannot be found again, but no
 * value may be above it. */
static void check_tensor_wide(const struct cast_part *p, struct recomputed *r) {
    struct block all = { 0, p->x.dim[0], 0, p->x.dim[1] };
    float m, stored;
    if (p->multiplier) {
        m = *p->multiplier;
        stored = 1.0f / m;
    } else {
        uint32_t amax = amax_of(&p->x, &all), most = *p->amax;
        m = quant_multiplier(&p->rule, p->codes.dtype, f32_from_bits(most), &stored);
        *r = (struct recomputed){ "value above its amax", 0, 0, DTYPE_F32, amax, most,
                                  amax <= most };
        if (!r->equal) return;
    }
    if (factor_agrees(p, 0, 0, 0, stored, r)) (void)codes_agree(p, &all, m, r);
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

void recompute_cast(const struct cast_part *p, struct recomputed *r) {
    int64_t rows = p->x.dim[0], k = p->x.dim[1];
    if (p->codes.scale.kind == SCALE_TENSOR) {
        check_tensor_wide(p, r);
        return;
    }
    struct cast_block size = recompute_block(p->codes.scale.kind, k);
    *r = (struct recomputed){ .what = "code", .equal = true };
    for (int64_t i = 0; i < rows; i += size.rows)
        for (int64_t j = 0; j < k; j += size.cols) {
            struct block b = { i, min64(i + size.rows, rows), j, min64(j + size.cols, k) };
            float stored, amax = f32_from_bits(amax_of(&p->x, &b));
            float m = quant_multiplier(&p->rule, p->codes.dtype, amax, &stored);
            int64_t at = i / size.rows * p->codes.scale.dim[1] + j / size.cols;
            if (!factor_agrees(p, at, i, j, stored, r) || !codes_agree(p, &b, m, r)) return;
        }
}
