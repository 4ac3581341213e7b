#include "model/train.h"

#include <stddef.h>
#include <stdlib.h>

#include "kernels/histogram.h"
#include "model/fallback.h"
#include "model/ground/clock.h"
#include "model/trainer.h"

/* ---- layout ---- */

static enum status check_options(const struct trainer *t, struct err *e) {
    const struct train_options *o = &t->options;
    int world = t->world;
    if (o->steps < 1 || o->steps > INT32_MAX)
        return FAIL(e, ERR_CONFIG, "train.steps is %lld; it must be between 1 and 2^31 - 1",
                    (long long)o->steps);
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
    if (t->recipe.f32 && (o->grad_dtype != DTYPE_F32 || o->grad_codes))
        return FAIL(e, ERR_CONFIG, "train.grad_dtype is %s; the f32 recipe has f32 gradients",
                    o->grad_codes ? "fp8" : dtype_name(o->grad_dtype));
    if (o->head_chunk < 0 || o->head_chunk % HEAD_CHUNK_ALIGN)
        return FAIL(e, ERR_CONFIG, "train.head_chunk is %lld; it must be a multiple of %d, or 0",
                    (long long)o->head_chunk, HEAD_CHUNK_ALIGN);
    if (o->recompute_layers < 0 || o->recompute_layers > t->model.layers)
        return FAIL(e, ERR_CONFIG, "train.recompute_layers is %lld; it must be 0 (all) to %lld, "
                    "the model's layers", (long long)o->recompute_layers,
                    (long long)t->model.layers);
    const struct audit_options *audit = &o->audit;
    if (audit->every < AUDIT_BY_BACKEND ||
        (audit->every != 0 && (audit->outputs < 1 || audit->outputs > AUDIT_OUTPUTS_MAX)))
        return FAIL(e, ERR_CONFIG, "train.audit is every %lld steps %lld outputs; 1 to %d outputs, "
                    "or every = 0", (long long)audit->every, (long long)audit->outputs,
                    AUDIT_OUTPUTS_MAX);
    if (!o->forward_only) return optimizer_check(&o->optimizer, &o->schedule, e);
    if (world == 1) return OK;
    return FAIL(e, ERR_CONFIG, "a trainer that only evaluates has one rank, found %d", world);
}

/* Call before any other use of the options. */
static enum status check(const struct trainer *t, struct err *e) {
    TRY(model_config_check(&t->model, e));
    TRY(recipe_check(&t->recipe, &t->model, e));
    return check_options(t, e);
}

static void layout_scalars(struct trainer *t) {
    struct scalars *s = &t->scalars;
    memory_reserve(&t->memory, MEMORY_STATE, "scalars", scalars_uploaded(t) * SCALAR_STRIDE,
                   &s->uploaded);
    s->clip = s->eval_loss = s->eval_right = tensor_1d(NULL, DTYPE_F32, 1);
    memory_reserve(&t->memory, MEMORY_STATE, "scalars", 4, &s->clip.data);
    memory_reserve(&t->memory, MEMORY_STATE, "scalars", 4, &s->eval_loss.data);
    if (t->options.accuracy)
        memory_reserve(&t->memory, MEMORY_STATE, "right tokens", 4, &s->eval_right.data);
    if (t->world > 1)
        memory_reserve(&t->memory, MEMORY_STATE, "pieces of checkpoints", PIECE_BYTES,
                       &t->pieces.staging);
    t->histograms = tensor_1d(NULL, DTYPE_U64, (int64_t)t->traced_count * HISTOGRAM_COUNTS);
    if (t->options.histograms && !t->options.forward_only)
        memory_reserve(&t->memory, MEMORY_STATE, "histograms", 8 * tensor_count(&t->histograms),
                       &t->histograms.data);
    t->squares = tensor_1d(NULL, DTYPE_F32, t->params.count);
    memory_reserve(&t->memory, MEMORY_STATE, "gradient norms", 4 * (int64_t)t->params.count,
                   &t->squares.data);
}

