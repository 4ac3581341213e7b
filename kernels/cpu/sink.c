/* From a producer's value to FP8 codes: every scale kind, the transposed twin, amax and stats.
 *
 * The value is processed in tiles of 128 x 128, which hold whole blocks of most kinds. SCALE_ROW
 * and SCALE_TENSOR need their amax first. Threads share the tiles. Maxima and counts are integers,
 * so neither their order nor the thread count changes a bit. */
#include <omp.h>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/transpose.h"

enum { TILE = 128, AMAX_SPAN = 4096 };

/* The arguments of one pass over the value. */
struct walk {
    const struct isa *isa;
    const struct sink *sink;
    struct tensor x;             /* the value as [rows, cols] */
    const struct tensor *codes;  /* NULL if only the twin is wanted */
    const struct tensor *twin;   /* NULL if not wanted */
    enum dtype dtype;            /* of both */
    enum scale_kind kind;        /* of both */
    float multiplier;            /* for SCALE_TENSOR */
};

/* The buffers of one tile in a thread's scratch. */
struct tile {
    int64_t row, col, rows, cols;
    float *x;         /* [TILE][TILE] */
    float *m;         /* [TILE] multipliers of one row's elements */
    uint8_t *codes;   /* [TILE][TILE] */
    uint8_t *transposed; /* [TILE][TILE], the same codes */
    uint32_t *column; /* [TILE] amax of each column of a block */
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows and columns of a block inside a tile. */
static int64_t block_cols(enum scale_kind k) {
    return k == SCALE_1X32 || k == SCALE_32X32 ? 32 : TILE;
}
static int64_t block_rows(enum scale_kind k) {
    return k == SCALE_128X128 || k == SCALE_32X32 ? block_cols(k) : 1;
}
/* Kinds whose twin holds the same codes, transposed. */
static bool twin_is_moved(enum scale_kind k) {
    return k == SCALE_TENSOR || k == SCALE_128X128 || k == SCALE_32X32;
}

static void scale_put(const struct scale *s, int64_t i, int64_t j, float stored) {
    int64_t at = i * s->dim[1] + j;
    /* Exact: an e8m0 factor is a power of two (or NaN) already. */
    if (s->dtype == DTYPE_E8M0) ((uint8_t *)s->data)[at] = e8m0_encode_up(stored);
    else ((float *)s->data)[at] = stored;
}

/* ---- amax ---- */

/* The amax of n contiguous elements of x from `offset` on; buffer holds min(n, AMAX_SPAN)
 * floats. */
static uint32_t amax_span(const struct isa *isa, const struct tensor *x, int64_t offset, int64_t n,
                          float *buffer) {
    uint32_t max = 0;
    for (int64_t i = 0; i < n; i += AMAX_SPAN) {
        int64_t part = min64(AMAX_SPAN, n - i);
        load_span(buffer, x, offset + i, part);
        uint32_t bits = isa->amax(buffer, part);
        max = max > bits ? max : bits;
    }
    return max;
}

static void raise_amax(const struct tensor *slot, uint32_t bits) {
    uint32_t *amax = slot->data;
    if (bits > *amax) *amax = bits;
}

static void amax_of_value(struct backend *b, const struct sink *s) {
    const struct cpu_backend *cpu = cpu_of(b);
    int64_t n = tensor_count(s->value);
    uint32_t max = 0;
#pragma omp parallel for num_threads(cpu->threads) reduction(max : max)
    for (int64_t i = 0; i < n; i += AMAX_SPAN) {
        float *buffer = cpu_scratch(b, omp_get_thread_num());
        uint32_t bits = amax_span(cpu->isa, s->value, i, min64(AMAX_SPAN, n - i), buffer);
        max = max > bits ? max : bits;
    }
    raise_amax(s->amax, max);
}

/* ---- SCALE_ROW: until the codes are made, the factors' memory holds the amax of each line ---- */

static void amax_of_rows(struct backend *b, const struct walk *w) {
    float *amax = w->codes->scale.data;
#pragma omp parallel for num_threads(cpu_of(b)->threads)
    for (int64_t r = 0; r < w->x.dim[0]; r++)
        amax[r] = f32_from_bits(amax_span(w->isa, &w->x, r * w->x.stride[0], w->x.dim[1],
                                          cpu_scratch(b, omp_get_thread_num())));
}

static void amax_of_columns(struct backend *b, const struct walk *w) {
    float *amax = w->twin->scale.data;
#pragma omp parallel for num_threads(cpu_of(b)->threads)
    for (int64_t c = 0; c < w->x.dim[1]; c += TILE) {
        float *buffer = cpu_scratch(b, omp_get_thread_num());
        uint32_t *column = (uint32_t *)(buffer + TILE);
        int64_t n = min64(TILE, w->x.dim[1] - c);
        memset(column, 0, TILE * sizeof *column);
        for (int64_t r = 0; r < w->x.dim[0]; r++) {
            load_span(buffer, &w->x, r * w->x.stride[0] + c, n);
            w->isa->amax_each(column, buffer, n);
        }
        memcpy(amax + c, column, (size_t)n * sizeof *column);
    }
}

static void amax_to_factors(const struct walk *w, const struct tensor *codes) {
    float *at = codes->scale.data;
    for (int64_t i = 0; i < codes->scale.dim[0]; i++)
        quant_multiplier(&w->sink->rule, w->dtype, at[i], &at[i]);
}

/* ---- one tile ---- */

static void tile_load(const struct walk *w, struct tile *t) {
    for (int64_t i = 0; i < t->rows; i++)
        load_span(t->x + i * TILE, &w->x, (t->row + i) * w->x.stride[0] + t->col, t->cols);
}

static uint32_t tile_amax(const struct walk *w, const struct tile *t, int64_t i, int64_t j,
                          int64_t rows, int64_t cols) {
    uint32_t max = 0;
    for (int64_t r = i; r < min64(i + rows, t->rows); r++) {
        uint32_t bits = w->isa->amax(t->x + r * TILE + j, min64(cols, t->cols - j));
        max = max > bits ? max : bits;
    }
    return max;
}

/* The multiplier of the block at (i, j) of the tile; stores its factor. */
static float block_multiplier(const struct walk *w, const struct tile *t, int64_t i, int64_t j) {
    int64_t rows = block_rows(w->kind), cols = block_cols(w->kind);
    float stored, amax = f32_from_bits(tile_amax(w, t, i, j, rows, cols));
    float m = quant_multiplier(&w->sink->rule, w->dtype, amax, &stored);
    int64_t at_row = (t->row + i) / rows, at_col = (t->col + j) / cols;
    if (w->codes) scale_put(&w->codes->scale, at_row, at_col, stored);
    if (w->twin && twin_is_moved(w->kind)) scale_put(&w->twin->scale, at_col, at_row, stored);
    return m;
}

/* Fills t->m for row i, unless it equals the multipliers of the row before. */
static void row_multipliers(const struct walk *w, struct tile *t, int64_t i) {
    if (w->kind == SCALE_TENSOR || w->kind == SCALE_ROW) {
        if (w->kind == SCALE_TENSOR && i > 0) return;
        float m = w->multiplier, stored;
        if (w->kind == SCALE_ROW) {
            const float *amax = w->codes->scale.data;
            m = quant_multiplier(&w->sink->rule, w->dtype, amax[t->row + i], &stored);
        }
        for (int64_t j = 0; j < t->cols; j++) t->m[j] = m;
        return;
    }
    if (i % block_rows(w->kind) != 0) return;
    int64_t cols = block_cols(w->kind);
    for (int64_t j = 0; j < t->cols; j += cols) {
        float m = block_multiplier(w, t, i, j);
        for (int64_t c = j; c < min64(j + cols, t->cols); c++) t->m[c] = m;
    }
}

static void put_rows(const struct walk *w, const struct tile *t) {
    bool last = t->col + t->cols == w->x.dim[1];
    for (int64_t i = 0; i < t->rows; i++) {
        uint8_t *out = (uint8_t *)w->codes->data + (t->row + i) * w->codes->stride[0];
        memcpy(out + t->col, t->codes + i * TILE, (size_t)t->cols);
        if (last) memset(out + w->x.dim[1], 0, (size_t)(w->codes->stride[0] - w->x.dim[1]));
    }
}

/* An untransposed twin has the order of the codes, and perhaps their memory. */
static void put_in_order(const struct walk *w, const struct tile *t) {
    int64_t stride = w->twin->stride[1], cols = w->x.dim[1];
    bool last = t->col + t->cols == cols;
    if (sink_shares_codes(w->sink)) return;
    for (int64_t i = 0; i < t->rows; i++) {
        uint8_t *out = (uint8_t *)w->twin->data + (t->row + i) * stride;
        memcpy(out + t->col, t->codes + i * TILE, (size_t)t->cols);
        if (last) memset(out + cols, 0, (size_t)(stride - cols));
    }
}

/* Through a small copy: rows of the twin are often a power of two apart. Pieces of 16 bytes written
 * that far apart evict each other from the cache. */
static void put_columns(const struct walk *w, const struct tile *t) {
    int64_t stride = w->twin->stride[0], rows = w->x.dim[0];
    bool last = t->row + t->rows == rows;
    if (fp8_is_untransposed(w->twin)) {
        put_in_order(w, t);
        return;
    }
    transpose_bytes(t->transposed, TILE, t->codes, TILE, t->rows, t->cols);
    for (int64_t j = 0; j < t->cols; j++) {
        uint8_t *out = (uint8_t *)w->twin->data + (t->col + j) * stride;
        memcpy(out + t->row, t->transposed + j * TILE, (size_t)t->rows);
        if (last) memset(out + rows, 0, (size_t)(stride - rows));
    }
}

/* Makes codes by rows, and the twin if it holds the same codes. */
static void encode_rows(const struct walk *w, struct tile *t, uint32_t *count) {
    for (int64_t i = 0; i < t->rows; i++) {
        row_multipliers(w, t, i);
        const float *x = t->x + i * TILE;
        w->isa->fp8_encode(w->dtype, t->codes + i * TILE, x, t->m, t->cols);
        if (count) w->isa->fp8_stats(w->dtype, t->codes + i * TILE, x, t->m, t->cols, count);
    }
    if (w->codes) put_rows(w, t);
    if (w->twin && twin_is_moved(w->kind)) put_columns(w, t);
}

/* Fills t->m for a block of rows from i on: one multiplier a column. */
static void column_multipliers(const struct walk *w, struct tile *t, int64_t i, int64_t rows) {
    const float *known = w->twin->scale.data;
    memset(t->column, 0, TILE * sizeof *t->column);
    for (int64_t r = i; w->kind != SCALE_ROW && r < min64(i + rows, t->rows); r++)
        w->isa->amax_each(t->column, t->x + r * TILE, t->cols);
    for (int64_t j = 0; j < t->cols; j++) {
        bool row = w->kind == SCALE_ROW;
        float stored, amax = row ? known[t->col + j] : f32_from_bits(t->column[j]);
        t->m[j] = quant_multiplier(&w->sink->rule, w->dtype, amax, &stored);
        if (!row) scale_put(&w->twin->scale, t->col + j, (t->row + i) / rows, stored);
    }
}

/* Makes the twin of a kind that is quantised again along the other axis. */
static void encode_columns(const struct walk *w, struct tile *t, uint32_t *count) {
    int64_t rows = block_cols(w->kind);
    for (int64_t i = 0; i < t->rows; i++) {
        if (i % rows == 0) column_multipliers(w, t, i, rows);
        const float *x = t->x + i * TILE;
        w->isa->fp8_encode(w->dtype, t->codes + i * TILE, x, t->m, t->cols);
        if (count) w->isa->fp8_stats(w->dtype, t->codes + i * TILE, x, t->m, t->cols, count);
    }
    put_columns(w, t);
}

static struct tile tile_at(struct backend *b, const struct walk *w, int64_t index) {
    int64_t tiles_per_row = ceil_div(w->x.dim[1], TILE);
    struct tile t;
    t.row = index / tiles_per_row * TILE;
    t.col = index % tiles_per_row * TILE;
    t.rows = min64(TILE, w->x.dim[0] - t.row);
    t.cols = min64(TILE, w->x.dim[1] - t.col);
    t.x = cpu_scratch(b, omp_get_thread_num());
    t.m = t.x + TILE * TILE;
    t.column = (uint32_t *)(t.m + TILE);
    t.codes = (uint8_t *)(t.column + TILE);
    t.transposed = t.codes + TILE * TILE;
    return t;
}

/* ---- the walk ---- */

static void walk_tiles(struct backend *b, const struct walk *w, bool want_amax) {
    const struct sink *s = w->sink;
    int64_t tiles = ceil_div(w->x.dim[0], TILE) * ceil_div(w->x.dim[1], TILE);
    bool moved = twin_is_moved(w->kind);
    uint32_t max = 0;
    uint64_t saturated = 0, flushed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(cpu_of(b)->threads) \
    reduction(max : max) reduction(+ : saturated, flushed)
    for (int64_t i = 0; i < tiles; i++) {
        struct tile t = tile_at(b, w, i);
        uint32_t count[2] = { 0, 0 }, *rows_count = s->stats ? count : NULL;
        uint32_t *columns_count = w->codes ? NULL : rows_count;
        tile_load(w, &t);
        if (want_amax) {
            uint32_t bits = tile_amax(w, &t, 0, 0, TILE, TILE);
            max = max > bits ? max : bits;
        }
        if (w->codes || moved) encode_rows(w, &t, rows_count);
        if (w->twin && !moved) encode_columns(w, &t, columns_count);
        saturated += count[0];
        flushed += count[1];
    }
    if (want_amax) raise_amax(s->amax, max);
    if (s->stats) {
        uint64_t *stats = s->stats->data;
        stats[0] += saturated;
        stats[1] += flushed;
    }
}

static struct walk walk_of(struct backend *b, const struct sink *s) {
    struct walk w = { .isa = cpu_of(b)->isa, .sink = s, .multiplier = 1.0f };
    w.codes = s->codes->data ? s->codes : NULL;
    w.twin = s->codes->transposed;
    w.dtype = w.codes ? w.codes->dtype : w.twin->dtype;
    w.kind = w.codes ? w.codes->scale.kind : w.twin->scale.kind;
    w.x = tensor_2d(s->value->data, s->value->dtype, s->codes->dim[0], s->codes->dim[1]);
    return w;
}

void cpu_sink_emit(struct backend *b, const struct sink *s) {
    if (s->sums) {
        int64_t n = tensor_count(s->sums);
        struct tensor x = sink_rows(s, n ? tensor_count(s->value) / n : 0, n);
        lanes_column_sums(b, s->sums, &x);
    }
    if (s->source == SCALE_SOURCE_NONE || s->source == SCALE_SOURCE_AMAX) {
        if (s->amax) amax_of_value(b, s);
        if (s->source == SCALE_SOURCE_AMAX && !sink_waits(s)) cpu_sink_finish(b, s);
        return;
    }
    struct walk w = walk_of(b, s);
    if (s->source == SCALE_SOURCE_KNOWN) w.multiplier = *(const float *)s->multiplier->data;
    if (w.kind == SCALE_ROW && w.codes) amax_of_rows(b, &w);
    if (w.kind == SCALE_ROW && w.twin) amax_of_columns(b, &w);
    walk_tiles(b, &w, s->amax != NULL);
    if (w.kind == SCALE_ROW && w.codes) amax_to_factors(&w, w.codes);
    if (w.kind == SCALE_ROW && w.twin) amax_to_factors(&w, w.twin);
}

void cpu_sink_finish(struct backend *b, const struct sink *s) {
    struct walk w = walk_of(b, s);
    if (scale_is_nvfp4(w.kind)) {
        cpu_nvfp4_finish(b, s);
        return;
    }
    float stored, amax = f32_from_bits(*(const uint32_t *)s->amax->data);
    w.multiplier = quant_multiplier(&s->rule, w.dtype, amax, &stored);
    if (w.codes) *(float *)w.codes->scale.data = stored;
    if (w.twin) *(float *)w.twin->scale.data = stored;
    walk_tiles(b, &w, false);
}
