#include "model/train.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/trainer.h"

enum { SCALAR_STRIDE = 16, UPLOADED_SCALARS = 4 };

/* Marks in time: the ends of steps, each until the step behind it is collected, and the beginning
 * of a step that no other comes right before. */
enum { END_MARKS = IN_FLIGHT_MAX + 1, MARK_BEGIN = TIMER_MARKS - 1,
       MARK_END = MARK_BEGIN - END_MARKS };
static_assert((int)IN_FLIGHT_MAX <= (int)READBACK_SLOTS, "a step has a read-back slot of its own");

/* ---- layout ---- */

static enum status check_options(const struct trainer *t, struct err *e) {
    const struct train_options *o = &t->options;
    int world = t->world;
    if (o->steps < 1)
        return FAIL(e, ERR_CONFIG, "train.steps is %lld; at least 1", (long long)o->steps);
    if (o->micro_batch > INT32_MAX / t->model.seq_len || o->global_batch > INT32_MAX)
        return FAIL(e, ERR_CONFIG,
                    "train.micro_batch %lld of %lld tokens each, or global_batch %lld, passes "
                    "2^31: rows are counted in i32", (long long)o->micro_batch,
                    (long long)t->model.seq_len, (long long)o->global_batch);
    if (o->micro_batch < 1 || o->global_batch < 1 || o->global_batch % (o->micro_batch * world))
        return FAIL(e, ERR_CONFIG,
                    "train.global_batch is %lld; it must be a multiple of micro_batch %lld times "
                    "the ranks, %d", (long long)o->global_batch, (long long)o->micro_batch, world);
    if (o->grad_dtype != DTYPE_F32 && o->grad_dtype != DTYPE_BF16)
        return FAIL(e, ERR_CONFIG, "train.grad_dtype is %s; f32 or bf16",
                    dtype_name(o->grad_dtype));
    if (t->recipe.f32 && o->grad_dtype != DTYPE_F32)
        return FAIL(e, ERR_CONFIG, "the f32 recipe has f32 gradients, found %s",
                    dtype_name(o->grad_dtype));
    return optimizer_check(&o->optimizer, &o->schedule, e);
}

static void layout_scalars(struct trainer *t) {
    struct scalars *s = &t->scalars;
    memory_reserve(&t->memory, MEMORY_STATE, "scalars", UPLOADED_SCALARS * SCALAR_STRIDE,
                   &s->uploaded);
    s->clip = s->eval_loss = tensor_1d(NULL, DTYPE_F32, 1);
    memory_reserve(&t->memory, MEMORY_STATE, "scalars", 4, &s->clip.data);
    memory_reserve(&t->memory, MEMORY_STATE, "scalars", 4, &s->eval_loss.data);
    t->squares = tensor_1d(NULL, DTYPE_F32, t->params.count);
    memory_reserve(&t->memory, MEMORY_STATE, "gradient norms", 4 * (int64_t)t->params.count,
                   &t->squares.data);
}

/* Everything that is read after a step, so that one copy takes it: head, slots, fingerprints. */
static enum status layout_record(struct trainer *t, struct err *e) {
    struct memory *m = &t->memory;
    int record = memory_share_open(m, MEMORY_STATE, "record of a step");
    memory_append(m, record, sizeof(struct record_head), &t->record);
    TRY(slots_layout(&t->slots, m, record, e));
    t->prints = tensor_1d(NULL, DTYPE_U64, t->traced_count);
    memory_append(m, record, 8 * (int64_t)t->traced_count, &t->prints.data);
    t->record_bytes = memory_shared_bytes(m, record);
    if (t->record_bytes <= READBACK_BYTES) return OK;
    return FAIL(e, ERR_CONFIG,
                "%d amax slots and %d traced tensors: the record of a step takes %lld bytes, at "
                "most %d (fewer layers, or a larger train.head_chunk)", t->slots.count,
                t->traced_count, (long long)t->record_bytes, READBACK_BYTES);
}

