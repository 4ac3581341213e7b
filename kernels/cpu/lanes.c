#include "kernels/cpu/lanes.h"

#include <omp.h>

/* ---- along a row ---- */

/* Halves of 32 lanes are added until one is left. */
static float join_halves(const float *lane) {
    float s[SUM_WARP];
    memcpy(s, lane, sizeof s);
    for (int half = SUM_WARP / 2; half; half /= 2)
        for (int j = 0; j < half; j++) s[j] = s[j] + s[j + half];
    return s[0];
}

float row_join(const float *lane, int lanes) {
    float warp[SUM_WARP] = { 0 };
    if (lanes == SUM_WARP) return join_halves(lane);
    for (int w = 0; w * SUM_WARP < lanes; w++) warp[w] = join_halves(lane + w * SUM_WARP);
    return join_halves(warp);
}

/* y NULL: of x alone. */
CLONES static float part_sum(const struct row_order *o, const float *x, const float *y,
                             int64_t n) {
    float lane[SUM_LANES_MAX] = { 0 };
    for (int64_t at = 0, t = 0; at < n; at += o->each, t = (t + 1) % o->lanes) {
        int64_t count = n - at < o->each ? n - at : o->each;
        float sum = lane[t];
        for (int64_t i = at; i < at + count; i++) sum = sum + (y ? x[i] * y[i] : x[i]);
        lane[t] = sum;
    }
    return row_join(lane, o->lanes);
}

float ordered_sum(const struct row_order *o, const float *x, const float *y, int64_t n) {
    int64_t part = o->part ? o->part : n;
    float total = part_sum(o, x, y, n < part ? n : part);
    for (int64_t at = part; at < n; at += part) {
        int64_t count = n - at < part ? n - at : part;
        total = total + part_sum(o, x + at, y ? y + at : NULL, count);
    }
    return total;
}

/* ---- over rows ---- */

/* Lanes, and groups of a lane's rows, that a sum needs at most. */
static int lanes_count(bool follows) { return follows ? SUM_WARP : LANES; }
static int groups_most(bool follows) { return follows ? COLUMN_GROUPS : 0; }

struct lanes lanes_start(struct backend *b, int64_t rows, int64_t width, struct rows_order order) {
    struct lanes l = { .sums = cpu_scratch(b, 0), .rows = rows, .width = width,
                       .count = lanes_count(cpu_follows(b)) };
    if (cpu_follows(b)) l.order = order;
    memset(l.sums, 0, (size_t)(l.count * width) * sizeof(float));
    return l;
}

enum status lanes_check(struct backend *b, const char *what, int64_t lane_floats,
                        int64_t row_floats, struct err *e) {
    bool follows = !b || cpu_follows(b);
    int64_t lanes = lanes_count(follows) + groups_most(follows);
    int64_t need = lanes * round_up(lane_floats, 16) + row_floats;
    if (need <= SCRATCH_FLOATS) return OK;
    return FAIL(e, ERR_ARG, "%s: rows this wide need %lld floats of scratch; a thread has %d", what,
                (long long)need, SCRATCH_FLOATS);
}

float *lanes_buffers(struct backend *b, int thread, const struct lanes *l) {
    return cpu_scratch(b, thread) + l->count * round_up(l->width, 16);
}

float *lanes_rows(const struct lanes *l, float *buffers) {
    return buffers + l->order.groups * round_up(l->width, 16);
}

/* sum += the groups [groups][n], added ascending. */
CLONES static void add_groups(float *sum, const float *group, int groups, int64_t n) {
    for (int64_t c = 0; c < n; c++) {
        float total = group[c];
        for (int g = 1; g < groups; g++) total = total + group[g * n + c];
        sum[c] = sum[c] + total;
    }
}

void lanes_each(const struct lanes *l, int lane, float *buffers, lanes_row add,
                const void *context) {
    float *sums = l->sums + lane * l->width, *rows = lanes_rows(l, buffers);
    int groups = l->order.groups;
    if (!groups) {
        for (int64_t r = lane; r < l->rows; r += l->count) add(context, r, sums, rows);
        return;
    }
    int64_t block = groups * l->order.group_rows;
    for (int64_t first = lane * block; first < l->rows; first += l->count * block) {
        int64_t n = l->rows - first < block ? l->rows - first : block;
        memset(buffers, 0, (size_t)(groups * l->width) * sizeof(float));
        for (int64_t r = 0; r < n; r++)
            add(context, first + r, buffers + r % groups * l->width, rows);
        add_groups(sums, buffers, groups, l->width);
    }
}

enum { SPAN = 64 };

CLONES static void join(float *out, const float *lanes, int64_t stride, int64_t count) {
    float tree[8][SPAN];
    for (int j = 0; j < 8; j++)
        for (int64_t c = 0; c < count; c++)
            tree[j][c] = lanes[j * stride + c] + lanes[(j + 8) * stride + c];
    for (int half = 4; half; half /= 2)
        for (int j = 0; j < half; j++)
            for (int64_t c = 0; c < count; c++) tree[j][c] = tree[j][c] + tree[j + half][c];
    for (int64_t c = 0; c < count; c++) out[c] = out[c] + tree[0][c];
}

CLONES static void join_ascending(float *out, const float *lanes, int64_t stride, int64_t count) {
    for (int64_t c = 0; c < count; c++) {
        float total = lanes[c];
        for (int j = 1; j < SUM_WARP; j++) total = total + lanes[j * stride + c];
        out[c] = out[c] + total;
    }
}

void lanes_finish(const struct tensor *out, const struct lanes *l, int64_t first, int64_t n) {
    float span[SPAN];
    for (int64_t at = 0; at < n; at += SPAN) {
        int64_t count = n - at < SPAN ? n - at : SPAN;
        load_span(span, out, at, count);
        if (l->order.groups) join_ascending(span, l->sums + first + at, l->width, count);
        else join(span, l->sums + first + at, l->width, count);
        store_span(out, at, span, count);
    }
}

CLONES static void add_row(const void *context, int64_t row, float *sums, float *buffer) {
    const struct tensor *x = context;
    int64_t n = tensor_cols(x);
    load_row(buffer, x, row);
    for (int64_t c = 0; c < n; c++) sums[c] = sums[c] + buffer[c];
}

void lanes_column_sums(struct backend *b, const struct tensor *out, const struct tensor *x) {
    int64_t n = tensor_cols(x);
    struct lanes l = lanes_start(b, tensor_rows(x), n, column_order());
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int i = 0; i < l.count; i++)
        lanes_each(&l, i, lanes_buffers(b, omp_get_thread_num(), &l), add_row, x);
    lanes_finish(out, &l, 0, n);
}
