#include "tests/support/op_tensor.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/nvfp4.h"

/* A chain of blocks, freed together. Tests are single-threaded outside the operators. */
struct block { struct block *next; _Alignas(ARENA_ALIGN) unsigned char data[]; };
static struct block *blocks;
enum { BACKENDS_MAX = 64 };
static struct backend *backends[BACKENDS_MAX];

static void *take(int64_t bytes) {
    size_t size = (size_t)round_up((int64_t)sizeof(struct block) + bytes + 1, ARENA_ALIGN);
    struct block *b = aligned_alloc(ARENA_ALIGN, size);
    assert(b);
    memset(b, 0, size);
    b->next = blocks;
    blocks = b;
    return b->data;
}

void op_free(void) {
    while (blocks) {
        struct block *next = blocks->next;
        free(blocks);
        blocks = next;
    }
    for (int i = 0; i < BACKENDS_MAX; i++) {
        if (backends[i]) backends[i]->ops->close(backends[i]);
        backends[i] = NULL;
    }
}

struct backend *op_backend(int threads, const char *isa) {
    struct backend *b;
    struct err e;
    int slot = 0;
    while (backends[slot]) slot++;
    assert(slot < BACKENDS_MAX);
    if (cpu_backend_open(&b, threads, &e) != OK) return NULL;
    if (isa && cpu_backend_use(b, isa, &e) != OK) {
        b->ops->close(b);
        return NULL;
    }
    return backends[slot] = b;
}

struct tensor *op_tensor(enum dtype t, int64_t rows, int64_t cols, enum scale_kind kind) {
    struct tensor *x = take(sizeof *x);
    *x = dtype_is_fp8(t) ? tensor_fp8(NULL, t, rows, cols) : tensor_2d(NULL, t, rows, cols);
    x->data = take(op_bytes(x));
    if (kind == SCALE_NONE) return x;
    x->scale = scale_make(NULL, kind, rows, cols);
    x->scale.data = take(scale_bytes(&x->scale));
    return x;
}

struct tensor op_transposed_view(const struct tensor *x) {
    struct tensor y = *x;
    y.dim[0] = x->dim[1];
    y.dim[1] = x->dim[0];
    y.stride[0] = x->stride[1];
    y.stride[1] = x->stride[0];
    return y;
}

struct tensor *op_untransposed(const struct tensor *x) {
    struct tensor *y = take(sizeof *y);
    *y = tensor_fp8_untransposed(NULL, x->dtype, x->dim[0], x->dim[1]);
    y->scale = x->scale;
    uint8_t *to = y->data = take(op_bytes(y));
    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t j = 0; j < x->dim[1]; j++)
            to[j * y->stride[1] + i] = ((const uint8_t *)x->data)[i * x->stride[0] + j];
    return y;
}

static float draw(uint64_t seed, int64_t i, int spread) {
    uint64_t bits = rng_bits(rng_key(seed, RNG_INIT, 0, 0), (uint64_t)i);
    int exponent = (int)(bits % (uint64_t)(2 * spread + 1)) - spread;
    float size = ldexpf(1.0f + rng_uniform(bits), exponent);
    return bits & 0x8000 ? -size : size;
}

static void fill_scale(struct scale *s, uint64_t seed) {
    if (scale_is_nvfp4(s->kind)) *(float *)s->data = fabsf(draw(seed, -1, 3)); /* the amax */
    for (int64_t i = 0; i < s->dim[0] * s->dim[1]; i++) {
        float x = fabsf(draw(seed, i, 3));
        if (s->dtype == DTYPE_F32) ((float *)s->data)[i] = x;
        else if (s->dtype == DTYPE_E4M3) ((uint8_t *)s->data)[SCALE_HEADER + i] = e4m3_encode(x);
        else ((uint8_t *)s->data)[i] = e8m0_encode_up(x);
    }
}

void op_fill(struct tensor *x, uint64_t seed, int spread) {
    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t j = 0; j < x->dim[1]; j++) {
            int64_t at = i * x->dim[1] + j;
            if (!dtype_is_fp8(x->dtype)) {
                op_set(x, i, j, draw(seed, at, spread));
                continue;
            }
            uint8_t code = (uint8_t)(rng_bits(seed, (uint64_t)at) >> 40);
            if (x->dtype == DTYPE_E2M1) code &= 15;
            bool finite = isfinite(fp8_decode(x->dtype, code));
            ((uint8_t *)x->data)[i * x->stride[0] + j] = finite ? code : code & 0x83;
        }
    if (x->scale.kind != SCALE_NONE) fill_scale(&x->scale, seed + 1);
}

float op_stored(const struct tensor *x, int64_t i, int64_t j) {
    int64_t at = i * x->stride[0] + j * x->stride[1];
    if (x->dtype == DTYPE_F32) return ((const float *)x->data)[at];
    if (x->dtype == DTYPE_BF16) return bf16_decode(((const uint16_t *)x->data)[at]);
    return fp8_decode(x->dtype, ((const uint8_t *)x->data)[at]);
}

float op_factor(const struct tensor *x, int64_t i, int64_t j) {
    static const struct { int rows, cols; } BLOCK[] = {
        [SCALE_TENSOR] = { 0, 0 },        [SCALE_ROW] = { 1, 0 },   [SCALE_1X128] = { 1, 128 },
        [SCALE_128X128] = { 128, 128 },   [SCALE_1X32] = { 1, 32 }, [SCALE_32X32] = { 32, 32 },
        [SCALE_1X16] = { 1, 16 },         [SCALE_16X16] = { 16, 16 },
    };
    const struct scale *s = &x->scale;
    if (s->kind == SCALE_NONE) return 1.0f;
    int64_t row = BLOCK[s->kind].rows ? i / BLOCK[s->kind].rows : 0;
    int64_t col = BLOCK[s->kind].cols ? j / BLOCK[s->kind].cols : 0;
    int64_t at = row * s->dim[1] + col;
    const uint8_t *bytes = s->data;
    if (scale_is_nvfp4(s->kind))
        return e4m3_decode(bytes[SCALE_HEADER + at]) * nvfp4_tensor_factor(*(const float *)s->data);
    return s->dtype == DTYPE_F32 ? ((const float *)s->data)[at]
                                 : e8m0_decode(bytes[at]);
}

void op_set(const struct tensor *x, int64_t i, int64_t j, float value) {
    int64_t at = i * x->stride[0] + j * x->stride[1];
    if (x->dtype == DTYPE_F32) ((float *)x->data)[at] = f32_canonical(value);
    else if (x->dtype == DTYPE_BF16) ((uint16_t *)x->data)[at] = bf16_encode(value);
    else ((uint8_t *)x->data)[at] = fp8_encode(x->dtype, value);
}

int64_t op_bytes(const struct tensor *x) {
    if (dtype_is_fp8(x->dtype)) /* also AdamW's state, whose elements have no lines */
        return fp8_is_untransposed(x) ? tensor_code_bytes(x) : x->dim[0] * x->stride[0];
    return tensor_count(x) * dtype_bytes(x->dtype);
}