enum status trainer_layout(struct trainer *t, struct err *e) {
    TRY(model_config_check(&t->model, e));
    TRY(recipe_check(&t->recipe, &t->model, e));
    TRY(check_options(t, e));
    const struct train_options *o = &t->options;
    t->accumulation = o->global_batch / (o->micro_batch * t->world);
    enum dtype act = t->recipe.f32 ? DTYPE_F32 : DTYPE_BF16;
    struct param_options po = { .act = act, .grad = t->options.grad_dtype,
                                .state = t->options.optimizer.state,
                                /* an f32 weight is its own master */
                                .master = t->options.optimizer.master && act != DTYPE_F32,
                                .shard = { o->shard, t->rank, t->world },
                                .accumulates = t->accumulation > 1 };
    struct transformer_options to = { .act = act, .batch = t->options.micro_batch,
                                      .head_chunk = t->options.head_chunk,
                                      .recompute = t->options.recompute };
    TRY(params_init(&t->params, &t->model, &po, e));
    TRY(transformer_init(&t->transformer, &t->model, &t->recipe, &to, &t->params, e));
    TRY(slots_init(&t->slots, transformer_slots_max(&t->transformer, &t->params), e));
    memory_init(&t->memory);
    params_layout(&t->params, &t->memory, &t->slots);
    transformer_layout(&t->transformer, &t->memory, &t->slots);
    TRY(trace_init(t, e));
    TRY(layout_record(t, e));
    layout_scalars(t);
    return memory_finish(&t->memory, e);
}

static enum status copy_options(struct trainer *t, const struct model_config *model,
                                const struct recipe *recipe, const struct train_options *options,
                                struct err *e) {
    t->model = *model;
    t->recipe = *recipe;
    t->options = *options;
    size_t bytes = (size_t)(recipe->layers * GEMM_SITE_COUNT) * sizeof *recipe->site;
    t->recipe.site = malloc(bytes ? bytes : 1);
    if (!t->recipe.site) return FAIL(e, ERR_MEMORY, "no host memory for the recipe");
    memcpy(t->recipe.site, recipe->site, bytes);
    return OK;
}

void trainer_free(struct trainer *t) {
    memory_destroy(&t->memory);
    slots_destroy(&t->slots);
    transformer_destroy(&t->transformer);
    params_destroy(&t->params);
    free(t->recipe.site);
    free(t->tokens);
    free(t->targets);
    free(t->seen);
    free(t->traced);
    free(t->traced_text);
}

enum status trainer_plan(struct plan *out, const struct model_config *model,
                         const struct recipe *recipe, const struct train_options *options,
                         int world, struct err *e) {
    memset(out, 0, sizeof *out);
    struct trainer t;
    memset(&t, 0, sizeof t);
    t.world = world;
    enum status st = copy_options(&t, model, recipe, options, e);
    if (st == OK) st = trainer_layout(&t, e);
    if (st != OK) goto done;
    out->row = calloc((size_t)t.memory.item_count, sizeof *out->row);
    if (!out->row) { st = FAIL(e, ERR_MEMORY, "no host memory for the plan"); goto done; }
    for (int a = 0; a < MEMORY_ARENA_COUNT; a++)
        for (int64_t i = 0; i < t.memory.item_count; i++) {
            const struct memory_item *it = &t.memory.item[i];
            if (it->arena != a) continue;
            struct plan_row row = { t.memory.arena[a].name, it->name, it->bytes, it->count };
            out->row[out->row_count++] = row;
        }
    out->bytes = memory_bytes(&t.memory);
done:
    trainer_free(&t);
    return st;
}

void plan_free(struct plan *p) {
    free(p->row);
    memset(p, 0, sizeof *p);
}

/* ---- life ---- */

static void bind_scalars(struct scalars *s, void *record) {
    struct tensor *uploaded[UPLOADED_SCALARS] = { &s->lr, &s->bias1, &s->bias2, &s->step };
    for (int i = 0; i < UPLOADED_SCALARS; i++)
        *uploaded[i] = tensor_1d((char *)s->uploaded + i * SCALAR_STRIDE,
                                 uploaded[i] == &s->step ? DTYPE_I32 : DTYPE_F32, 1);
    s->loss = tensor_1d((char *)record + offsetof(struct record_head, loss), DTYPE_F32, 1);
    s->norm = tensor_1d((char *)record + offsetof(struct record_head, norm), DTYPE_F32, 1);
    s->flag = tensor_1d((char *)record + offsetof(struct record_head, flag), DTYPE_I32, 2);
    s->stop = tensor_1d((char *)record + offsetof(struct record_head, stop), DTYPE_U32, 1);
}

