#include "model/logits.h"

#include "kernels/dtype.h"
#include "model/trainer.h"

static enum status check_rows(const struct trainer *t, const int64_t *row, int64_t count,
                              struct err *e) {
    for (int64_t i = 0; i < count; i++)
        if (row[i] < 0 || row[i] >= t->transformer.rows)
            return FAIL(e, ERR_ARG, "row %lld; the trainer has %lld", (long long)row[i],
                        (long long)t->transformer.rows);
    return OK;
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
    TRY(check_rows(t, row, count, e));
    TRY(trainer_upload_sequences(t, tokens, NULL, e));
    TRY(exchange_gather_all(&t->exchange, e));
    TRY(b->ops->zero(b, LANE_COMPUTE, &t->slots.amax_eval, e));
    TRY(transformer_forward(tf, PASS_EVAL, e));
    TRY(gather_use(&t->exchange, tf->head.weight->bucket, e));
    for (int64_t i = 0; i < tf->chunk_count; i++) TRY(run_chunk(t, i, row, count, out, e));
    return OK;
}
