/* A step: queue forward and backward of every micro-batch and the update; collect its record. Also
 * evaluation, and the warm-up of both before the first step. */
#include <assert.h>
#include <math.h>

#include "model/ground/clock.h"
#include "model/trainer.h"
#include "model/window.h"

/* Timer marks: the end of each step, kept until the next step is collected; and the beginning of a
 * step if no step was pending before it. */
enum { END_MARKS = IN_FLIGHT_MAX + 1, MARK_BEGIN = TIMER_MARKS - 1,
       MARK_END = MARK_BEGIN - END_MARKS };
static_assert((int)IN_FLIGHT_MAX <= (int)READBACK_SLOTS, "a step has a read-back slot of its own");

/* ---- a step ---- */

/* Whether steps measure the errors of casts, and whether this one does. */
static bool measures(const struct trainer *t) {
    return t->options.fp8_error > 0 && slots_have_codes(&t->slots);
}
static bool measured_in(const struct trainer *t, int64_t step) {
    return measures(t) && step % t->options.fp8_error == 0;
}

static enum status check_healthy(const struct trainer *t, struct err *e) {
    if (t->failure)
        return FAIL(e, ERR_STATE, "%s after step %lld; this trainer cannot continue", t->failure,
                    (long long)t->step);
    return OK;
}

static enum status check_usable(const struct trainer *t, struct err *e) {
    if (!t->data) return FAIL(e, ERR_STATE, "the trainer was created without data");
    return check_healthy(t, e);
}

enum status trainer_check_idle(const struct trainer *t, struct err *e) {
    if (t->pending == 0) return OK;
    return FAIL(e, ERR_STATE, "step %lld is queued: collect it first", (long long)t->step + 1);
}

/* What attention and positions need to know of the documents in the host's batch. */
static enum status upload_documents(struct trainer *t, struct err *e) {
    struct backend *b = t->backend;
    struct transformer *tf = &t->transformer;
    int64_t T = t->model.seq_len;
    if (t->options.documents.mask) {
        window_first_keys(t->staging, t->host.starts, tf->rows, T, t->model.window);
        TRY(b->ops->upload(b, LANE_COMPUTE, tf->first_key.data, t->staging, tf->rows * 4, e));
    }
    if (!t->options.documents.restart) return OK;
    window_positions(t->staging, t->host.starts, tf->rows, T);
    return b->ops->upload(b, LANE_COMPUTE, tf->positions.data, t->staging, tf->rows * 4, e);
}

/* The batch in the host's buffers. */
static enum status upload_host(struct trainer *t, struct err *e) {
    struct backend *b = t->backend;
    struct transformer *tf = &t->transformer;
    struct ahead_batch *h = &t->host;
    TRY(b->ops->upload(b, LANE_COMPUTE, tf->tokens.data, h->tokens, tf->rows * 4, e));
    TRY(b->ops->upload(b, LANE_COMPUTE, tf->targets.data, h->targets, tf->rows * 4, e));
    return upload_documents(t, e);
}

static enum status upload_batch(struct trainer *t, int64_t position, struct err *e) {
    TRY(data_ahead_take(t->ahead, position, &t->host, e));
    return upload_host(t, e);
}

static enum status upload_held_out(struct trainer *t, const struct data *data, int64_t position,
                                   struct err *e) {
    struct ahead_batch *h = &t->host;
    TRY(data_batch(data, SPLIT_EVAL, position, t->transformer.batch, h->tokens, h->targets,
                   h->starts, e));
    return upload_host(t, e);
}

enum status trainer_scale_gradients(struct trainer *t, int64_t counted, struct err *e) {
    if (t->scaled_by == counted) return OK;
    float scale = counted > 0 ? (float)(1 / (double)counted) : 0;
    TRY(t->backend->ops->upload(t->backend, LANE_COMPUTE, t->transformer.grad_scale.data, &scale,
                                sizeof scale, e));
    t->scaled_by = counted;
    return OK;
}