/* Values that stay, and those that the first step reads. */
static enum status start(struct trainer *t, struct err *e) {
    struct backend *b = t->backend;
    TRY(memory_allocate(&t->memory, b, e));
    bind_scalars(&t->scalars, t->record);
    TRY(slots_start(&t->slots, b, e));
    params_bind(&t->params, &t->slots);
    exchange_init(&t->exchange, b, &t->params, &t->slots);
    TRY(transformer_start(&t->transformer, b, &t->slots, &t->exchange, e));
    double tokens = (double)t->options.global_batch * (double)t->model.seq_len;
    TRY(b->ops->fill(b, LANE_COMPUTE, &t->transformer.grad_scale, (float)(1 / tokens), e));
    const int32_t flag[2] = { -1, -1 };
    TRY(b->ops->upload(b, LANE_COMPUTE, t->scalars.flag.data, flag, sizeof flag, e));
    TRY(params_fill(&t->params, b, &t->model, t->options.seed, e));
    return trainer_requantise(t, e);
}

enum status trainer_create(struct trainer **out, struct backend *backend,
                           const struct model_config *model, const struct recipe *recipe,
                           const struct train_options *options, const struct data *data,
                           struct err *e) {
    *out = NULL;
    struct trainer *t = calloc(1, sizeof *t);
    if (!t) return FAIL(e, ERR_MEMORY, "no host memory for a trainer");
    t->backend = backend;
    t->data = data;
    t->rank = backend->ops->comm.rank(backend);
    t->world = backend->ops->comm.world(backend);
    enum status st = copy_options(t, model, recipe, options, e);
    if (st == OK) st = trainer_layout(t, e);
    if (st != OK) goto fail;
    size_t rows = (size_t)t->transformer.rows;
    t->tokens = malloc(rows * sizeof *t->tokens);
    t->targets = malloc(rows * sizeof *t->targets);
    t->seen = calloc(1, (size_t)t->record_bytes);
    if (!t->tokens || !t->targets || !t->seen) {
        st = FAIL(e, ERR_MEMORY, "no host memory for %zu tokens and a record of %lld bytes", rows,
                  (long long)t->record_bytes);
        goto fail;
    }
    st = start(t, e);
    if (st != OK) goto fail;
    *out = t;
    return OK;
fail:
    trainer_destroy(t);
    return st;
}

void trainer_destroy(struct trainer *t) {
    if (!t) return;
    trainer_free(t);
    free(t);
}

int64_t trainer_step_count(const struct trainer *t) { return t->step; }
int trainer_pending(const struct trainer *t) { return t->pending; }
int64_t trainer_memory_bytes(const struct trainer *t) { return memory_bytes(&t->memory); }

/* ---- a step ---- */

static enum status check_usable(const struct trainer *t, struct err *e) {
    if (!t->data) return FAIL(e, ERR_STATE, "the trainer was created without data");
    if (t->failure)
        return FAIL(e, ERR_STATE, "%s after step %lld; nothing runs on from there", t->failure,
                    (long long)t->step);
    return OK;
}

enum status trainer_settled(const struct trainer *t, struct err *e) {
    if (t->pending == 0) return OK;
    return FAIL(e, ERR_STATE, "step %lld is queued: collect it first", (long long)t->step + 1);
}

static enum status upload_batch(struct trainer *t, enum data_split split, int64_t position,
                                struct err *e) {
    struct backend *b = t->backend;
    struct transformer *tf = &t->transformer;
    TRY(data_batch(t->data, split, position, tf->batch, t->tokens, t->targets, e));
    TRY(b->ops->upload(b, LANE_COMPUTE, tf->tokens.data, t->tokens, tf->rows * 4, e));
    return b->ops->upload(b, LANE_COMPUTE, tf->targets.data, t->targets, tf->rows * 4, e);
}