/* The record of a step: head, slots, fingerprints. One region, so that one copy reads it. */
static enum status layout_record(struct trainer *t, struct err *e) {
    struct memory *m = &t->memory;
    int record = memory_share_open(m, MEMORY_STATE, "record of a step");
    memory_append(m, record, sizeof(struct record_head), &t->record);
    TRY(slots_layout(&t->slots, m, record, e));
    t->prints = tensor_1d(NULL, DTYPE_U64, t->traced_count);
    memory_append(m, record, 8 * (int64_t)t->traced_count, &t->prints.data);
    int64_t room = READBACK_BYTES - round_up(memory_shared_bytes(m, record), 16);
    slots_layout_gathered(&t->slots, m, record, t->world, room);
    t->record_bytes = memory_shared_bytes(m, record);
    if (t->record_bytes <= READBACK_BYTES) return OK;
    return FAIL(e, ERR_CONFIG,
                "%d amax slots and %d traced tensors: the record of a step takes %lld bytes, at "
                "most %d (fewer layers, or a larger train.head_chunk)", t->slots.count,
                t->traced_count, (long long)t->record_bytes, READBACK_BYTES);
}

static enum status layout(struct trainer *t, struct err *e) {
    const struct train_options *o = &t->options;
    t->accumulation = o->global_batch / (o->micro_batch * t->world);
    enum dtype act = t->recipe.f32 ? DTYPE_F32 : DTYPE_BF16;
    struct param_options po = { .act = act, .grad = t->options.grad_dtype,
                                .state = t->options.optimizer.state,
                                /* an f32 weight is its own master */
                                .master = o->optimizer.master && act != DTYPE_F32 &&
                                          !o->forward_only,
                                .shard = { o->shard, t->rank, t->world },
                                .grad_codes = o->grad_codes,
                                .accumulates = t->accumulation > 1,
                                .forward_only = o->forward_only,
                                .makes_codes = o->makes_codes && !o->forward_only };
    struct transformer_options to = { .act = act, .batch = t->options.micro_batch,
                                      .head_chunk = t->options.head_chunk,
                                      .recompute = t->options.recompute,
                                      .recompute_layers = t->options.recompute_layers,
                                      .forward_only = o->forward_only,
                                      .accuracy = o->accuracy,
                                      .documents = t->options.documents };
    TRY(params_init(&t->params, &t->model, &po, e));
    TRY(selection_apply(&t->params, &o->selection, e));
    t->options.selection = (struct selection){ 0 }; /* the strings are the caller's */
    TRY(transformer_init(&t->transformer, &t->model, &t->recipe, &to, &t->params, e));
    TRY(slots_init(&t->slots, transformer_slots_max(&t->transformer, &t->params), e));
    memory_init(&t->memory);
    if (o->optimizer.offload) {
        memory_pin(&t->memory, MEMORY_MASTER);
        memory_pin(&t->memory, MEMORY_MOMENTS);
    }
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
    if (options->untransposed) recipe_untranspose(&t->recipe);
    return OK;
}

static void free_parts(struct trainer *t) {
    memory_destroy(&t->memory);
    slots_destroy(&t->slots);
    transformer_destroy(&t->transformer);
    params_destroy(&t->params);
    free(t->recipe.site);
    free(t->host.tokens);
    free(t->host.targets);
    free(t->host.starts);
    free(t->staging);
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
    if (st == OK) st = check(&t, e);
    if (st == OK) st = layout(&t, e);
    if (st != OK) goto done;
    out->row = calloc((size_t)t.memory.item_count, sizeof *out->row);
    if (!out->row) { st = FAIL(e, ERR_MEMORY, "no host memory for the plan"); goto done; }
    for (enum memory_arena a = 0; a < MEMORY_ARENA_COUNT; a++)
        for (int64_t i = 0; i < t.memory.item_count; i++) {
            const struct memory_item *it = &t.memory.item[i];
            if (it->arena != a) continue;
            struct plan_row row = { t.memory.arena[a].name, it->name, it->bytes, it->count };
            out->row[out->row_count++] = row;
        }
    out->bytes = memory_bytes(&t.memory);
    out->pinned_bytes = memory_pinned_bytes(&t.memory);
    for (int k = 0; k < t.params.bucket_count; k++)
        if (!t.params.bucket[k].frozen && t.params.bucket[k].shard > out->shard_max)
            out->shard_max = t.params.bucket[k].shard;
    out->trained = params_trained(&t.params);
done:
    free_parts(&t);
    return st;
}