static enum status upload_scalars(struct trainer *t, int64_t step, float *lr_out, struct err *e) {
    const struct optimizer_options *o = &t->options.optimizer;
    unsigned char host[(UPLOADED_SCALARS + LR_SCALES_MAX) * SCALAR_STRIDE] = { 0 };
    double rate = schedule_lr(&t->options.schedule, o->lr, step, t->options.steps);
    float lr = (float)rate;
    int64_t updates = step + t->updates_before;
    float bias1 = (float)adamw_bias(o->beta1, updates);
    float bias2 = (float)adamw_bias(o->beta2, updates);
    int32_t number = (int32_t)step;
    memcpy(host, &lr, 4);
    memcpy(host + SCALAR_STRIDE, &bias1, 4);
    memcpy(host + 2 * SCALAR_STRIDE, &bias2, 4);
    memcpy(host + 3 * SCALAR_STRIDE, &number, 4);
    for (int i = 1; i < t->params.lr_scales; i++) {
        float scaled = (float)(rate * t->params.lr_scale[i]);
        memcpy(host + (UPLOADED_SCALARS - 1 + i) * SCALAR_STRIDE, &scaled, 4);
    }
    *lr_out = lr;
    return t->backend->ops->upload(t->backend, LANE_COMPUTE, t->scalars.uploaded, host,
                                   scalars_uploaded(t) * SCALAR_STRIDE, e);
}

static enum status flag_slots(struct trainer *t, int first, int end, struct err *e) {
    struct tensor amax = t->slots.amax;
    amax.data = (char *)amax.data + 4 * (int64_t)first;
    amax.dim[0] = end - first;
    return t->backend->ops->flag_nonfinite(t->backend, LANE_COMPUTE, &t->scalars.flag,
                                           &t->scalars.step, &amax, first, e);
}

/* What the sum of a micro-batch's losses is multiplied by on the device. It is part of a graph: if
 * the number of tokens with loss varies, the host divides the total (mean_loss). */
static float loss_factor(const struct trainer *t) {
    double tokens = (double)t->options.global_batch * (double)t->model.seq_len;
    return t->counts_all ? (float)(1 / tokens) : 1.0f;
}

/* The mean over `counted` tokens with loss. */
static float mean_loss(const struct trainer *t, float recorded, int64_t counted) {
    if (t->counts_all) return recorded;
    return counted > 0 ? (float)((double)recorded / (double)counted) : NAN;
}

/* How layers multiply forward in `step`. Captured graphs have the other way. */
static void set_forward(struct trainer *t, int64_t step) {
    if (transformer_set_forward(&t->transformer, step)) t->backend->ops->graph_drop(t->backend);
}

/* How layers multiply forward with the weights of now, without a step. */
static void set_forward_now(struct trainer *t) {
    set_forward(t, t->options.forward_only ? t->options.forward_step : t->step);
}

/* The loss of a micro-batch. The head also makes the first gradients, chunk by chunk. */
static enum status micro_forward(struct trainer *t, bool first, bool fresh, struct err *e) {
    struct backend *b = t->backend;
    scope_enter(b, SCOPE_FORWARD, 0);
    TRY(slots_begin_micro(&t->slots, b, first, e));
    TRY(reduce_begin(&t->exchange, e));
    TRY(transformer_forward(&t->transformer, PASS_TRAIN, e));
    TRY(transformer_head(&t->transformer, PASS_TRAIN, fresh, e));
    TRY(b->ops->sum(b, LANE_COMPUTE, &t->scalars.loss, &t->transformer.losses, loss_factor(t),
                    first ? 0.0f : 1.0f, e));
    scope_leave(b);
    return OK;
}