static enum status upload_scalars(struct trainer *t, int64_t step, float *lr_out, struct err *e) {
    const struct optimizer_options *o = &t->options.optimizer;
    unsigned char host[UPLOADED_SCALARS * SCALAR_STRIDE] = { 0 };
    float lr = (float)schedule_lr(&t->options.schedule, o->lr, step, t->options.steps);
    float bias1 = (float)adamw_bias(o->beta1, step), bias2 = (float)adamw_bias(o->beta2, step);
    int32_t number = (int32_t)step;
    memcpy(host, &lr, 4);
    memcpy(host + SCALAR_STRIDE, &bias1, 4);
    memcpy(host + 2 * SCALAR_STRIDE, &bias2, 4);
    memcpy(host + 3 * SCALAR_STRIDE, &number, 4);
    *lr_out = lr;
    return t->backend->ops->upload(t->backend, LANE_COMPUTE, t->scalars.uploaded, host, sizeof host,
                                   e);
}

static enum status flag_slots(struct trainer *t, int first, int end, struct err *e) {
    struct tensor amax = t->slots.amax;
    amax.data = (char *)amax.data + 4 * (int64_t)first;
    amax.dim[0] = end - first;
    return t->backend->ops->flag_nonfinite(t->backend, LANE_COMPUTE, &t->scalars.flag,
                                           &t->scalars.step, &amax, first, e);
}

/* Forward, loss and backward of one micro-batch. */
static enum status micro_batch(struct trainer *t, bool first, bool last, struct err *e) {
    struct backend *b = t->backend;
    const struct backend_ops *ops = b->ops;
    struct slots *s = &t->slots;
    bool fresh = first || exchange_reduces_always(&t->exchange);
    t->exchange.first = first;
    t->exchange.last = last;
    TRY(slots_begin_micro(s, b, first, e));
    TRY(reduce_begin(&t->exchange, e));
    TRY(transformer_forward(&t->transformer, PASS_TRAIN, e));
    TRY(transformer_head(&t->transformer, PASS_TRAIN, fresh, e));
    double tokens = (double)t->options.global_batch * (double)t->model.seq_len;
    TRY(ops->sum(b, LANE_COMPUTE, &t->scalars.loss, &t->transformer.losses, (float)(1 / tokens),
                 first ? 0.0f : 1.0f, e));
    TRY(transformer_backward(&t->transformer, fresh, e));
    TRY(reduce_finish(&t->exchange, e));
    TRY(slots_share(s, b, &t->scalars.loss, e));
    TRY(flag_slots(t, 0, s->first[SLOT_BACKWARD], e));
    const struct tensor *loss = t->world > 1 ? &s->loss : &t->scalars.loss;
    TRY(ops->flag_nonfinite(b, LANE_COMPUTE, &t->scalars.flag, &t->scalars.step, loss,
                            flag_loss(t), e));
    TRY(flag_slots(t, s->first[SLOT_BACKWARD], s->count, e));
    return slots_end_micro(s, b, e);
}

/* Replays the graph of `key`, or runs the operators and offers them for capture. */
static enum status run_micro_batch(struct trainer *t, int64_t i, struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    bool first = i == 0, last = i == t->accumulation - 1;
    enum graph_key key = first                   ? GRAPH_FIRST_MICRO
                         : last && t->world > 1 ? GRAPH_LAST_MICRO
                                                 : GRAPH_LATER_MICRO;
    bool replayed = false;
    TRY(ops->graph_replay(t->backend, key, &replayed, e));
    if (replayed) return OK;
    TRY(ops->graph_begin(t->backend, key, e));
    TRY(micro_batch(t, first, last, e));
    return ops->graph_end(t->backend, key, e);
}

static enum status run_update(struct trainer *t, struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    bool replayed = false;
    TRY(ops->graph_replay(t->backend, GRAPH_UPDATE, &replayed, e));
    if (replayed) return OK;
    TRY(ops->graph_begin(t->backend, GRAPH_UPDATE, e));
    TRY(trainer_update(t, e));
    return ops->graph_end(t->backend, GRAPH_UPDATE, e);
}

