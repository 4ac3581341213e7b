#include "runner/record/guess_loss.h"

#include <math.h>
#include <stdlib.h>

#include "model/data.h"
#include "runner/plan/options.h"

enum { TOKENS_MAX = 1 << 20 }; /* that are counted of each split */

struct reading {
    const struct run_options *run;
    const struct data *data;
    int32_t *tokens, *targets; /* of one sequence */
};
struct counts {
    int64_t *of; /* of each id among the targets with loss; owned */
    int64_t all;
};

/* Counts the targets of the first `sequences` of a split, about TOKENS_MAX at most. */
static enum status count(const struct reading *r, enum data_split split, int64_t sequences,
                         struct counts *out, struct err *e) {
    int64_t T = r->run->model.seq_len, most = ceil_div(TOKENS_MAX, T);
    for (int64_t i = 0; i < sequences && i < most; i++) {
        TRY(data_batch(r->data, split, i, 1, r->tokens, r->targets, NULL, e));
        for (int64_t t = 0; t < T; t++) {
            if (r->targets[t] < 0) continue;
            out->of[r->targets[t]]++;
            out->all++;
        }
    }
    return OK;
}

static enum status count_both(const struct reading *r, struct counts *trained,
                              struct counts *held_out, struct err *e) {
    const struct run_options *run = r->run;
    int64_t wanted = run->eval.batches * run->train.micro_batch;
    int64_t there = data_sequences(r->data, SPLIT_EVAL);
    TRY(count(r, SPLIT_TRAIN, run->train.steps * run->train.global_batch, trained, e));
    return count(r, SPLIT_EVAL, wanted < there ? wanted : there, held_out, e);
}

static double mean_loss(const struct counts *trained, const struct counts *held_out,
                        int64_t vocab) {
    double sum = 0, all = (double)(trained->all + vocab);
    for (int64_t i = 0; i < vocab; i++)
        if (held_out->of[i])
            sum -= (double)held_out->of[i] * log((double)(trained->of[i] + 1) / all);
    return held_out->all ? sum / (double)held_out->all : 0;
}

enum status guess_loss(const struct run_options *run, const struct data *data, double *nats,
                       struct err *e) {
    size_t T = (size_t)run->model.seq_len, vocab = (size_t)run->model.vocab;
    struct counts trained = { 0 }, held_out = { 0 };
    struct reading r = { .run = run, .data = data };
    *nats = 0;
    if (run->eval.every == 0) return OK;
    r.tokens = calloc(T, sizeof *r.tokens);
    r.targets = calloc(T, sizeof *r.targets);
    trained.of = calloc(vocab, sizeof *trained.of);
    held_out.of = calloc(vocab, sizeof *held_out.of);
    enum status st = r.tokens && r.targets && trained.of && held_out.of
                         ? count_both(&r, &trained, &held_out, e)
                         : FAIL(e, ERR_MEMORY, "counts of %lld tokens",
                                (long long)run->model.vocab);
    if (st == OK) *nats = mean_loss(&trained, &held_out, run->model.vocab);
    free(r.tokens);
    free(r.targets);
    free(trained.of);
    free(held_out.of);
    return st;
}