/* The rest of its gradients, and the search for values that are not finite. */
static enum status micro_backward(struct trainer *t, bool fresh, struct err *e) {
    struct backend *b = t->backend;
    struct slots *s = &t->slots;
    scope_enter(b, SCOPE_BACKWARD, 0);
    TRY(transformer_backward(&t->transformer, fresh, e));
    TRY(reduce_finish(&t->exchange, e));
    TRY(slots_share(s, b, &t->scalars.loss, e));
    TRY(flag_slots(t, 0, s->first[SLOT_BACKWARD], e));
    const struct tensor *loss = t->world > 1 ? &s->loss : &t->scalars.loss;
    TRY(b->ops->flag_nonfinite(b, LANE_COMPUTE, &t->scalars.flag, &t->scalars.step, loss,
                               flag_loss(t), e));
    TRY(flag_slots(t, s->first[SLOT_BACKWARD], s->count, e));
    TRY(slots_end_micro(s, b, e));
    scope_leave(b);
    return OK;
}

static enum status micro_batch(struct trainer *t, bool first, bool last, struct err *e) {
    bool fresh = first || exchange_reduces_always(&t->exchange);
    t->exchange.first = first;
    t->exchange.last = last;
    TRY(micro_forward(t, first, fresh, e));
    return micro_backward(t, fresh, e);
}

/* Replays the graph of `key`, or runs the operators and offers them for capture. Work that measures
 * errors or is audited has more operators: it runs beside the graphs, and they stay as they are. */
static enum status run_micro_batch(struct trainer *t, int64_t i, bool audited, struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    bool first = i == 0, last = i == t->accumulation - 1;
    enum graph_key key = first                   ? GRAPH_FIRST_MICRO
                         : last && t->world > 1 ? GRAPH_LAST_MICRO
                                                 : GRAPH_LATER_MICRO;
    bool replayed = false;
    if (t->slots.measures || audited) return micro_batch(t, first, last, e);
    TRY(ops->graph_replay(t->backend, key, &replayed, e));
    if (replayed) return OK;
    TRY(ops->graph_begin(t->backend, key, e));
    TRY(micro_batch(t, first, last, e));
    return ops->graph_end(t->backend, key, e);
}

/* The same, through the operators of the audit. */
static enum status run_audited(struct trainer *t, int64_t i, int64_t step, struct err *e) {
    TRY(audit_begin(t->audit, step, e));
    enum status st = run_micro_batch(t, i, true, e);
    audit_end(t->audit);
    return st;
}

static enum status run_update(struct trainer *t, struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    bool replayed = false;
    if (t->slots.measures) return trainer_update(t, e);
    TRY(ops->graph_replay(t->backend, GRAPH_UPDATE, &replayed, e));
    if (replayed) return OK;
    TRY(ops->graph_begin(t->backend, GRAPH_UPDATE, e));
    TRY(trainer_update(t, e));
    return ops->graph_end(t->backend, GRAPH_UPDATE, e);
}

/* Finishes what a step accumulates over micro-batches and ranks. */
static enum status finish_accumulation(struct trainer *t, struct err *e) {
    struct backend *b = t->backend;
    t->exchange.pending = false; /* the first micro-batch has gathered */
    TRY(slots_end_step(&t->slots, b, e));
    return b->ops->comm.all_reduce(b, LANE_COMPUTE, &t->scalars.loss, REDUCE_SUM, e);
}

/* The place of a micro-batch's first sequence in the global batch, for stochastic rounding. */
static enum status upload_place(struct trainer *t, int64_t sequence, struct err *e) {
    const struct tensor *to = &t->transformer.sequence;
    int32_t place = (int32_t)sequence; /* global_batch is below 2^31 (check_options) */
    if (!to->data) return OK;
    return t->backend->ops->upload(t->backend, LANE_COMPUTE, to->data, &place, sizeof place, e);
}

/* Runs every micro-batch of this rank, then sums over ranks. A global batch has accumulation *
 * stride sequences, so positions are one stride apart from step to step too, and the thread that
 * reads ahead finds each. */
