#include "model/logits.h"

#include "kernels/dtype.h"
#include "model/trainer.h"
#include "model/window.h"

static enum status check(const struct trainer *t, const int32_t *tokens, const int64_t *row,
                         int64_t count, struct err *e) {
    if (t->failure)
        return FAIL(e, ERR_STATE, "%s after step %lld: there are no logits", t->failure,
                    (long long)t->step);
    TRY(trainer_check_idle(t, e));
    for (int64_t i = 0; i < t->transformer.rows; i++)
        if (tokens[i] < 0 || tokens[i] >= t->model.vocab)
            return FAIL(e, ERR_ARG, "token %d at row %lld; the model has %lld tokens",
                        (int)tokens[i], (long long)i, (long long)t->model.vocab);
    for (int64_t i = 0; i < count; i++)
        if (row[i] < 0 || row[i] >= t->transformer.rows)
            return FAIL(e, ERR_ARG, "row %lld; the trainer has %lld", (long long)row[i],
                        (long long)t->transformer.rows);
    return OK;
}

/* Attention and positions of sequences without documents. The next batch of a step or an
 * evaluation brings its own. */
static enum status upload_plain(struct trainer *t, struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    struct transformer *tf = &t->transformer;
    int64_t T = t->model.seq_len, rows = tf->rows;
    if (t->options.documents.mask) {
        window_first_keys(t->staging, NULL, rows, T, t->model.window);
        TRY(ops->upload(t->backend, LANE_COMPUTE, tf->first_key.data, t->staging, rows * 4, e));
    }
    if (!t->options.documents.restart) return OK;
    for (int64_t i = 0; i < rows; i++) t->staging[i] = (int32_t)(i % T);
    return ops->upload(t->backend, LANE_COMPUTE, tf->positions.data, t->staging, rows * 4, e);
}

/* Copies one row of logits to the host. BF16 arrives in the upper half of `out`, where each value
 * is read before its place is written. */
static enum status take_row(struct trainer *t, const struct tensor *logits, int64_t row, float *out,
                            struct err *e) {
    int64_t size = dtype_bytes(logits->dtype), vocab = t->model.vocab;
    const char *from = (const char *)logits->data + row * logits->stride[0] * size;
    char *to = (char *)out + vocab * (4 - size);
    TRY(t->backend->ops->download(t->backend, LANE_COMPUTE, to, from, vocab * size, e));
    for (int64_t i = 0; size == 2 && i < vocab; i++) {
        uint16_t code;
        memcpy(&code, to + 2 * i, sizeof code);
        out[i] = bf16_decode(code);
    }
    return OK;
}

/* Runs the head on the chunk if it has one of the rows. */
static enum status run_chunk(struct trainer *t, int64_t chunk, const int64_t *row, int64_t count,
                             float *out, struct err *e) {
    const struct head_chunk *k = &t->transformer.chunk[chunk];
    bool made = false;
    for (int64_t i = 0; i < count; i++) {
        if (row[i] < k->first || row[i] >= k->first + k->rows) continue;
        if (!made) TRY(transformer_logits(&t->transformer, chunk, PASS_EVAL, e));
        made = true;
        TRY(take_row(t, &k->logits, row[i] - k->first, out + i * t->model.vocab, e));
    }
    return OK;
}

enum status trainer_logits(struct trainer *t, const int32_t *tokens, const int64_t *row,
                           int64_t count, float *out, struct err *e) {
    struct backend *b = t->backend;
    struct transformer *tf = &t->transformer;
    TRY(check(t, tokens, row, count, e));
    TRY(exchange_gather_all(&t->exchange, e));
    TRY(b->ops->upload(b, LANE_COMPUTE, tf->tokens.data, tokens, tf->rows * 4, e));
    TRY(upload_plain(t, e));
    TRY(b->ops->zero(b, LANE_COMPUTE, &t->slots.amax_eval, e));
    TRY(transformer_forward(tf, PASS_EVAL, e));
    TRY(gather_use(&t->exchange, tf->head.weight->bucket, e));
    for (int64_t i = 0; i < tf->chunk_count; i++) TRY(run_chunk(t, i, row, count, out, e));
    return OK;
}
