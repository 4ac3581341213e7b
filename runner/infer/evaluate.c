#include "runner/infer/evaluate.h"

#include <math.h>
#include <stdio.h>

#include "runner/base/clock.h"
#include "runner/infer/processes.h"
#include "runner/job/deploy.h"

/* What the ranks write, in shared memory. */
struct head {
    char backend[16];
    int64_t us[PROCESSES_MAX];
};

struct shared {
    const struct evaluation *of;
    int64_t ranks, count; /* micro-batches; rows of questions */
    struct head *head;
    float *loss, *right;  /* [count] of data */
    double *nats;         /* [count] of questions */
};

static enum status evaluate_part(const struct shared *s, int64_t rank, struct err *e) {
    const struct evaluation *v = s->of;
    struct trainer *t = v->model->trainer;
    const struct run_options *o = &v->model->options;
    if (!v->questions) {
        const struct eval_part part = { rank, s->ranks, s->loss, s->right };
        return trainer_eval_part(t, v->batches, &part, e);
    }
    const struct questions_part part = { o->train.micro_batch, o->model.seq_len, rank, s->ranks };
    return questions_losses(v->questions, t, &part, s->nats, e);
}

enum status evaluate_blame(enum status st, struct err *e) {
    return st == ERR_FORMAT || st == ERR_IO ? (e->code = ERR_CONFIG) : st;
}

/* A process_body. */
static enum status evaluate_rank(void *user, int64_t rank, struct err *e) {
    const struct shared *s = user;
    struct model_request q = *s->of->request;
    struct open_model *m = s->of->model;
    q.device += rank;
    q.threads = deploy_threads(q.threads, s->ranks);
    TRY(model_start(&q, m, s->of->data, e));
    if (rank == 0)
        snprintf(s->head->backend, sizeof s->head->backend, "%s", m->device.backend->ops->name);
    int64_t begin = clock_us();
    TRY(evaluate_blame(evaluate_part(s, rank, e), e));
    s->head->us[rank] = clock_us() - begin;
    return OK;
}

static enum status join(const struct shared *s, struct evaluated *out, struct err *e) {
    const struct evaluation *v = s->of;
    const struct run_options *o = &v->model->options;
    snprintf(out->backend, sizeof out->backend, "%s", s->head->backend);
    out->ranks = s->ranks;
    for (int64_t r = 0; r < s->ranks; r++)
        if (s->head->us[r] > out->us) out->us = s->head->us[r];
    if (v->questions) {
        answers_of(v->questions, s->nats, v->answers);
        out->answers = answers_judge(v->questions, v->answers);
        return OK;
    }
    const struct eval_whole whole = { v->data, o->model.seq_len, o->train.micro_batch,
                                      v->batches };
    TRY(eval_join(&whole, s->loss, o->train.accuracy ? s->right : NULL, &out->loss, e));
    return isfinite(out->loss.loss) ? OK : FAIL(e, ERR_NUMERIC, "the loss is not finite");
}

enum status evaluate(const struct evaluation *v, struct evaluated *out, struct err *e) {
    int64_t micro = v->model->options.train.micro_batch, batches;
    struct shared s = { .of = v };
    void *memory;
    *out = (struct evaluated){ 0 };
    if (v->questions) {
        s.count = v->questions->rows;
        batches = ceil_div(s.count, micro);
    } else {
        batches = ceil_div(data_sequences(v->data, SPLIT_EVAL), micro);
        if (batches > v->batches) batches = v->batches;
        s.count = batches;
    }
    s.ranks = v->ranks < batches ? v->ranks : batches > 1 ? batches : 1;
    size_t bytes = sizeof *s.head + (size_t)s.count * sizeof *s.nats;
    TRY(processes_share(bytes, &memory, e));
    s.head = memory;
    s.nats = (double *)(s.head + 1);
    s.loss = (float *)s.nats; /* two of these in the place of a sum */
    s.right = s.loss + s.count;
    enum status st = processes_run(s.ranks, evaluate_rank, &s, e);
    if (st == OK) st = model_explain(v->model, join(&s, out, e), e);
    processes_unshare(memory, bytes);
    return st;
}