static enum status accumulate(struct trainer *t, int64_t step, struct in_flight *f,
                              struct err *e) {
    int64_t mine = t->options.micro_batch, stride = mine * t->world;
    int64_t cursor = t->cursor + t->pending * t->options.global_batch + t->rank * mine;
    for (int64_t i = 0; i < t->accumulation; i++) {
        TRY(upload_batch(t, cursor + i * stride, e));
        if (i == 0) f->counted = t->host.counted; /* of the whole step */
        TRY(upload_place(t, t->rank * mine + i * stride, e));
        TRY(trainer_scale_gradients(t, f->counted, e));
        t->slots.measures = f->measured && i == 0;
        scope_enter(t->backend, SCOPE_MICRO, i);
        bool audited = audit_due(t->audit, step, t->accumulation, i);
        TRY(audited ? run_audited(t, i, step, e) : run_micro_batch(t, i, false, e));
        f->audited = f->audited || audited;
        scope_leave(t->backend);
    }
    t->slots.measures = false;
    return finish_accumulation(t, e);
}

/* The update; a step that measures ends here. */
static enum status update(struct trainer *t, bool measured, struct err *e) {
    t->slots.measures = measured;
    scope_enter(t->backend, SCOPE_UPDATE, 0);
    TRY(run_update(t, e));
    scope_leave(t->backend);
    t->slots.measures = false;
    return measured ? slots_share_errors(&t->slots, t->backend, e) : OK;
}

static int mark_of_end(int64_t step) { return MARK_END + (int)(step % END_MARKS); }

/* Queues all operators of a step and the copy of its record. */
static enum status queue_step(struct trainer *t, int64_t step, struct in_flight *f,
                              struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    f->marked = t->pending == 0;
    if (f->marked) {
        TRY(ops->timer_mark(t->backend, LANE_COMPUTE, MARK_BEGIN, e));
        TRY(ops->comm.busy(t->backend, LANE_COMPUTE, &t->scalars.comm_begin, e));
    }
    TRY(upload_scalars(t, step, &f->lr, e));
    set_forward(t, step);
    unsigned what = (f->traced ? OBSERVE_PRINTS : 0) | (f->histograms ? OBSERVE_HISTOGRAMS : 0);
    TRY(observe_weights(t, what, e));
    if (f->measured) TRY(slots_begin_errors(&t->slots, t->backend, e));
    TRY(accumulate(t, step, f, e));
    TRY(observe_outputs(t, what, e));
    TRY(observe_gradients(t, what, e));
    TRY(update(t, f->measured, e));
    if (t->remakes > 0) TRY(params_remake(&t->params, t->backend, &t->slots, e));
    t->exchange.pending = true;
    TRY(slots_gather_counts(&t->slots, t->backend, t->asks, e));
    t->asks &= ASKS_STOP; /* the others are asked once */
    TRY(ops->comm.busy(t->backend, LANE_COMPUTE, &t->scalars.comm, e));
    TRY(ops->readback(t->backend, LANE_COMPUTE, (int)(step % IN_FLIGHT_MAX), t->record,
                      t->record_bytes, e));
    if (t->remakes-- > 0) TRY(exchange_remake(&t->exchange, e));
    if (t->remakes < 0) t->remakes = 0;
    return ops->timer_mark(t->backend, LANE_COMPUTE, mark_of_end(step), e);
}

enum status trainer_queue(struct trainer *t, bool trace, struct err *e) {
    TRY(check_usable(t, e));
    if (t->options.forward_only)
        return FAIL(e, ERR_STATE, "the trainer was created to evaluate: it makes no steps");
    if (t->pending == IN_FLIGHT_MAX)
        return FAIL(e, ERR_STATE, "%d steps are queued: collect one first", t->pending);
    int64_t step = t->step + t->pending + 1;
    struct in_flight *f = &t->in_flight[step % IN_FLIGHT_MAX];
    if (t->wants_histograms && !t->histograms.data)
        return FAIL(e, ERR_STATE, "the trainer was created without histograms");
    *f = (struct in_flight){ .traced = trace, .measured = measured_in(t, step),
                             .histograms = t->wants_histograms };
    t->wants_histograms = false;
    scope_enter(t->backend, SCOPE_STEP, step);
    enum status st = queue_step(t, step, f, e);
    scope_leave(t->backend);
    if (st != OK) t->failure = "a step failed half-way"; /* FP8 histories may have changed */
    else t->pending++;
    return st;
}

