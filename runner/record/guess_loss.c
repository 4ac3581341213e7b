#include "runner/record/guess_loss.h"

#include <math.h>
#include <stdlib.h>

#include "model/data.h"
#include "runner/plan/options.h"

enum { TOKENS_MAX = 1 << 20 }; /* that are counted of training */

struct reading {
    const struct run_options *run;
    const struct data *data;
    int32_t *tokens, *targets; /* of one sequence */
    int64_t *count;            /* of each id among the targets */
    int64_t counted;
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static enum status count_training(struct reading *r, struct err *e) {
    const struct run_options *run = r->run;
    int64_t T = run->model.seq_len;
    int64_t sequences = least(run->train.steps * run->train.global_batch,
                              ceil_div(TOKENS_MAX, T));
    for (int64_t i = 0; i < sequences; i++) {
        TRY(data_batch(r->data, SPLIT_TRAIN, i, 1, r->tokens, r->targets, NULL, e));
        for (int64_t t = 0; t < T; t++) {
            if (r->targets[t] < 0) continue;
            r->count[r->targets[t]]++;
            r->counted++;
        }
    }
    return OK;
}

static enum status mean_over_held_out(const struct reading *r, double *nats, struct err *e) {
    const struct run_options *run = r->run;
    int64_t T = run->model.seq_len, n = 0;
    int64_t sequences = least(run->eval.batches * run->train.micro_batch,
                              data_sequences(r->data, SPLIT_EVAL));
    double sum = 0, all = (double)(r->counted + run->model.vocab);
    for (int64_t i = 0; i < sequences; i++) {
        TRY(data_batch(r->data, SPLIT_EVAL, i, 1, r->tokens, r->targets, NULL, e));
        for (int64_t t = 0; t < T; t++) {
            if (r->targets[t] < 0) continue;
            sum -= log((double)(r->count[r->targets[t]] + 1) / all);
            n++;
        }
    }
    *nats = n > 0 ? sum / (double)n : 0;
    return OK;
}

enum status guess_loss(const struct run_options *run, const struct data *data, double *nats,
                       struct err *e) {
    size_t T = (size_t)run->model.seq_len;
    struct reading r = { .run = run, .data = data };
    *nats = 0;
    if (run->eval.every == 0) return OK;
    r.tokens = calloc(T, sizeof *r.tokens);
    r.targets = calloc(T, sizeof *r.targets);
    r.count = calloc((size_t)run->model.vocab, sizeof *r.count);
    enum status st = r.tokens && r.targets && r.count
                         ? OK
                         : FAIL(e, ERR_MEMORY, "counts of %lld tokens",
                                (long long)run->model.vocab);
    if (st == OK) st = count_training(&r, e);
    if (st == OK) st = mean_over_held_out(&r, nats, e);
    free(r.tokens);
    free(r.targets);
    free(r.count);
    return st;
}