void plan_free(struct plan *p) {
    free(p->row);
    memset(p, 0, sizeof *p);
}

/* ---- life ---- */

/* Parameters of one factor share a learning rate. */
static void bind_rates(struct params *p, const struct scalars *s) {
    for (int i = 0; i < p->count; i++) {
        struct param *x = &p->param[i];
        int at = x->lr_place ? UPLOADED_SCALARS - 1 + x->lr_place : 0;
        x->lr = tensor_1d((char *)s->uploaded + at * SCALAR_STRIDE, DTYPE_F32, 1);
    }
}

static void bind_scalars(struct scalars *s, void *record) {
    struct tensor *uploaded[UPLOADED_SCALARS] = { &s->lr, &s->bias1, &s->bias2, &s->step };
    for (int i = 0; i < UPLOADED_SCALARS; i++)
        *uploaded[i] = tensor_1d((char *)s->uploaded + i * SCALAR_STRIDE,
                                 uploaded[i] == &s->step ? DTYPE_I32 : DTYPE_F32, 1);
    s->loss = tensor_1d((char *)record + offsetof(struct record_head, loss), DTYPE_F32, 1);
    s->norm = tensor_1d((char *)record + offsetof(struct record_head, norm), DTYPE_F32, 1);
    s->flag = tensor_1d((char *)record + offsetof(struct record_head, flag), DTYPE_I32, 2);
    s->comm = tensor_1d((char *)record + offsetof(struct record_head, comm_ns), DTYPE_U64, 2);
    s->comm_begin = tensor_1d((char *)record + offsetof(struct record_head, comm_begin_ns),
                              DTYPE_U64, 2);
}

/* Which steps are audited, if the options leave it to the backend. */
static enum status open_audit(struct trainer *t, struct err *e) {
    struct audit_options o = t->options.audit;
    if (o.every == AUDIT_BY_BACKEND) o.every = t->backend->ops->warms_up ? AUDIT_EVERY : 0;
    if (o.every == 0 || t->options.forward_only || !t->data) return OK;
    return audit_open(&t->audit, t->backend, &t->transformer, &t->params, &o, t->options.seed, e);
}

/* Scalars that never change, and scalars that the first step reads. */
static enum status start(struct trainer *t, struct err *e) {
    struct backend *b = t->backend;
    int64_t clock = clock_us();
    TRY(memory_allocate(&t->memory, b, e));
    bind_scalars(&t->scalars, t->record);
    bind_rates(&t->params, &t->scalars);
    TRY(slots_start(&t->slots, b, e));
    params_bind(&t->params, &t->slots);
    exchange_init(&t->exchange, b, &t->params, &t->slots);
    t->pieces.b = b;
    t->pieces.rank = t->rank;
    t->pieces.world = t->world;
    t->transformer.step = &t->scalars.step;
    t->transformer.seed = t->options.seed;
    TRY(transformer_start(&t->transformer, b, &t->slots, &t->exchange, e));
    TRY(open_audit(t, e));
    TRY(trainer_scale_gradients(t, t->options.global_batch * t->model.seq_len, e));
    t->spent.memory_us = clock_lap_us(&clock);
    TRY(params_fill(&t->params, b, &t->model, t->options.seed, e));
    TRY(b->ops->sync(b, e));
    t->spent.weights_us = clock_lap_us(&clock);
    if (t->data && b->ops->warms_up) {
        TRY(trainer_warm_up(t, e));
        TRY(slots_reset(&t->slots, b, e));
    }
    const int32_t flag[2] = { -1, -1 };
    TRY(b->ops->upload(b, LANE_COMPUTE, t->scalars.flag.data, flag, sizeof flag, e));
    return trainer_requantise(t, e);
}