void trainer_ask_stop(struct trainer *t) { t->asks |= ASKS_STOP; }
void trainer_ask_save(struct trainer *t) { t->asks |= ASKS_SAVE; }
void trainer_say_busy(struct trainer *t) { t->asks |= ASKS_BUSY; }

enum status trainer_ready(struct trainer *t, bool *ready, struct err *e) {
    *ready = false;
    if (t->pending == 0) return OK;
    int slot = (int)((t->step + 1) % IN_FLIGHT_MAX);
    return t->backend->ops->readback_ready(t->backend, slot, ready, e);
}

/* Waits for the record of `step`; *us is the device time of the step. */
static enum status fetch_record(struct trainer *t, int64_t step, bool marked, int64_t *us,
                                struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    int from = marked ? MARK_BEGIN : mark_of_end(step - 1);
    double elapsed;
    TRY(ops->readback_fetch(t->backend, (int)(step % IN_FLIGHT_MAX), t->seen, e));
    TRY(ops->timer_read(t->backend, from, mark_of_end(step), &elapsed, e));
    *us = (int64_t)elapsed;
    return OK;
}

/* What any rank was asked to do. */
static uint64_t gathered_asks(const struct trainer *t) {
    uint64_t asks = 0;
    for (int r = 0; r < t->world; r++) asks |= gathered_from(t, r)[0];
    return asks;
}

/* Compares an audited step from now on. A difference that was found ends the training. */
static enum status audit_collected(struct trainer *t, int64_t step, bool audited, struct err *e) {
    enum status st = audited ? audit_compare(t->audit, step, e) : audit_poll(t->audit, e);
    if (st == ERR_VERIFY) t->failure = "an audit found a difference";
    return st;
}

enum status trainer_audit_settle(struct trainer *t, struct err *e) {
    enum status st = audit_settle(t->audit, e);
    if (st == ERR_VERIFY) t->failure = "an audit found a difference";
    return st;
}

bool trainer_audited(struct trainer *t, struct audit_record *out) {
    return t->audit && audit_next(t->audit, out);
}

const struct audit_fault *trainer_audit_fault(const struct trainer *t) {
    return t->audit && t->audit->failed && !t->audit->running ? &t->audit->fault : NULL;
}

enum status trainer_collect(struct trainer *t, struct step_result *result, struct err *e) {
    memset(result, 0, sizeof *result);
    if (t->pending == 0) return FAIL(e, ERR_STATE, "no step is queued");
    struct record_head head;
    int64_t step = t->step + 1;
    const struct in_flight *f = &t->in_flight[step % IN_FLIGHT_MAX];
    *result = (struct step_result){ .step = step, .lr = f->lr, .traced = f->traced,
                                    .measured = f->measured, .loss_tokens = f->counted,
                                    .tokens = t->options.global_batch * t->model.seq_len };
    enum status st = fetch_record(t, step, f->marked, &result->time_us, e);
    if (st != OK) {
        t->failure = "a step failed half-way";
        t->pending = 0;
        return st;
    }
    record_check(t, &head, result->tensor);
    result->loss = mean_loss(t, head.loss, f->counted);
    result->grad_norm = head.norm;
    result->stop = gathered_asks(t) & ASKS_STOP;
    result->save = gathered_asks(t) & ASKS_SAVE;
    result->busy = gathered_asks(t) & ASKS_BUSY;
    const uint64_t *begin = f->marked ? head.comm_begin_ns : t->comm_ns;
    result->comm_us = (int64_t)((head.comm_ns[0] - begin[0]) / 1000);
    result->exposed_us = (int64_t)((head.comm_ns[1] - begin[1]) / 1000);
    memcpy(t->comm_ns, head.comm_ns, sizeof t->comm_ns);
    t->has_trace = t->has_errors = t->has_histograms = false;
    if (result->tensor[0]) {
        t->pending = 0; /* the step queued behind it changed no parameter: drop it */
        return FAIL(e, ERR_NUMERIC, "step %lld: %s is not finite", (long long)step, result->tensor);
    }
    t->pending--;
    t->step = step;
    t->cursor += t->options.global_batch;
    t->has_trace = f->traced;
    t->has_errors = f->measured;
    t->has_histograms = f->histograms;
    return audit_collected(t, step, f->audited, e);
}