/* Every micro-batch of this rank, then the sums over ranks. */
static enum status accumulate(struct trainer *t, struct err *e) {
    struct backend *b = t->backend;
    int64_t stride = t->options.micro_batch * t->world;
    int64_t cursor = t->cursor + t->pending * t->options.global_batch;
    for (int64_t i = 0; i < t->accumulation; i++) {
        int64_t position = cursor + i * stride + t->rank * t->options.micro_batch;
        TRY(upload_batch(t, SPLIT_TRAIN, position, e));
        TRY(run_micro_batch(t, i, e));
    }
    t->exchange.pending = false; /* the first micro-batch has gathered */
    TRY(slots_end_step(&t->slots, b, e));
    return b->ops->comm.all_reduce(b, LANE_COMPUTE, &t->scalars.loss, REDUCE_SUM, e);
}

void trainer_tensor_name(const struct trainer *t, int32_t index, char *out, size_t size) {
    if (index < flag_loss(t)) snprintf(out, size, "%s", t->slots.name[index]);
    else if (index < flag_squares(t)) snprintf(out, size, "loss");
    else if (index < flag_norm(t))
        snprintf(out, size, "grad:%s", t->params.param[index - flag_squares(t)].name);
    else snprintf(out, size, "grad_norm");
}

void record_check(struct trainer *t, struct record_head *head, char tensor[128]) {
    memcpy(head, t->seen, sizeof *head);
    tensor[0] = 0;
    if (head->flag[0] < 0) return;
    t->failure = "a value that is not finite was seen";
    trainer_tensor_name(t, head->flag[1], tensor, 128);
}

enum status trainer_look(struct trainer *t, struct record_head *head, char tensor[128],
                         struct err *e) {
    TRY(t->backend->ops->download(t->backend, LANE_COMPUTE, t->seen, t->record, t->record_bytes,
                                  e));
    record_check(t, head, tensor);
    return OK;
}

static int mark_of_end(int64_t step) { return MARK_END + (int)(step % END_MARKS); }

/* One rank that was asked to stop asks all. */
static enum status share_stop(struct trainer *t, struct err *e) {
    struct backend *b = t->backend;
    const uint32_t mine = t->asks_stop;
    TRY(b->ops->upload(b, LANE_COMPUTE, t->scalars.stop.data, &mine, sizeof mine, e));
    return b->ops->comm.all_reduce(b, LANE_COMPUTE, &t->scalars.stop, REDUCE_MAX, e);
}

/* Everything of a step that changes state, and the copy of its record. */
static enum status queue_step(struct trainer *t, int64_t step, struct in_flight *f,
                              struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    f->marked = t->pending == 0;
    if (f->marked) TRY(ops->timer_mark(t->backend, LANE_COMPUTE, MARK_BEGIN, e));
    TRY(upload_scalars(t, step, &f->lr, e));
    TRY(share_stop(t, e));
    if (f->traced) TRY(trace_weights(t, e));
    TRY(accumulate(t, e));
    if (f->traced) {
        TRY(trace_outputs(t, e));
        TRY(trace_gradients(t, e));
    }
    TRY(run_update(t, e));
    t->exchange.pending = true;
    TRY(ops->readback(t->backend, LANE_COMPUTE, (int)(step % IN_FLIGHT_MAX), t->record,
                      t->record_bytes, e));
    return ops->timer_mark(t->backend, LANE_COMPUTE, mark_of_end(step), e);
}

enum status trainer_queue(struct trainer *t, bool trace, struct err *e) {
    TRY(check_usable(t, e));
    if (t->pending == IN_FLIGHT_MAX)
        return FAIL(e, ERR_STATE, "%d steps are queued: collect one first", t->pending);
    int64_t step = t->step + t->pending + 1;
    struct in_flight *f = &t->in_flight[step % IN_FLIGHT_MAX];
    *f = (struct in_flight){ .traced = trace };
    enum status st = queue_step(t, step, f, e);
    if (st != OK) t->failure = "a step failed half-way"; /* FP8 histories may have rolled already */
    else t->pending++;
    return st;
}

void trainer_ask_stop(struct trainer *t) { t->asks_stop = true; }

