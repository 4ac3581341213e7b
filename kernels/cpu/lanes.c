#include "kernels/cpu/lanes.h"

#include <omp.h>

float *lanes_start(struct backend *b, int64_t n) {
    float *lanes = cpu_scratch(b, 0);
    memset(lanes, 0, (size_t)(LANES * n) * sizeof(float));
    return lanes;
}

enum status lanes_check(const char *what, int64_t lane_floats, int64_t row_floats, struct err *e) {
    int64_t need = LANES * round_up(lane_floats, 16) + row_floats;
    if (need <= SCRATCH_FLOATS) return OK;
    return FAIL(e, ERR_ARG, "%s: rows this wide need %lld floats of scratch; a thread has %d", what,
                (long long)need, SCRATCH_FLOATS);
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

void lanes_finish(const struct tensor *out, const float *lanes, int64_t stride, int64_t n) {
    float span[SPAN];
    for (int64_t at = 0; at < n; at += SPAN) {
        int64_t count = n - at < SPAN ? n - at : SPAN;
        load_span(span, out, at, count);
        join(span, lanes + at, stride, count);
        store_span(out, at, span, count);
    }
}

CLONES static void add_row(float *sum, const struct tensor *x, int64_t row, float *buffer) {
    int64_t n = tensor_cols(x);
    load_row(buffer, x, row);
    for (int64_t c = 0; c < n; c++) sum[c] = sum[c] + buffer[c];
}

void lanes_column_sums(struct backend *b, const struct tensor *out, const struct tensor *x) {
    int64_t rows = tensor_rows(x), n = tensor_cols(x);
    float *lanes = lanes_start(b, n);
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int l = 0; l < LANES; l++)
        for (int64_t r = l; r < rows; r += LANES)
            add_row(lanes + l * n, x, r, lanes_rows(b, omp_get_thread_num(), n));
    lanes_finish(out, lanes, n, n);
}
