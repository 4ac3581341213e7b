/* From a value to NVFP4's codes: the last step of a sink with blocks of 16 (kernels/nvfp4.h).
 *
 * The value is walked in strips of 16 rows by 128 columns: whole blocks in both directions, and
 * whole groups of the rotation. Threads share the strips. Maxima and counts are integers, and a
 * draw depends on the element's place, so neither order nor thread count changes a bit. */
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/nvfp4.h"

enum { ROWS = NVFP4_BLOCK, COLS = 128 };

/* One of the two copies that are made. */
struct side {
    const struct tensor *codes;
    float s;      /* the tensor's multiplier */
    uint64_t key; /* of its draws */
};

struct walk {
    const struct isa *isa;
    const struct sink *sink;
    struct tensor x;          /* the value as [rows, cols] */
    struct side row, col;     /* codes NULL: not wanted */
    bool square;              /* the twin has the same codes */
    int64_t first;            /* row of the global batch that the value begins with */
};

struct strip {
    int64_t row, col, rows, cols;
    float x[ROWS][COLS], m[COLS];
    uint8_t codes[ROWS][COLS], random[COLS];
    uint64_t draw[COLS];
    uint32_t top[COLS];
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static struct strip *strip_load(struct backend *b, const struct walk *w, int64_t index) {
    struct strip *t = (struct strip *)(void *)cpu_scratch(b, omp_get_thread_num());
    int64_t across = ceil_div(w->x.dim[1], COLS);
    t->row = index / across * ROWS;
    t->col = index % across * COLS;
    t->rows = min64(ROWS, w->x.dim[0] - t->row);
    t->cols = min64(COLS, w->x.dim[1] - t->col);
    for (int64_t i = 0; i < t->rows; i++)
        load_span(t->x[i], &w->x, (t->row + i) * w->x.stride[0] + t->col, t->cols);
    return t;
}

static uint8_t *scale_at(const struct side *side, int64_t i, int64_t j) {
    const struct scale *s = &side->codes->scale;
    return (uint8_t *)s->data + SCALE_HEADER + i * s->dim[1] + j;
}

/* ---- along the rows, and squares ---- */

/* Multipliers of rows [i, i + rows) of the strip: one a block of 16 columns. */
static void row_multipliers(const struct walk *w, struct strip *t, int64_t i, int64_t rows) {
    for (int64_t j = 0; j < t->cols; j += NVFP4_BLOCK) {
        int64_t n = min64(NVFP4_BLOCK, t->cols - j);
        uint32_t top = 0;
        for (int64_t r = i; r < i + rows; r++) {
            uint32_t bits = w->isa->amax(t->x[r] + j, n);
            top = top > bits ? top : bits;
        }
        float s = w->row.codes ? w->row.s : w->col.s;
        uint8_t d = nvfp4_block_scale(s, f32_from_bits(top));
        float m = nvfp4_block_multiplier(s, d);
        int64_t down = (t->row + i) / rows, across = (t->col + j) / NVFP4_BLOCK;
        if (w->square) down = t->row / NVFP4_BLOCK;
        if (w->row.codes) *scale_at(&w->row, down, across) = d;
        if (w->square && w->col.codes) *scale_at(&w->col, across, down) = d;
        for (int64_t c = 0; c < n; c++) t->m[j + c] = m;
    }
}

/* The codes of row i from its multipliers. */
static void encode(const struct walk *w, struct strip *t, int64_t i, uint32_t *count) {
    if (w->sink->draws)
        w->isa->e2m1_round(t->codes[i], t->x[i], t->m, t->random, t->cols);
    else
        w->isa->fp8_encode(DTYPE_E2M1, t->codes[i], t->x[i], t->m, t->cols);
    if (count) w->isa->fp8_stats(DTYPE_E2M1, t->codes[i], t->x[i], t->m, t->cols, count);
}

static void row_bytes(const struct walk *w, struct strip *t, int64_t i) {
    int64_t row = w->first + t->row + i, cols = w->x.dim[1];
    for (int64_t j = 0; j < t->cols; j += 8) {
        uint64_t draw = nvfp4_draw_of_codes(w->row.key, row, t->col + j, cols);
        for (int64_t c = j; c < min64(j + 8, t->cols); c++)
            t->random[c] = (uint8_t)nvfp4_byte(draw, c);
    }
}

static void put_row(const struct walk *w, const struct strip *t, int64_t i) {
    const struct tensor *to = w->row.codes;
    uint8_t *out = (uint8_t *)to->data + (t->row + i) * to->stride[0];
    memcpy(out + t->col, t->codes[i], (size_t)t->cols);
    if (t->col + t->cols == w->x.dim[1])
        memset(out + w->x.dim[1], 0, (size_t)(to->stride[0] - w->x.dim[1]));
}

/* The strip's codes as columns of the twin, and the padding of its rows. */
static void put_columns(const struct walk *w, const struct strip *t) {
    const struct tensor *to = w->col.codes;
    int64_t padded = t->row + t->rows == w->x.dim[0] ? to->stride[0] : t->row + t->rows;
    for (int64_t j = 0; j < t->cols; j++) {
        uint8_t *out = (uint8_t *)to->data + (t->col + j) * to->stride[0];
        for (int64_t i = 0; i < t->rows; i++) out[t->row + i] = t->codes[i][j];
        memset(out + t->row + t->rows, 0, (size_t)(padded - t->row - t->rows));
    }
}

static void make_rows(const struct walk *w, struct strip *t, uint32_t *count) {
    for (int64_t i = 0; i < t->rows; i++) {
        if (!w->square) row_multipliers(w, t, i, 1);
        else if (i == 0) row_multipliers(w, t, 0, t->rows);
        if (w->sink->draws) row_bytes(w, t, i);
        encode(w, t, i, count);
        if (w->row.codes) put_row(w, t, i);
    }
    if (w->square && w->col.codes) put_columns(w, t);
}

/* ---- along the columns ---- */

static bool rotates(const struct walk *w, const struct strip *t) {
    return w->sink->rotate && t->rows == ROWS;
}

static void column_multipliers(const struct walk *w, struct strip *t) {
    memset(t->top, 0, sizeof t->top);
    for (int64_t i = 0; i < t->rows; i++) w->isa->amax_each(t->top, t->x[i], t->cols);
    for (int64_t j = 0; j < t->cols; j++) {
        uint8_t d = nvfp4_block_scale(w->col.s, f32_from_bits(t->top[j]));
        *scale_at(&w->col, t->col + j, t->row / NVFP4_BLOCK) = d;
        t->m[j] = nvfp4_block_multiplier(w->col.s, d);
    }
}

static void column_bytes(const struct walk *w, struct strip *t, int64_t i) {
    int64_t row = w->first + t->row + i;
    for (int64_t j = 0; (i == 0 || row % 8 == 0) && j < t->cols; j++)
        t->draw[j] = nvfp4_draw_of_twin(w->col.key, row, t->col + j, w->x.dim[1]);
    for (int64_t j = 0; j < t->cols; j++) t->random[j] = (uint8_t)nvfp4_byte(t->draw[j], row);
}

static void make_columns(const struct walk *w, struct strip *t, uint32_t *count) {
    if (rotates(w, t)) w->isa->rotate(t->x[0], COLS, t->cols);
    column_multipliers(w, t);
    for (int64_t i = 0; i < t->rows; i++) {
        if (w->sink->draws) column_bytes(w, t, i);
        encode(w, t, i, count);
    }
    put_columns(w, t);
}

/* ---- the walk ---- */

/* The amax of what the twin is made of. */
static uint32_t amax_of_rotated(struct backend *b, const struct walk *w) {
    int64_t strips = ceil_div(w->x.dim[0], ROWS) * ceil_div(w->x.dim[1], COLS);
    uint32_t max = 0;
#pragma omp parallel for num_threads(cpu_of(b)->threads) reduction(max : max)
    for (int64_t i = 0; i < strips; i++) {
        struct strip *t = strip_load(b, w, i);
        if (rotates(w, t)) w->isa->rotate(t->x[0], COLS, t->cols);
        for (int64_t r = 0; r < t->rows; r++) {
            uint32_t bits = w->isa->amax(t->x[r], t->cols);
            max = max > bits ? max : bits;
        }
    }
    return max;
}

static void walk_strips(struct backend *b, const struct walk *w) {
    int64_t strips = ceil_div(w->x.dim[0], ROWS) * ceil_div(w->x.dim[1], COLS);
    uint64_t saturated = 0, flushed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(cpu_of(b)->threads) \
    reduction(+ : saturated, flushed)
    for (int64_t i = 0; i < strips; i++) {
        struct strip *t = strip_load(b, w, i);
        uint32_t count[2] = { 0, 0 }, *counted = w->sink->stats ? count : NULL;
        if (w->row.codes || w->square) make_rows(w, t, counted);
        if (w->col.codes && !w->square) make_columns(w, t, w->row.codes ? NULL : counted);
        saturated += count[0];
        flushed += count[1];
    }
    if (!w->sink->stats) return;
    uint64_t *stats = w->sink->stats->data;
    stats[0] += saturated;
    stats[1] += flushed;
}

/* Stores the amax of one copy, and takes S from it. */
static struct side side_of(const struct sink *s, const struct tensor *codes, float amax,
                           enum nvfp4_copy copy) {
    struct side side = { .codes = codes, .s = nvfp4_tensor_multiplier(amax) };
    if (codes) *(float *)codes->scale.data = amax;
    if (s->draws) {
        int32_t step = *(const int32_t *)s->draws->step->data;
        side.key = nvfp4_key(s->draws->seed, step, s->draws->tensor, copy);
    }
    return side;
}

void cpu_nvfp4_finish(struct backend *b, const struct sink *s) {
    const struct tensor *codes = s->codes->data ? s->codes : NULL, *twin = s->codes->transposed;
    float amax = f32_from_bits(*(const uint32_t *)s->amax->data);
    struct walk w = { .isa = cpu_of(b)->isa, .sink = s };
    w.x = tensor_2d(s->value->data, s->value->dtype, s->codes->dim[0], s->codes->dim[1]);
    w.square = (codes ? codes : twin)->scale.kind == SCALE_16X16;
    if (s->draws)
        w.first = *(const int32_t *)s->draws->sequence->data * s->draws->sequence_rows +
                  s->draws->row;
    w.row = side_of(s, codes, amax, NVFP4_CODES);
    if (twin && s->rotate) amax = f32_from_bits(amax_of_rotated(b, &w));
    w.col = side_of(s, twin, amax, NVFP4_TWIN);
    walk_strips(b, &w);
}