enum status trainer_step(struct trainer *t, bool trace, struct step_result *result, struct err *e) {
    memset(result, 0, sizeof *result);
    TRY(trainer_check_idle(t, e));
    TRY(trainer_queue(t, trace, e));
    return trainer_collect(t, result, e);
}

/* ---- evaluation ---- */

static enum status eval_batch(struct trainer *t, struct err *e) {
    struct backend *b = t->backend;
    TRY(b->ops->zero(b, LANE_COMPUTE, &t->slots.amax_eval, e));
    TRY(transformer_forward(&t->transformer, PASS_EVAL, e));
    TRY(transformer_head(&t->transformer, PASS_EVAL, false, e));
    TRY(b->ops->sum(b, LANE_COMPUTE, &t->scalars.eval_loss, &t->transformer.losses, 1.0f, 1.0f,
                    e));
    if (!t->options.accuracy) return OK;
    return b->ops->sum(b, LANE_COMPUTE, &t->scalars.eval_right, &t->transformer.right, 1.0f, 1.0f,
                       e);
}

static enum status replay_eval_batch(struct trainer *t, struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    bool replayed = false;
    TRY(ops->graph_replay(t->backend, GRAPH_EVAL, &replayed, e));
    if (replayed) return OK;
    TRY(ops->graph_begin(t->backend, GRAPH_EVAL, e));
    TRY(eval_batch(t, e));
    return ops->graph_end(t->backend, GRAPH_EVAL, e);
}

static enum status run_eval_batch(struct trainer *t, struct err *e) {
    scope_enter(t->backend, SCOPE_EVAL, 0);
    TRY(replay_eval_batch(t, e));
    scope_leave(t->backend);
    return OK;
}

/* The sum of all ranks over the tokens with loss. */
static enum status eval_mean(struct trainer *t, const struct tensor *sum, int64_t tokens,
                             double *mean, struct err *e) {
    float total;
    TRY(t->backend->ops->comm.all_reduce(t->backend, LANE_COMPUTE, sum, REDUCE_SUM, e));
    TRY(t->backend->ops->download(t->backend, LANE_COMPUTE, &total, sum->data, sizeof total, e));
    *mean = (double)total / (double)tokens;
    return OK;
}

/* The held-out sequences in `most` of them, and the tokens that these have. */
static enum status count_eval(const struct data *data, int64_t seq_len, int64_t most,
                              int64_t *sequences, struct eval_result *result, struct err *e) {
    int64_t all = data_sequences(data, SPLIT_EVAL);
    *result = (struct eval_result){ .accuracy = (double)NAN };
    *sequences = most < all ? most : all;
    result->tokens = *sequences * seq_len;
    if (result->tokens == 0)
        return FAIL(e, ERR_CONFIG, "there is no held-out sequence to evaluate");
    TRY(data_count(data, SPLIT_EVAL, 0, *sequences, &result->loss_tokens, e));
    if (result->loss_tokens > 0) return OK;
    return FAIL(e, ERR_CONFIG, "no token of the %lld held-out sequences has loss: nothing to "
                "evaluate", (long long)*sequences);
}

static enum status clear_eval(struct trainer *t, struct err *e) {
    struct backend *b = t->backend;
    TRY(b->ops->zero(b, LANE_COMPUTE, &t->scalars.eval_loss, e));
    return t->options.accuracy ? b->ops->zero(b, LANE_COMPUTE, &t->scalars.eval_right, e) : OK;
}