static enum status make_host_buffers(struct trainer *t, struct err *e) {
    size_t rows = (size_t)t->transformer.rows;
    t->host.tokens = malloc(rows * sizeof *t->host.tokens);
    t->host.targets = malloc(rows * sizeof *t->host.targets);
    t->host.starts = malloc(rows * sizeof *t->host.starts);
    t->staging = malloc(rows * sizeof *t->staging);
    t->seen = calloc(1, (size_t)t->record_bytes);
    if (t->host.tokens && t->host.targets && t->host.starts && t->staging && t->seen) return OK;
    return FAIL(e, ERR_MEMORY, "no host memory for %zu tokens and a record of %lld bytes", rows,
                (long long)t->record_bytes);
}

/* Checks that data and trainer agree, and starts the thread that draws. It draws the first step's
 * batches while the rest is set up, unless a checkpoint decides which they are. */
static enum status start_drawing(struct trainer *t, struct err *e) {
    struct document_options of_data = data_documents(t->data), mine = t->options.documents;
    if (of_data.mask != mine.mask || of_data.restart != mine.restart)
        return FAIL(e, ERR_CONFIG, "the data have document mask %d and positions %d, the trainer "
                    "%d and %d: both need the same", of_data.mask, of_data.restart, mine.mask,
                    mine.restart);
    if (t->options.forward_only) return OK;
    const struct ahead_plan plan = {
        .count = t->options.micro_batch, .seq_len = t->model.seq_len,
        .stride = t->options.micro_batch * t->world, .batches = t->accumulation,
        .offset = t->rank * t->options.micro_batch,
    };
    TRY(data_ahead_create(&t->ahead, t->data, &plan, e));
    if (!t->options.resumes) trainer_draw_from(t, 0);
    return OK;
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
    t->counts_all = !data || data_counts_all(data);
    t->rank = backend->ops->comm.rank(backend);
    t->world = backend->ops->comm.world(backend);
    struct train_options mine = *options;
    mine.untransposed = backend->ops->twins_untransposed(backend, SCALE_1X32);
    enum status st = copy_options(t, model, recipe, &mine, e);
    if (st == OK) st = check(t, e);
    if (st == OK) st = recipe_fall_back(&t->recipe, &t->model, &t->options, backend, e);
    if (st == OK) st = layout(t, e);
    if (st != OK) goto fail;
    st = make_host_buffers(t, e);
    if (st == OK && data) st = start_drawing(t, e);
    if (st == OK) st = start(t, e);
    if (st != OK) goto fail;
    *out = t;
    return OK;
fail:
    trainer_destroy(t);
    return st;
}

void trainer_destroy(struct trainer *t) {
    if (!t) return;
    t->backend->ops->graph_drop(t->backend); /* graphs contain addresses of this trainer's memory */
    data_ahead_destroy(t->ahead);
    audit_close(t->audit);
    free_parts(t);
    free(t);
}

enum status trainer_broadcast(struct trainer *t, void *host, int64_t bytes, struct err *e) {
    return pieces_broadcast(&t->pieces, host, bytes, e);
}

int64_t trainer_step_count(const struct trainer *t) { return t->step; }
int trainer_pending(const struct trainer *t) { return t->pending; }
bool trainer_fell_back(const struct trainer *t, int64_t i, char name[64]) {
    return recipe_fell_back(&t->recipe, i, name);
}

struct trainer_times trainer_times(const struct trainer *t) { return t->spent; }
int64_t trainer_memory_bytes(const struct trainer *t) { return memory_bytes(&t->memory); }
