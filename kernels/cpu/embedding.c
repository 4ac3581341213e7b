/* Token (and learned position) embedding. */
#include <omp.h>

#include "kernels/cpu/lanes.h"

/* ERR_ARG that names the first token outside [0, vocab). */
static enum status check_tokens(const struct tensor *tokens, int64_t vocab, const char *what,
                                struct err *e) {
    const int32_t *token = tokens->data;
    for (int64_t r = 0; r < tensor_rows(tokens); r++)
        if (token[r] < 0 || token[r] >= vocab)
            return FAIL(e, ERR_ARG, "%s: token %d at row %lld is not in [0, %lld)", what,
                        (int)token[r], (long long)r, (long long)vocab);
    return OK;
}

CLONES static void forward_row(const struct tensor *x, int64_t row, const struct tensor *table,
                               int64_t token, const struct tensor *position, float *buffer) {
    int64_t n = tensor_cols(x);
    load_row(buffer, table, token);
    if (position) {
        load_row(buffer + n, position, row % position->dim[0]);
        for (int64_t c = 0; c < n; c++) buffer[c] = buffer[c] + buffer[n + c];
    }
    store_row(x, row, buffer);
}

enum status cpu_embedding_fwd(struct backend *b, int lane, const struct tensor *x,
                              const struct tensor *tokens, const struct tensor *table,
                              const struct tensor *position, struct err *e) {
    TRY(cpu_check(x, "embedding_fwd: x", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(x), n = tensor_cols(x);
    TRY(cpu_check(tokens, "embedding_fwd: tokens", IS_I32, rows, 1, e));
    TRY(cpu_check(table, "embedding_fwd: table", 1 << x->dtype, -1, n, e));
    if (position) TRY(cpu_check(position, "embedding_fwd: position", 1 << x->dtype, -1, n, e));
    TRY(lanes_check("embedding_fwd", 0, 2 * n, e));
    TRY(check_tokens(tokens, table->dim[0], "embedding_fwd", e));
    const int32_t *token = tokens->data;
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int64_t r = 0; r < rows; r++)
        forward_row(x, r, table, token[r], position, cpu_scratch(b, omp_get_thread_num()));
    return OK;
}

/* d_table[token] += every row that holds it, rows ascending, in f32, rounded once at the end.
 * next[r] is the following row with r's token, or -1. */
CLONES static void backward_token(const struct tensor *d_table, const struct tensor *dx,
                                  int64_t token, int64_t row, const int32_t *next, float *buffer) {
    int64_t n = tensor_cols(dx);
    load_row(buffer, d_table, token);
    for (int64_t r = row; r >= 0; r = next[r]) {
        load_row(buffer + n, dx, r);
        for (int64_t c = 0; c < n; c++) buffer[c] = buffer[c] + buffer[n + c];
    }
    store_row(d_table, token, buffer);
}

/* d_position[t] += rows t, t + T, ...: lane b % 16 adds sequence b; the tree joins the lanes. */
CLONES static void backward_position(const struct tensor *d_position, const struct tensor *dx,
                                     int64_t t, float *lanes, float *buffer) {
    int64_t n = tensor_cols(dx), length = tensor_rows(d_position), batch = tensor_rows(dx) / length;
    memset(lanes, 0, (size_t)(LANES * n) * sizeof(float));
    for (int64_t i = 0; i < batch; i++) {
        float *sum = lanes + (i % LANES) * n;
        load_row(buffer, dx, i * length + t);
        for (int64_t c = 0; c < n; c++) sum[c] = sum[c] + buffer[c];
    }
    struct tensor row = tensor_1d((char *)d_position->data +
                                      t * d_position->stride[0] * dtype_bytes(d_position->dtype),
                                  d_position->dtype, n);
    lanes_finish(&row, lanes, n, n);
}

enum status cpu_embedding_bwd(struct backend *b, int lane, const struct tensor *d_table,
                              const struct tensor *d_position, const struct tensor *dx,
                              const struct tensor *tokens, struct err *e) {
    TRY(cpu_check(dx, "embedding_bwd: dx", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(dx), n = tensor_cols(dx);
    TRY(cpu_check(tokens, "embedding_bwd: tokens", IS_I32, rows, 1, e));
    TRY(cpu_check(d_table, "embedding_bwd: d_table", IS_ACT, -1, n, e));
    int64_t vocab = d_table->dim[0];
    if (d_position) {
        TRY(cpu_check(d_position, "embedding_bwd: d_position", IS_ACT, -1, n, e));
        if (rows % d_position->dim[0] != 0)
            return FAIL(e, ERR_ARG, "embedding_bwd: %lld rows are not whole sequences of %lld",
                        (long long)rows, (long long)d_position->dim[0]);
    }
    TRY(lanes_check("embedding_bwd", n, vocab + rows + 2 * n, e));
    TRY(check_tokens(tokens, vocab, "embedding_bwd", e));

    /* Rows chained by token: first[token] is its first row, next[r] the one after r. They are at
     * the end of the first thread's scratch, which the row buffers do not reach. */
    int32_t *next = (int32_t *)(cpu_scratch(b, 0) + SCRATCH_FLOATS) - rows, *first = next - vocab;
    const int32_t *token = tokens->data;
    for (int64_t v = 0; v < vocab; v++) first[v] = -1;
    for (int64_t r = rows - 1; r >= 0; r--) {
        next[r] = first[token[r]];
        first[token[r]] = (int32_t)r;
    }
    #pragma omp parallel num_threads(cpu_of(b)->threads)
    {
        float *lanes = cpu_scratch(b, omp_get_thread_num()), *buffer = lanes + LANES * n;
        #pragma omp for schedule(dynamic, 16)
        for (int64_t r = 0; r < rows; r++)
            if (first[token[r]] == r) backward_token(d_table, dx, token[r], r, next, buffer);
        if (d_position) {
            #pragma omp for schedule(static)
            for (int64_t t = 0; t < d_position->dim[0]; t++)
                backward_position(d_position, dx, t, lanes, buffer);
        }
    }
    return OK;
}