static enum status begin_eval(struct trainer *t, const struct data *data, int64_t batches,
                              int64_t *sequences, struct eval_result *result, struct err *e) {
    memset(result, 0, sizeof *result);
    TRY(check_usable(t, e));
    TRY(trainer_check_idle(t, e));
    set_forward_now(t);
    TRY(count_eval(data, t->model.seq_len, batches * t->options.micro_batch, sequences, result,
                   e));
    return exchange_gather_all(&t->exchange, e);
}

static enum status eval_on(struct trainer *t, const struct data *data, int64_t batches,
                           struct eval_result *result, struct err *e) {
    int64_t wanted, mine = t->options.micro_batch, all = mine * t->world;
    TRY(begin_eval(t, data, batches, &wanted, result, e));
    TRY(clear_eval(t, e));
    /* Surplus ranks evaluate positions after the last sequence, which do not count. */
    for (int64_t first = 0; first < wanted; first += all) {
        int64_t at = first + t->rank * mine;
        TRY(upload_held_out(t, data, at < wanted ? at : data_sequences(data, SPLIT_EVAL), e));
        TRY(run_eval_batch(t, e));
    }
    double mean;
    TRY(eval_mean(t, &t->scalars.eval_loss, result->loss_tokens, &mean, e));
    result->loss = (float)mean;
    if (!t->options.accuracy) return OK;
    return eval_mean(t, &t->scalars.eval_right, result->loss_tokens, &result->accuracy, e);
}

enum status trainer_eval(struct trainer *t, int64_t batches, struct eval_result *result,
                         struct err *e) {
    return eval_on(t, t->data, batches, result, e);
}

enum status trainer_eval_set(struct trainer *t, int64_t set, int64_t batches,
                             struct eval_result *result, struct err *e) {
    return eval_on(t, data_set_at(t->data, set), batches, result, e);
}

enum status trainer_eval_part(struct trainer *t, int64_t batches, const struct eval_part *part,
                              struct err *e) {
    struct backend *b = t->backend;
    struct eval_result counts;
    int64_t wanted, mine = t->options.micro_batch;
    assert(t->world == 1);
    TRY(begin_eval(t, t->data, batches, &wanted, &counts, e));
    for (int64_t i = part->first; i * mine < wanted; i += part->stride) {
        TRY(clear_eval(t, e));
        TRY(upload_held_out(t, t->data, i * mine, e));
        TRY(run_eval_batch(t, e));
        TRY(b->ops->download(b, LANE_COMPUTE, &part->loss[i], t->scalars.eval_loss.data,
                             sizeof *part->loss, e));
        if (!t->options.accuracy) continue;
        TRY(b->ops->download(b, LANE_COMPUTE, &part->right[i], t->scalars.eval_right.data,
                             sizeof *part->right, e));
    }
    return OK;
}

/* As the device adds: in f32, micro-batch by micro-batch. */
static double mean_of_parts(const float *sum, int64_t count, int64_t tokens) {
    float total = 0;
    for (int64_t i = 0; i < count; i++) total += sum[i];
    return (double)total / (double)tokens;
}

enum status eval_join(const struct eval_whole *w, const float *loss, const float *right,
                      struct eval_result *result, struct err *e) {
    int64_t sequences;
    TRY(count_eval(w->data, w->seq_len, w->batches * w->micro_batch, &sequences, result, e));
    int64_t count = ceil_div(sequences, w->micro_batch);
    result->loss = (float)mean_of_parts(loss, count, result->loss_tokens);
    if (right) result->accuracy = mean_of_parts(right, count, result->loss_tokens);
    return OK;
}

static enum status check_ids(const struct trainer *t, const int32_t *id, int32_t least,
                             struct err *e) {
    for (int64_t i = 0; i < t->transformer.rows; i++)
        if (id[i] < least || id[i] >= t->model.vocab)
            return FAIL(e, ERR_ARG, "token %d at row %lld; the model has %lld tokens", (int)id[i],
                        (long long)i, (long long)t->model.vocab);
    return OK;
}