enum status trainer_ready(struct trainer *t, bool *ready, struct err *e) {
    *ready = false;
    if (t->pending == 0) return OK;
    int slot = (int)((t->step + 1) % IN_FLIGHT_MAX);
    return t->backend->ops->readback_ready(t->backend, slot, ready, e);
}

/* Waits for the record of `step`; how long the device took for it. */
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

enum status trainer_collect(struct trainer *t, struct step_result *result, struct err *e) {
    memset(result, 0, sizeof *result);
    if (t->pending == 0) return FAIL(e, ERR_STATE, "no step is queued");
    struct record_head head;
    int64_t step = t->step + 1;
    const struct in_flight *f = &t->in_flight[step % IN_FLIGHT_MAX];
    *result = (struct step_result){ .step = step, .lr = f->lr, .traced = f->traced,
                                    .tokens = t->options.global_batch * t->model.seq_len };
    enum status st = fetch_record(t, step, f->marked, &result->time_us, e);
    if (st != OK) {
        t->failure = "a step failed half-way";
        t->pending = 0;
        return st;
    }
    record_check(t, &head, result->tensor);
    result->loss = head.loss;
    result->grad_norm = head.norm;
    result->stop = head.stop != 0;
    t->has_trace = false;
    if (result->tensor[0]) {
        t->pending = 0; /* a step behind this one changed no parameter and is no step */
        return FAIL(e, ERR_NUMERIC, "step %lld: %s is not finite", (long long)step, result->tensor);
    }
    t->pending--;
    t->step = step;
    t->cursor += t->options.global_batch;
    t->has_trace = f->traced;
    return OK;
}

enum status trainer_step(struct trainer *t, bool trace, struct step_result *result, struct err *e) {
    memset(result, 0, sizeof *result);
    TRY(trainer_settled(t, e));
    TRY(trainer_queue(t, trace, e));
    return trainer_collect(t, result, e);
}

/* ---- evaluation ---- */

static enum status eval_batch(struct trainer *t, struct err *e) {
    struct backend *b = t->backend;
    TRY(b->ops->zero(b, LANE_COMPUTE, &t->slots.amax_eval, e));
    TRY(transformer_forward(&t->transformer, PASS_EVAL, e));
    TRY(transformer_head(&t->transformer, PASS_EVAL, false, e));
    return b->ops->sum(b, LANE_COMPUTE, &t->scalars.eval_loss, &t->transformer.losses, 1.0f, 1.0f,
                       e);
}

static enum status run_eval_batch(struct trainer *t, struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    bool replayed = false;
    TRY(ops->graph_replay(t->backend, GRAPH_EVAL, &replayed, e));
    if (replayed) return OK;
    TRY(ops->graph_begin(t->backend, GRAPH_EVAL, e));
    TRY(eval_batch(t, e));
    return ops->graph_end(t->backend, GRAPH_EVAL, e);
}

enum status trainer_eval(struct trainer *t, int64_t batches, struct eval_result *result,
                         struct err *e) {
    memset(result, 0, sizeof *result);
    TRY(check_usable(t, e));
    TRY(trainer_settled(t, e));
    struct backend *b = t->backend;
    TRY(exchange_settle(&t->exchange, e));
    TRY(b->ops->zero(b, LANE_COMPUTE, &t->scalars.eval_loss, e));
    int64_t sequences = data_sequences(t->data, SPLIT_EVAL);
    int64_t mine = t->options.micro_batch, all = mine * t->world;
    for (int64_t first = 0; first < batches * all && first < sequences; first += all) {
        TRY(upload_batch(t, SPLIT_EVAL, first + t->rank * mine, e));
        TRY(run_eval_batch(t, e));
        int64_t left = sequences - first;
        result->tokens += (left < all ? left : all) * t->model.seq_len;
    }
    if (result->tokens == 0)
        return FAIL(e, ERR_CONFIG, "there is no held-out sequence to evaluate");
    TRY(b->ops->comm.all_reduce(b, LANE_COMPUTE, &t->scalars.eval_loss, REDUCE_SUM, e));
    float total;
    TRY(b->ops->download(b, LANE_COMPUTE, &total, t->scalars.eval_loss.data, sizeof total, e));
    result->loss = (float)((double)total / (double)result->tokens);
    return OK;
}
