/* Token (and learned position) embedding. */
#include <omp.h>

#include "kernels/cpu/lanes.h"

CLONES static void forward_row(const struct tensor *x, int64_t row, const struct tensor *table,
                               int64_t token, const struct tensor *position, int64_t at,
                               float *buffer) {
    int64_t n = tensor_cols(x);
    load_row(buffer, table, token);
    if (position) {
        load_row(buffer + n, position, at);
        for (int64_t c = 0; c < n; c++) buffer[c] = buffer[c] + buffer[n + c];
    }
    store_row(x, row, buffer);
}

enum status cpu_embedding_fwd(struct backend *b, int lane, const struct tensor *x,
                              const struct tensor *tokens, const struct tensor *table,
                              const struct tensor *position, const struct tensor *positions,
                              struct err *e) {
    TRY(cpu_check(x, "embedding_fwd: x", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(x), n = tensor_cols(x);
    TRY(cpu_check(table, "embedding_fwd: table", 1 << x->dtype, -1, n, e));
    if (position) TRY(cpu_check(position, "embedding_fwd: position", 1 << x->dtype, -1, n, e));
    TRY(lanes_check(b, "embedding_fwd", 0, 2 * n, e));
    TRY(cpu_check_indices(tokens, "embedding_fwd: tokens", rows, table->dim[0], e));
    int64_t length = position ? position->dim[0] : 1;
    if (position && positions)
        TRY(cpu_check_indices(positions, "embedding_fwd: positions", rows, length, e));
    const int32_t *token = tokens->data, *at = position && positions ? positions->data : NULL;
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int64_t r = 0; r < rows; r++)
        forward_row(x, r, table, token[r], position, at ? at[r] : r % length,
                    cpu_scratch(b, omp_get_thread_num()));
    return OK;
}

/* d_table[index] += every row that holds it, rows ascending, in f32, rounded once at the end.
 * next[r] is the following row with r's index, or -1. */
CLONES static void backward_index(const struct tensor *d_table, const struct tensor *dx,
                                  int64_t index, int64_t row, const int32_t *next, float *buffer) {
    int64_t n = tensor_cols(dx);
    load_row(buffer, d_table, index);
    for (int64_t r = row; r >= 0; r = next[r]) {
        load_row(buffer + n, dx, r);
        for (int64_t c = 0; c < n; c++) buffer[c] = buffer[c] + buffer[n + c];
    }
    store_row(d_table, index, buffer);
}

/* d_table[index[r]] += row r of dx. */
static void backward_indices(struct backend *b, const struct tensor *d_table,
                             const struct tensor *dx, const int32_t *index) {
    /* Rows chained by index: first[i] is its first row, next[r] the one after r. They are at the
     * end of the first thread's scratch, which the row buffers do not reach. */
    int64_t rows = tensor_rows(dx), limit = d_table->dim[0];
    int32_t *next = (int32_t *)(cpu_scratch(b, 0) + SCRATCH_FLOATS) - rows, *first = next - limit;
    for (int64_t i = 0; i < limit; i++) first[i] = -1;
    for (int64_t r = rows - 1; r >= 0; r--) {
        next[r] = first[index[r]];
        first[index[r]] = (int32_t)r;
    }
    #pragma omp parallel for schedule(dynamic, 16) num_threads(cpu_of(b)->threads)
    for (int64_t r = 0; r < rows; r++)
        if (first[index[r]] == r)
            backward_index(d_table, dx, index[r], r, next, cpu_scratch(b, omp_get_thread_num()));
}

/* d_position[t] += rows t, t + T, ...: lane b % count adds sequence b; the tree joins the lanes.
 * count: 16; as on a GPU, 1. */
CLONES static void backward_position(const struct tensor *d_position, const struct tensor *dx,
                                     int64_t t, int count, float *lanes) {
    int64_t n = tensor_cols(dx), length = tensor_rows(d_position), batch = tensor_rows(dx) / length;
    float *buffer = lanes + LANES * n;
    memset(lanes, 0, (size_t)(LANES * n) * sizeof(float));
    for (int64_t i = 0; i < batch; i++) {
        float *sum = lanes + (i % count) * n;
        load_row(buffer, dx, i * length + t);
        for (int64_t c = 0; c < n; c++) sum[c] = sum[c] + buffer[c];
    }
    struct tensor row = tensor_1d((char *)d_position->data +
                                      t * d_position->stride[0] * dtype_bytes(d_position->dtype),
                                  d_position->dtype, n);
    lanes_finish(&row, &(struct lanes){ .sums = lanes, .width = n }, 0, n);
}

enum status cpu_embedding_bwd(struct backend *b, int lane, const struct tensor *d_table,
                              const struct tensor *d_position, const struct tensor *dx,
                              const struct tensor *tokens, const struct tensor *positions,
                              struct err *e) {
    TRY(cpu_check(dx, "embedding_bwd: dx", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(dx), n = tensor_cols(dx);
    TRY(cpu_check(d_table, "embedding_bwd: d_table", IS_ACT, -1, n, e));
    int64_t vocab = d_table->dim[0], length = d_position ? d_position->dim[0] : 0;
    if (d_position) {
        TRY(cpu_check(d_position, "embedding_bwd: d_position", IS_ACT, -1, n, e));
        if (rows % length != 0)
            return FAIL(e, ERR_ARG, "embedding_bwd: %lld rows are not whole sequences of %lld",
                        (long long)rows, (long long)length);
    }
    int64_t indices = vocab > length ? vocab : length;
    TRY(lanes_check(b, "embedding_bwd", n, indices + rows + 2 * n, e));
    TRY(cpu_check_indices(tokens, "embedding_bwd: tokens", rows, vocab, e));
    if (d_position && positions)
        TRY(cpu_check_indices(positions, "embedding_bwd: positions", rows, length, e));
    backward_indices(b, d_table, dx, tokens->data);
    if (!d_position) return OK;
    if (positions) {
        backward_indices(b, d_position, dx, positions->data);
        return OK;
    }
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int64_t t = 0; t < length; t++)
        backward_position(d_position, dx, t, cpu_follows(b) ? 1 : LANES,
                          cpu_scratch(b, omp_get_thread_num()));
    return OK;
}