enum status trainer_upload_sequences(struct trainer *t, const int32_t *tokens,
                                     const int32_t *targets, struct err *e) {
    size_t bytes = (size_t)t->transformer.rows * sizeof *tokens;
    TRY(check_healthy(t, e));
    TRY(trainer_check_idle(t, e));
    set_forward_now(t);
    TRY(check_ids(t, tokens, 0, e));
    if (targets) TRY(check_ids(t, targets, -1, e));
    memcpy(t->host.tokens, tokens, bytes);
    if (targets) memcpy(t->host.targets, targets, bytes);
    else memset(t->host.targets, 0xff, bytes); /* -1: no loss */
    memset(t->host.starts, 0, bytes); /* no documents */
    return upload_host(t, e);
}

enum status trainer_losses(struct trainer *t, const int32_t *tokens, const int32_t *targets,
                           float *losses, struct err *e) {
    struct backend *b = t->backend;
    TRY(trainer_upload_sequences(t, tokens, targets, e));
    TRY(exchange_gather_all(&t->exchange, e));
    TRY(run_eval_batch(t, e));
    return b->ops->download(b, LANE_COMPUTE, losses, t->transformer.losses.data,
                            t->transformer.rows * (int64_t)sizeof *losses, e);
}

/* ---- warm-up ---- */

/* Runs each kind of micro-batch once, in the state after an update, as in every step but the first.
 * beside: only what differs in a step that is audited and measures errors, where such steps are:
 * the first micro-batch, and the last one, which sums over ranks. */
static enum status warm_up_once(struct trainer *t, bool beside, struct err *e) {
    bool measured = beside && measures(t);
    t->exchange.pending = true;
    if (t->options.forward_only) return run_eval_batch(t, e);
    unsigned what = OBSERVE_PRINTS | (t->histograms.data ? OBSERVE_HISTOGRAMS : 0);
    TRY(observe_weights(t, what, e));
    t->slots.measures = measured;
    TRY(beside && t->audit ? run_audited(t, 0, 0, e) : run_micro_batch(t, 0, false, e));
    t->slots.measures = false;
    if (t->accumulation > 2 && !beside) TRY(run_micro_batch(t, 1, false, e));
    if (t->accumulation > 1) TRY(run_micro_batch(t, t->accumulation - 1, false, e));
    TRY(finish_accumulation(t, e));
    TRY(observe_outputs(t, what, e));
    TRY(observe_gradients(t, what, e));
    TRY(update(t, measured, e));
    t->exchange.pending = true;
    TRY(exchange_gather_all(&t->exchange, e));
    return beside ? OK : run_eval_batch(t, e);
}

enum status trainer_warm_up(struct trainer *t, struct err *e) {
    struct backend *b = t->backend;
    const struct backend_ops *ops = b->ops;
    const int32_t stop[2] = { 0, -1 }; /* AdamW writes nothing */
    float lr;
    int64_t clock = clock_us();
    ops->graph_drop(b);
    TRY(params_quantise(&t->params, b, &t->slots, e));
    TRY(exchange_settle(&t->exchange, e));
    TRY(ops->upload(b, LANE_COMPUTE, t->scalars.flag.data, stop, sizeof stop, e));
    TRY(ops->zero(b, LANE_COMPUTE, &t->transformer.tokens, e));
    TRY(ops->zero(b, LANE_COMPUTE, &t->transformer.targets, e));
    TRY(upload_scalars(t, 1, &lr, e));
    if (measures(t) || t->audit) TRY(warm_up_once(t, true, e));
    if (transformer_set_forward(&t->transformer, INT64_MAX)) {
        TRY(warm_up_once(t, false, e));
        set_forward_now(t);
    }
    TRY(warm_up_once(t, false, e)); /* plain */
    TRY(ops->sync(b, e));
    t->spent.trial_us = clock_lap_us(&clock);
    TRY(warm_up_once(t, false, e)); /* captured */
    TRY(ops->sync(b, e));
    t->spent.graph_us = clock_lap_us(&clock);
    return OK;
}
